//! `foldspace bench maps_tearing`: what readers of `/proc/PID/maps` see while a writer changes its memory, here and on Linux.

use std::ffi::OsString;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::guest::{Measurement, Time};
use super::table::{self, number};
use crate::args;
use crate::linux;
use crate::machine::System;

/// What the row is called.
pub const ROW: &str = "maps_tearing";

const PROGRAM: &str = "tearing";
const MEMORY: u64 = 512 << 20;
/// What there is a line for.
const CASES: u64 = 15;

/// A line of the program: what was seen of one case.
#[derive(Deserialize, Serialize)]
struct Case {
    case: String,
    states_of_the_case: u64,
    changes: u64,
    snapshots: u64,
    crossed: u64,
    states_seen: u64,
    gaps: u64,
    twice: u64,
    mixtures: u64,
    questions: u64,
    wrong: u64,
}

#[derive(Serialize)]
pub struct Seen {
    pub system: &'static str,
    processors: u8,
    cases: Vec<Case>,
}

impl Case {
    /// Everything that was no state.
    fn mistakes(&self) -> u64 {
        self.gaps + self.twice + self.mixtures + self.wrong
    }
}

/// Looks at both systems, Foldspace first.
pub fn take(args: &args::Bench) -> Result<[Seen; 2]> {
    let vmlinuz = linux::kernel(args.linux.as_deref())?;
    let cpus = args.cpus.unwrap_or(2);
    let seconds = if args.quick { "0.5" } else { "3" };
    let take = |system: System| -> Result<Seen> {
        // What Linux shows is counted, and no failure.
        let command: Vec<OsString> = [PROGRAM, "--json", "--count", "--seconds", seconds].map(Into::into).into();
        let measurement = Measurement {
            system,
            label: system.name(),
            vmlinuz: Some(&vmlinuz),
            memory: MEMORY,
            time: Time::Wall { cpus },
            accel: args.accel,
            plugin: None,
            command: &command,
            lines: CASES,
        };
        Ok(Seen { system: system.name(), processors: cpus, cases: measurement.take()? })
    };
    Ok([take(System::Foldspace)?, take(System::Linux)?])
}

impl Seen {
    /// Changes of the writer, snapshots, those with a change in between, questions, and everything that was seen and never was.
    pub fn sums(&self) -> [u64; 5] {
        let sum = |count: fn(&Case) -> u64| self.cases.iter().map(count).sum();
        [
            sum(|case| case.changes),
            sum(|case| case.snapshots),
            sum(|case| case.crossed),
            sum(|case| case.questions),
            sum(Case::mistakes),
        ]
    }
}

/// Looks and prints; 1 if Foldspace showed anything that never was, or a case was not seen.
pub fn tearing(args: &args::Bench) -> Result<u8> {
    let [ours, theirs] = take(args)?;
    let cpus = ours.processors;
    let whole =
        ours.cases.len() as u64 == CASES && ours.cases.iter().all(|case| case.states_seen > 1 && case.crossed > 0);
    let mistakes: u64 = ours.cases.iter().map(Case::mistakes).sum();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&[&ours, &theirs])?);
    } else {
        println!(
            "A process goes round the states of each case; others read its maps in pieces of 1 to 65,536 bytes. {cpus} processors."
        );
        let columns = [
            "case",
            "system",
            "changes",
            "snapshots",
            "crossed",
            "states seen",
            "gaps",
            "twice",
            "mixtures",
            "questions",
            "wrong",
        ];
        let mut table = table::with_header(columns);
        for seen in [&ours, &theirs] {
            for case in &seen.cases {
                let mut row = vec![case.case.clone(), seen.system.to_owned()];
                row.extend([case.changes, case.snapshots, case.crossed].map(|count| number(count as f64)));
                row.push(format!("{} of {}", case.states_seen, case.states_of_the_case));
                let counts = [case.gaps, case.twice, case.mixtures, case.questions, case.wrong];
                row.extend(counts.map(|count| number(count as f64)));
                table.add_row(row);
            }
        }
        println!("{table}");
        println!(
            "crossed: snapshots during which there was a change. gaps: a page is missing that is mapped in all states. twice: an address in two areas.\n\
             mixtures: areas of several states. questions: PROCMAP_QUERY (0 where there is none); wrong: answers that are in no state."
        );
        println!("Foldspace: {}", if whole && mistakes == 0 { "every snapshot was a state" } else { "FAILED" });
    }
    Ok(u8::from(!whole || mistakes > 0))
}
