//! A row of the table: what is measured, and how it is reported.

use foldspace_guest_measure::{Counter, figures, statistics::median};
use serde_json::{Map, Value, json};
use std::io;

/// How many runs, and whether the large rows are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// All rows, several runs.
    Full,
    /// Few runs, and nothing that takes more than [`Effort::QUICK_MIB`].
    Quick,
}

impl Effort {
    /// The most memory that a row may take with [`Effort::Quick`].
    const QUICK_MIB: u64 = 640;

    /// How many runs to do where `full` are wanted of a full measurement.
    pub fn runs(self, full: usize) -> usize {
        match self {
            Effort::Full => full,
            Effort::Quick => full.div_ceil(3),
        }
    }
}

/// What holds for all rows.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What is counted.
    pub counter: Counter,
    /// How much is done.
    pub effort: Effort,
}

/// The figures of one row.
#[derive(Debug, Default)]
pub struct Figures {
    /// One value per run, in their order.
    pub runs: Vec<f64>,
    /// What was seen besides.
    pub more: Map<String, Value>,
}

impl From<Vec<f64>> for Figures {
    fn from(runs: Vec<f64>) -> Self {
        Figures { runs, more: Map::new() }
    }
}

impl Figures {
    /// Adds something that was seen besides.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

type Work = Box<dyn Fn(&Settings) -> io::Result<Figures>>;

/// A row.
pub struct Row {
    /// How it is called on the command line and in the report.
    pub name: String,
    /// What is done, in words.
    pub work: String,
    per: &'static str,
    unit: Option<&'static str>,
    needs_mib: u64,
    run: Work,
}

/// How measuring a row went.
pub enum Outcome {
    /// It was measured.
    Measured(Figures),
    /// It was not tried.
    Skipped(String),
    /// The kernel refused something.
    Failed(String),
}

impl Row {
    /// A row whose values are counts of the chosen unit, each for one `per`.
    pub fn new(
        name: impl Into<String>,
        work: impl Into<String>,
        per: &'static str,
        run: impl Fn(&Settings) -> io::Result<Figures> + 'static,
    ) -> Row {
        Row { name: name.into(), work: work.into(), per, unit: None, needs_mib: 16, run: Box::new(run) }
    }

    /// The row takes that much memory; with less it is skipped.
    pub fn needs_mib(mut self, mib: u64) -> Row {
        self.needs_mib = mib;
        self
    }

    /// The values are in this unit, whatever is counted.
    pub fn in_unit(mut self, unit: &'static str) -> Row {
        self.unit = Some(unit);
        self
    }

    /// Measures it, if it fits.
    pub fn measure(&self, settings: &Settings) -> Outcome {
        if settings.effort == Effort::Quick && self.needs_mib > Effort::QUICK_MIB {
            return Outcome::Skipped(format!("takes {} MiB, too much for --quick", self.needs_mib));
        }
        // A kernel that cannot say what is free is simply tried.
        if let Ok(free) = figures::free_kib()
            && free < self.needs_mib * 1024
        {
            return Outcome::Skipped(format!("takes {} MiB, {} MiB are free", self.needs_mib, free / 1024));
        }
        match (self.run)(settings) {
            Ok(figures) => Outcome::Measured(figures),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Outcome::Skipped(error.to_string()),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }

    /// The line of the report.
    pub fn to_json(&self, settings: &Settings, outcome: &Outcome) -> Value {
        let mut line = json!({
            "row": self.name,
            "work": self.work,
            "unit": self.unit.unwrap_or(settings.counter.unit()),
            "per": self.per,
        });
        match outcome {
            Outcome::Measured(figures) => {
                line["value"] = rounded(median(&figures.runs));
                line["runs"] = figures.runs.iter().copied().map(rounded).collect();
                for (name, value) in &figures.more {
                    line[name] = value.clone();
                }
            }
            Outcome::Skipped(reason) | Outcome::Failed(reason) => line["skipped"] = json!(reason),
        }
        line
    }
}

/// Whole numbers where they are large, a tenth where that still says something.
fn rounded(value: f64) -> Value {
    if value.fract() == 0.0 || value.abs() >= 100_000.0 {
        json!(value.round() as i64)
    } else {
        json!((value * 10.0).round() / 10.0)
    }
}
