//! What follows from the figures: derived rows, goals, and where we are behind.

use super::document::{Document, Figure, LINUXES, Part, Row};
use super::experiment::{Derived, Experiments};
use crate::measure::goals::{Goals, Met};

/// So much more than Linux is still the same: what differs from run to run.
const NOISE: f64 = 1.02;

/// Adds the rows that follow from others.
pub fn derive(parts: &mut [Part], experiments: &Experiments) {
    for part in parts {
        let Some(experiment) = experiments.named(&part.experiment) else { continue };
        let derived: Vec<Row> = experiment.derived.iter().filter_map(|derived| derived.from(&part.rows)).collect();
        part.rows.extend(derived);
    }
}

impl Derived {
    fn from(&self, rows: &[Row]) -> Option<Row> {
        let find = |name: &Option<String>| rows.iter().find(|row| Some(&row.row) == name.as_ref());
        let mut row = Row {
            row: self.row.clone(),
            work: self.work.clone(),
            unit: self.unit.clone().unwrap_or_else(|| "%".to_owned()),
            per: "run".to_owned(),
            published: self.published,
            ..Row::default()
        };
        if let (Some(of), Some(over)) = (find(&self.of), find(&self.over)) {
            for (column, figure) in &of.figures {
                let more = over.value(column).map(|over| (figure.median / over - 1.0) * 100.0);
                row.figures.extend(more.map(|more| (column.clone(), Figure::exact((more * 100.0).round() / 100.0))));
            }
        }
        if let Some(of) = find(&self.lines_of) {
            let count = self.count.unwrap_or(1.0);
            let a_million = |figure: &Figure| Figure::exact((count * 1e6 / figure.median).round());
            row.figures = of.figures.iter().map(|(column, figure)| (column.clone(), a_million(figure))).collect();
        }
        if let Some(of) = find(&self.times_of)
            && let Some(linux) = of.value("linux")
        {
            let times = |figure: &Figure| Figure::exact((linux / figure.median * 100.0).round() / 100.0);
            row.figures = of.figures.iter().map(|(column, figure)| (column.clone(), times(figure))).collect();
        }
        (!row.figures.is_empty()).then_some(row)
    }
}

/// Holds each row against its goal.
pub fn judge(parts: &mut [Part], goals: &Goals) {
    let value = |row: &Row| (row.row.clone(), row.value("foldspace"));
    let values: Vec<(String, Option<f64>)> = parts.iter().flat_map(|part| &part.rows).map(value).collect();
    let measured = |name: &str| values.iter().find(|(row, _)| row == name).and_then(|(_, value)| *value);
    for row in parts.iter_mut().flat_map(|part| &mut part.rows) {
        let Some(goal) = goals.of(&row.row) else { continue };
        row.goal = Some(goal.words());
        row.linux_7_2 = goal.linux;
        row.met = row.value("foldspace").and_then(|value| match goal.judge(value, measured) {
            Met::Yes => Some(true),
            Met::No => Some(false),
            Met::Unknown => None,
        });
    }
}

/// Whether Foldspace has neither a figure nor a time, and Linux has: a row that says no kernel has it is not missing.
pub fn is_missing(row: &Row) -> bool {
    let ours = row.figures.contains_key("foldspace") || row.wall.contains_key("foldspace");
    !ours && row.skipped.contains_key("foldspace")
}

/// How a row is behind.
pub enum Behind {
    /// Its goal is missed.
    Goal,
    /// A Linux is better: which, and how many times.
    Linux(String, f64),
    /// Foldspace cannot do it: why.
    Absent(String),
}

/// Whether of two values of a row one is better. A difference in percent has no better, and of what a reader has seen only what is wrong.
fn has_a_better(row: &Row) -> bool {
    row.unit != "%" && (row.unit != "count" || row.row.ends_with("_wrong"))
}

/// The rows in which we are behind, the worst first.
pub fn behind(document: &Document) -> Vec<(&Row, Vec<Behind>)> {
    let mut all: Vec<(&Row, Vec<Behind>)> = document
        .rows()
        .filter_map(|row| {
            let mut ways = Vec::new();
            ways.extend((row.met == Some(false)).then_some(Behind::Goal));
            if let (Some(ours), Some((column, theirs))) = (row.value("foldspace"), row.best_linux())
                && has_a_better(row)
            {
                let times = if row.more_is_better() { theirs / ours } else { ours / theirs };
                if times > NOISE && times.is_finite() {
                    ways.push(Behind::Linux(column.to_owned(), times));
                }
            }
            let linux_has = LINUXES.iter().any(|column| row.figures.contains_key(*column));
            if let Some(reason) = row.skipped.get("foldspace").filter(|_| linux_has && is_missing(row)) {
                ways.push(Behind::Absent(reason.clone()));
            }
            (!ways.is_empty()).then_some((row, ways))
        })
        .collect();
    let weight = |ways: &[Behind]| {
        ways.iter().map(|way| if let Behind::Linux(_, times) = way { *times } else { 1.0 }).fold(0.0, f64::max)
    };
    all.sort_by(|a, b| weight(&b.1).total_cmp(&weight(&a.1)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn row(name: &str, ours: Option<f64>, theirs: Option<f64>) -> Row {
        let mut figures = BTreeMap::new();
        figures.extend(ours.map(|value| ("foldspace".to_owned(), Figure::exact(value))));
        figures.extend(theirs.map(|value| ("linux".to_owned(), Figure::exact(value))));
        Row { row: name.to_owned(), unit: "instructions".to_owned(), figures, ..Row::default() }
    }

    #[test]
    fn rows_meet_their_goals_or_not() {
        let rows = vec![
            row("fork_4", Some(9000.0), Some(90_000.0)),
            row("fork_512", Some(9500.0), None),
            row("fork_3072", None, None),
            row("munmap_256", Some(251.0), Some(700.0)),
        ];
        let mut parts = [Part { experiment: "fork".to_owned(), rows }];
        judge(&mut parts, &Goals::load().unwrap());
        assert_eq!(parts[0].rows.iter().map(|row| row.met).collect::<Vec<_>>(), [None, None, None, Some(false)]);
    }

    #[test]
    fn times_are_of_the_distributions_linux() {
        let derived = Derived {
            row: "times".to_owned(),
            work: String::new(),
            of: None,
            over: None,
            lines_of: None,
            count: None,
            times_of: Some("sqlite".to_owned()),
            unit: Some("times".to_owned()),
            published: Some(9.3),
        };
        let times = derived.from(&[row("sqlite", Some(50.0), Some(1000.0))]).unwrap();
        assert_eq!(
            (times.value("foldspace"), times.value("linux"), times.published),
            (Some(20.0), Some(1.0), Some(9.3))
        );
        assert!(times.more_is_better());
    }

    #[test]
    fn a_difference_is_derived_for_each_system() {
        let derived = Derived {
            row: "add".to_owned(),
            work: String::new(),
            of: Some("named".to_owned()),
            over: Some("plain".to_owned()),
            lines_of: None,
            count: None,
            times_of: None,
            unit: None,
            published: Some(5.4),
        };
        let rows = [row("named", Some(110.0), Some(100.0)), row("plain", Some(100.0), None)];
        let add = derived.from(&rows).unwrap();
        assert_eq!((add.value("foldspace"), add.value("linux")), (Some(10.0), None));
    }
}
