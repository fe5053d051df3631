//! munmap.

use crossbeam_epoch::Guard;

use super::{AddressSpace, MAX_MAP_COUNT, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};

impl AddressSpace {
    /// Unmaps what is mapped in `range`; holes are fine. Subtrees that others share are only let go of.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyVmas`] if it would split a VMA and there are too many; [`Error::OutOfMemory`].
    pub fn unmap(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.unmap_locked(guard, range)
        })
    }

    /// As [`AddressSpace::unmap`], for who holds the writers' lock.
    pub(super) fn unmap_locked(&self, guard: &Guard, range: PageRange) -> Result<()> {
        let version = self.vmas.load(guard);
        let first = version.find_at_or_after(range.start());
        let Some(first) = first.filter(|first| first.start() < range.end()) else { return Ok(()) };
        let splits = first.start() < range.start() && range.end() < first.end();
        if splits && version.summary().totals.vmas as u64 >= MAX_MAP_COUNT {
            return Err(Error::TooManyVmas);
        }
        self.replace(guard, range, None)
    }
}
