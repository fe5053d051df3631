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

/// As [`core::sync::atomic`].
pub mod atomic {
    pub use core::sync::atomic::{Ordering, fence};

    use super::point;

    macro_rules! wrapped {
        ($name:ident $(<$of:ident>)?, $value:ty) => {
            /// `core`'s, with a point before each operation.
            #[repr(transparent)]
            #[derive(Debug)]
            pub struct $name $(<$of>)? (core::sync::atomic::$name $(<$of>)?);

            #[allow(missing_docs)]
            impl $(<$of>)? $name $(<$of>)? {
                pub const fn new(value: $value) -> Self {
                    Self(core::sync::atomic::$name::new(value))
                }
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }
                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }
                pub fn load(&self, order: Ordering) -> $value {
                    point();
                    self.0.load(order)
                }
                pub fn store(&self, value: $value, order: Ordering) {
                    point();
                    self.0.store(value, order)
                }
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.swap(value, order)
                }
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    point();
                    self.0.compare_exchange(current, new, success, failure)
                }
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    macro_rules! with_bits {
        ($name:ident, $value:ty, $($operation:ident),+) => {
            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }

            #[allow(missing_docs)]
            impl $name {
                $(pub fn $operation(&self, value: $value, order: Ordering) -> $value {
                    point();
                    self.0.$operation(value, order)
                })+
            }
        };
    }

    macro_rules! integer {
        ($($name:ident $value:ty),+) => {
            $(wrapped!($name, $value);
            with_bits!($name, $value, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);)+
        };
    }

    impl AtomicU64 {
        /// What it holds, without a point.
        pub(super) fn unobserved(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    integer!(AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize, AtomicI64 i64);
    wrapped!(AtomicBool, bool);
    with_bits!(AtomicBool, bool, fetch_and, fetch_or, fetch_xor);
    wrapped!(AtomicPtr<T>, *mut T);
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
