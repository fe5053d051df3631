//! Measures the basic operations of a memory manager and prints one line of JSON for each.
//!
//! `bench-basic [--quick] [--wall] [--mode copy|leaf|full] [--list] [ROW...]`
//!
//! The same program runs on Foldspace and on Linux. Without names every row is measured. A line has the row's name,
//! what is done (`work`), the `unit` of the `value`, what it is given `per`, the single `runs` in their order and
//! their median as `value`; some rows add what was seen besides. A row that cannot be measured here (too little
//! memory, an error of the kernel) has `skipped` with the reason in place of the value, and the exit status is 1 if
//! one failed for another reason than memory.
//!
//! Guest instructions are counted by the time-stamp counter, which under QEMU's `-icount shift=0` advances by one per
//! instruction. Without it the figures are clock ticks; `--wall` gives nanoseconds instead. What interrupts the
//! process (the timer's ticks) is part of a run; the median leaves most of it out.

mod calls;
mod fault;
mod fork;
mod heap;
mod mapping;
mod named;
mod restore;
mod row;
mod tables;

use foldspace_guest_measure::{Counter, mode::Mode, region};
use lexopt::prelude::*;
use row::{Effort, Outcome, Row, Settings};
use std::process::ExitCode;

/// The first argument of the program when it is run to measure `execve`: it does nothing.
const NOTHING: &str = "--nothing";

struct Arguments {
    settings: Settings,
    mode: Option<Mode>,
    list: bool,
    names: Vec<String>,
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments {
        settings: Settings { counter: Counter::Instructions, effort: Effort::Full },
        mode: None,
        list: false,
        names: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => arguments.settings.effort = Effort::Quick,
            Long("wall") => arguments.settings.counter = Counter::Nanoseconds,
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

fn all_rows() -> Vec<Row> {
    // The tiny process comes first: later rows leave the allocator's memory behind.
    [
        fork::rows(),
        named::rows(),
        tables::rows(),
        calls::rows(),
        mapping::rows(),
        fault::rows(),
        heap::rows(),
        restore::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == NOTHING) {
        return ExitCode::SUCCESS;
    }
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => return fail(&error.to_string()),
    };
    let mut rows = all_rows();
    if let Some(unknown) = arguments.names.iter().find(|name| !rows.iter().any(|row| row.name == **name)) {
        return fail(&format!("no row is called {unknown}; --list names them all"));
    }
    if !arguments.names.is_empty() {
        rows.retain(|row| arguments.names.contains(&row.name));
    }
    if arguments.list {
        rows.iter().for_each(|row| println!("{:28} {}", row.name, row.work));
        return ExitCode::SUCCESS;
    }
    if let Some(Err(error)) = arguments.mode.map(Mode::set) {
        return fail(&format!("this kernel has no fork modes ({error})"));
    }
    region::small_pages_only();
    let mut status = ExitCode::SUCCESS;
    for row in &rows {
        let outcome = row.measure(&arguments.settings);
        if matches!(outcome, Outcome::Failed(_)) {
            status = ExitCode::FAILURE;
        }
        println!("{}", row.to_json(&arguments.settings, &outcome));
        // Whoever carries the line out of the machine shall be done before the next row.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    status
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("bench-basic: {reason}");
    ExitCode::from(2)
}
