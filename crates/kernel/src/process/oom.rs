//! Out of memory: a program touched memory that it was promised, and no frame is left.
//!
//! As on Linux (`mm/oom_kill.c`) the process that has most is ended, whoever it is that asked, and who asked tries again when that one's memory is
//! there. System calls do not come here: one that finds no frame says `ENOMEM`, or reports how far it came.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Access, Fault};
use foldspace::{AddressSpace, VirtAddr};

use super::tree::{self, INIT, Life};
use super::{Pid, Process, Task};
use crate::process::exit::ExitStatus;
use crate::process::signal::{Signal, send};
use crate::sync::Mutex;
use crate::time::monotonic_ns;
use crate::{arch, mm, sched};

/// How long a victim may take to let go of its memory before another is chosen, nanoseconds: processors of an emulated machine may be slow, and have
/// much else to do.
const PATIENCE_NS: u64 = 60_000_000_000;
/// How long frames may be there or on their way, and not be had, before a victim is chosen.
const ARRIVAL_NS: u64 = 10_000_000_000;
/// Frames for each processor that may wait to be freed for long, since nobody has asked for them to be, or are free and about to be taken.
const FEW_FRAMES: u64 = 64;
/// How long those who want memory sleep before they try again.
const PAUSE_NS: u64 = 1_000_000;

/// Of all frames, the part that a process has at least to be named in a report: one in so many.
const REPORTED: u64 = 32;

/// `oom_score_adj` of a process that is never chosen.
const NEVER: i64 = -1000;

/// Where memory is to come from. Times are nanoseconds since boot.
enum Relief {
    /// From what has been given up already, if it is enough.
    Frames {
        /// When somebody asked last, and when the first did since nobody had for long.
        last: u64,
        since: u64,
    },
    /// From a victim, who is being chosen.
    Choosing,
    /// From a victim, who has let go of its memory when it has ended.
    Victim { process: Weak<Process>, until: u64 },
}

static RELIEF: Mutex<Relief> = Mutex::new(Relief::Frames { last: 0, since: 0 });

/// The current program's access found no frame: ends a process if none is ending, and waits a little. The access may then be tried again, unless
/// the program itself is ending.
pub fn relieve(task: &Arc<Task>) {
    if task.process.group.lock().exit_status().is_some() {
        return;
    }
    if !is_relief_near() {
        choose_and_kill(task);
    }
    // A signal ends the wait: it is delivered first, and may be the end.
    let _ = sched::sleep_until(monotonic_ns() + PAUSE_NS);
}

/// A store of the kernel's to the current program's memory has failed, and the program cannot be told so: the same as [`relieve`] if that was for want of a
/// frame. Returns whether the store may be tried again. No lock may be held.
pub fn relieve_store(task: &Arc<Task>, address: u64, bytes: u64) -> bool {
    let first = address & !(PAGE_SIZE - 1);
    for page in (first..address.saturating_add(bytes)).step_by(PAGE_SIZE as usize) {
        match sched::with_space(|space| space.fault(VirtAddr(page), Access::Write)) {
            Some(Ok(())) => {}
            Some(Err(Fault::OutOfMemory)) => {
                relieve(task);
                return task.process.group.lock().exit_status().is_none();
            }
            _ => return false,
        }
    }
    true
}

/// Whether who wants memory has only to wait. If not, it is the caller's turn to choose a victim.
fn is_relief_near() -> bool {
    let now = monotonic_ns();
    let mut relief = RELIEF.lock();
    let first = match &*relief {
        Relief::Choosing => return true,
        Relief::Victim { process, until } if is_ending(process) && now < *until => return true,
        // What it had is on its way from now on.
        Relief::Victim { .. } => now,
        Relief::Frames { last, .. } if now > last + ARRIVAL_NS => now,
        Relief::Frames { since, .. } => *since,
    };
    let near = are_frames_on_their_way() && now < first + ARRIVAL_NS;
    *relief = if near { Relief::Frames { last: now, since: first } } else { Relief::Choosing };
    near
}

fn is_ending(victim: &Weak<Process>) -> bool {
    victim.upgrade().is_some_and(|process| tree::life(&process) == Life::Running)
}

/// Whether there are frames by now, or many only wait until nobody can be looking at them.
fn are_frames_on_their_way() -> bool {
    let stats = mm::memory().stats();
    stats.free + stats.deferred > FEW_FRAMES * arch::online() as u64
}

