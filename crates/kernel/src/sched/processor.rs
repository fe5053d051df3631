//! What each processor has for itself: the threads that are ready on it, the one that runs, and how long it has run any.

use alloc::sync::Arc;
use core::cell::{Cell, UnsafeCell};
use core::ptr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::queue::{Position, Queue, Rank, any_special};
use super::{place, timer};
use crate::arch::PerCpu;
use crate::process::Task;
use crate::sync::Mutex;
use crate::time;

/// A processor's part of the scheduler.
pub struct CpuState {
    pub(super) queue: Mutex<Queue>,
    /// How many tasks are in the queue. Changed under its lock, looked at without.
    pub(super) ready: AtomicUsize,
    /// The thread that runs: its own reference to itself, [`Thread::own`]. Null in idle.
    pub(super) current: Cell<*const Arc<Task>>,
    /// The same of the thread that was switched from, for the one switched to.
    pub(super) previous: Cell<*const Arc<Task>>,
    /// Stack pointer of the idle context while a thread runs.
    pub(super) idle_saved: UnsafeCell<u64>,
    /// When the current thread began to run, nanoseconds since boot; 0 in idle. Written by the processor itself.
    pub(super) since: AtomicU64,
    /// When the timer will interrupt, nanoseconds since boot.
    pub(super) alarm: Cell<u64>,
    pub(super) timers: timer::Timers,
    ticks: AtomicU64,
    /// Interrupts that others sent, so that it looks at its queue or its thread.
    kicks: AtomicU64,
    /// Nanoseconds that it has run threads.
    pub(super) busy: AtomicU64,
    /// What [`CpuState::idle_ns`] has said: it never says less.
    idle_seen: AtomicU64,
}

// SAFETY: the cells are the processor's own, which changes them with interrupts off; the rest is behind locks and atomics.
unsafe impl Sync for CpuState {}

impl CpuState {
    /// A processor that idles.
    pub const fn new() -> CpuState {
        CpuState {
            queue: Mutex::new(Queue::new()),
            ready: AtomicUsize::new(0),
            current: Cell::new(ptr::null()),
            previous: Cell::new(ptr::null()),
            idle_saved: UnsafeCell::new(0),
            since: AtomicU64::new(0),
            alarm: Cell::new(0),
            timers: timer::Timers::new(),
            ticks: AtomicU64::new(0),
            kicks: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            idle_seen: AtomicU64::new(0),
        }
    }

    /// One more interrupt of the timer.
    pub(super) fn count_tick(&self) {
        self.ticks.store(self.ticks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Interrupts of the timer so far.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// One more interrupt from another processor, which counts it.
    pub(super) fn count_kick(&self) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }

    /// Interrupts from other processors so far, shootdowns not among them.
    pub fn kicks(&self) -> u64 {
        self.kicks.load(Ordering::Relaxed)
    }

    /// Nanoseconds that the processor has run threads.
    pub fn busy_ns(&self) -> u64 {
        let slice = match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => time::monotonic_ns().saturating_sub(since),
        };
        self.busy.load(Ordering::Relaxed) + slice
    }

    /// Nanoseconds that it has run none: all until it began with the one that it runs, but for those before.
    pub fn idle_ns(&self) -> u64 {
        let until = match self.since.load(Ordering::Relaxed) {
            0 => time::monotonic_ns(),
            since => since,
        };
        // In this order (loads are not exchanged on x86): at a switch it is too little for a moment, never too much.
        let idle = until.saturating_sub(self.busy.load(Ordering::Relaxed));
        self.idle_seen.fetch_max(idle, Ordering::Relaxed).max(idle)
    }

    /// Whether a thread is ready.
    pub(super) fn has_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst) != 0
    }

    /// Appends a task to the queue.
    pub(super) fn push(&self, task: Arc<Task>) {
        if task.thread.rank() == Rank::ORDINARY {
            self.push_ordinary(task);
        } else {
            self.push_special(task, Position::Last);
        }
    }

    #[inline(always)]
    pub(super) fn push_ordinary(&self, task: Arc<Task>) {
        let mut queue = self.queue.lock();
        queue.ordinary.push_back(task);
        // Read without the lock by processors that are about to sleep: see `place`.
        self.ready.fetch_add(1, Ordering::SeqCst);
    }

    #[cold]
    pub(super) fn push_special(&self, task: Arc<Task>, position: Position) {
        let mut queue = self.queue.lock();
        queue.push_special(task, position);
        // As above.
        self.ready.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn pop(&self) -> Option<Arc<Task>> {
        if any_special() {
            return self.pop_special();
        }
        if !self.has_ready() {
            return None;
        }
        let mut queue = self.queue.lock();
        let task = queue.ordinary.pop_front();
        self.ready.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }

    /// The same where not all are ordinary: real-time threads wait nowhere if they may run here and are more urgent than those here.
    #[cold]
    fn pop_special(&self) -> Option<Arc<Task>> {
        let own = PerCpu::current();
        let here = self.queue.lock().urgency(|_| true);
        if let Some(task) = place::take_more_urgent(own, here) {
            return Some(task);
        }
        let mut queue = self.queue.lock();
        let task = queue.pop_special();
        self.ready.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }

    /// The highest priority of the real-time threads here that processor `number` could run; 0 for none.
    pub(super) fn urgency_for(&self, number: usize) -> u8 {
        self.queue.lock().urgency(|task| can_be_moved(task, number))
    }

    /// Takes the most urgent real-time thread that processor `number` can run, if it is more urgent than `than`.
    pub(super) fn take_urgent_for(&self, number: usize, than: u8) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        let task = queue.take_urgent(|task| can_be_moved(task, number) && task.thread.rank().priority() > than);
        self.ready.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }

    /// Takes a task out if it is here.
    pub(super) fn remove(&self, task: &Task) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        let task = queue.take_first(|candidate| ptr::eq(candidate, task));
        self.ready.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }

    /// Takes the first task that may be run by another processor: `number`.
    pub(super) fn steal_for(&self, number: usize) -> Option<Arc<Task>> {
        if !self.has_ready() {
            return None;
        }
        let mut queue = self.queue.lock();
        let task = queue.take_first(|task| can_be_moved(task, number));
        self.ready.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }
}

/// Whether a task in a queue can be run by processor `number` instead.
fn can_be_moved(task: &Task, number: usize) -> bool {
    let thread = &task.thread;
    // Its stack may still be in use where it is.
    !thread.on_cpu.load(Ordering::Acquire) && thread.may_run_on(number)
}
