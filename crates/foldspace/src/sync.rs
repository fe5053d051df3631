//! What threads meet at: atomics, locks, and the hint of whoever waits. The only place from which the manager has them.
//!
//! Ordinarily these are `core`'s and `spin`'s own, under another name. Built with `--cfg foldspace_shuttle`, each operation is a point at which the
//! scheduler of [shuttle](https://docs.rs/shuttle) may run another thread, and `crates/models` explores what comes of that.
//!
//! With the feature `watch` each thread notes the locks that it holds: one that is taken against the order of [`Rank`] is a panic; and it can count what
//! it takes, waits for and writes.

mod lock;
#[cfg(feature = "watch")]
pub mod watch;

pub(crate) use lock::Mutex;
pub use lock::Rank;

#[cfg(not(foldspace_shuttle))]
pub use core::hint;
#[cfg(all(not(foldspace_shuttle), not(feature = "watch")))]
pub use core::sync::atomic;
#[cfg(foldspace_shuttle)]
use shuttle::{Mutex as Inner, MutexGuard as InnerGuard};
#[cfg(not(foldspace_shuttle))]
use spin::{Mutex as Inner, MutexGuard as InnerGuard};
#[cfg(all(not(foldspace_shuttle), feature = "watch"))]
pub use watch::atomic;

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
