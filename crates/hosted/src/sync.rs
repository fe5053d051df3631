//! Locks and entries as software processors use them, and as shuttle sees them when it explores interleavings (`--cfg foldspace_shuttle`): the walk
//! of a processor can be stopped at each of its steps, like everything else.

#[cfg(not(any(foldspace_shuttle, foldspace_sanitize)))]
pub(crate) use std::sync::MutexGuard;
#[cfg(not(foldspace_shuttle))]
pub(crate) use std::sync::atomic::AtomicU64;

#[cfg(foldspace_shuttle)]
pub(crate) use foldspace::sync::{
    atomic::AtomicU64,
    plain::{Mutex, MutexGuard},
    point,
};

/// ThreadSanitizer sees no order in locks of a standard library that was built without it: these are built with everything else.
#[cfg(foldspace_sanitize)]
pub(crate) use spin::{Mutex, MutexGuard};

/// Between two steps of a processor.
#[cfg(not(foldspace_shuttle))]
pub(crate) fn point() {}

/// A lock that a panic does not poison.
#[cfg(not(any(foldspace_shuttle, foldspace_sanitize)))]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

#[cfg(not(any(foldspace_shuttle, foldspace_sanitize)))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
