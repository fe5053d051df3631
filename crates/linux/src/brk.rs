//! brk.

use foldspace::vma::VmaFlags;
use foldspace::{PageRange, VirtAddr};

use crate::caller::Caller;
use crate::populate::populate_mapping;
use crate::range::page_align;

/// brk(2) as the kernel has it: moves the end of the heap if that can be, and says where it is then. It never fails.
pub fn brk(caller: &impl Caller, end: u64) -> u64 {
    let space = caller.space();
    let (before, lock) = space.with_layout(|layout| (layout.brk.get(), layout.future_lock));
    let after = space.brk(VirtAddr(end)).get();
    if lock.contains(VmaFlags::LOCKED)
        && !lock.contains(VmaFlags::LOCK_ON_FAULT)
        && let Some(grown) = PageRange::new(VirtAddr(page_align(before)), VirtAddr(page_align(after)))
    {
        populate_mapping(caller, grown);
    }
    after
}
