//! The experiments, as `experiments.toml` has them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::document::Clock;

const TEXT: &str = include_str!("../../../experiments.toml");

/// All of them, in the order of the report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiments {
    pub experiment: Vec<Experiment>,
    /// Why a row is behind.
    pub reasons: BTreeMap<String, String>,
}

/// What is measured together, and how it is shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub name: String,
    pub title: String,
    /// What is compared and how.
    pub what: String,
    /// Names of rows, or their beginnings with `*` (which may also stand inside).
    pub rows: Vec<String>,
    #[serde(default)]
    pub program: Program,
    #[serde(default)]
    pub variants: Vec<Variant>,
    #[serde(default)]
    pub derived: Vec<Derived>,
    /// One paragraph, a template.
    pub says: String,
    #[serde(default)]
    pub plot: Vec<Plot>,
}

/// Where an experiment's rows come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
pub enum Program {
    #[default]
    #[serde(rename = "bench-basic")]
    Basic,
    #[serde(rename = "bench-apps")]
    Applications,
    /// In this process.
    #[serde(rename = "reverse")]
    Reverse,
}

impl Program {
    /// The program inside, where there is one.
    pub fn guest(self) -> Option<&'static str> {
        match self {
            Self::Basic => Some("bench-basic"),
            Self::Applications => Some("bench-apps"),
            Self::Reverse => None,
        }
    }
}

/// What is measured besides the two systems as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Variant {
    Copy,
    Leaf,
    Huge,
}

/// A row that follows from others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    pub row: String,
    pub work: String,
    /// What this row has more than `over`, in percent.
    pub of: Option<String>,
    pub over: Option<String>,
    /// How many of `count` a million instructions of this row make.
    pub lines_of: Option<String>,
    pub count: Option<f64>,
    /// How many times as much of this row Linux needs as each column: as many executions in the same time.
    pub times_of: Option<String>,
    pub unit: Option<String>,
    /// What was published for it.
    pub published: Option<f64>,
}

/// A picture.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    pub title: String,
    #[serde(default)]
    pub clock: Clock,
    /// The axis of figures.
    pub y: String,
    /// Of that axis.
    #[serde(default = "logarithmic")]
    pub y_scale: Scale,
    #[serde(default)]
    pub x: String,
    #[serde(default)]
    pub x_scale: Scale,
    /// Rows by their place on the x axis.
    #[serde(default)]
    pub points: BTreeMap<String, f64>,
    /// Rows one below the other.
    #[serde(default)]
    pub dots: Vec<String>,
}

fn logarithmic() -> Scale {
    Scale::Log
}

/// Of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    #[default]
    Linear,
    Log,
}

impl Experiments {
    pub fn load() -> Result<Self> {
        toml::from_str(TEXT).context("experiments.toml")
    }

    pub fn named(&self, name: &str) -> Option<&Experiment> {
        self.experiment.iter().find(|experiment| experiment.name == name)
    }

    /// Makes sure that each row of a program is in one experiment.
    pub fn cover(&self, program: Program, rows: &[String]) -> Result<()> {
        for row in rows {
            let having: Vec<&str> = self
                .experiment
                .iter()
                .filter(|e| e.program == program && e.has(row))
                .map(|e| e.name.as_str())
                .collect();
            if having.len() != 1 {
                bail!("experiments.toml: the row {row} is in {} experiments ({})", having.len(), having.join(", "));
            }
        }
        Ok(())
    }
}

impl Experiment {
    /// Whether a row of its program belongs to it.
    pub fn has(&self, row: &str) -> bool {
        self.rows.iter().any(|pattern| matches(pattern, row))
    }
}

/// Whether a pattern with at most one `*` fits.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_sound() {
        let all = Experiments::load().unwrap();
        for experiment in &all.experiment {
            assert!(
                experiment.plot.iter().all(|plot| plot.points.is_empty() != plot.dots.is_empty()),
                "{}",
                experiment.name
            );
            let derived = |row: &str| experiment.derived.iter().any(|derived| derived.row == row);
            for row in experiment.plot.iter().flat_map(|plot| plot.points.keys().chain(&plot.dots)) {
                assert!(experiment.has(row) || derived(row), "{}: {row} is plotted and not measured", experiment.name);
            }
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("fork_*", "fork_4") && matches("a*z", "az") && matches("x", "x"));
        assert!(!matches("fork_*", "for") && !matches("az*za", "aza") && !matches("x", "xy"));
    }
}
