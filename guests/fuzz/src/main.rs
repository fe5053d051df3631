//! Throws random system calls at the kernel, with arguments that are random or nearly right. Afterwards the machine must
//! work as before and have the memory that it had.
//!
//! `fuzz [--seed S] [--calls N] [--memory-only] [--trace]` (seed 1, 20,000 calls)
//!
//! The calls are made by children, some hundred each; a child's calls depend on the seed and its number alone. What a
//! call does to the child that makes it is the child's affair: it may die of it, or have to be killed because it
//! waits. Calls that end the machine, or change it for everybody, are left out (`calls.rs`). The program prints what
//! happened and exits with 0 if the machine is as it was; a kernel that panics, hangs or loses memory does not get there.
//!
//! Not for a machine that you need: run it inside.

mod calls;
mod child;
mod machine;
mod values;

use child::End;
use lexopt::prelude::*;
use std::process::ExitCode;

/// Calls that one child makes.
const CALLS_EACH: u64 = 250;
/// What the kernel may have kept for later, in KiB: caches and its heap grow with use, but not with each call.
const KEPT_KIB: u64 = 4096;

struct Options {
    seed: u64,
    calls: u64,
    which: calls::Which,
    trace: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    let mut options = Options { seed: 1, calls: 20_000, which: calls::Which::All, trace: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("calls") => options.calls = parser.value()?.parse()?,
            Long("memory-only") => options.which = calls::Which::Memory,
            Long("trace") => options.trace = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let outcome = match options() {
        Ok(options) => run(&options),
        Err(error) => {
            eprintln!("fuzz: {error}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("fuzz: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    machine::works()?;
    let record = child::Record::new()?;
    let children = options.calls.div_ceil(CALLS_EACH).max(2);
    // What the first children make the kernel keep is no leak. The second half must take nothing more.
    let half = children / 2;
    let mut ends = Ends::default();
    let (mut kept, mut calls) = (None, 0);
    for number in 0..children {
        if number == half {
            kept = Some(machine::free_kib()?);
        }
        let end = child::run(&record, options, number)?;
        ends.count(end);
        if let child::How::Late = end.how {
            println!("process {number} had to be killed; its last call was {}", record.last());
        }
        calls += record.take_calls();
        machine::stop_strangers(end.pid)?;
        child::clean_up();
    }
    println!("{calls} calls by {children} processes: {ends}");
    machine::works()?;
    let before = kept.unwrap_or(0);
    let after = machine::settled_free_kib(before.saturating_sub(KEPT_KIB))?;
    println!("free memory after half of them {before} KiB, at the end {after} KiB");
    if after + KEPT_KIB < before {
        return Err(format!("{} KiB are missing", before - after));
    }
    Ok(())
}

#[derive(Default)]
struct Ends {
    exited: u64,
    killed: u64,
    stopped: u64,
}

impl Ends {
    fn count(&mut self, end: End) {
        match end.how {
            child::How::Exited => self.exited += 1,
            child::How::Killed => self.killed += 1,
            child::How::Late => self.stopped += 1,
        }
    }
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} came to their end, {} died of a signal, {} had to be killed",
            self.exited, self.killed, self.stopped
        )
    }
}
