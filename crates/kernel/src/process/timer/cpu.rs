//! Timers that count processor time: `ITIMER_VIRTUAL`, `ITIMER_PROF`, `RLIMIT_CPU`, and `timer_create` on a clock of that kind. They are looked at
//! at each tick of the timer in user mode, so they come up to a slice late, as on Linux. Time in the kernel is not told apart from the program's.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::Setting;
use super::posix::PosixTimer;
use crate::process::exit::ExitStatus;
use crate::process::signal::{SigInfo, Signal, send};
use crate::process::{Pid, Process, Task};
use crate::time::NANOS_PER_SECOND;

/// Which interval timer of processor time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interval {
    /// `ITIMER_VIRTUAL`: `SIGVTALRM`.
    Virtual = 0,
    /// `ITIMER_PROF`: `SIGPROF`.
    Profiling = 1,
}

/// Whose processor time a clock counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// All threads of a process.
    Process,
    /// One thread.
    Thread(Pid),
}

/// One that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Processor time at which it is over, nanoseconds.
    deadline: u64,
    /// 0: once.
    interval: u64,
}

/// The timers of a process that count processor time.
#[derive(Default)]
pub struct CpuTimers {
    intervals: [Option<Running>; 2],
    posix: Vec<(Whose, Arc<PosixTimer>)>,
    /// Seconds at which the next `SIGXCPU` is due; 0: at the limit.
    next_excess: u64,
}

impl CpuTimers {
    /// Whether there is anything to look at.
    fn is_idle(&self) -> bool {
        self.intervals.iter().all(Option::is_none) && self.posix.is_empty()
    }
}

/// Processor time of a process, nanoseconds.
pub fn process_ns(process: &Process) -> u64 {
    let usage = process.usage();
    usage.user_ns + usage.system_ns
}

/// Processor time that a clock shows; `None` if its thread has ended.
pub fn now(process: &Process, whose: Whose) -> Option<u64> {
    match whose {
        Whose::Process => Some(process_ns(process)),
        Whose::Thread(pid) => {
            let threads = process.threads.lock().clone();
            threads.iter().find(|thread| thread.pid == pid).map(|thread| thread.thread_usage().user_ns)
        }
    }
}

/// What is left of an interval timer.
pub fn setting(process: &Process, which: Interval) -> Setting {
    let now = process_ns(process);
    let timers = process.cpu_timers.lock();
    timers.intervals[which as usize].map_or(Setting::default(), |running| Setting {
        remaining: running.deadline.saturating_sub(now).max(1),
        interval: running.interval,
    })
}

/// Sets an interval timer; returns what was left of the setting before.
pub fn set(process: &Process, which: Interval, setting: Setting) -> Setting {
    let before = self::setting(process, which);
    let now = process_ns(process);
    let running = (setting.remaining != 0)
        .then(|| Running { deadline: now.saturating_add(setting.remaining), interval: setting.interval });
    process.cpu_timers.lock().intervals[which as usize] = running;
    update(process);
    before
}

/// Starts to look at a timer.
pub fn add(process: &Process, whose: Whose, timer: Arc<PosixTimer>) {
    process.cpu_timers.lock().posix.push((whose, timer));
    update(process);
}

/// Looks at it no more.
pub fn remove(process: &Process, timer: &Arc<PosixTimer>) {
    let removed: Vec<_> = {
        let mut timers = process.cpu_timers.lock();
        timers.posix.extract_if(.., |(_, other)| Arc::ptr_eq(other, timer)).collect()
    };
    drop(removed);
    update(process);
}

/// Notes whether ticks must look: a timer runs, or processor time is limited.
pub fn update(process: &Process) {
    let limited = process.limits.lock().soft(raw::RLIMIT_CPU) != u64::MAX;
    let watched = limited || !process.cpu_timers.lock().is_idle();
    process.counts_cpu_time.store(watched, Ordering::Relaxed);
}

/// A tick of the timer while the task runs its program.
pub fn tick(task: &Arc<Task>) {
    if task.process.counts_cpu_time.load(Ordering::Relaxed) {
        look(&task.process);
    }
}

fn look(process: &Arc<Process>) {
    let now = process_ns(process);
    let mut due = [false; 2];
    let posix = {
        let mut timers = process.cpu_timers.lock();
        for (slot, due) in timers.intervals.iter_mut().zip(&mut due) {
            let Some(running) = slot.filter(|running| running.deadline <= now) else { continue };
            *due = true;
            *slot = (running.interval != 0)
                .then(|| Running { deadline: next_after(running.deadline, running.interval, now), ..running });
        }
        timers.posix.clone()
    };
    for (due, signal) in due.into_iter().zip([Signal::VTALRM, Signal::PROF]) {
        if due {
            // Standard signals always find room.
            let _ = send::to_process(process, SigInfo::kernel(signal));
        }
    }
    for (whose, timer) in &posix {
        if let Some(now) = self::now(process, *whose) {
            timer.look(now);
        }
    }
    check_limit(process, now);
    update(process);
}

/// The first moment after `now` that is a whole number of intervals from `deadline`.
pub fn next_after(deadline: u64, interval: u64, now: u64) -> u64 {
    let missed = now.saturating_sub(deadline) / interval;
    deadline.saturating_add((missed + 1).saturating_mul(interval))
}

/// `RLIMIT_CPU` (getrlimit(2)): `SIGXCPU` at the soft limit and each second from there, the end at the hard one.
fn check_limit(process: &Arc<Process>, now: u64) {
    let (soft, hard) = {
        let limits = process.limits.lock();
        (limits.soft(raw::RLIMIT_CPU), limits.hard(raw::RLIMIT_CPU))
    };
    let seconds = now / NANOS_PER_SECOND;
    if seconds >= hard {
        process.begin_exit(ExitStatus::Killed(Signal::KILL));
    } else if seconds >= soft {
        let due = {
            let mut timers = process.cpu_timers.lock();
            let due = seconds >= timers.next_excess;
            if due {
                timers.next_excess = seconds + 1;
            }
            due
        };
        if due {
            let _ = send::to_process(process, SigInfo::kernel(Signal::XCPU));
        }
    }
}
