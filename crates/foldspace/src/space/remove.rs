//! madvise(MADV_REMOVE): content goes from the object behind a shared mapping.

use core::ops::Range;

use super::AddressSpace;
use crate::addr::{PAGE_SHIFT, PageRange};
use crate::backing::Object;
use crate::error::Error;
use crate::vma::{Backing, VmaFlags};

impl AddressSpace {
    /// Calls `punch` with each object that `range` shows and the bytes of it that are shown there: [`Object::punch_hole`], or the embedder's own
    /// fallocate, which knows whether the file may be changed. With no lock of the address space held.
    ///
    /// # Errors
    ///
    /// By the rules of Linux's `madvise_remove` (`mm/madvise.c`), at the first area to which one applies; what comes before is done:
    /// [`Error::WrongKind`] if it is locked, or shows no object; [`Error::AccessDenied`] if it is not shared, or may not be written. What
    /// `punch` says. [`Error::NotMapped`] at the end if part of the range is not mapped.
    pub fn remove<E: From<Error>>(
        &self,
        range: PageRange,
        mut punch: impl FnMut(&Object, Range<u64>) -> Result<(), E>,
    ) -> Result<(), E> {
        let version = self.vmas();
        let (mut reached, mut holes) = (range.start(), false);
        for vma in version.view().range(range) {
            let Some(part) = vma.range.intersect(range) else { continue };
            holes |= part.start() > reached;
            reached = part.end();
            let Backing::Object(object) = &vma.backing else { return Err(Error::WrongKind.into()) };
            if vma.flags.contains(VmaFlags::LOCKED) {
                return Err(Error::WrongKind.into());
            }
            if !vma.flags.contains(VmaFlags::SHARED | VmaFlags::MAY_WRITE) {
                return Err(Error::AccessDenied.into());
            }
            let start = vma.page_at(part.start()) << PAGE_SHIFT;
            punch(object, start..start.saturating_add(part.len()))?;
        }
        if holes || reached < range.end() { Err(Error::NotMapped.into()) } else { Ok(()) }
    }
}
