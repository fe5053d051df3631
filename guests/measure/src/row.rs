//! A row of a table: what is measured, and how it is reported; and the programs that are made of rows.

use crate::{Counter, figures, mode::Mode, region, statistics::median};
use lexopt::prelude::*;
use serde_json::{Map, Value, json};
use std::io;
use std::process::ExitCode;
use std::time::Duration;

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
        if let Err(free) = wait_for_memory(self.needs_mib * 1024) {
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

/// How long a row waits for the memory of the row before. A kernel may free it in batches, after a grace period.
const PATIENCE: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until so much is free; gives what is, if it stays less. A kernel that cannot say what is free is simply tried.
fn wait_for_memory(kib: u64) -> Result<(), u64> {
    let mut left = PATIENCE;
    loop {
        match figures::free_kib() {
            Ok(free) if free < kib && left == 0 => return Err(free),
            Ok(free) if free < kib => left -= 1,
            _ => return Ok(()),
        }
        std::thread::sleep(PAUSE);
    }
}

struct Arguments {
    settings: Settings,
    mode: Option<Mode>,
    pages: Pages,
    list: bool,
    names: Vec<String>,
}

/// Which pages the kernel may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    Small,
    /// Huge ones where it likes to.
    Any,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments {
        settings: Settings { counter: Counter::Instructions, effort: Effort::Full },
        mode: None,
        pages: Pages::Small,
        list: false,
        names: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => arguments.settings.effort = Effort::Quick,
            Long("wall") => arguments.settings.counter = Counter::Nanoseconds,
            Long("huge") => arguments.pages = Pages::Any,
            Long("mode") => {
                let name = parser.value()?.string()?;
                arguments.mode = Some(Mode::named(&name).ok_or_else(|| format!("no fork mode is called {name}"))?);
            }
            Long("list") => arguments.list = true,
            Value(name) => arguments.names.push(name.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

/// A whole program: reads its arguments (`[--quick] [--wall] [--huge] [--mode copy|leaf|full] [--list] [ROW...]`), measures the rows that they name, or all,
/// and prints a line of JSON for each. Its status is 1 if the kernel refused something, 2 if the arguments make no sense.
pub fn program(name: &str, rows: Vec<Row>) -> ExitCode {
    match run(rows) {
        Ok(status) => status,
        Err(reason) => {
            eprintln!("{name}: {reason}");
            ExitCode::from(2)
        }
    }
}

fn run(mut rows: Vec<Row>) -> Result<ExitCode, String> {
    let arguments = arguments().map_err(|error| error.to_string())?;
    if let Some(unknown) = arguments.names.iter().find(|name| !rows.iter().any(|row| row.name == **name)) {
        return Err(format!("no row is called {unknown}; --list names them all"));
    }
    if !arguments.names.is_empty() {
        rows.retain(|row| arguments.names.contains(&row.name));
    }
    if arguments.list {
        rows.iter().for_each(|row| println!("{:28} {}", row.name, row.work));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(mode) = arguments.mode {
        mode.set().map_err(|error| format!("this kernel has no fork modes ({error})"))?;
    }
    match arguments.pages {
        Pages::Small => region::small_pages_only(),
        Pages::Any => region::allow_huge_pages(),
    }
    let mut status = ExitCode::SUCCESS;
    for row in &rows {
        let outcome = row.measure(&arguments.settings);
        if matches!(outcome, Outcome::Failed(_)) {
            status = ExitCode::FAILURE;
        }
        println!("{}", row.to_json(&arguments.settings, &outcome));
        // Whoever carries the line out of the machine shall be done before the next row.
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(status)
}

/// Whole numbers where they are large, a tenth where that still says something.
fn rounded(value: f64) -> Value {
    if value.fract() == 0.0 || value.abs() >= 100_000.0 {
        json!(value.round() as i64)
    } else {
        json!((value * 10.0).round() / 10.0)
    }
}
