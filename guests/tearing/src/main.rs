//! Readers of maps beside a writer: a process goes round a few states of its memory, each a system call away from the last; others read its
//! `/proc/PID/maps` in pieces of 1 to 65,536 bytes, and ask PROCMAP_QUERY. What they see must be one of those states: no gap where something is mapped in
//! all of them, no address twice, no mixture of two.
//!
//! `tearing [--seconds N] [--readers N] [--case NAME]... [--new-files] [--json] [--count]` (2 seconds for each case, as many readers as there are other
//! processors)
//!
//! Exits with 1 if something else was seen; with `--count`, which is for kernels that promise less, only if nothing was.
//! `--new-files` reads each piece from a newly opened file, as if the kernel took a new version for each read: the test must fail then.

mod board;
mod cases;
mod reader;
mod window;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use foldspace_guest_measure::maps::{Maps, areas_in};
use foldspace_guest_measure::process::{self, Fork};
use lexopt::prelude::*;
use serde_json::json;

use board::{Board, COUNTS, Count, READERS};
use cases::{CASES, Case};
use reader::{Method, Reader};
use window::Window;

struct Options {
    seconds: f64,
    readers: usize,
    only: Vec<String>,
    method: Method,
    json: bool,
    count: bool,
}

fn options() -> Result<Options, lexopt::Error> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let readers = processors.saturating_sub(1).clamp(1, READERS);
    let mut options =
        Options { seconds: 2.0, readers, only: Vec::new(), method: Method::OneFile, json: false, count: false };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("readers") => options.readers = parser.value()?.parse::<usize>()?.clamp(1, READERS),
            Long("case") => options.only.push(parser.value()?.parse()?),
            Long("new-files") => options.method = Method::NewFiles,
            Long("json") => options.json = true,
            Long("count") => options.count = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("tearing: {error}");
            return ExitCode::from(2);
        }
    };
    let mut clean = true;
    if !options.json {
        println!(
            "{:22} {:>9} {:>9} {:>8} {:>7} {:>6} {:>6} {:>8} {:>9} {:>6}",
            "case", "changes", "snapshots", "crossed", "states", "gaps", "twice", "mixtures", "questions", "wrong"
        );
    }
    for case in CASES.iter().filter(|case| options.only.is_empty() || options.only.iter().any(|name| name == case.name))
    {
        match run(case, &options) {
            Ok(outcome) => {
                print(case, &outcome, options.json);
                clean &= outcome.is_clean(case) || options.count;
            }
            Err(failure) => {
                eprintln!("tearing: {}: {failure}", case.name);
                clean = false;
            }
        }
    }
    ExitCode::from(u8::from(!clean))
}

/// What was seen of one case.
struct Outcome {
    changes: u64,
    counts: [u64; COUNTS],
}

impl Outcome {
    fn of(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    fn states(&self) -> u32 {
        self.of(Count::States).count_ones()
    }

    /// Nothing was wrong, and there was something to see: more than one state, and snapshots during which something changed.
    fn is_clean(&self, case: &Case) -> bool {
        let wrong = [Count::Gaps, Count::Twice, Count::Mixtures, Count::Wrong].map(|what| self.of(what));
        if self.states() < 2 || self.of(Count::Crossed) == 0 {
            eprintln!("tearing: {}: the readers have seen too little for a verdict", case.name);
            return false;
        }
        wrong == [0; 4]
    }
}

fn run(case: &Case, options: &Options) -> Result<Outcome, String> {
    let board = Board::new().map_err(|error| error.to_string())?;
    let fork = || process::fork().map_err(|error| format!("fork: {error}"));
    let writer = match fork()? {
        Fork::Child => finish(write(&board, case), &board),
        Fork::Parent(writer) => writer,
    };
    while !board.has_begun() && !board.is_over() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut readers = Vec::new();
    for number in 0..options.readers {
        match fork()? {
            Fork::Child => finish(Reader::new(&board, number, case).read(writer.pid(), options.method), &board),
            Fork::Parent(child) => readers.push(child),
        }
    }
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs_f64(options.seconds) && !board.is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
    board.stop();
    let ended: Vec<_> = readers.into_iter().chain([writer]).map(process::Child::wait).collect();
    if board.has_failed() || ended.iter().any(Result::is_err) {
        return Err("a process could not do its work".into());
    }
    let mut outcome = Outcome { changes: board.changes(), counts: [0; COUNTS] };
    for number in 0..options.readers {
        for (what, count) in board.counted(number).into_iter().enumerate() {
            let sum = &mut outcome.counts[what];
            *sum = if what == Count::States as usize { *sum | count } else { *sum + count };
        }
    }
    Ok(outcome)
}

/// The end of a child.
fn finish(outcome: Result<(), String>, board: &Board) -> ! {
    if let Err(failure) = &outcome {
        eprintln!("tearing: {failure}");
        board.fail();
    }
    process::exit(i32::from(outcome.is_err()))
}

/// Goes round the states. First once by itself: each state must be the one that the case says, or readers would look for the wrong ones.
fn write(board: &Board, case: &Case) -> Result<(), String> {
    Window::set_up(case).map_err(|error| format!("setting up: {error}"))?;
    let mut maps = Maps::of("self").map_err(|error| error.to_string())?;
    let mut expect = |state: &'static str| {
        let text = maps.read(1 << 16).map_err(|error| error.to_string())?;
        let seen = areas_in(text, Window::page(0).get() as u64..cases::end())?;
        if seen == cases::areas(state) {
            return Ok(());
        }
        Err(format!("the state is {}, not {state}", cases::letters(&seen, state.len())))
    };
    let make = |call| window::do_call(call).map_err(|error| format!("{call:?}: {error}"));
    expect(case.start)?;
    for (call, after) in case.steps {
        make(*call)?;
        expect(after)?;
    }
    board.go();
    let mut changes = 0;
    while !board.is_over() {
        for (call, _) in case.steps {
            make(*call)?;
            changes += 1;
            board.changed(changes);
        }
    }
    Ok(())
}

fn print(case: &Case, outcome: &Outcome, as_json: bool) {
    let of = |what| outcome.of(what);
    if as_json {
        println!(
            "{}",
            json!({
                "case": case.name,
                "states_of_the_case": case.states().len(),
                "changes": outcome.changes,
                "snapshots": of(Count::Snapshots),
                "crossed": of(Count::Crossed),
                "states_seen": outcome.states(),
                "gaps": of(Count::Gaps),
                "twice": of(Count::Twice),
                "mixtures": of(Count::Mixtures),
                "questions": of(Count::Questions),
                "wrong": of(Count::Wrong),
            })
        );
        return;
    }
    println!(
        "{:22} {:>9} {:>9} {:>8} {:>3} / {} {:>6} {:>6} {:>8} {:>9} {:>6}",
        case.name,
        outcome.changes,
        of(Count::Snapshots),
        of(Count::Crossed),
        outcome.states(),
        case.states().len(),
        of(Count::Gaps),
        of(Count::Twice),
        of(Count::Mixtures),
        of(Count::Questions),
        of(Count::Wrong)
    );
}
