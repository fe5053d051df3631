//! The figures of a run as one document: what `--json` prints, `--compare` and `--from` read, and reports are made of.
//! `docs/measuring.md` has its schema for readers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Grows by one with each change that a reader of an older document would have to know.
pub const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub struct Document {
    pub schema: u32,
    pub about: About,
    pub systems: Vec<SystemFacts>,
    pub experiments: Vec<Part>,
}

/// When, where and how.
#[derive(Serialize, Deserialize)]
pub struct About {
    /// UTC, `YYYY-MM-DD HH:MM`.
    pub date: String,
    /// The command that repeats it.
    pub command: String,
    /// Of this project.
    pub version: String,
    pub commit: Option<String>,
    pub qemu: String,
    /// `tcg` or `kvm`.
    pub accel: String,
    pub host: Host,
    /// `full` or `quick`.
    pub effort: String,
    /// Boots of each system with instructions counted.
    pub repeats: usize,
    /// Boots of each system by the clock, in turns.
    pub pairs: usize,
    /// Processors inside, by the clock.
    pub cpus: u8,
    /// Seconds that it took.
    pub seconds: f64,
}

/// The computer that QEMU ran on.
#[derive(Serialize, Deserialize)]
pub struct Host {
    pub processor: String,
    pub processors: usize,
    pub memory_mib: u64,
    pub system: String,
    /// Processes that wanted to run when the run began (the load of the last minute): by the clock, others disturb.
    pub load: f64,
}

/// A column: a system, and what is special about it.
#[derive(Clone, Serialize, Deserialize)]
pub struct SystemFacts {
    /// The key in `figures` and `wall`.
    pub name: String,
    /// For people.
    pub title: String,
    /// What `uname -srv` says inside.
    pub version: String,
    pub command_line: String,
    /// What is particular about the build.
    pub build: String,
    /// How it is configured, where that is known: the options that are set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub configuration: String,
}

/// The figures of one experiment.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub experiment: String,
    pub rows: Vec<Row>,
}

/// One thing that was measured.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Row {
    pub row: String,
    /// In words.
    pub work: String,
    /// Of `figures`: `instructions`, `KiB`, ...
    pub unit: String,
    /// What a figure is for one of.
    pub per: String,
    /// By column: instructions (or what the unit says), with the spread over all runs of all boots.
    pub figures: BTreeMap<String, Figure>,
    /// By column: nanoseconds, the spread over the medians of each boot.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wall: BTreeMap<String, Figure>,
    /// By column: its time divided by Foldspace's of the same turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wall_ratio: BTreeMap<String, Figure>,
    /// By column: what the program saw besides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, Map<String, Value>>,
    /// By column: why there is no figure.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, String>,
    /// What was published for it, by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// What a lean Linux 7.2 took, counted once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linux_7_2: Option<f64>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// A median and its spread.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub runs: usize,
}

/// Which figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    #[default]
    Counted,
    Wall,
}

impl Document {
    /// Reads what [`Document`] was written as.
    pub fn parse(text: &str) -> Result<Self> {
        let document: Document =
            serde_json::from_str(text).context("this is no document of `foldspace bench --json`")?;
        if document.schema != SCHEMA {
            bail!("the document has schema {}, this program reads {SCHEMA}", document.schema);
        }
        Ok(document)
    }

    /// Adds what was measured in another run of the same version on the same computer. Of rows that both have, those with figures stay; of two with
    /// figures the later.
    ///
    /// # Errors
    /// If the two do not belong together.
    pub fn merge(&mut self, later: Self) -> Result<()> {
        let (mine, theirs) = (&mut self.about, later.about);
        let setting =
            |about: &About| (about.qemu.clone(), about.accel.clone(), about.host.processor.clone(), about.cpus);
        if setting(mine) != setting(&theirs) {
            bail!("it was measured by another QEMU, or on another computer");
        }
        mine.command = format!("{}; {}", mine.command, theirs.command);
        if mine.commit != theirs.commit {
            mine.commit = mine.commit.take().zip(theirs.commit).map(|(one, other)| format!("{one}, {other}"));
        }
        if mine.effort != theirs.effort {
            mine.effort = "full".to_owned();
        }
        mine.date = theirs.date;
        mine.repeats = mine.repeats.max(theirs.repeats);
        mine.pairs = mine.pairs.max(theirs.pairs);
        mine.seconds += theirs.seconds;
        mine.host.load = mine.host.load.max(theirs.host.load);
        for system in later.systems {
            match self.systems.iter().find(|known| known.name == system.name) {
                Some(known) if known.version != system.version => {
                    bail!("{} is {} in one and {} in the other", system.name, known.version, system.version);
                }
                Some(_) => {}
                None => self.systems.push(system),
            }
        }
        for part in later.experiments {
            let Some(known) = self.experiments.iter_mut().find(|known| known.experiment == part.experiment) else {
                self.experiments.push(part);
                continue;
            };
            for row in part.rows {
                match known.rows.iter_mut().find(|mine| mine.row == row.row) {
                    Some(_) if row.figures.is_empty() => {}
                    Some(mine) => *mine = row,
                    None => known.rows.push(row),
                }
            }
        }
        Ok(())
    }

    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.experiments.iter().flat_map(|part| &part.rows)
    }

    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows().find(|row| row.row == name)
    }

    /// A column's title.
    pub fn title<'a>(&'a self, column: &'a str) -> &'a str {
        let system = self.systems.iter().find(|system| system.name == column);
        let other = match column {
            "published" => Some("published"),
            "linux_7_2" => Some("Linux 7.2, lean, counted once"),
            _ => super::reverse::title(column),
        };
        system.map(|system| system.title.as_str()).or(other).unwrap_or(column)
    }
}

impl Row {
    /// The figures of one of the clocks.
    pub fn by(&self, clock: Clock) -> &BTreeMap<String, Figure> {
        match clock {
            Clock::Counted => &self.figures,
            Clock::Wall => &self.wall,
        }
    }

    /// A column's median.
    pub fn value(&self, column: &str) -> Option<f64> {
        self.figures.get(column).map(|figure| figure.median)
    }

    /// Whether more is better, unlike of nearly everything that is measured here.
    pub fn more_is_better(&self) -> bool {
        self.unit.ends_with("a second") || matches!(self.unit.as_str(), "lines" | "times")
    }

    /// The best of the Linuxes, where there is one.
    pub fn best_linux(&self) -> Option<(&str, f64)> {
        let linuxes = self.figures.iter().filter(|(column, _)| LINUXES.contains(&column.as_str()));
        let order = |a: f64, b: f64| if self.more_is_better() { b.total_cmp(&a) } else { a.total_cmp(&b) };
        linuxes.map(|(column, figure)| (column.as_str(), figure.median)).min_by(|a, b| order(a.1, b.1))
    }
}

/// The columns that are Linux.
pub const LINUXES: [&str; 3] = ["linux", "lean", "huge"];

impl Figure {
    /// Of values in any order; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (*sorted.first()?, *sorted.last()?);
        // Of an even number the lower of the two in the middle: always a value that was seen.
        Some(Self { median: sorted[(sorted.len() - 1) / 2], low, high, runs: sorted.len() })
    }

    /// One value without a spread.
    pub fn exact(value: f64) -> Self {
        Self { median: value, low: value, high: value, runs: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_median_and_its_spread() {
        assert_eq!(Figure::of(&[4.0, 1.0, 2.0, 3.0]), Some(Figure { median: 2.0, low: 1.0, high: 4.0, runs: 4 }));
        assert_eq!(Figure::of(&[]), None);
    }
}
