//! Kernel stacks: each with a guard page below, so that running out of one is a double fault and not somebody else's data.
//!
//! A stack that is given back to the manager leaves translations behind on processors that it was used on. They do no harm until
//! the place is used for another stack: whoever is about to use a stack calls [`forget_old`] first, which drops this processor's translations if
//! stacks have gone since it last did.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;
use foldspace::{Error, Frame};
use x86_64::registers::control::{Cr4, Cr4Flags};

use super::frames;
use super::kernel_map::{KernelMap, Rights};
use crate::arch::PerCpu;

/// First byte of the region.
pub const REGION: u64 = 0xffff_c900_0000_0000;
/// Its size: one entry of the root.
const REGION_SIZE: u64 = 1 << 39;
/// log2 of a stack's frames: unoptimized code needs more.
const ORDER: u8 = if cfg!(debug_assertions) { 4 } else { 3 };
/// Bytes of a stack.
const SIZE: u64 = 4096 << ORDER;
/// Distance between stacks: what lies between is never mapped.
const STRIDE: u64 = SIZE * 2;
/// Unused stacks that are kept for the next threads.
const CACHED: usize = 64;

static STACKS: Mutex<Stacks> =
    Mutex::new(Stacks { map: None, next: REGION, free_slots: Vec::new(), cache: Vec::new() });

/// Stacks that exist, in use or cached.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// How many stacks have been unmapped.
static UNMAPPED: AtomicU64 = AtomicU64::new(0);
/// Frames of page tables that map the region.
static TABLES: AtomicU64 = AtomicU64::new(0);

struct Stacks {
    map: Option<KernelMap>,
    /// Address of the first slot that was never used.
    next: u64,
    /// Slots whose stack was given back.
    free_slots: Vec<u64>,
    cache: Vec<KernelStack>,
}

/// A mapped stack. Dropping it leaks it: give it back with [`KernelStack::release`].
#[derive(Debug)]
pub struct KernelStack {
    /// Lowest address that is mapped.
    bottom: u64,
    first: Frame,
}

impl KernelStack {
    /// A stack, from the cache if there is one.
    pub fn new() -> Result<KernelStack, Error> {
        let mut stacks = STACKS.lock();
        let stack = match stacks.cache.pop() {
            Some(stack) => stack,
            None => stacks.create()?,
        };
        drop(stacks);
        forget_old();
        Ok(stack)
    }

    /// One past the highest byte: page aligned.
    pub fn top(&self) -> u64 {
        self.bottom + SIZE
    }

    /// For the next thread. Must not be the stack that this runs on.
    pub fn release(self) {
        let mut stacks = STACKS.lock();
        if stacks.cache.len() < CACHED {
            // Cannot fail: room for that many was reserved at boot.
            stacks.cache.push(self);
        } else {
            stacks.destroy(self);
        }
    }
}

impl Stacks {
    fn create(&mut self) -> Result<KernelStack, Error> {
        let memory = frames::memory();
        // Where the slot number will go when the stack does: freeing must not fail.
        let slots = (self.next - REGION) / STRIDE + 1;
        let missing = (slots as usize).saturating_sub(self.free_slots.len());
        self.free_slots.try_reserve(missing).map_err(|_| Error::OutOfMemory)?;
        let first = memory.alloc_contiguous(ORDER)?;
        let slot = match self.free_slots.pop() {
            Some(slot) => slot,
            None => {
                assert!(self.next + STRIDE <= REGION + REGION_SIZE, "more kernel stacks than address space");
                self.next += STRIDE;
                self.next - STRIDE
            }
        };
        // The lower half of the slot is the guard.
        let stack = KernelStack { bottom: slot + SIZE, first };
        let map = self.map.expect("stacks are initialised at boot");
        let mut alloc = || {
            let frame = memory.alloc_contiguous(0).ok()?;
            TABLES.fetch_add(1, Ordering::Relaxed);
            Some(frame.address())
        };
        // SAFETY: the slot is unused, so nothing relies on what is mapped there.
        let mapped = unsafe { map.map(stack.bottom, first.address(), SIZE, Rights::WRITE, &mut alloc) };
        if mapped.is_err() {
            memory.free_contiguous(first, ORDER);
            self.free_slots.push(slot);
            return Err(Error::OutOfMemory);
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(stack)
    }

    fn destroy(&mut self, stack: KernelStack) {
        let map = self.map.expect("stacks are initialised at boot");
        for page in 0..1 << ORDER {
            // SAFETY: the stack was given back, so nobody uses it.
            unsafe { map.unmap_page(stack.bottom + page * 4096) };
        }
        UNMAPPED.fetch_add(1, Ordering::Release);
        frames::memory().free_contiguous(stack.first, ORDER);
        self.free_slots.push(stack.bottom - SIZE);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says where stacks are mapped. The root must already have its entry for [`REGION`].
pub fn init(map: KernelMap) {
    let mut stacks = STACKS.lock();
    stacks.map = Some(map);
    stacks.cache.reserve(CACHED);
}

/// Drops this processor's translations of stacks that have gone: before it uses another.
#[inline]
pub fn forget_old() {
    let seen = &PerCpu::current().memory.stacks_seen;
    let unmapped = UNMAPPED.load(Ordering::Acquire);
    if seen.load(Ordering::Relaxed) != unmapped {
        seen.store(unmapped, Ordering::Relaxed);
        forget_global();
    }
}

/// Drops all translations, those of the kernel too (Intel SDM vol. 3, 4.10.4.1: a change of CR4.PGE does).
#[cold]
fn forget_global() {
    // SAFETY: global pages are an optimization; nothing else changes.
    unsafe {
        Cr4::update(|flags| flags.remove(Cr4Flags::PAGE_GLOBAL));
        Cr4::update(|flags| flags.insert(Cr4Flags::PAGE_GLOBAL));
    }
}

/// Whether `address` lies where stacks are mapped (it may be a guard).
pub fn is_mapped_stack(address: u64) -> bool {
    (REGION..REGION + REGION_SIZE).contains(&address) && (address - REGION) % STRIDE >= SIZE
}

/// Frames that stacks and the tables that map them take.
pub fn stack_frames() -> u64 {
    (COUNT.load(Ordering::Relaxed) << ORDER) + TABLES.load(Ordering::Relaxed)
}

/// Gives cached stacks back to the manager.
pub fn trim() {
    let mut stacks = STACKS.lock();
    while let Some(stack) = stacks.cache.pop() {
        stacks.destroy(stack);
    }
}
