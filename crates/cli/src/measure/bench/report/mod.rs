//! The report for a browser: one file that needs no network.

mod plot;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::document::{About, Document, Part, Row, SystemFacts};
use super::experiment::Experiments;
use super::judge::behind;
use super::{print, words};
use crate::measure::table::{maybe, number, ratio, time};

pub use plot::draw;

const PAGE: &str = include_str!("page.html");

#[derive(Serialize)]
struct Section {
    name: String,
    title: String,
    what: String,
    says: String,
    header: Vec<String>,
    rows: Vec<Line>,
    plots: Vec<Drawn>,
    skipped: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    label: String,
    cells: Vec<String>,
    missed: bool,
}

#[derive(Serialize)]
struct Drawn {
    title: String,
    svg: String,
    legend: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Loss {
    row: String,
    work: String,
    how: Vec<String>,
    reason: Option<String>,
}

/// What the template is given.
#[derive(Serialize)]
struct Content<'a> {
    about: &'a About,
    systems: &'a [SystemFacts],
    sections: Vec<Section>,
    losses: Vec<Loss>,
    met: usize,
    missed: usize,
    noisy: bool,
}

/// Writes `index.html` and `results.json`.
pub fn write(dir: &Path, document: &Document, experiments: &Experiments) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (name, text) in
        [("index.html", page(document, experiments)?), ("results.json", serde_json::to_string_pretty(document)?)]
    {
        fs::write(dir.join(name), text).with_context(|| format!("cannot write to {}", dir.display()))?;
    }
    Ok(())
}

/// The page.
pub fn page(document: &Document, experiments: &Experiments) -> Result<String> {
    let sections =
        document.experiments.iter().map(|part| section(document, part, experiments)).collect::<Result<Vec<_>>>()?;
    let losses: Vec<Loss> = behind(document)
        .into_iter()
        .map(|(row, ways)| Loss {
            row: row.row.clone(),
            work: print::label(row),
            how: ways.iter().map(|way| print::in_words(way, row, document)).collect(),
            reason: experiments.reasons.get(&row.row).cloned(),
        })
        .collect();
    let count = |met| document.rows().filter(|row| row.met == Some(met)).count();
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("page.html", PAGE)?;
    let content = Content {
        about: &document.about,
        systems: &document.systems,
        sections,
        losses,
        met: count(true),
        missed: count(false),
        noisy: document.about.host.load > 0.5,
    };
    Ok(environment.get_template("page.html")?.render(Serde(&content))?)
}

