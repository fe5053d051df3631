//! madvise(MADV_DONTNEED): content goes, the mapping stays.

use crossbeam_epoch::Guard;

use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::table::Touch;
use crate::vma::VmaFlags;

impl AddressSpace {
    /// Drops the pages of `range`: private memory reads as zeros (or as its backing) afterwards, shared memory as the object still has it.
    /// Guards stay.
    /// Whole subtrees go at once; those that others share are only let go of.
    ///
    /// # Errors
    ///
    /// [`Error::AccessDenied`] if a VMA in the range is locked (EINVAL on Linux), and [`Error::NotMapped`] if part of it is not mapped: what
    /// comes before the first locked VMA, and all of what is mapped around holes, is discarded all the same, as on Linux.
    /// [`Error::OutOfMemory`]: nothing is discarded of the VMA at which it happened.
    pub fn discard(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let (mut reached, mut holes) = (range.start(), false);
            for vma in self.vmas.load(guard).range(range) {
                let Some(part) = vma.range.intersect(range) else { continue };
                holes |= part.start() > reached;
                reached = part.end();
                if vma.flags.contains(VmaFlags::LOCKED) {
                    return Err(Error::AccessDenied);
                }
                self.discard_part(guard, part)?;
            }
            if holes || reached < range.end() { Err(Error::NotMapped) } else { Ok(()) }
        })
    }

    /// Drops what is present in `part`, all of it mapped; guards stay. The caller holds the writers' lock.
    pub(super) fn discard_part(&self, guard: &Guard, part: PageRange) -> Result<()> {
        let may_have_guards = self.may_have_guards();
        let touch = if may_have_guards { Touch::EdgesAndGuards } else { Touch::Edges };
        let mut garbage = Garbage::new();
        let owned = self.tables().own_range(part, touch, &mut garbage);
        if owned.is_ok() {
            self.tables().clear_pages(part, &mut garbage, may_have_guards);
        }
        self.finish(&mut garbage, guard, part);
        owned
    }
}
