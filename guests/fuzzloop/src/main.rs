//! A fuzz loop over a parser of JSON that has a bug: each execution begins in the same state, in a child of its own or from a restore point.
//!
//! `fuzzloop [--mib N] [--executions N] [--way fork|restore]`
//!
//! Prints executions a second for both ways, what became of the inputs, and, for restore points, how many pages an execution stores to. Both ways
//! must find the same; where the kernel has no restore points (Linux), only fork is tried. The status is 1 if they differ, or if one execution
//! saw what another had left.

use foldspace_guest_measure::process::{self, Fork};
use foldspace_guest_measure::target::{self, Verdict};
use foldspace_guest_measure::{PAGE, PAGES_PER_MIB, Region, Shared, restore_point};
use lexopt::prelude::*;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Which number of [`Shared`] is what.
const ACCEPTED: usize = 0;
const REJECTED: usize = 1;
const CRASHED: usize = 2;
const CONTAMINATED: usize = 3;
const PAGES: usize = 4;
const RUNNING: usize = 5;

/// Executions between two looks at the pages that were stored to.
const SAMPLE: u32 = 64;

struct Arguments {
    mib: usize,
    executions: u32,
    way: Option<String>,
}

/// What a way has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    accepted: u64,
    rejected: u64,
    crashed: u64,
    contaminated: u64,
}

impl Found {
    fn of(shared: &Shared) -> Found {
        Found {
            accepted: shared.get(ACCEPTED),
            rejected: shared.get(REJECTED),
            crashed: shared.get(CRASHED),
            contaminated: shared.get(CONTAMINATED),
        }
    }
}

fn arguments() -> Result<Arguments, lexopt::Error> {
    let mut arguments = Arguments { mib: 64, executions: 2000, way: None };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("mib") => arguments.mib = parser.value()?.parse()?,
            Long("executions") => arguments.executions = parser.value()?.parse()?,
            Long("way") => arguments.way = Some(parser.value()?.string()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("fuzzloop: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("fuzzloop: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let _resident = Region::filled(arguments.mib * PAGES_PER_MIB)?;
    let wanted = |way: &str| arguments.way.as_deref().is_none_or(|only| only == way);
    let mut found = Vec::new();
    println!("{} MiB resident, {} executions", arguments.mib, arguments.executions);
    if wanted("fork") {
        found.push(report("fork", arguments.executions, by_fork(arguments.executions)?));
    }
    if wanted("restore") {
        match by_restore(arguments.executions) {
            Ok(outcome) => found.push(report("restore", arguments.executions, outcome)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => println!("restore: {error}"),
            Err(error) => return Err(error),
        }
    }
    let sound = found.iter().all(|one| *one == found[0] && one.contaminated == 0 && one.crashed > 0);
    if !sound {
        eprintln!("fuzzloop: the ways differ, or an execution saw another: {found:?}");
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(way: &str, executions: u32, (shared, time): (Shared, Duration)) -> Found {
    let found = Found::of(&shared);
    let Found { accepted, rejected, crashed, .. } = found;
    let a_second = f64::from(executions) / time.as_secs_f64();
    print!("{way}: {a_second:.0} executions a second; accepted {accepted}, rejected {rejected}, crashed {crashed}");
    match shared.get(PAGES) {
        0 => println!(),
        pages => println!("; an execution stores to {} pages", pages / u64::from(executions.div_ceil(SAMPLE))),
    }
    found
}

fn note(shared: &Shared, verdict: Verdict) {
    let slot = match verdict {
        Verdict::Accepted => ACCEPTED,
        Verdict::Rejected => REJECTED,
        Verdict::Contaminated => CONTAMINATED,
    };
    shared.add(slot, 1);
}

fn by_fork(executions: u32) -> io::Result<(Shared, Duration)> {
    let shared = Shared::new()?;
    let start = Instant::now();
    for number in 0..executions {
        match process::fork()? {
            Fork::Child => {
                note(&shared, target::execute(&target::input(number)));
                process::exit(0)
            }
            Fork::Parent(child) => {
                if child.wait().is_err() {
                    shared.add(CRASHED, 1);
                }
            }
        }
    }
    Ok((shared, start.elapsed()))
}

/// Where the number of the execution is that runs, for who handles its end.
static RUNS: std::sync::OnceLock<Shared> = std::sync::OnceLock::new();

/// A crash: back, and on with the next.
extern "C" fn crashed(_: libc::c_int) {
    if let Some(shared) = RUNS.get() {
        shared.add(CRASHED, 1);
        let error = restore_point::go_back(shared.get(RUNNING) as u32 + 1);
        eprintln!("fuzzloop: {error}");
    }
    std::process::abort()
}

fn by_restore(executions: u32) -> io::Result<(Shared, Duration)> {
    let shared = RUNS.get_or_init(|| Shared::new().expect("a page"));
    let handler = crashed as extern "C" fn(libc::c_int);
    // SAFETY: the handler touches nothing but shared memory, and then makes one system call.
    unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
    let start = Instant::now();
    let number = restore_point::set()?;
    // From here on nothing is remembered from one execution to the next but the number, and what is in shared memory.
    if number < executions {
        shared.set(RUNNING, u64::from(number));
        note(shared, target::execute(&target::input(number)));
        if number.is_multiple_of(SAMPLE) {
            let changed: u64 = restore_point::changed_ranges()?.iter().map(|row| row.end - row.start).sum();
            shared.add(PAGES, changed / PAGE as u64);
        }
        return Err(restore_point::go_back(number + 1));
    }
    let time = start.elapsed();
    restore_point::forget()?;
    // SAFETY: nothing of ours handles it any more.
    unsafe { libc::signal(libc::SIGABRT, libc::SIG_DFL) };
    let copy = Shared::new()?;
    (0..RUNNING).for_each(|slot| copy.set(slot, shared.get(slot)));
    Ok((copy, time))
}
