//! What the measuring programs share.
//!
//! A measurement here is taken in one thread, between two readings of a [`Counter`], tightly around the system call
//! or the loop of memory accesses. Processes are made and ended by raw system calls ([`process`]), so that the fork
//! handlers and exit handlers of a C library are not part of a figure. All `unsafe` code of the measuring programs is
//! in this crate.

pub mod counter;
pub mod figures;
pub mod heap;
pub mod maps;
pub mod mode;
pub mod pipe;
pub mod process;
pub mod region;
pub mod restore_point;
pub mod row;
pub mod shared;
pub mod statistics;
pub mod target;
pub mod userfault;

pub use counter::Counter;
pub use region::{Protection, Region};
pub use shared::Shared;

/// Bytes in a page.
pub const PAGE: usize = 4096;

/// Pages that a last-level page table maps.
pub const TABLE_PAGES: usize = 512;

/// Pages in a mebibyte.
pub const PAGES_PER_MIB: usize = (1 << 20) / PAGE;
