//! Rows of the programs that measure: which are chosen, and what came out on each system.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::document::{Figure, Row};
use super::experiment::{Experiment, Program};
use super::systems::Column;
use crate::args::Accel;
use crate::images::Images;
use crate::machine::System;
use crate::measure::guest::{Measurement, Time};

/// Room for the largest row, a process of 3 GiB, while the pages of the row before may still wait to be freed; and
/// without it.
const MEMORY: u64 = 5 << 30;
const QUICK_MEMORY: u64 = 2 << 30;

/// How much is done.
#[derive(Clone, Copy)]
pub struct Effort {
    pub quick: bool,
    /// Boots with instructions counted.
    pub repeats: usize,
    /// Boots by the clock.
    pub pairs: usize,
    pub cpus: u8,
    pub accel: Accel,
}

/// A line of a measuring program.
#[derive(Deserialize)]
struct Line {
    row: String,
    work: String,
    unit: String,
    per: String,
    /// Missing if the row was skipped.
    value: Option<f64>,
    #[serde(default)]
    runs: Vec<f64>,
    skipped: Option<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// The names of all rows of a program. It is one of ours and runs on the host as well.
pub fn names(program: &str) -> Result<Vec<String>> {
    let path = Images::find()?.guest(program).with_context(|| format!("{program} is not built: run `./x build`"))?;
    let listed = Command::new(&path).arg("--list").output();
    let listed = listed.with_context(|| format!("cannot run {}", path.display()))?;
    let text = String::from_utf8(listed.stdout).context("a row's name is not UTF-8")?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// Rows of a program, and the experiments that each is of.
pub struct Chosen<'a> {
    pub program: Program,
    pub rows: Vec<(String, &'a Experiment)>,
}

/// What one row came to, while it is being measured.
#[derive(Default)]
struct Gathered {
    row: Row,
    /// By column: all runs of all boots.
    runs: BTreeMap<&'static str, Vec<f64>>,
    /// By column: the median of each boot; the turns are the same for all.
    wall: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// Measures the rows on all systems.
pub fn measure(chosen: &Chosen<'_>, columns: &[Column], effort: Effort) -> Result<Vec<Row>> {
    let Some(program) = chosen.program.guest() else { return Ok(Vec::new()) };
    let mut all: BTreeMap<&str, Gathered> = BTreeMap::new();
    let of = |column: &Column| -> Vec<&str> {
        let wanted =
            |experiment: &Experiment| column.variant.is_none_or(|variant| experiment.variants.contains(&variant));
        chosen.rows.iter().filter(|(_, experiment)| wanted(experiment)).map(|(row, _)| row.as_str()).collect()
    };
    let repeats = if effort.accel == Accel::Tcg { effort.repeats } else { 0 };
    for column in columns {
        let rows = of(column);
        if rows.is_empty() {
            continue;
        }
        for _ in 0..repeats {
            for line in take(program, &rows, column, Time::Instructions, effort)? {
                let Some((row, _)) = chosen.rows.iter().find(|(row, _)| *row == line.row) else { continue };
                all.entry(row).or_default().counted(column.name, line);
            }
        }
    }
    let plain: Vec<&Column> = columns.iter().filter(|column| column.variant.is_none()).collect();
    for turn in 0..effort.pairs {
        for column in &plain {
            let time = Time::Wall { cpus: effort.cpus };
            for line in take(program, &of(column), column, time, effort)? {
                let Some((row, _)) = chosen.rows.iter().find(|(row, _)| *row == line.row) else { continue };
                all.entry(row).or_default().timed(column.name, turn, effort.pairs, line);
            }
        }
    }
    // In the order in which the program has them.
    Ok(chosen.rows.iter().filter_map(|(row, _)| all.remove(row.as_str())).map(Gathered::finish).collect())
}

fn take(program: &str, rows: &[&str], column: &Column, time: Time, effort: Effort) -> Result<Vec<Line>> {
    let mut more = Vec::new();
    more.extend((time != Time::Instructions).then_some("--wall"));
    more.extend(effort.quick.then_some("--quick"));
    more.extend(rows);
    Measurement {
        system: column.system,
        label: column.name,
        vmlinuz: column.vmlinuz.as_deref(),
        memory: if effort.quick { QUICK_MEMORY } else { MEMORY },
        time,
        accel: effort.accel,
        plugin: None,
        command: &column.command(program, &more),
        lines: rows.len() as u64,
    }
    .take()
}

impl Gathered {
    fn describe(&mut self, column: &'static str, line: &Line) {
        // The first column to come says in which words.
        if self.row.row.is_empty() {
            self.row.row.clone_from(&line.row);
            self.row.work.clone_from(&line.work);
            self.row.per.clone_from(&line.per);
        }
        if self.row.unit.is_empty() || self.row.unit == "ns" {
            self.row.unit.clone_from(&line.unit);
        }
        if let Some(reason) = &line.skipped {
            self.row.skipped.insert(column.to_owned(), reason.clone());
        }
    }

    fn counted(&mut self, column: &'static str, line: Line) {
        self.describe(column, &line);
        self.runs.entry(column).or_default().extend(&line.runs);
        if !line.more.is_empty() {
            self.row.more.insert(column.to_owned(), line.more);
        }
    }

    fn timed(&mut self, column: &'static str, turn: usize, turns: usize, line: Line) {
        self.describe(column, &line);
        if line.unit == "ns" {
            self.wall.entry(column).or_insert_with(|| vec![None; turns])[turn] = line.value;
        } else if !self.runs.contains_key(column) {
            // Sizes are what they are by any clock.
            self.runs.insert(column, line.runs);
        }
    }

    fn finish(self) -> Row {
        let Gathered { mut row, runs, wall } = self;
        let figures = runs.iter().filter_map(|(column, runs)| Some(((*column).to_owned(), Figure::of(runs)?)));
        row.figures = figures.collect();
        let ours = wall.get(System::Foldspace.name());
        for (column, times) in &wall {
            let seen: Vec<f64> = times.iter().flatten().copied().collect();
            row.wall.extend(Figure::of(&seen).map(|figure| ((*column).to_owned(), figure)));
            if let Some(ours) = ours.filter(|_| *column != System::Foldspace.name()) {
                let ratios: Vec<f64> =
                    times.iter().zip(ours).filter_map(|(theirs, ours)| Some((*theirs)? / (*ours)?)).collect();
                row.wall_ratio.extend(Figure::of(&ratios).map(|figure| ((*column).to_owned(), figure)));
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(unit: &str, runs: &[f64]) -> Line {
        let value = Figure::of(runs).map(|figure| figure.median);
        let skipped = value.is_none().then(|| "too large".to_owned());
        let (row, work, per) = ("r".to_owned(), "work".to_owned(), "call".to_owned());
        Line { row, work, unit: unit.to_owned(), per, value, runs: runs.to_vec(), skipped, more: Map::new() }
    }

    #[test]
    fn runs_of_all_boots_are_one_figure_and_turns_are_paired() {
        let mut gathered = Gathered::default();
        gathered.counted("foldspace", line("instructions", &[1.0, 2.0]));
        gathered.counted("foldspace", line("instructions", &[9.0]));
        for (turn, (ours, theirs)) in [(10.0, 30.0), (20.0, 40.0)].into_iter().enumerate() {
            gathered.timed("foldspace", turn, 2, line("ns", &[ours]));
            gathered.timed("linux", turn, 2, line("ns", &[theirs]));
        }
        let row = gathered.finish();
        assert_eq!(row.figures["foldspace"], Figure { median: 2.0, low: 1.0, high: 9.0, runs: 3 });
        assert_eq!((row.unit.as_str(), row.wall["linux"].median), ("instructions", 30.0));
        assert_eq!(row.wall_ratio["linux"], Figure { median: 2.0, low: 2.0, high: 3.0, runs: 2 });
        assert!(!row.wall_ratio.contains_key("foldspace"));
    }

    #[test]
    fn what_was_skipped_has_a_reason_and_no_figure() {
        let mut gathered = Gathered::default();
        gathered.counted("linux", line("instructions", &[]));
        let row = gathered.finish();
        assert!(row.figures.is_empty());
        assert_eq!(row.skipped["linux"], "too large");
    }
}
