//! Timers of a process that send signals: `ITIMER_REAL` and `alarm` here, those that count processor time ([`cpu`]), and `timer_create`'s ([`posix`]).

pub mod cpu;
pub mod posix;

use alloc::sync::Arc;

use super::signal::{SigInfo, Signal, send};
use super::{Process, Task};
use crate::sched::timer::{self, Action, TimerId};
use crate::time::monotonic_ns;

/// The real-time interval timer of a process. Nanoseconds throughout.
#[derive(Debug, Default)]
pub struct RealTimer {
    armed: Option<Armed>,
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    id: TimerId,
    deadline: u64,
    /// 0: once.
    interval: u64,
}

/// What is left, and how it goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Until the next signal; 0: none will come.
    pub remaining: u64,
    /// Between signals; 0: one only.
    pub interval: u64,
}

impl RealTimer {
    /// What is left now.
    pub fn setting(&self) -> Setting {
        match self.armed {
            // An armed timer never reads as off.
            Some(armed) => {
                Setting { remaining: armed.deadline.saturating_sub(monotonic_ns()).max(1), interval: armed.interval }
            }
            None => Setting::default(),
        }
    }

    /// Switches it off.
    pub fn disarm(&mut self) {
        if let Some(armed) = self.armed.take() {
            timer::cancel(armed.id);
        }
    }

    fn arm(&mut self, task: &Arc<Task>, deadline: u64, interval: u64) {
        let id = timer::add(deadline, Action::Call(expired, task.clone()));
        self.armed = Some(Armed { id, deadline, interval });
    }
}

/// Sets the timer of the task's process; returns what was left of the setting before.
pub fn set(task: &Arc<Task>, setting: Setting) -> Setting {
    let mut timer = task.process.real_timer.lock();
    let before = timer.setting();
    timer.disarm();
    if setting.remaining != 0 {
        timer.arm(task, monotonic_ns().saturating_add(setting.remaining), setting.interval);
    }
    before
}

/// Runs in the timer's interrupt.
fn expired(task: &Arc<Task>, id: TimerId) {
    let process: &Arc<Process> = &task.process;
    {
        let mut timer = process.real_timer.lock();
        // Another processor may have set it anew since it was due.
        let Some(armed) = timer.armed.take_if(|armed| armed.id == id) else { return };
        if armed.interval != 0 {
            // Missed turns are skipped: one signal stands for all of them.
            let now = monotonic_ns();
            let missed = now.saturating_sub(armed.deadline).next_multiple_of(armed.interval).max(armed.interval);
            let next = armed.deadline.saturating_add(missed);
            timer.arm(task, next, armed.interval);
        }
    }
    // Standard signals always find room.
    let _ = send::to_process(process, SigInfo::kernel(Signal::ALRM));
}
