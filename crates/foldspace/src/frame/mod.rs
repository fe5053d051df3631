//! Physical frames: their records, the allocator, and [`Memory`], which holds them all.

mod memory;

pub use memory::{Memory, MemoryConfig, MemoryStats, Violation};

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
