//! Signals: what is sent ([`send`]), what waits ([`pending`]), what a program wants done ([`action`]), and how it is done on the way
//! back to user mode ([`deliver`], [`frame`]).

pub mod action;
pub mod deliver;
pub mod frame;
pub mod info;
pub mod pending;
pub mod send;
pub mod set;
pub mod state;
pub mod stop;

pub use info::SigInfo;
pub use set::{SigSet, Signal};

use core::sync::atomic::Ordering;

use super::Task;
use super::ptrace::TRAP;

/// Whether the task has something to do before it goes on in user mode: an unblocked signal waits, its group stops or ends.
pub fn deliverable(task: &Task) -> bool {
    let process = &task.process;
    let passed = task.passed_stop.load(Ordering::Relaxed);
    if process.group.lock().wants_attention(passed) || task.tracing.load(Ordering::Relaxed) & TRAP != 0 {
        return true;
    }
    let (blocked, own) = {
        let signals = task.signals.lock();
        if signals.exit.is_some() {
            return true;
        }
        (signals.blocked.without(signals.awaited), signals.pending.set())
    };
    !own.union(process.pending.lock().set()).without(blocked).is_empty()
}

/// Takes a signal in `wanted` that waits for the task, whether or not it is blocked (`sigtimedwait`, signalfd).
pub fn take(task: &Task, wanted: SigSet) -> Option<SigInfo> {
    let own = task.signals.lock().pending.take(wanted);
    let mut info = own.or_else(|| task.process.pending.lock().take(wanted))?;
    super::timer::posix::delivered(&task.process, &mut info);
    Some(info)
}

/// Whether the task is to die: what even a wait that ignores signals gives way to.
pub fn fatal_pending(task: &Task) -> bool {
    task.process.group.lock().exit_status().is_some()
        || task.signals.lock().pending.set().contains(Signal::KILL)
        || task.process.pending.lock().set().contains(Signal::KILL)
}