/// Ends the process with most memory; the one that asks if nobody may be ended.
fn choose_and_kill(asking: &Arc<Task>) {
    let total = mm::memory().stats().total;
    let worst = processes()
        .filter_map(|process| badness(&process, total).map(|points| (points, process)))
        .max_by_key(|(points, _)| *points);
    let process = worst.map_or_else(|| asking.process.clone(), |(_, process)| process);
    let Some(space) = process.leader().and_then(|task| task.live_space()) else {
        // It has ended by itself.
        let now = monotonic_ns();
        return *RELIEF.lock() = Relief::Frames { last: now, since: now };
    };
    *RELIEF.lock() = Relief::Victim { process: Arc::downgrade(&process), until: monotonic_ns() + PATIENCE_NS };
    report(asking, &process, &space);
    if process.pid == INIT {
        return process.begin_exit(ExitStatus::Killed(Signal::KILL));
    }
    send::kill(&process);
    // Whoever else runs in that memory goes too: it would stay.
    for other in processes().filter(|other| other.pid != INIT && other.pid != process.pid) {
        if other.leader().is_some_and(|task| Arc::ptr_eq(&task.space(), &space)) {
            send::kill(&other);
        }
    }
}

/// The processes but the first, by number. Needs no memory.
fn processes() -> impl Iterator<Item = Arc<Process>> {
    let mut last = INIT;
    core::iter::from_fn(move || {
        let process = tree::next_process(last + 1)?;
        last = process.pid;
        Some(process)
    })
}

/// Pages that a process's end may give back, adjusted by what its owner said; `None` for one that is not to be ended, or is ending already.
fn badness(process: &Process, total: u64) -> Option<i64> {
    let adjustment = i64::from(process.oom_score_adjustment.load(Ordering::Relaxed));
    if adjustment == NEVER || process.group.lock().exit_status().is_some() {
        return None;
    }
    let usage = process.leader()?.live_space()?.usage();
    let pages = usage.resident_anon + usage.resident_file + usage.resident_shared + usage.tables;
    Some(pages as i64 + adjustment * (total as i64 / 1000))
}

/// How likely a process is to be chosen, 0 to 2000: `/proc/PID/oom_score` (`proc_oom_score` of Linux's `fs/proc/base.c`).
pub fn score(process: &Process) -> u64 {
    let total = mm::memory().stats().total;
    let points = badness(process, total).filter(|_| process.pid != INIT);
    points.map_or(0, |points| (1000 + points * 1000 / total.max(1) as i64).max(0) as u64 * 2 / 3)
}

fn report(asking: &Task, process: &Process, space: &AddressSpace) {
    let usage = space.usage();
    let kib = |pages: u64| pages * 4;
    let name = process.leader().map(|task| task.comm()).unwrap_or_default();
    let adjustment = process.oom_score_adjustment.load(Ordering::Relaxed);
    let asking: Pid = asking.tgid;
    log::warn!(
        "Out of memory: Killed process {} ({}) total-vm:{}kB, anon-rss:{}kB, file-rss:{}kB, shmem-rss:{}kB, pgtables:{}kB oom_score_adj:{adjustment}; process {asking} asked",
        process.pid,
        name.escape_ascii(),
        kib(usage.mapped),
        kib(usage.resident_anon),
        kib(usage.resident_file),
        kib(usage.resident_shared),
        kib(usage.tables),
    );
    report_memory();
}

/// Where the memory is, and who has much of it: whoever reads the report above asks that next (`show_mem` and `dump_tasks` of Linux).
fn report_memory() {
    let stats = mm::memory().stats();
    log::warn!(
        "of {} frames {} are free, {} on their way, {} data, {} tables, {} reserved",
        stats.total,
        stats.free,
        stats.deferred,
        stats.data,
        stats.tables,
        stats.reserved,
    );
    for process in processes() {
        let Some(space) = process.leader().and_then(|task| task.live_space()) else { continue };
        let usage = space.usage();
        let pages = usage.resident_anon + usage.resident_file + usage.resident_shared + usage.tables;
        if pages >= stats.total / REPORTED {
            log::warn!(
                "process {} has {pages} frames{}",
                process.pid,
                if process.group.lock().exit_status().is_some() { ", and is ending" } else { "" }
            );
        }
    }
}
