//! Waiting until something is so.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::sync::Mutex;

use super::list::{TaskList, WaitLink};
use super::run::{current, schedule, wake};
use super::thread::{READY, RUNNING, WAITING, WAITING_UNINTERRUPTIBLE};
use super::timer;
use crate::process::Task;
use crate::time::monotonic_ns;

/// A signal came before what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted;

/// Threads that wait for one kind of event. Whoever makes a condition true wakes the queue afterwards; those who wait look again.
pub struct WaitQueue {
    waiters: Mutex<TaskList<WaitLink>>,
}

/// Whether a signal ends a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signals {
    Interrupt,
    Wait,
}

impl WaitQueue {
    /// One in which nobody waits.
    pub const fn new() -> WaitQueue {
        WaitQueue { waiters: Mutex::new(TaskList::new()) }
    }

    /// Whether somebody waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.lock().is_empty()
    }

    /// Waits until `condition` returns something. It is called with the thread already in the queue, so that no wake-up is missed; it must not
    /// wait itself. At once if it is so already, also if a signal is pending.
    ///
    /// # Errors
    /// A signal that the task does not block is pending.
    pub fn wait_until<T>(&self, condition: impl FnMut() -> Option<T>) -> Result<T, Interrupted> {
        match self.wait(None, Signals::Interrupt, condition)? {
            Some(value) => Ok(value),
            None => unreachable!("a wait without deadline has no end"),
        }
    }

    /// The same until `deadline` (nanoseconds since boot) at most: `None` then.
    ///
    /// # Errors
    /// As for [`WaitQueue::wait_until`].
    pub fn wait_until_deadline<T>(
        &self,
        deadline: u64,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Interrupted> {
        self.wait(Some(deadline), Signals::Interrupt, condition)
    }

    /// The same; signals wait too.
    pub fn wait_uninterruptible<T>(&self, condition: impl FnMut() -> Option<T>) -> T {
        match self.wait(None, Signals::Wait, condition) {
            Ok(Some(value)) => value,
            _ => unreachable!("a wait without deadline and signals has no other end"),
        }
    }

    /// Lets everybody who waits look again.
    pub fn wake_all(&self) {
        let mut waiters = self.waiters.lock();
        while let Some(task) = waiters.pop_front() {
            wake(&task);
        }
    }

    fn wait<T>(
        &self,
        deadline: Option<u64>,
        signals: Signals,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Interrupted> {
        if let Some(value) = condition() {
            return Ok(Some(value));
        }
        let task = current();
        let mut alarm = None;
        let result = loop {
            let state = match signals {
                Signals::Interrupt => WAITING,
                Signals::Wait => WAITING_UNINTERRUPTIBLE,
            };
            // First in the queue, then in the state, then a look: whoever changes the condition after the look finds the task waiting.
            self.waiters.lock().push_back(task.clone());
            task.thread.state.store(state, Ordering::SeqCst);
            if let Some(value) = condition() {
                break Ok(Some(value));
            }
            if signals == Signals::Interrupt && task.signal_pending() {
                break Err(Interrupted);
            }
            if let Some(deadline) = deadline {
                if deadline <= monotonic_ns() {
                    break Ok(None);
                }
                if alarm.is_none() {
                    alarm = Some(timer::add(deadline, timer::Action::Wake(task.clone())));
                }
            }
            schedule();
            self.waiters.lock().remove(&task);
        };
        self.stop_waiting(&task);
        if let Some(alarm) = alarm {
            timer::cancel(alarm);
        }
        result
    }

    /// Back to running without having slept.
    fn stop_waiting(&self, task: &Arc<Task>) {
        self.waiters.lock().remove(task);
        loop {
            match task.thread.state.load(Ordering::Acquire) {
                RUNNING => return,
                // Woken meanwhile, so it is in a run queue: the turn that it was given is taken, and soon over.
                READY => return schedule(),
                waiting => {
                    let _ = task.thread.state.compare_exchange(waiting, RUNNING, Ordering::AcqRel, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Default for WaitQueue {
    fn default() -> WaitQueue {
        WaitQueue::new()
    }
}

/// Waits until `deadline`, nanoseconds since boot.
///
/// # Errors
/// A signal that the task does not block is pending.
pub fn sleep_until(deadline: u64) -> Result<(), Interrupted> {
    /// Nobody wakes it.
    static NOBODY: WaitQueue = WaitQueue::new();
    NOBODY.wait_until_deadline(deadline, || None::<()>).map(|_| ())
}
