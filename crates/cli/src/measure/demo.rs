//! `foldspace demo`: one process with half a gigabyte forks in each mode, and on Linux.

use std::ffi::OsString;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::guest::{Measurement, Time};
use super::table::{self, maybe, ratio};
use crate::args::{self, Accel};
use crate::linux;
use crate::machine::System;

const PROGRAM: &str = "demo";
/// What the process fills, in MiB.
const RESIDENT: &str = "512";
/// Parent and child write an eighth each, so this is ample.
const MEMORY: u64 = 1 << 30;

/// A line of the program: everything about one round. Costs in instructions, sizes in KiB.
#[derive(Deserialize, Serialize)]
struct Round {
    mode: String,
    fork: f64,
    exit_and_wait: f64,
    tables_copied: Option<f64>,
    tables_added_kib: Option<f64>,
    after_fork: Sizes,
    after_writes: Sizes,
    parent: Writes,
    child: Writes,
    isolated: bool,
}

#[derive(Deserialize, Serialize)]
struct Sizes {
    parent_rss_kib: Option<f64>,
    child_rss_kib: Option<f64>,
    parent_tables_kib: Option<f64>,
    child_tables_kib: Option<f64>,
}

#[derive(Deserialize, Serialize)]
struct Writes {
    first_write: f64,
    later_write: f64,
    write_per_page: f64,
}

/// One line of the table: what it shows, and where it is in a round.
type Figure = (&'static str, fn(&Round) -> Option<f64>);

const FIGURES: [Figure; 14] = [
    ("fork, instructions", |r| Some(r.fork)),
    ("tables copied by fork", |r| r.tables_copied),
    ("page-table memory that fork adds, KiB", |r| r.tables_added_kib),
    ("page tables of the child (VmPTE), KiB", |r| r.after_fork.child_tables_kib),
    ("resident size of the parent, KiB", |r| r.after_fork.parent_rss_kib),
    ("resident size of the child, KiB", |r| r.after_fork.child_rss_kib),
    ("first write of the child, instructions", |r| Some(r.child.first_write)),
    ("a later write of the child", |r| Some(r.child.later_write)),
    ("writing in order, each page", |r| Some(r.child.write_per_page)),
    ("first write of the parent", |r| Some(r.parent.first_write)),
    ("a later write of the parent", |r| Some(r.parent.later_write)),
    ("page tables of the child after the writes, KiB", |r| r.after_writes.child_tables_kib),
    ("resident size of the child after the writes, KiB", |r| r.after_writes.child_rss_kib),
    ("exit of the child and wait, instructions", |r| Some(r.exit_and_wait)),
];

/// Runs the demonstration and prints its table.
pub fn demo(args: &args::Demo) -> Result<u8> {
    let vmlinuz = linux::kernel(args.linux.as_deref())?;
    let command: Vec<OsString> = vec![PROGRAM.into(), RESIDENT.into()];
    let take = |system, lines| {
        Measurement {
            system,
            label: system.name(),
            vmlinuz: Some(&vmlinuz),
            memory: MEMORY,
            time: Time::Instructions,
            accel: Accel::Tcg,
            plugin: None,
            command: &command,
            lines,
        }
        .take::<Round>()
    };
    let mut rounds = take(System::Foldspace, 3)?;
    rounds.extend(take(System::Linux, 1)?);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rounds)?);
    } else {
        print(&rounds)?;
    }
    Ok(u8::from(!rounds.iter().all(|round| round.isolated)))
}

fn print(rounds: &[Round]) -> Result<()> {
    let of = |mode| {
        rounds.iter().find(|round| round.mode == mode).with_context(|| format!("{PROGRAM} printed no round for {mode}"))
    };
    let (copy, leaf, full, linux) = (of("copy")?, of("leaf")?, of("full")?, of("linux")?);
    let mut table = table::with_header(["", "copy", "leaf", "full", "Linux", "Linux / full"]);
    for (label, figure) in FIGURES {
        let mut row = vec![label.to_owned()];
        row.extend([copy, leaf, full, linux].map(|round| maybe(figure(round))));
        row.push(ratio(figure(linux), figure(full)));
        table.add_row(row);
    }
    println!("A process with {RESIDENT} MiB forks; the child writes an eighth of it, then the parent another eighth.");
    println!("{table}");
    println!(
        "copy: every table copied at fork, as Linux does; leaf: the last level shared; full: everything shared.\n\
         Counted in guest instructions. Each process found {} in every page.",
        if rounds.iter().all(|round| round.isolated) { "exactly what it should" } else { "NOT what it should" }
    );
    Ok(())
}
