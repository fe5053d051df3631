//! Memory of nodes: a few spare ones are kept, so that a splice rarely asks the allocator.

use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use super::{Header, Inner, Leaf};
use crate::error::{Error, Result};
use crate::sync::{Mutex, Rank};

/// Spare leaves at most: what some 128 changes, the usual distance between two rounds of reclamation, retire, and as much again.
const SPARE_LEAVES: usize = if cfg!(test) { 2 } else { 256 };
/// Spare inner nodes at most: three above each leaf.
const SPARE_INNERS: usize = if cfg!(test) { 2 } else { 768 };

/// A stack of spare memory of one layout, linked through its first word.
struct Pool {
    top: Option<NonNull<Link>>,
    /// How many more it takes.
    room: usize,
}

struct Link {
    next: Option<NonNull<Link>>,
}

// SAFETY: the memory on the stack belongs to the stack alone.
unsafe impl Send for Pool {}

static LEAVES: Mutex<Pool> = Mutex::new(Rank::Nodes, Pool { top: None, room: SPARE_LEAVES });
static INNERS: Mutex<Pool> = Mutex::new(Rank::Nodes, Pool { top: None, room: SPARE_INNERS });

#[inline]
fn of_level(level: u8) -> (&'static Mutex<Pool>, Layout) {
    if level == 0 { (&LEAVES, Layout::new::<Leaf>()) } else { (&INNERS, Layout::new::<Inner>()) }
}

/// Uninitialised memory for a node of `level`.
#[inline]
pub(super) fn allocate(level: u8) -> Result<NonNull<Header>> {
    #[cfg(test)]
    super::watch::about_to_allocate()?;
    let (pool, layout) = of_level(level);
    let node = match pool.try_lock().and_then(|mut pool| pool.pop()) {
        Some(spare) => spare.cast(),
        // SAFETY: the layout of a node is not empty.
        None => NonNull::new(unsafe { alloc(layout) }).ok_or(Error::OutOfMemory)?.cast(),
    };
    #[cfg(test)]
    super::watch::allocated();
    Ok(node)
}

/// Takes the memory of a node back.
///
/// # Safety
///
/// It came from [`allocate`] with the same `level`, and nobody uses it any more.
#[inline]
pub(super) unsafe fn free(node: NonNull<Header>, level: u8) {
    #[cfg(test)]
    super::watch::freed();
    let (pool, layout) = of_level(level);
    if let Some(mut pool) = pool.try_lock() {
        if pool.room > 0 {
            // SAFETY: large and aligned enough for a `Link`, and the pool's alone from now on.
            unsafe { pool.push(node.cast()) };
            return;
        }
    }
    // SAFETY: by the function's contract; all memory of a pool was allocated with this layout.
    unsafe { dealloc(node.as_ptr().cast(), layout) };
}

impl Pool {
    #[inline]
    fn pop(&mut self) -> Option<NonNull<Link>> {
        let top = self.top?;
        // SAFETY: what is on the stack is a valid `Link` and ours.
        self.top = unsafe { top.as_ref().next };
        self.room += 1;
        Some(top)
    }

    /// # Safety
    ///
    /// `memory` fits a `Link` and becomes the pool's.
    #[inline]
    unsafe fn push(&mut self, memory: NonNull<Link>) {
        // SAFETY: by the function's contract.
        unsafe { memory.write(Link { next: self.top }) };
        self.top = Some(memory);
        self.room -= 1;
    }
}

/// Gives the spare nodes back to the allocator: for tests that count allocations, and for embedders short of memory.
pub fn free_spare_nodes() {
    for level in [0, 1] {
        let (pool, layout) = of_level(level);
        let mut pool = pool.lock();
        while let Some(spare) = pool.pop() {
            // SAFETY: nobody uses what is on the stack, and it was allocated with this layout.
            unsafe { dealloc(spare.as_ptr().cast(), layout) };
        }
    }
}
