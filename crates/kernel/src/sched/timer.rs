//! Alarms: something to be done at a time.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use spin::Mutex;

use super::idle::arm_no_later_than;
use crate::process::Task;

static TIMERS: Mutex<Timers> = Mutex::new(Timers { next: 0, queue: BTreeMap::new() });

struct Timers {
    next: u64,
    queue: BTreeMap<TimerId, Action>,
}

/// Names a timer: deadline in nanoseconds since boot, and a number that sets it apart from others of that deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerId {
    deadline: u64,
    number: u64,
}

/// What happens at the deadline.
pub enum Action {
    /// The task is woken if it waits.
    Wake(Arc<Task>),
    /// The function is called with the task, in the timer's interrupt: it must not wait.
    Call(fn(&Arc<Task>), Arc<Task>),
}

/// Sets a timer, at nanoseconds since boot; in the past means at the next tick.
pub fn add(deadline: u64, action: Action) -> TimerId {
    let id = {
        let mut timers = TIMERS.lock();
        let id = TimerId { deadline, number: timers.next };
        timers.next += 1;
        timers.queue.insert(id, action);
        id
    };
    arm_no_later_than(deadline);
    id
}

/// Takes a timer back. Returns its action unless it has happened.
pub fn cancel(id: TimerId) -> Option<Action> {
    TIMERS.lock().queue.remove(&id)
}

/// The next deadline.
pub(super) fn first_deadline() -> Option<u64> {
    TIMERS.lock().queue.first_key_value().map(|(id, _)| id.deadline)
}

/// Does what is due.
pub(super) fn expire(now: u64) {
    loop {
        // The action may use timers itself: not under the lock.
        let action = {
            let mut timers = TIMERS.lock();
            match timers.queue.first_entry() {
                Some(entry) if entry.key().deadline <= now => entry.remove(),
                _ => return,
            }
        };
        match action {
            Action::Wake(task) => {
                super::wake(&task);
            }
            Action::Call(function, task) => function(&task),
        }
    }
}
