//! `docs/results.md`: the tables of a run as Markdown.

use anyhow::Result;

use super::document::{Document, Part};
use super::experiment::Experiments;
use super::judge::behind;
use super::{print, words};
use crate::measure::table::{maybe, ratio, time};

/// The page.
pub fn page(document: &Document, experiments: &Experiments) -> Result<String> {
    let about = &document.about;
    let mut page = format!(
        "# Results\n\n<!-- Written by `{}`: do not edit. -->\n\n{} UTC, version {}. {}, {}. {}, {} processors, {} MiB, {}. It took {} minutes.\n\n\
         Guest instructions unless a unit is given{}. [measuring.md](measuring.md) says how, and what each row does.{}\n\n",
        about.command,
        about.date,
        about.commit.as_deref().unwrap_or(&about.version),
        about.qemu,
        about.accel,
        about.host.processor,
        about.host.processors,
        about.host.memory_mib,
        about.host.system,
        (about.seconds / 60.0).round(),
        match about.pairs {
            0 => "; times were not measured".to_owned(),
            pairs =>
                format!("; times are medians of {pairs} boots of each system in turns, on {} processors", about.cpus),
        },
        if about.host.load > 0.5 {
            format!(" The computer was busy when the run began (load {}): do not rely on the times.", about.host.load)
        } else {
            String::new()
        },
    );
    for system in &document.systems {
        page += &format!("- **{}**: {}; {}; `{}`\n", system.title, system.version, system.build, system.command_line);
    }
    page += "\n## Where we are behind\n\n";
    for (row, ways) in behind(document) {
        let how: Vec<String> = ways.iter().map(|way| print::in_words(way, row, document)).collect();
        page += &format!("- {} (`{}`): {}.", print::label(row), row.row, how.join("; "));
        if let Some(reason) = experiments.reasons.get(&row.row) {
            page += &format!(" {reason}");
        }
        page.push('\n');
    }
    for part in &document.experiments {
        let Some(experiment) = experiments.named(&part.experiment) else { continue };
        let says = words::said(&experiment.says, document)?;
        page += &format!(
            "\n## {}\n\n`./x bench {}`: {}\n\n{says}\n\n{}",
            experiment.title,
            experiment.name,
            experiment.what,
            table(document, part)
        );
        let skipped = print::skipped(part);
        if !skipped.is_empty() {
            page += &format!("\nNot measured: {}.\n", skipped.join("; "));
        }
    }
    Ok(page)
}

fn table(document: &Document, part: &Part) -> String {
    let columns = print::columns(document, part);
    let timed = part.rows.iter().any(|row| !row.wall.is_empty());
    let mut header = vec!["work".to_owned()];
    header.extend(columns.iter().map(|column| document.title(column).to_owned()));
    header.extend(["best Linux / Foldspace", "spread"].map(str::to_owned));
    header.extend(timed.then_some(["time here", "Linux / Foldspace, time"].map(str::to_owned)).into_iter().flatten());
    header.push("goal".to_owned());
    let mut text = format!("| {} |\n| --- |{}\n", header.join(" | "), " ---: |".repeat(header.len() - 1));
    for row in part.rows.iter().filter(|row| print::is_measured(row)) {
        let mut cells = vec![print::label(row)];
        cells.extend(columns.iter().map(|column| maybe(row.value(column))));
        cells.push(ratio(row.best_linux().map(|(_, value)| value), row.value("foldspace")));
        cells.push(print::spread(row).map_or_else(String::new, |percent| format!("{percent:.1} %")));
        if timed {
            cells.push(row.wall.get("foldspace").map_or_else(String::new, |figure| time(figure.median)));
            cells.push(print::times(row, document));
        }
        cells.push(match row.met {
            Some(false) => format!("{}, **missed**", row.goal.as_deref().unwrap_or_default()),
            _ => row.goal.clone().unwrap_or_default(),
        });
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text
}
