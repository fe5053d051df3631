//! What threads meet at: atomics, locks, and the hint of whoever waits. The only place from which the manager has them.
//!
//! Ordinarily these are `core`'s and `spin`'s own, under another name. Built with `--cfg foldspace_shuttle`, each operation is a point at which the
//! scheduler of [shuttle](https://docs.rs/shuttle) may run another thread, and `crates/models` explores what comes of that. Built with `--cfg foldspace_loom`,
//! those of [`watched`] are [loom](https://docs.rs/loom)'s, for the tests of that name: of what is small enough to explore all of it, weak memory included.
//!
//! With the feature `watch` each thread notes the locks that it holds: one that is taken against the order of [`Rank`] is a panic; and it can count what
//! it takes, waits for and writes.

#[cfg(any(foldspace_shuttle, feature = "watch"))]
#[macro_use]
mod wrapped;

mod lock;
#[cfg(feature = "watch")]
pub mod watch;

pub use lock::Rank;
#[cfg_attr(feature = "watch", allow(unreachable_pub))]
pub(crate) use lock::{Mutex, MutexGuard};

#[cfg(not(any(foldspace_shuttle, foldspace_loom)))]
pub use core::hint;
#[cfg(all(not(foldspace_shuttle), not(feature = "watch")))]
pub use core::sync::atomic;
#[cfg(foldspace_shuttle)]
use shuttle::{Mutex as Inner, MutexGuard as InnerGuard};
#[cfg(not(foldspace_shuttle))]
use spin::{Mutex as Inner, MutexGuard as InnerGuard};
#[cfg(all(not(foldspace_shuttle), feature = "watch"))]
pub use watch::atomic;

/// Atomics that loom can follow: those that do not lie in frames.
#[cfg(not(foldspace_loom))]
pub use atomic as watched;

#[cfg(foldspace_loom)]
#[expect(unsafe_code, reason = "a cell that loom watches is shared on purpose")]
pub(crate) mod loom;
#[cfg(foldspace_loom)]
pub use loom::{Content, hint, watched};

/// Where another thread may run between two steps that are no operations of this module: the bytes of a page are about to be copied.
#[cfg(not(foldspace_shuttle))]
#[inline(always)]
pub fn point() {}

/// Loads one of many slots that are looked through under a lock, most of them empty. (A checker that stopped at each would explore little else.)
#[cfg(not(foldspace_shuttle))]
#[inline(always)]
pub fn glance(slot: &atomic::AtomicU64, order: atomic::Ordering) -> u64 {
    slot.load(order)
}

#[cfg(foldspace_shuttle)]
mod shuttle;
#[cfg(foldspace_shuttle)]
pub use shuttle::{atomic, explore, glance, hint, point};

/// Locks without a rank, for what an embedder has of its own.
#[cfg(foldspace_shuttle)]
pub mod plain {
    pub use super::shuttle::{Mutex, MutexGuard};
}

/// An entry of a table: in a frame, or in a test of loom's.
pub trait Word {
    /// As `AtomicU64`.
    fn load(&self, order: atomic::Ordering) -> u64;
    /// As `AtomicU64`.
    fn swap(&self, value: u64, order: atomic::Ordering) -> u64;
}

impl Word for atomic::AtomicU64 {
    #[inline(always)]
    fn load(&self, order: atomic::Ordering) -> u64 {
        self.load(order)
    }
    #[inline(always)]
    fn swap(&self, value: u64, order: atomic::Ordering) -> u64 {
        self.swap(value, order)
    }
}

/// Stands for the plain memory of what is published: whoever reads it has to see what was written before. Only loom looks.
#[cfg(not(foldspace_loom))]
#[derive(Debug, Default)]
pub struct Content;

#[cfg(not(foldspace_loom))]
#[allow(missing_docs)]
impl Content {
    #[inline(always)]
    pub fn new() -> Content {
        Content
    }
    #[inline(always)]
    pub fn read(&self) {}
    #[inline(always)]
    pub fn write(&self) {}
}
