//! skeleton
use super::Frame;
use crate::backing::Object;
use crate::error::Result;
use crate::platform::Platform;
use crate::space::AddressSpace;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::ptr::NonNull;

/// What a [`Memory`] is made of.
pub struct MemoryConfig<'a> {
    /// Where frame 0 is mapped in the embedder's own address space; frame `n` is 4096 n bytes further on.
    pub direct_map: NonNull<u8>,
    /// Frames that the manager may use, as ranges of frame numbers. The records (32 bytes a frame) are carved out of the largest.
    pub usable: &'a [Range<u32>],
    /// Entries that every root gets in its upper half (index, raw entry): the kernel's own mappings. Not tracked.
    pub kernel_entries: &'a [(usize, u64)],
    /// The embedder.
    pub platform: Box<dyn Platform>,
}

/// Frames by use, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// All frames that the manager got.
    pub total: u64,
    /// Free, those in caches included.
    pub free: u64,
    /// Mapped or mappable data.
    pub data: u64,
    /// Page tables of all levels.
    pub tables: u64,
    /// Taken by [`Memory::alloc_contiguous`], and the records themselves.
    pub reserved: u64,
}

/// An invariant that does not hold.
#[derive(Clone, Debug)]
pub struct Violation(pub alloc::string::String);

/// All frames of a machine, or of an arena, and what is needed to manage them.
pub struct Memory {}

impl Memory {
    /// Takes over the frames.
    ///
    /// # Safety
    /// `direct_map` maps every frame up to the highest usable one for reading and writing for as long as the memory lives, and nobody else uses them.
    pub unsafe fn new(config: MemoryConfig<'_>) -> Result<Arc<Memory>> {
        let _ = config;
        todo!()
    }
    /// Frames by use now.
    pub fn stats(&self) -> MemoryStats {
        todo!()
    }
    /// 2^order contiguous frames for the embedder itself (stacks, heap); contents undefined.
    pub fn alloc_contiguous(&self, order: u8) -> Result<Frame> {
        let _ = order;
        todo!()
    }
    /// Gives them back.
    pub fn free_contiguous(&self, first: Frame, order: u8) {
        let _ = (first, order);
        todo!()
    }
    /// Where a frame is mapped in the embedder's address space.
    pub fn frame_ptr(&self, frame: Frame) -> *mut u8 {
        let _ = frame;
        todo!()
    }
    /// Frees what has waited out its grace period, as far as that goes without waiting.
    pub fn reclaim(&self) {
        todo!()
    }
    /// Verifies all invariants over all live address spaces and objects of this memory, which must be at rest.
    pub fn check(&self, spaces: &[&AddressSpace], objects: &[&Object]) -> core::result::Result<(), Violation> {
        let _ = (spaces, objects);
        todo!()
    }
}
