//! The tables of a run for a terminal.

use std::collections::BTreeMap;

use super::document::{Document, Part, Row};
use super::experiment::Experiments;
use super::judge::{Behind, behind};
use super::words;
use crate::measure::table::{self, maybe, number, ratio};

/// Prints every experiment, then what is behind.
pub fn print(document: &Document, experiments: &Experiments) {
    for part in &document.experiments {
        if let Some(experiment) = experiments.named(&part.experiment) {
            println!("{}: {}", experiment.name, experiment.title);
            println!("{}", table_of(document, part));
            for line in skipped(part) {
                println!("{line}");
            }
            if let Some(said) = words::said(&experiment.says, document).ok().filter(|said| !said.is_empty()) {
                println!("{said}");
            }
            println!();
        }
    }
    let behind = behind(document);
    if !behind.is_empty() {
        println!("Behind Linux, or a goal missed:");
        for (row, ways) in &behind {
            println!(
                "  {}: {}",
                row.row,
                ways.iter().map(|way| in_words(way, row, document)).collect::<Vec<_>>().join("; ")
            );
        }
    }
    let count = |met| document.rows().filter(|row| row.met == Some(met)).count();
    println!("Guest instructions unless a unit is given. Goals met: {}, missed: {}.", count(true), count(false));
}

/// How a row is behind, in a few words.
pub fn in_words(way: &Behind, row: &Row, document: &Document) -> String {
    match way {
        Behind::Goal => {
            format!("goal {} missed with {}", row.goal.as_deref().unwrap_or_default(), maybe(row.value("foldspace")))
        }
        Behind::Linux(column, times) => format!(
            "{} here, {} on {} ({times:.2} ×)",
            maybe(row.value("foldspace")),
            maybe(row.value(column)),
            document.title(column)
        ),
        Behind::Absent(reason) => reason.clone(),
    }
}

/// What is measured, with its unit.
pub fn label(row: &Row) -> String {
    let mut label = row.work.clone();
    if row.unit != "instructions" {
        label.push_str(&format!(", {}", row.unit));
    }
    if !matches!(row.per.as_str(), "call" | "run" | "process") {
        label.push_str(&format!(", per {}", row.per));
    }
    label
}

/// The verdict on a goal.
pub fn verdict(row: &Row) -> &'static str {
    match row.met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None if row.goal.is_some() => "not decided",
        None => "",
    }
}

/// The columns of an experiment, in the order of the document; columns that are no system (of `reverse`) after them.
pub fn columns(document: &Document, part: &Part) -> Vec<String> {
    let used = |name: &str| part.rows.iter().any(|row| row.figures.contains_key(name) || row.wall.contains_key(name));
    let mut columns: Vec<String> =
        document.systems.iter().map(|system| system.name.clone()).filter(|name| used(name)).collect();
    for name in part.rows.iter().flat_map(|row| row.figures.keys()) {
        if !columns.contains(name) {
            columns.push(name.clone());
        }
    }
    columns
}

/// How far the runs of Foldspace lie apart, in percent of the median.
pub fn spread(row: &Row) -> Option<f64> {
    let figure = row.figures.get("foldspace").filter(|figure| figure.runs > 1 && figure.median > 0.0)?;
    Some((figure.high - figure.low) / figure.median * 100.0)
}

/// How many times as long the others took, by the clock: the median of the turns, with the lowest and the highest.
pub fn times(row: &Row, document: &Document) -> String {
    let ratios = row.wall_ratio.iter().map(|(column, ratio)| {
        format!("{} {:.1} × ({:.1} to {:.1})", document.title(column), ratio.median, ratio.low, ratio.high)
    });
    ratios.collect::<Vec<_>>().join("; ")
}

fn table_of(document: &Document, part: &Part) -> comfy_table::Table {
    let columns = columns(document, part);
    let mut header = vec!["work".to_owned()];
    header.extend(columns.iter().map(|column| document.title(column).to_owned()));
    header.extend(["best Linux / Foldspace", "spread", "time", "goal", ""].map(str::to_owned));
    let mut table = table::with_header_of(&header);
    for row in part.rows.iter().filter(|row| is_measured(row)) {
        let mut cells = vec![label(row)];
        cells.extend(columns.iter().map(|column| maybe(row.value(column))));
        cells.push(ratio(row.best_linux().map(|(_, value)| value), row.value("foldspace")));
        cells.push(spread(row).map_or_else(String::new, |percent| format!("{percent:.1} %")));
        let time = row.wall.get("foldspace").map(|ours| {
            let ratios = row.wall_ratio.iter().map(|(column, ratio)| format!("{column} {:.1} ×", ratio.median));
            format!("{} ns; {}", number(ours.median.round()), ratios.collect::<Vec<_>>().join(", "))
        });
        cells.push(time.unwrap_or_default());
        cells.push(row.goal.clone().unwrap_or_default());
        cells.push(verdict(row).to_owned());
        table.add_row(cells);
    }
    table
}

/// Why figures are missing: each reason once, with its rows, and the columns where others have a figure.
pub fn skipped(part: &Part) -> Vec<String> {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in &part.rows {
        let mut columns: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (column, reason) in &row.skipped {
            columns.entry(reason).or_default().push(column);
        }
        for (reason, columns) in columns {
            let all = !is_measured(row) && columns.len() == row.skipped.len();
            let row = if all { row.row.clone() } else { format!("{} ({})", row.row, columns.join(", ")) };
            reasons.entry(reason).or_default().push(row);
        }
    }
    reasons.into_iter().map(|(reason, rows)| format!("{}: {reason}", rows.join(", "))).collect()
}

/// Whether any column has a figure.
pub fn is_measured(row: &Row) -> bool {
    !row.figures.is_empty() || !row.wall.is_empty()
}
