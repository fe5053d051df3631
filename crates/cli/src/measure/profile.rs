//! `foldspace profile`: where the instructions of a row go, by function of the kernel.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::guest::{Measurement, Time};
use super::table::{self, number};
use crate::args::{self, Accel};
use crate::images::{Build, Images};
use crate::machine::{Names, System};

const MEMORY: u64 = 5 << 30;
/// Above are the kernel's addresses.
const USER_END: u64 = 1 << 47;
const USER: &str = "(the program)";

/// A line of the measuring program: all that is of interest is why there may be nothing.
#[derive(serde::Deserialize)]
struct Line {
    value: Option<f64>,
    #[serde(default)]
    runs: Vec<f64>,
    skipped: Option<String>,
}

/// What was executed of one function.
#[derive(Default, Clone, Copy)]
struct Share {
    instructions: u64,
    /// How often its first block was.
    calls: u64,
}

/// Runs a row with each block of instructions counted, and prints the functions that have most of them.
pub fn profile(args: &args::Profile) -> Result<u8> {
    let images = Images::find()?;
    let (system, kernel) = match &args.linux {
        None => (System::Foldspace, images.kernel(Build::Release)?),
        Some(given) => (
            System::Linux,
            match given {
                Some(path) => path.clone(),
                None => images.lean_linux().context(
                    "there is no Linux whose symbols are known: run `./x linux`, or give --linux=VMLINUZ and --map",
                )?,
            },
        ),
    };
    let names = match (system, &args.map) {
        (System::Foldspace, _) => Names::of_image(&kernel)?,
        (System::Linux, map) => {
            let beside = PathBuf::from(format!("{}.map", kernel.display()));
            Names::of_map(map.as_deref().unwrap_or(&beside)).context("a Linux needs its System.map: --map FILE")?
        }
    };
    let plugin = images.file("libfoldspace_profiler.so")?;
    let out = tempfile::NamedTempFile::new().context("cannot make a file for the counts")?;
    let program = ["bench-basic", "bench-apps"]
        .into_iter()
        .find(|program| super::bench::names(program).is_ok_and(|rows| rows.contains(&args.row)));
    let Some(program) = program else {
        bail!("no row is called {}; `./x bench --help` says where they are named", args.row)
    };
    let take = |command: &[&str]| {
        let command: Vec<OsString> = command.iter().map(Into::into).collect();
        Measurement {
            system,
            label: system.name(),
            vmlinuz: (system == System::Linux).then_some(kernel.as_path()),
            memory: MEMORY,
            time: Time::Instructions,
            accel: Accel::Tcg,
            plugin: Some(format!("file={},out={}", plugin.display(), out.path().display())),
            command: &command,
            lines: 1,
        }
        .take::<Line>()
    };
    // Few runs will do. Rows that are too large for that have all of theirs.
    let mut measured = take(&[program, "--quick", &args.row])?;
    if measured.iter().all(|line| line.value.is_none()) {
        measured = take(&[program, &args.row])?;
    }
    let Some(Line { value: Some(value), runs, .. }) = measured.first() else {
        let reason = measured.first().and_then(|line| line.skipped.clone()).unwrap_or_default();
        bail!("{} was not measured: {reason}", args.row);
    };
    let functions = shares(out.path(), &names)?;
    print(args, *value, runs.len(), &functions);
    Ok(0)
}

/// By function: the counts that the plugin wrote.
fn shares(counts: &Path, names: &Names) -> Result<BTreeMap<String, Share>> {
    let text = fs::read_to_string(counts).context("the plugin wrote nothing: has this QEMU plugins?")?;
    let mut functions: BTreeMap<String, Share> = BTreeMap::new();
    for line in text.lines() {
        let (address, instructions, executed) = block(line).with_context(|| format!("no count: {line}"))?;
        let (name, first) = if address < USER_END { (USER.to_owned(), false) } else { names.at(address) };
        let share = functions.entry(name).or_default();
        share.instructions += instructions * executed;
        share.calls += if first { executed } else { 0 };
    }
    if functions.is_empty() {
        bail!("nothing was counted between two readings of the counter");
    }
    Ok(functions)
}

/// `ADDRESS INSTRUCTIONS EXECUTED`.
fn block(line: &str) -> Option<(u64, u64, u64)> {
    let mut words = line.split(' ');
    let address = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    Some((address, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

fn print(args: &args::Profile, value: f64, runs: usize, functions: &BTreeMap<String, Share>) {
    let all: u64 = functions.values().map(|share| share.instructions).sum();
    let mut sorted: Vec<(&String, &Share)> = functions.iter().collect();
    sorted.sort_by_key(|(_, share)| std::cmp::Reverse(share.instructions));
    let mut table = table::with_header(["function", "instructions", "of all", "a run", "entered, a run"]);
    let a_run = |count: u64| number(((count as f64 / runs as f64) * 10.0).round() / 10.0);
    for (name, share) in sorted.iter().take(args.lines) {
        let percent = share.instructions as f64 / all as f64 * 100.0;
        let entered = if share.calls == 0 { String::new() } else { a_run(share.calls) };
        table.add_row([
            (*name).clone(),
            number(share.instructions as f64),
            format!("{percent:.1} %"),
            a_run(share.instructions),
            entered,
        ]);
    }
    println!("{}: {} in all of {runs} runs; the row's figure is {}.", args.row, number(all as f64), number(value));
    println!("{table}");
    if sorted.len() > args.lines {
        println!("{} more functions (--lines)", sorted.len() - args.lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        assert_eq!(block("0xffffffff81000000 7 12"), Some((0xffff_ffff_8100_0000, 7, 12)));
        assert_eq!(block("81000000 7 12"), None);
        assert_eq!(block("0x1 7"), None);
    }
}
