//! A part of a task that several tasks may share, and that exec may replace by a copy of its own.

use alloc::sync::Arc;

use crate::sync::{Mutex, RawSpin};
use lock_api::ArcMutexGuard;

/// What [`Slot::lock`] returns: access to the shared value. It keeps the value alive even if the slot is replaced meanwhile.
pub type SlotGuard<T> = ArcMutexGuard<RawSpin, T>;

/// Holds an `Arc<Mutex<T>>` (open files, current directory, signal handlers): `CLONE_FILES` and its like share the `Arc`, fork
/// copies the value, exec makes it its own again.
pub struct Slot<T>(Mutex<Arc<Mutex<T>>>);

impl<T> Slot<T> {
    /// A value that nobody shares yet.
    pub fn new(value: T) -> Slot<T> {
        Slot(Mutex::new(Arc::new(Mutex::new(value))))
    }

    /// A slot that shares this one's value (`CLONE_FILES`, `CLONE_FS`, `CLONE_SIGHAND`).
    pub fn share(&self) -> Slot<T> {
        Slot(Mutex::new(self.arc()))
    }

    /// Locks the value.
    pub fn lock(&self) -> SlotGuard<T> {
        Mutex::lock_arc(&self.arc())
    }

    /// Lets `look` see the value of somebody else's slot. Who owns the slot is not led to believe that another slot shares the value
    /// by that, as a guard would make him.
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.lock().lock())
    }

    /// Whether no other slot shares the value.
    pub fn is_exclusive(&self) -> bool {
        Arc::strong_count(&self.0.lock()) == 1
    }

    /// Puts another value in this slot; other slots that shared the old one keep it. Returns this slot's share of the old value, to be dropped
    /// by the caller where that is safe to do.
    pub fn replace(&self, value: T) -> Arc<Mutex<T>> {
        core::mem::replace(&mut *self.0.lock(), Arc::new(Mutex::new(value)))
    }

    /// Lets go of the value: other slots keep it, this one gets an empty one (the end of a task).
    pub fn release(&self)
    where
        T: Default,
    {
        let (exclusive, empty) = (self.is_exclusive(), T::default());
        // Out of the lock before it is dropped: that may wake others.
        if exclusive {
            let value = core::mem::replace(&mut *self.lock(), empty);
            drop(value);
        } else {
            drop(self.replace(empty));
        }
    }

    /// A number that two slots have in common while they share a value.
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&*self.0.lock()) as *const () as usize
    }

    fn arc(&self) -> Arc<Mutex<T>> {
        self.0.lock().clone()
    }
}

impl<T: Clone> Slot<T> {
    /// A slot with a copy of the value (fork).
    pub fn copy(&self) -> Slot<T> {
        Slot::new(self.lock().clone())
    }

    /// Gives this slot a copy of its own if it shares (exec, `unshare`).
    pub fn unshare(&self) {
        if !self.is_exclusive() {
            let copy = self.lock().clone();
            drop(self.replace(copy));
        }
    }
}
