//! madvise(MADV_DONTNEED): content goes, the mapping stays.

use crossbeam_epoch::Guard;

use super::limits::may_lose_content;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::table::Touch;
use crate::vma::{Vma, VmaFlags};

impl AddressSpace {
    /// Drops the pages of `range`: private memory reads as zeros (or as its backing) afterwards, shared memory as the object still has it.
    /// Guards stay.
    /// Whole subtrees go at once; those that others share are only let go of.
    ///
    /// # Errors
    ///
    /// [`Error::AccessDenied`] if a VMA in the range is locked (EINVAL on Linux), [`Error::Sealed`] if it is sealed and cannot be written to, and
    /// [`Error::NotMapped`] if part of it is not mapped: what comes before the first such VMA, and all of what is mapped around holes, is
    /// discarded all the same, as on Linux.
    /// [`Error::OutOfMemory`]: nothing is discarded of the VMA at which it happened.
    pub fn discard(&self, range: PageRange) -> Result<()> {
        self.discard_unless(VmaFlags::LOCKED, range)
    }

    /// [`AddressSpace::discard`] of locked memory too (MADV_DONTNEED_LOCKED); it stays locked.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::discard`], never [`Error::AccessDenied`].
    pub fn discard_locked(&self, range: PageRange) -> Result<()> {
        self.discard_unless(VmaFlags::empty(), range)
    }

    fn discard_unless(&self, refused: VmaFlags, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let (mut reached, mut holes) = (range.start(), false);
            for vma in self.vmas.load(guard).range(range) {
                let Some(part) = vma.range.intersect(range) else { continue };
                holes |= part.start() > reached;
                reached = part.end();
                may_lose_content(vma)?;
                if vma.flags.intersects(refused) {
                    return Err(Error::AccessDenied);
                }
                if self.tables().holds_private(part) {
                    self.note_written(guard, vma);
                }
                self.discard_part(guard, part)?;
            }
            if holes || reached < range.end() { Err(Error::NotMapped) } else { Ok(()) }
        })
    }

    /// Notes of private memory that counts as committed that it was stored to, before advice takes that away. Where there is no memory for the
    /// note, it is not made: then the memory may stop counting before it would on Linux.
    pub(super) fn note_written(&self, guard: &Guard, vma: &Vma) {
        let counts = vma.flags & (VmaFlags::ACCOUNT | VmaFlags::WRITTEN) == VmaFlags::ACCOUNT;
        if counts && !vma.backing.has_offsets() {
            let mut change = self.vmas.change(guard, vma.range);
            if change.splice([Vma { flags: vma.flags | VmaFlags::WRITTEN, ..vma.clone() }]).is_ok() {
                change.publish();
            }
        }
    }

    /// Drops what is present in `part`, all of it mapped; guards stay. The caller holds the writers' lock.
    pub(super) fn discard_part(&self, guard: &Guard, part: PageRange) -> Result<()> {
        let touch = if self.may_have_guards() { Touch::EdgesAndGuards } else { Touch::Edges };
        let mut garbage = Garbage::new();
        let owned = self.tables().own_range(part, touch, &mut garbage);
        if owned.is_ok() {
            self.tables().clear_pages(part, &mut garbage, touch);
        }
        self.finish(&mut garbage, guard, part);
        owned
    }
}
