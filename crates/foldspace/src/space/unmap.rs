//! munmap.

use crossbeam_epoch::Guard;

use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};

impl AddressSpace {
    /// Unmaps what is mapped in `range`; holes are fine. Subtrees that others share are only let go of.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyVmas`] if it would split a VMA and there are too many; [`Error::Sealed`]; [`Error::OutOfMemory`].
    pub fn unmap(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.unmap_locked(guard, range)
        })
    }

    /// As [`AddressSpace::unmap`], for who holds the writers' lock.
    pub(super) fn unmap_locked(&self, guard: &Guard, range: PageRange) -> Result<()> {
        let version = self.vmas.load(guard);
        self.refuse_sealed(guard, version, range)?;
        let mut change = self.vmas.change(guard, range);
        let Some(first) = change.first_touched() else { return Ok(()) };
        let splits = first.start() < range.start() && range.end() < first.end();
        if splits && version.summary().totals.vmas as u64 >= self.memory.max_map_count() {
            return Err(Error::TooManyVmas);
        }
        self.carry_out(&mut change, guard, range, None)
    }
}
