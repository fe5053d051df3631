//! Alarms: something to be done at a time.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use crate::sync::Mutex;

use super::idle::arm_no_later_than;
use crate::arch::PerCpu;
use crate::process::Task;

/// The timers that were set on one processor, and happen there.
pub struct Timers(Mutex<Queue>);

impl Timers {
    /// None.
    pub(super) const fn new() -> Timers {
        Timers(Mutex::new(Queue { next: 0, queue: BTreeMap::new() }))
    }
}

struct Queue {
    next: u64,
    queue: BTreeMap<TimerId, Action>,
}

/// Names a timer: deadline in nanoseconds since boot, a number that sets it apart from others of that deadline, and the processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerId {
    deadline: u64,
    number: u64,
    processor: usize,
}

/// What happens at the deadline.
pub enum Action {
    /// The task is woken if it waits.
    Wake(Arc<Task>),
    /// The function is called with the task and the timer, in the timer's interrupt: it must not wait. The timer may have been taken back at the very
    /// moment: the function is to see whether it is still wanted.
    Call(fn(&Arc<Task>, TimerId), Arc<Task>),
    /// It is told. As for `Call`, it may have been taken back at the very moment.
    Tell(Arc<dyn Alarmed>),
}

/// What a timer can tell that its time has come.
pub trait Alarmed: Send + Sync {
    /// Called in the timer's interrupt: must not wait.
    fn expired(self: Arc<Self>);
}

/// Sets a timer, at nanoseconds since boot; in the past means at the next tick.
pub fn add(deadline: u64, action: Action) -> TimerId {
    let own = PerCpu::current();
    let id = {
        let mut timers = own.sched.timers.0.lock();
        let id = TimerId { deadline, number: timers.next, processor: own.number };
        timers.next += 1;
        timers.queue.insert(id, action);
        id
    };
    arm_no_later_than(deadline);
    id
}

/// Takes a timer back. Returns its action unless it has happened, or is happening on another processor.
pub fn cancel(id: TimerId) -> Option<Action> {
    PerCpu::get(id.processor)?.sched.timers.0.lock().queue.remove(&id)
}

/// The next deadline of this processor.
pub(super) fn first_deadline() -> Option<u64> {
    PerCpu::current().sched.timers.0.lock().queue.first_key_value().map(|(id, _)| id.deadline)
}

/// Does what is due.
pub(super) fn expire(now: u64) {
    loop {
        // The action may use timers itself: not under the lock.
        let (id, action) = {
            let mut timers = PerCpu::current().sched.timers.0.lock();
            match timers.queue.first_entry() {
                Some(entry) if entry.key().deadline <= now => entry.remove_entry(),
                _ => return,
            }
        };
        match action {
            Action::Wake(task) => {
                super::wake(&task);
            }
            Action::Call(function, task) => function(&task, id),
            Action::Tell(alarmed) => alarmed.expired(),
        }
    }
}
