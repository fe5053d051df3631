//! Locks.
//!
//! They spin, with interrupts off: whoever holds one runs, on another processor, and does not wait for anything but locks that come after it in the order, and for
//! processors in user mode ([`crate::mm`], shootdowns). So a lock is never held where a thread gives up its processor, and never by an interrupt's handler
//! against the code that it interrupted, since interrupts come in user mode and in idle only. Debug builds verify the former, and take twenty seconds of spinning for a
//! deadlock.
//!
//! What bounds how long one is held: most guard a few words. A pipe's state and a file's position and content are held while bytes are copied to or from a
//! program, up to the length of the call (2 GiB at most), page faults included; the writers' lock of an address space (which is the manager's)
//! during the one call that changes it, of which a fork that copies tables is the longest, proportional to what is mapped.
//!
//! **The order.** Whoever holds one of these may take those further down, never one further up:
//!
//! 1. the tree of names ([`crate::fs`]: changes of names), mounts
//! 2. the position of an open file
//! 3. the content of a file, a pipe's, a channel's, a terminal's line, a table of file locks
//! 4. the tree of processes ([`crate::process::tree`])
//! 5. a thread group's state, its list of threads, a thread's signals, the process's pending signals, its handlers, its accounts
//! 6. a table of descriptors, a directory context, credentials, limits: each held for a look or a change, no lock but the heap's under it
//! 7. the real-time timer of a process, the waiting futexes
//! 8. the writers' lock of an address space, then what belongs to the manager (`docs/design.md`)
//! 9. a wait queue, then the timers of a processor, then a run queue
//! 10. kernel stacks, requests to a processor, the heap's lists, the heap, frames, the serial ports

/// What all locks are made of.
#[cfg(not(debug_assertions))]
pub type RawSpin = spin::Mutex<()>;

/// What all locks are made of.
#[cfg(debug_assertions)]
pub type RawSpin = checked::Checked;

/// A value behind a spin lock.
pub type Mutex<T> = lock_api::Mutex<RawSpin, T>;

/// Access to it.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawSpin, T>;

#[cfg(debug_assertions)]
mod checked {
    use core::sync::atomic::Ordering;

    use lock_api::{GuardNoSend, RawMutex};

    use crate::arch::{self, PerCpu};
    use crate::time::monotonic_ns;

    /// No lock is held as long as this, nanoseconds, even where the host runs this machine's processors in turns.
    const PATIENCE: u64 = 20_000_000_000;

    /// A lock that counts those that its processor holds, and gives up hope at some point.
    pub struct Checked(spin::Mutex<()>);

    // SAFETY: the inner lock is one.
    unsafe impl RawMutex for Checked {
        const INIT: Checked = Checked(<spin::Mutex<()> as RawMutex>::INIT);
        type GuardMarker = GuardNoSend;

        fn lock(&self) {
            let mut begin = None;
            while !self.try_lock() {
                for _ in 0..1000 {
                    core::hint::spin_loop();
                }
                let now = monotonic_ns();
                assert!(now - *begin.get_or_insert(now) < PATIENCE, "a lock is never released");
            }
        }

        fn try_lock(&self) -> bool {
            let locked = RawMutex::try_lock(&self.0);
            if locked {
                count(1);
            }
            locked
        }

        unsafe fn unlock(&self) {
            count(u32::MAX);
            // SAFETY: the caller's promise.
            unsafe { RawMutex::unlock(&self.0) };
        }
    }

    fn count(change: u32) {
        // Before the first processor is set up there is nowhere to count.
        if arch::online() > 0 {
            PerCpu::current().locks.fetch_add(change, Ordering::Relaxed);
        }
    }
}
