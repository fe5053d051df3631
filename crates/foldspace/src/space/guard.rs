//! madvise(MADV_GUARD_INSTALL and MADV_GUARD_REMOVE): pages that nobody may access, without a VMA of their own.

use crossbeam_epoch::Guard;

use super::limits::may_lose_content;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::{ENTRIES, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::sync::atomic::Ordering;
use crate::table::Touch;
use crate::vma::{Vma, VmaFlags};

impl AddressSpace {
    /// Drops the pages of `range` and puts guards in their place: every access faults as if nothing were mapped, until the guards are removed. They
    /// stay when memory is discarded, protected, forked or moved, and go when it is unmapped or wiped in a child.
    ///
    /// # Errors
    ///
    /// As Linux's `madvise_guard_install` (`mm/madvise.c`): [`Error::WrongKind`] at the first locked VMA (EINVAL), [`Error::Sealed`] at
    /// the first sealed one that could not be stored to (EPERM); what comes before has its guards. [`Error::NotMapped`] if part of the range is not mapped:
    /// all the rest has its guards. [`Error::OutOfMemory`]: nothing has changed in the VMA at which it happened.
    pub fn guard_install(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.for_each_mapped(guard, range, |vma, part| {
                may_lose_content(vma)?;
                if vma.flags.contains(VmaFlags::LOCKED) {
                    return Err(Error::WrongKind);
                }
                // Each table of the last level will be this space's own. What cannot be is not found out by filling all memory.
                if part.pages() / ENTRIES as u64 > self.memory.records().len() as u64 {
                    return Err(Error::OutOfMemory);
                }
                self.note_written(guard, vma);
                // Relaxed: under the writers' lock, as whoever asks; others see it too late at worst, as if they had come before.
                self.has_guards.store(true, Ordering::Relaxed);
                self.change_guards(guard, part, Touch::Every, |garbage| self.tables().put_guards(part, garbage))
            })
        })
    }

    /// Takes the guards out of `range`, if there are any: its pages start as new.
    ///
    /// # Errors
    ///
    /// [`Error::NotMapped`] if part of it is not mapped: the rest has no guards any more. [`Error::OutOfMemory`], as for
    /// [`AddressSpace::guard_install`].
    pub fn guard_remove(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.for_each_mapped(guard, range, |_, part| {
                self.change_guards(guard, part, Touch::Guards, |garbage| self.tables().take_guards(part, garbage))
            })
        })
    }

    /// Whether there is a guard at `addr`.
    pub fn is_guarded(&self, addr: VirtAddr) -> bool {
        let _guard = self.memory.pin();
        self.tables().is_guarded(addr)
    }

    /// Whether there may be guards anywhere.
    pub(crate) fn may_have_guards(&self) -> bool {
        self.has_guards.load(Ordering::Relaxed)
    }

    fn change_guards(
        &self,
        guard: &Guard,
        part: PageRange,
        touch: Touch,
        change: impl FnOnce(&mut Garbage),
    ) -> Result<()> {
        let mut garbage = Garbage::new();
        let owned = self.tables().own_range(part, touch, &mut garbage);
        if owned.is_ok() {
            change(&mut garbage);
        }
        self.finish(&mut garbage, guard, part);
        owned
    }

    /// Calls `act` with each VMA in `range` and what it has of it, up to the first error: Linux's `madvise_walk_vmas`, which says at the
    /// end that there were holes.
    fn for_each_mapped(
        &self,
        guard: &Guard,
        range: PageRange,
        mut act: impl FnMut(&Vma, PageRange) -> Result<()>,
    ) -> Result<()> {
        let (mut reached, mut holes) = (range.start(), false);
        for vma in self.vmas.load(guard).range(range) {
            let Some(part) = vma.range.intersect(range) else { continue };
            holes |= part.start() > reached;
            reached = part.end();
            act(vma, part)?;
        }
        if holes || reached < range.end() { Err(Error::NotMapped) } else { Ok(()) }
    }
}
