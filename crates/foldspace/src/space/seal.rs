//! mseal: mappings that stay as they are until exec or exit.
//!
//! A sealed VMA is not unmapped, moved, replaced, or given other permissions, and advice does not take content from it that could not be
//! overwritten anyway. Each of these operations asks for itself; they find out in O(1) that nothing is sealed.

use crossbeam_epoch::Guard;

use super::limits::sealed_in;
use super::modify::Holes;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::vma::{VersionRef, VmaFlags};

impl AddressSpace {
    /// Seals `range`, for good. O(VMAs in it).
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`]: part of it is not mapped, and nothing is sealed. [`Error::TooManyVmas`]: what comes before is sealed.
    /// [`Error::OutOfMemory`]: nothing is.
    pub fn seal(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            if !self.vmas.load(guard).covers(range) {
                return Err(Error::NotMapped);
            }
            self.modify(guard, range, Holes::End, |piece, _| {
                piece.flags |= VmaFlags::SEALED;
                Ok(())
            })
        })
    }

    /// Refuses to take what is sealed out of `range`. Linux has cut the VMA at the start of the range by then, unless that is the sealed
    /// one, and leaves it so (`vms_gather_munmap_vmas` in `mm/vma.c`).
    #[inline]
    pub(super) fn refuse_sealed(&self, guard: &Guard, version: VersionRef<'_>, range: PageRange) -> Result<()> {
        match sealed_in(version, range) {
            None => Ok(()),
            Some(_) => self.refuse(guard, version, range),
        }
    }

    #[cold]
    fn refuse(&self, guard: &Guard, version: VersionRef<'_>, range: PageRange) -> Result<()> {
        let cut = version.find(range.start()).filter(|vma| vma.start() < range.start());
        if cut.is_some_and(|vma| !vma.flags.contains(VmaFlags::SEALED)) {
            self.split(guard, range.start())?;
        }
        Err(Error::Sealed)
    }
}
