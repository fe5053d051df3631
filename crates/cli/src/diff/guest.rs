//! `foldspace diff --guest`: the sequences as a program that runs inside, so that the kernel's system calls are compared, too.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use foldspace_diff::campaign::{Counts, Found};
use foldspace_diff::compare::{Difference, TIMES_AGAIN, Tally, Verdict, compare};
use foldspace_diff::generate::{Menu, sequence};
use foldspace_diff::{Helper, Op, Step, c_program, read_step};

use super::campaign::Outcome;
use crate::args::{self, Accel, Fork, Machine};
use crate::linux;
use crate::machine::{Streams, System};
use crate::run::{Task, environment};
use crate::verdict::Verdict as Ending;

const PROGRAM: &str = "diff-calls";
const MEMORY: u64 = 2 << 30;

/// Where the reference comes from.
enum Reference {
    /// This machine's Linux.
    Host(Helper),
    /// What the program printed on Linux in QEMU, by sequence.
    Inside(Vec<Vec<Step>>),
}

/// Runs the program inside and compares what it prints.
pub fn compare_inside(args: &args::Diff, menu: &Menu, groups: &str) -> Result<Outcome> {
    // Before there are threads.
    let helper = args.linux.is_none().then(Helper::start).transpose()?;
    let began = Instant::now();
    let ours = inside(System::Foldspace, None, args, groups)?;
    let mut reference = match (helper, &args.linux) {
        (Some(helper), _) => Reference::Host(helper),
        (None, vmlinuz) => {
            let vmlinuz = linux::kernel(vmlinuz.as_ref().and_then(Option::as_deref))?;
            Reference::Inside(inside(System::Linux, Some(&vmlinuz), args, groups)?)
        }
    };
    let mut outcome = Outcome::default();
    for (number, our) in ours.iter().enumerate() {
        let ops = sequence(args.seed, number as u64, menu);
        let their = match &mut reference {
            Reference::Host(helper) => {
                let mut their = on_host(helper, &ops)?;
                for _ in 0..TIMES_AGAIN {
                    if !compare(&ops, our, &their, &mut Tally::default()).may_be_reclaim() {
                        break;
                    }
                    their = on_host(helper, &ops)?;
                }
                their
            }
            Reference::Inside(steps) => steps.get(number).cloned().unwrap_or_default(),
        };
        let difference = count(&ops, our, &their, &mut outcome.counts);
        if let Some(difference) = difference {
            outcome.found.push(found(number as u64, &ops, difference));
            if outcome.found.len() >= args.differences {
                break;
            }
        }
    }
    outcome.elapsed = began.elapsed();
    Ok(outcome)
}

fn on_host(helper: &mut Helper, ops: &[Op]) -> Result<Vec<Step>> {
    helper.begin(ops)?;
    Ok(helper.finish()?.0)
}

fn count(ops: &[Op], ours: &[Step], theirs: &[Step], counts: &mut Counts) -> Option<Difference> {
    let verdict = compare(ops, ours, theirs, &mut counts.rules);
    counts.note(ops, theirs, &verdict);
    match verdict {
        Verdict::Different(difference) => Some(difference),
        _ => None,
    }
}

/// Not shrunk: each attempt would be a machine that boots.
fn found(sequence: u64, ops: &[Op], difference: Difference) -> Found {
    let ops = ops[..(difference.at + 1).min(ops.len())].to_vec();
    let program = c_program(&ops, &[(difference.at, format!("Different: {}", difference.text))]);
    Found { sequence, ops, difference, program }
}

/// Pages that may only be executed can be read where the processor has no protection keys: so it has some only if this machine's has, and Linux uses
/// them.
fn lacks() -> &'static [&'static str] {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if flags.split_ascii_whitespace().any(|flag| flag == "ospke") { &[] } else { &["pku"] }
}

/// What the program prints on a system, by sequence.
fn inside(system: System, vmlinuz: Option<&Path>, args: &args::Diff, groups: &str) -> Result<Vec<Vec<Step>>> {
    let shape = Machine {
        memory: MEMORY,
        cpus: None,
        fork: Fork::Full,
        icount: false,
        accel: Accel::Tcg,
        debug: system == System::Foldspace,
        kernel: None,
        // Programs have as many addresses as in Foldspace.
        append: (system == System::Linux).then(|| "no5lvl".to_owned()),
        plugin: None,
        lacks: lacks(),
    };
    let since = if args.linux.is_some() { "6.1" } else { "6.18" };
    let words =
        [PROGRAM, "--since", since, "--seed", &args.seed.to_string(), "--ops", &args.ops.to_string(), "--only", groups];
    let command: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    let task = Task {
        system,
        vmlinuz,
        shape: &shape,
        root: None,
        command: &command,
        env: environment(&[])?,
        list_frames: false,
        snapshot: false,
        streams: &Streams::CAPTURED,
        limit: None,
        show_log: false,
    };
    let text = Arc::new(Mutex::new(Vec::new()));
    let ended = task.run(Box::new(Collect(Arc::clone(&text))), Box::new(io::stderr()))?;
    let ending = Ending::of(&ended);
    ending.explain(&ended, &command[0], false);
    if ending.reason.is_some() || ending.status != 0 {
        bail!("{PROGRAM} did not get to its end on {}", system.name());
    }
    let text = text.lock().unwrap_or_else(PoisonError::into_inner);
    read(&String::from_utf8_lossy(&text)).with_context(|| format!("{PROGRAM} printed something unexpected"))
}

/// The steps of each sequence.
fn read(text: &str) -> Option<Vec<Vec<Step>>> {
    let mut sequences: Vec<Vec<Step>> = Vec::new();
    let mut last = None;
    for line in text.lines() {
        if line.starts_with("sequence ") {
            sequences.push(Vec::new());
            last = None;
        } else if let Some(status) = line.strip_prefix("crash ") {
            // The steps that are missing will be noticed.
            eprintln!("foldspace: a process inside ended with wait status {status}");
        } else {
            sequences.last_mut()?.push(read_step(line, &mut last)?);
        }
    }
    Some(sequences)
}

/// Keeps what is written.
struct Collect(Arc<Mutex<Vec<u8>>>);

impl Write for Collect {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
