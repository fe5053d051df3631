//! `foldspace bench maps_latency`: what scanning `/proc/PID/maps` costs a process that maps and unmaps, here and on Linux.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::guest::{Measurement, Time};
use super::table::{self, number};
use crate::args::{self, Accel};
use crate::linux;
use crate::machine::System;

/// What the row is called.
pub const ROW: &str = "maps_latency";

const PROGRAM: &str = "latency";
const MEMORY: u64 = 512 << 20;

/// Pairs of runs by the clock on the wall, the two systems in turns. Their figures are medians.
const PAIRS: usize = 3;

/// Goals: with scanners, so much more than without.
const MEAN_PERCENT: f64 = 5.0;
const TAIL_TIMES: f64 = 2.0;

/// A line of the program.
#[derive(Deserialize)]
struct Line {
    beside: String,
    clock: String,
    scans: u64,
    mean: f64,
    median: f64,
    p99_9: f64,
    max: f64,
}

/// One way to look: a machine, and a clock of the program.
#[derive(Clone, Copy)]
struct View {
    name: &'static str,
    clock: &'static str,
    unit: &'static str,
    /// What it shows, and what it cannot.
    shows: &'static str,
}

/// With `-icount` and one processor.
const COUNTED: [View; 2] = [
    View {
        name: "own",
        clock: "own",
        unit: "instructions",
        shows: "one processor, what the writer itself executes: more work because readers hold versions, not waiting",
    },
    View {
        name: "elapsed",
        clock: "tsc",
        unit: "instructions",
        shows: "one processor, from call to return with all that others execute in between: waiting for locks that a reader holds, and time slices",
    },
];

/// By the clock on the wall.
const WALL: View = View {
    name: "wall",
    clock: "wall",
    unit: "ns",
    shows: "several processors, time: readers and writer at the same moment; on a machine with fewer processors than that mostly its scheduling",
};

/// Four figures of a distribution.
#[derive(Clone, Copy, Serialize)]
pub struct Figures {
    pub mean: f64,
    median: f64,
    pub p99_9: f64,
    max: f64,
    /// Scans of the maps that came to their end meanwhile.
    scans: u64,
}

impl Figures {
    fn fields(&self) -> [f64; 4] {
        [self.mean, self.median, self.p99_9, self.max]
    }
}

/// One view of one system: the figures by what is beside the writer.
#[derive(Serialize)]
pub struct Seen {
    pub view: &'static str,
    pub system: &'static str,
    pub unit: &'static str,
    processors: u8,
    runs: usize,
    pub beside: BTreeMap<String, Figures>,
    /// With scanners, divided by without any.
    scanned_to_alone: [f64; 4],
    /// With scanners, divided by beside processes that scan another's maps.
    scanned_to_busy: [f64; 4],
}

/// Measures and prints; 1 if a goal is missed.
pub fn latency(args: &args::Bench) -> Result<u8> {
    let seen = take(args)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&seen)?);
    } else {
        print(&seen);
    }
    let missed = seen.iter().any(|seen| seen.system == System::Foldspace.name() && !seen.meets_the_goal());
    Ok(u8::from(missed))
}

/// All views of both systems.
pub fn take(args: &args::Bench) -> Result<Vec<Seen>> {
    let vmlinuz = linux::kernel(args.linux.as_deref())?;
    let operations = if args.quick { "3000" } else { "20000" };
    let take = |system, time: Time| {
        let command: Vec<OsString> = [PROGRAM, "--operations", operations].map(Into::into).into();
        Measurement {
            system,
            label: system.name(),
            vmlinuz: Some(&vmlinuz),
            memory: MEMORY,
            time,
            accel: args.accel,
            plugin: None,
            command: &command,
            lines: 9,
        }
        .take::<Line>()
    };
    let mut seen = Vec::new();
    let counted = if args.accel == Accel::Tcg { &[System::Foldspace, System::Linux][..] } else { &[] };
    for &system in counted {
        let lines = [take(system, Time::Instructions)?];
        seen.extend(COUNTED.iter().map(|view| Seen::of(*view, system, 1, &lines)));
    }
    let cpus = args.cpus.unwrap_or(3);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..if args.quick { 1 } else { PAIRS } {
        ours.push(take(System::Foldspace, Time::Wall { cpus })?);
        theirs.push(take(System::Linux, Time::Wall { cpus })?);
    }
    seen.push(Seen::of(WALL, System::Foldspace, cpus, &ours));
    seen.push(Seen::of(WALL, System::Linux, cpus, &theirs));
    Ok(seen)
}

