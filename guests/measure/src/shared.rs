//! A page of numbers that a process shares with its children.

use crate::PAGE;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers in one shared page: how a child hands its figures to its parent.
#[derive(Debug)]
pub struct Shared {
    base: NonNull<AtomicU64>,
}

// SAFETY: the numbers are atomics, and the page stays mapped as long as the value lives, whichever thread drops it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// How many numbers there are.
    pub const SLOTS: usize = PAGE / size_of::<AtomicU64>();

    /// A page of zeroes, shared with the processes that are forked afterwards. It is touched, so that writing to it
    /// costs this process no fault.
    ///
    /// # Errors
    /// What `mmap` says (`ENOMEM`).
    pub fn new() -> io::Result<Shared> {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let shared = Shared { base };
        shared.set(0, 0);
        Ok(shared)
    }

    fn slot(&self, slot: usize) -> &AtomicU64 {
        assert!(slot < Self::SLOTS);
        // SAFETY: inside the page, which is mapped as long as `self` lives; zero is a valid value.
        unsafe { self.base.add(slot).as_ref() }
    }

    /// Stores a number.
    ///
    /// # Panics
    /// If `slot` is not below [`Shared::SLOTS`]; so does [`Shared::get`].
    #[inline(always)]
    pub fn set(&self, slot: usize, value: u64) {
        self.slot(slot).store(value, Ordering::Release);
    }

    /// Adds to a number, whoever else does; returns what it was.
    #[inline(always)]
    pub fn add(&self, slot: usize, value: u64) -> u64 {
        self.slot(slot).fetch_add(value, Ordering::AcqRel)
    }

    /// The number that was stored last, by any of the processes; zero at first.
    #[inline(always)]
    pub fn get(&self, slot: usize) -> u64 {
        self.slot(slot).load(Ordering::Acquire)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and references to it do not outlive `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE) };
    }
}
