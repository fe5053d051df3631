//! Everything at once: processes that fork in trees, threads that map, unmap, protect, move and advise, readers of maps, signals, futexes, files that
//! are cut while they are mapped, programs that are executed, and somebody who takes nearly all memory. Each verifies what it can see of its own memory.
//!
//! `soak [--seconds N] [--seed S] [--only KIND]` (60 seconds, seed 1, all kinds of work)
//!
//! Children work for some seconds each and are replaced (`director.rs`; what they do: `work/`). One that finds something wrong, dies of a signal that
//! nobody sent, or does not come to its end, fails the run. Out of memory is no failure: calls that are refused must have changed nothing, and a process that is killed
//! because there is no frame left is counted. At the end the machine must have its memory back.
//!
//! Not for a machine that you need: run it inside.

mod board;
mod director;
mod sys;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;

struct Options {
    seconds: u64,
    seed: u64,
    only: Option<String>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    let mut options = Options { seconds: 60, seed: 1, only: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("only") => options.only = Some(parser.value()?.parse()?),
            // What `work/execs.rs` executes: it ends at once.
            Long("nothing") => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    match options() {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(options)) => {
            match director::run(Duration::from_secs(options.seconds), options.seed, options.only.as_deref()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    println!("soak: {failure}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::from(2)
        }
    }
}
