//! What readers of maps cost a writer: a process maps and unmaps single pages, at random places of a range of 128 MiB of which half is mapped, while others
//! scan its `/proc/PID/maps` without pause. Each operation is timed.
//!
//! `latency [--operations N] [--scanners N] [--clock wall|own|tsc]... ` (20,000 operations, 2 scanners, all clocks)
//!
//! Three times, one JSON line for each clock: `alone`; `busy`, beside as many processes that scan the maps of another process of the same layout, which nobody
//! changes; and `scanned`, beside processes that scan the writer's. Between `busy` and `scanned` nothing differs but whose maps are read: what else
//! the machine does to who shares it (time slices, caches, the host's scheduling) is in both.
//!
//! The clocks: `wall` is CLOCK_MONOTONIC; `own` is the processor time of the writer (CLOCK_THREAD_CPUTIME_ID), in which time slices of others do
//! not count; `tsc` the time-stamp counter, which under QEMU's `-icount shift=0` counts the instructions of all who run meanwhile.

mod range;

use std::io;
use std::process::ExitCode;

use foldspace_guest_measure::Shared;
use foldspace_guest_measure::maps::Maps;
use foldspace_guest_measure::process::{self, Child, Fork};
use foldspace_guest_measure::statistics::XorShift;
use lexopt::prelude::*;
use range::{Clock, PAGES, Range};
use serde_json::json;

struct Options {
    operations: usize,
    scanners: usize,
    clocks: Vec<Clock>,
}

fn options() -> Result<Options, lexopt::Error> {
    let mut options = Options { operations: 20_000, scanners: 2, clocks: Vec::new() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("operations") => options.operations = parser.value()?.parse::<usize>()?.max(1),
            Long("scanners") => options.scanners = parser.value()?.parse()?,
            Long("clock") => {
                let name: String = parser.value()?.parse()?;
                let clock = Clock::ALL.into_iter().find(|clock| clock.name() == name);
                options.clocks.push(clock.ok_or("the clocks are wall, own and tsc")?);
            }
            other => return Err(other.unexpected()),
        }
    }
    if options.clocks.is_empty() {
        options.clocks = Clock::ALL.into();
    }
    Ok(options)
}

fn main() -> ExitCode {
    let done = options().map_err(|error| (2, error.to_string())).and_then(|options| {
        let all = [Beside::Nobody, Beside::Busy, Beside::Scanners];
        all.iter().try_for_each(|beside| measure(*beside, &options)).map_err(|error| (1, error.to_string()))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, error)) => {
            eprintln!("latency: {error}");
            ExitCode::from(status)
        }
    }
}

/// Who else is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nobody,
    /// Processes that scan the maps of somebody whom nobody changes.
    Busy,
    /// Processes that scan the writer's.
    Scanners,
}

impl Beside {
    fn name(self) -> &'static str {
        match self {
            Beside::Nobody => "alone",
            Beside::Busy => "busy",
            Beside::Scanners => "scanned",
        }
    }
}

/// Slots of the shared page.
const READY: usize = 0;
const STOP: usize = 1;
const SCANS: usize = 2;

fn measure(beside: Beside, options: &Options) -> io::Result<()> {
    let shared = Shared::new()?;
    let range = Range::half_mapped()?;
    // Of the same layout, and as many areas.
    let (model, scanned) = match process::fork()? {
        Fork::Child => {
            while shared.get(STOP) == 0 {
                range::rest();
            }
            process::exit(0)
        }
        Fork::Parent(model) => {
            let scanned = if beside == Beside::Scanners { std::process::id() } else { model.pid() as u32 };
            (model, scanned)
        }
    };
    let scanners = if beside == Beside::Nobody { 0 } else { options.scanners };
    let mut children = vec![model];
    for _ in 0..scanners {
        children.push(scanner(&shared, scanned)?);
    }
    while shared.get(READY) < scanners as u64 {
        range::rest();
    }
    let before = shared.get(SCANS);
    let mut random = XorShift::new(0x1234_5678_9abc_def1);
    let mut taken: Vec<Vec<u64>> = options.clocks.iter().map(|_| Vec::with_capacity(options.operations)).collect();
    let mut range = range;
    for (clock, times) in options.clocks.iter().zip(&mut taken) {
        // What is cold is not what this is about.
        for _ in 0..200 {
            range.change(random_page(&mut random));
        }
        for _ in 0..options.operations {
            let page = random_page(&mut random);
            let start = clock.now();
            range.change(page);
            times.push(clock.now() - start);
        }
    }
    let scans = shared.get(SCANS) - before;
    shared.set(STOP, 1);
    children.into_iter().try_for_each(Child::wait)?;
    for (clock, times) in options.clocks.iter().zip(&mut taken) {
        report(beside, *clock, times, scans, scanners);
    }
    Ok(())
}

fn random_page(random: &mut XorShift) -> usize {
    (random.next_number() >> 20) as usize % PAGES
}

/// A process that reads maps from the first byte to the last, again and again.
fn scanner(shared: &Shared, pid: u32) -> io::Result<Child> {
    match process::fork()? {
        Fork::Parent(child) => Ok(child),
        Fork::Child => {
            let outcome = Maps::of(&pid.to_string()).and_then(|mut maps| {
                maps.read_while(1 << 16, |_| shared.get(STOP) == 0)?;
                shared.add(READY, 1);
                while shared.get(STOP) == 0 {
                    maps.read_while(1 << 16, |_| shared.get(STOP) == 0)?;
                    shared.add(SCANS, 1);
                }
                Ok(())
            });
            process::exit(i32::from(outcome.is_err()))
        }
    }
}

fn report(beside: Beside, clock: Clock, times: &mut [u64], scans: u64, scanners: usize) {
    times.sort_unstable();
    let mean = times.iter().sum::<u64>() as f64 / times.len() as f64;
    let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
    println!(
        "{}",
        json!({
            "beside": beside.name(),
            "clock": clock.name(),
            "scanners": scanners,
            "operations": times.len(),
            "scans": scans,
            "mean": (mean * 10.0).round() / 10.0,
            "median": at(0.5),
            "p99_9": at(0.999),
            "max": at(1.0),
        })
    );
}