fn section(document: &Document, part: &Part, experiments: &Experiments) -> Result<Section> {
    let experiment = experiments.named(&part.experiment).context("an experiment that this version does not know")?;
    let columns = print::columns(document, part);
    let timed = part.rows.iter().any(|row| !row.wall.is_empty());
    let goals = part.rows.iter().any(|row| row.goal.is_some());
    let published = part.rows.iter().any(|row| row.published.is_some());
    let mut header: Vec<String> = columns.iter().map(|column| document.title(column).to_owned()).collect();
    header.extend(["best Linux / Foldspace", "spread"].map(str::to_owned));
    header.extend(published.then(|| "published".to_owned()));
    header.extend(goals.then(|| "goal".to_owned()));
    header.extend(timed.then(|| "time here".to_owned()));
    header.extend(timed.then(|| "Linux / Foldspace, time".to_owned()));
    let line = |row: &Row| {
        let mut cells: Vec<String> = columns.iter().map(|column| maybe(row.value(column))).collect();
        cells.push(ratio(row.best_linux().map(|(_, value)| value), row.value("foldspace")));
        cells.push(print::spread(row).map_or_else(String::new, |percent| format!("{percent:.1} %")));
        if published {
            cells.push(row.published.map_or_else(String::new, number));
        }
        if goals {
            cells.push(row.goal.as_ref().map_or_else(String::new, |goal| format!("{goal} {}", print::verdict(row))));
        }
        if timed {
            cells.push(row.wall.get("foldspace").map_or_else(String::new, |figure| time(figure.median)));
            cells.push(print::times(row, document));
        }
        Line { name: row.row.clone(), label: print::label(row), cells, missed: row.met == Some(false) }
    };
    let plots = experiment.plot.iter().map(|plot| {
        let drawn = draw(plot, part, document)?;
        Ok(drawn.map(|drawn| Drawn { title: plot.title.clone(), svg: drawn.svg, legend: drawn.legend }))
    });
    Ok(Section {
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        what: experiment.what.clone(),
        says: words::said(&experiment.says, document)?,
        header,
        rows: part.rows.iter().filter(|row| print::is_measured(row)).map(line).collect(),
        plots: plots.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect(),
        skipped: print::skipped(part),
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::document::{Figure, Host, SCHEMA};
    use super::*;
    use std::collections::BTreeMap;

    /// A small run.
    pub fn document() -> Document {
        let system = |name: &str, title: &str| SystemFacts {
            name: name.to_owned(),
            title: title.to_owned(),
            version: "1 <2>".to_owned(),
            command_line: "quiet".to_owned(),
            build: String::new(),
            configuration: String::new(),
        };
        let row = |name: &str, ours: f64, theirs: f64| {
            let figures = [("foldspace", ours), ("linux", theirs)]
                .map(|(column, value)| (column.to_owned(), Figure::exact(value)));
            let ratio = [("linux".to_owned(), Figure::exact(theirs / ours))];
            let (figures, wall_ratio) = (BTreeMap::from(figures), BTreeMap::from(ratio));
            let (unit, per) = ("instructions".to_owned(), "call".to_owned());
            Row {
                row: name.to_owned(),
                work: name.to_owned(),
                unit,
                per,
                wall: figures.clone(),
                figures,
                wall_ratio,
                ..Row::default()
            }
        };
        let part = |experiment: &str, rows| Part { experiment: experiment.to_owned(), rows };
        let (date, command, version) = ("2026-01-01 00:00".to_owned(), "./x bench".to_owned(), "0".to_owned());
        let host =
            Host { processor: "P".to_owned(), processors: 2, memory_mib: 1, system: "Linux".to_owned(), load: 0.0 };
        let (qemu, accel, effort) = ("Q".to_owned(), "tcg".to_owned(), "full".to_owned());
        let about = About {
            date,
            command,
            version,
            commit: None,
            qemu,
            accel,
            host,
            effort,
            repeats: 1,
            pairs: 3,
            cpus: 2,
            seconds: 1.0,
        };
        Document {
            schema: SCHEMA,
            about,
            systems: vec![system("foldspace", "Foldspace"), system("linux", "Linux <6>")],
            experiments: vec![
                part(
                    "fork",
                    vec![
                        row("fork_4", 3780.0, 189_000.0),
                        row("fork_512", 3784.0, 16_500_000.0),
                        row("fork_3072", 3790.0, 9.9e7),
                    ],
                ),
                part("basic", vec![row("getppid", 140.0, 330.0), row("read_4k", 2208.0, 1793.0)]),
            ],
        }
    }

    #[test]
    fn the_page_has_every_plot_what_is_behind_first_and_no_network() {
        let page = page(&document(), &Experiments::load().unwrap()).unwrap();
        assert_eq!(page.matches("<svg").count(), 3, "fork counted, fork by the clock, single operations");
        let behind = page.find("read_4k").unwrap();
        assert!(behind < page.find("fork_512").unwrap(), "where we are behind comes first");
        assert!(page.contains("Linux &lt;6&gt;") && !page.contains("Linux <6>"), "what comes from outside is text");
        // Names of XML namespaces are no addresses that anybody loads.
        let page = page.replace("http://www.w3.org/", "");
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let text = serde_json::to_string(&document()).unwrap();
        assert_eq!(serde_json::to_string(&Document::parse(&text).unwrap()).unwrap(), text);
        assert!(Document::parse(&text.replace("\"schema\":1", "\"schema\":2")).is_err());
    }
}