impl Seen {
    fn of(view: View, system: System, processors: u8, runs: &[Vec<Line>]) -> Seen {
        let mut beside = BTreeMap::new();
        for name in ["alone", "busy", "scanned"] {
            let lines: Vec<&Line> =
                runs.iter().flatten().filter(|line| line.beside == name && line.clock == view.clock).collect();
            let median = |figure: fn(&Line) -> f64| {
                let mut values: Vec<f64> = lines.iter().map(|line| figure(line)).collect();
                values.sort_by(f64::total_cmp);
                values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
            };
            let figures = Figures {
                mean: median(|line| line.mean),
                median: median(|line| line.median),
                p99_9: median(|line| line.p99_9),
                max: median(|line| line.max),
                scans: lines.iter().map(|line| line.scans).sum(),
            };
            beside.insert(name.to_owned(), figures);
        }
        let ratio = |to: &str| {
            let (scanned, other) = (beside["scanned"].fields(), beside[to].fields());
            std::array::from_fn(|at| scanned[at] / other[at])
        };
        let (scanned_to_alone, scanned_to_busy) = (ratio("alone"), ratio("busy"));
        Seen {
            view: view.name,
            system: system.name(),
            unit: view.unit,
            processors,
            runs: runs.len(),
            beside,
            scanned_to_alone,
            scanned_to_busy,
        }
    }

    /// Compared with a machine that is as busy with something else, or else time slices would be what is judged; but what the writer executes itself
    /// with the writer alone.
    fn meets_the_goal(&self) -> bool {
        let [mean, _, tail, _] = if self.view == "own" { self.scanned_to_alone } else { self.scanned_to_busy };
        mean <= 1.0 + MEAN_PERCENT / 100.0 && tail <= TAIL_TIMES
    }
}

fn print(seen: &[Seen]) {
    println!(
        "A process maps and unmaps single pages of 128 MiB, of which half is mapped; two others scan its /proc/PID/maps without pause."
    );
    let mut table = table::with_header(["view", "mean", "median", "99.9 %", "max", "scans"]);
    for seen in seen {
        let label = |what: &str| format!("{}, {}, {what}", seen.view, seen.system);
        for name in ["alone", "busy", "scanned"] {
            let figures = &seen.beside[name];
            let mut row = vec![label(&format!("{name}, {}", seen.unit))];
            row.extend(figures.fields().map(|value| number(value.round())));
            row.push(number(figures.scans as f64));
            table.add_row(row);
        }
        for (name, ratio) in [("scanned / alone", seen.scanned_to_alone), ("scanned / busy", seen.scanned_to_busy)] {
            let mut row = vec![label(name)];
            row.extend(ratio.map(|value| format!("{value:.2} ×")));
            row.push(String::new());
            table.add_row(row);
        }
    }
    println!("{table}");
    println!("busy: as many processes scan the maps of another process of the same layout, which nobody changes.");
    for view in COUNTED.iter().chain([&WALL]) {
        println!("{}: {}.", view.name, view.shows);
    }
    println!(
        "Goal: with scanners the mean is at most {MEAN_PERCENT} % and the 99.9 % at most {TAIL_TIMES} times more than alone (own), or than busy (elapsed, wall)."
    );
    for seen in seen.iter().filter(|seen| seen.system == System::Foldspace.name()) {
        println!("{}: {}", seen.view, if seen.meets_the_goal() { "met" } else { "MISSED" });
    }
}
