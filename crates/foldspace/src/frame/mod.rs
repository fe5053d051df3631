//! Physical frames: their records, the allocator, and [`Memory`], which holds them all.

mod blocks;
mod buddy;
mod caches;
mod commit;
mod contents;
#[expect(unsafe_code, reason = "turns frame numbers into pointers, and does nothing else")]
mod direct_map;
mod garbage;
mod held;
mod home;
mod left;
#[expect(unsafe_code, reason = "its constructor takes over the frames")]
mod memory;
mod record;
mod uses;

use crate::sync::atomic::AtomicU64;

pub use blocks::{BLOCK_FRAMES, BlockUse};
pub(crate) use commit::Charge;
pub use commit::Overcommit;
pub use contents::Contents;
pub(crate) use garbage::Garbage;
pub(crate) use held::Held;
pub use home::{Home, LineageId, Slot};
pub(crate) use left::Left;
pub use memory::{Memory, MemoryConfig, MemoryStats};
pub(crate) use record::{Counts, Kind, NONE, Record};
pub use uses::FrameUse;

/// The entries of a table.
pub(crate) type Entries = [AtomicU64; crate::addr::ENTRIES];

/// A frame number: physical address / 4096. Four thousand million frames are 16 TiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Frame(pub u32);

impl Frame {
    /// Physical address of its first byte.
    pub const fn address(self) -> u64 {
        (self.0 as u64) << crate::addr::PAGE_SHIFT
    }
}
