//! What threads meet at: atomics, locks, and the hint of whoever waits. The only place from which the manager has them.
//!
//! Ordinarily these are `core`'s and `spin`'s own, under another name. Built with `--cfg foldspace_shuttle`, each operation is a point at which the
//! scheduler of [shuttle](https://docs.rs/shuttle) may run another thread, and `crates/models` explores what comes of that.

#[cfg(not(foldspace_shuttle))]
pub use {
    core::{hint, sync::atomic},
    spin::Mutex,
};

#[cfg(foldspace_shuttle)]
mod shuttle;
#[cfg(foldspace_shuttle)]
pub use shuttle::{Mutex, MutexGuard, atomic, explore, hint, point};
