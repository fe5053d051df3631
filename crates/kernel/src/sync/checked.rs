//! The locks of debug builds: each processor knows what it holds.

use core::any::type_name;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use lock_api::{GuardNoSend, RawMutex};

use super::order::{self, Class};
use crate::arch::{self, PerCpu};
use crate::time::monotonic_ns;

/// That of the heap.
pub type RawSpin = Checked<Heap>;

/// What the heap's lock is known as.
pub struct Heap;

/// A value behind a spin lock.
pub type Mutex<T> = lock_api::Mutex<Checked<T>, T>;

/// Access to it.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, Checked<T>, T>;

/// Access that keeps it alive.
pub type ArcMutexGuard<T> = lock_api::ArcMutexGuard<Checked<T>, T>;

/// No lock is held as long as this, nanoseconds, even where the host runs this machine's processors in turns.
const PATIENCE: u64 = 20_000_000_000;

/// Locks that a processor holds at once, at most.
const DEEPEST: usize = 32;

/// A lock around a `T` that its processor knows about, and that gives up hope at some point.
pub struct Checked<T: ?Sized> {
    inner: spin::Mutex<()>,
    /// Its class in the order, found out when it is first taken; [`order::UNKNOWN`] before.
    class: AtomicU8,
    around: PhantomData<fn() -> *const T>,
}

impl<T: ?Sized> Checked<T> {
    fn class(&self) -> Class {
        // Relaxed: all find the same.
        match self.class.load(Ordering::Relaxed) {
            order::UNKNOWN => {
                let class = order::class_of(type_name::<T>());
                self.class.store(class, Ordering::Relaxed);
                class
            }
            known => known,
        }
    }
}

// SAFETY: the inner lock is one.
unsafe impl<T: ?Sized> RawMutex for Checked<T> {
    const INIT: Checked<T> = Checked {
        inner: <spin::Mutex<()> as RawMutex>::INIT,
        class: AtomicU8::new(order::UNKNOWN),
        around: PhantomData,
    };
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        with_state(|state| state.for_each(|held| order::note(held, self.class())));
        let mut begin = None;
        while !self.try_lock() {
            for _ in 0..1000 {
                core::hint::spin_loop();
            }
            let now = monotonic_ns();
            assert!(now - *begin.get_or_insert(now) < PATIENCE, "a lock is never released: {}", type_name::<T>());
        }
    }

    /// Who only tries waits for nobody, so it may be taken under anything.
    fn try_lock(&self) -> bool {
        let locked = RawMutex::try_lock(&self.inner);
        if locked {
            with_state(|state| state.took(self.class()));
        }
        locked
    }

    unsafe fn unlock(&self) {
        with_state(|state| state.gave(self.class()));
        // SAFETY: the caller's promise.
        unsafe { RawMutex::unlock(&self.inner) };
    }
}

/// Before the first processor is set up there is nowhere to note anything.
fn with_state(act: impl FnOnce(&State)) {
    if arch::online() > 0 {
        act(&PerCpu::current().locks);
    }
}

/// The locks that a processor holds. Its own alone, so all is relaxed.
pub struct State {
    held: AtomicU32,
    classes: [AtomicU8; DEEPEST],
}

impl State {
    /// None.
    pub const fn new() -> State {
        State { held: AtomicU32::new(0), classes: [const { AtomicU8::new(order::UNKNOWN) }; DEEPEST] }
    }

    /// How many.
    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    fn for_each(&self, visit: impl Fn(Class)) {
        self.classes[..self.held() as usize].iter().for_each(|class| visit(class.load(Ordering::Relaxed)));
    }

    fn took(&self, class: Class) {
        let held = self.held();
        assert!((held as usize) < DEEPEST, "a processor holds too many locks");
        self.classes[held as usize].store(class, Ordering::Relaxed);
        self.held.store(held + 1, Ordering::Relaxed);
    }

    /// Guards may be dropped in any order: those above move down.
    fn gave(&self, class: Class) {
        let held = self.held() as usize;
        let at = (0..held).rev().find(|at| self.classes[*at].load(Ordering::Relaxed) == class);
        // One that was taken before there was anywhere to note it.
        let Some(at) = at else { return };
        for at in at..held - 1 {
            let above = self.classes[at + 1].load(Ordering::Relaxed);
            self.classes[at].store(above, Ordering::Relaxed);
        }
        self.held.store(held as u32 - 1, Ordering::Relaxed);
    }
}
