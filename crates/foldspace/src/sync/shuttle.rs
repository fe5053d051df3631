//! The same operations as points of shuttle's scheduler.
//!
//! The atomics wrap `core`'s, so that they can be laid over page tables as those are. Shuttle runs one thread at a time, so every schedule is
//! sequentially consistent; what weaker orderings allow is loom's to find.

use std::cell::Cell;
use std::thread::panicking;

std::thread_local! {
    /// Threads of an execution are continuations on one thread of the host, which this belongs to.
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// From now on operations are points of the scheduler, or they are not: so that what a model sets up, and looks at in the end, costs no schedules.
/// Only for threads that run alone, in an execution of shuttle.
pub fn explore(on: bool) {
    EXPLORING.set(on);
}

/// Another thread may run before whatever comes next.
#[inline]
pub fn point() {
    if EXPLORING.get() && !panicking() {
        shuttle_engine::runtime::thread::switch();
    }
}

/// Loads one of many slots that are looked through: a point only where there is something.
#[inline]
pub fn glance(slot: &atomic::AtomicU64, order: atomic::Ordering) -> u64 {
    if slot.unobserved() != 0 { slot.load(order) } else { 0 }
}

/// As [`core::hint`].
pub mod hint {
    /// Whoever waits lets the others run.
    pub fn spin_loop() {
        if super::EXPLORING.get() && !super::panicking() {
            shuttle_engine::hint::spin_loop();
        } else {
            core::hint::spin_loop();
        }
    }
}

/// As [`core::sync::atomic`], with a point before each operation.
pub mod atomic {
    wrapped_atomics!(load: point, store: point);

    fn point(_address: usize) {
        super::point();
    }
}

/// As [`spin::Mutex`], of which it is one that waits through the scheduler.
#[derive(Debug, Default)]
pub struct Mutex<T>(spin::Mutex<T>);

/// As [`spin::MutexGuard`].
pub struct MutexGuard<'a, T>(spin::MutexGuard<'a, T>);

#[allow(missing_docs)]
impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(spin::Mutex::new(value))
    }
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            hint::spin_loop();
        }
    }
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        point();
        self.0.try_lock().map(MutexGuard)
    }
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> core::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> core::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        point();
    }
}
