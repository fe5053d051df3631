//! Locks and entries as software processors use them, and as shuttle sees them when it explores interleavings (`--cfg foldspace_shuttle`): the walk
//! of a processor can be stopped at each of its steps, like everything else.

#[cfg(not(foldspace_shuttle))]
pub(crate) use std::sync::{MutexGuard, atomic::AtomicU64};

#[cfg(foldspace_shuttle)]
pub(crate) use foldspace::sync::{atomic::AtomicU64, plain::MutexGuard, point};

/// Between two steps of a processor.
#[cfg(not(foldspace_shuttle))]
pub(crate) fn point() {}

/// A lock that a panic does not poison.
#[cfg(not(foldspace_shuttle))]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

#[cfg(not(foldspace_shuttle))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(foldspace_shuttle)]
pub(crate) use foldspace::sync::plain::Mutex;
