//! The demonstration: a process with much memory forks, parent and child write, and the program shows what each step
//! cost and how much memory the page tables took.
//!
//! `demo [--wall] [MIB]` (512 MiB unless told)
//!
//! On Foldspace everything is done once per fork mode (copy, leaf, full), elsewhere once, as mode "linux". Each time one
//! line of JSON is printed; costs are in its `unit`, sizes in KiB, and a figure that the kernel does not give is null.
//! At the end of each round both processes look at every page: `isolated` says that each found exactly what it should.
//! The exit status is 0 if so in all rounds.

mod round;

use foldspace_guest_measure::{Counter, mode::Mode, region};
use lexopt::prelude::*;
use std::io;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut counter = Counter::Instructions;
    let mut mib = 512;
    let parsed = (|| -> Result<(), lexopt::Error> {
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("wall") => counter = Counter::Nanoseconds,
                Value(size) => mib = size.parse_with(|text| at_least(text, round::LEAST_MIB))?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(())
    })();
    if let Err(error) = parsed {
        eprintln!("demo: {error}");
        return ExitCode::from(2);
    }
    region::small_pages_only();
    match all_modes(counter, mib) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("demo: a process saw a page that another one wrote");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn at_least(text: &str, least: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(mib) if mib >= least => Ok(mib),
        Ok(_) => Err(format!("at least {least} MiB are needed")),
        Err(error) => Err(format!("{text:?} is no size in MiB: {error}")),
    }
}

fn all_modes(counter: Counter, mib: usize) -> io::Result<bool> {
    let Some(first_mode) = Mode::current() else {
        return one(counter, mib, "linux");
    };
    let mut isolated = true;
    for mode in Mode::ALL {
        mode.set()?;
        isolated &= one(counter, mib, mode.name())?;
    }
    first_mode.set()?;
    Ok(isolated)
}

fn one(counter: Counter, mib: usize, mode: &str) -> io::Result<bool> {
    let report = round::run(counter, mib)?;
    println!("{}", report.to_json(counter, mib, mode));
    Ok(report.isolated)
}
