//! mlock and its kin: which pages are to stay in memory. Nothing is ever taken out of memory here, so a lock is a mark that is counted, held
//! against a limit, and in the way of whoever discards. Faulting the pages in is for [`AddressSpace::populate`] and its caller.

use super::modify::Holes;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Vma, VmaFlags};

/// When locked pages come into memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// At once.
    Now,
    /// As they are touched (MLOCK_ONFAULT, MCL_ONFAULT).
    OnFault,
}

/// What a lock is made of.
pub(super) const LOCK: VmaFlags = VmaFlags::LOCKED.union(VmaFlags::LOCK_ON_FAULT);

impl LockMode {
    fn flags(self) -> VmaFlags {
        match self {
            LockMode::Now => VmaFlags::LOCKED,
            LockMode::OnFault => LOCK,
        }
    }
}

impl AddressSpace {
    /// Locks `range` (mlock, mlock2). Droppable and secret memory stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::LockLimit`]: more than [`super::Layout::lock_limit`] would be locked. As on Linux, what comes before the first hole
    /// ([`Error::NotMapped`]) or [`Error::TooManyVmas`] is locked all the same. [`Error::OutOfMemory`]: nothing has changed.
    pub fn lock(&self, range: PageRange, mode: LockMode) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            let version = self.vmas.load(guard);
            let after = version.summary().totals.pages.locked + range.pages();
            let limit = layout.lock_limit >> PAGE_SHIFT;
            if layout.lock_limit != u64::MAX && after > limit {
                let locked = version.range(range).filter(|vma| vma.flags.contains(VmaFlags::LOCKED));
                let again = locked.filter_map(|vma| vma.range.intersect(range)).map(PageRange::pages).sum::<u64>();
                if after - again > limit {
                    return Err(Error::LockLimit);
                }
            }
            self.modify(guard, range, Holes::End, |piece, _| relock(piece, mode.flags()))
        })
    }

    /// Takes the locks from `range` (munlock).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::lock`], without a limit.
    pub fn unlock(&self, range: PageRange) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.modify(guard, range, Holes::End, |piece, _| relock(piece, VmaFlags::empty()))
        })
    }

    /// mlockall: locks all VMAs in mode `now`, and those to come in mode `future`; without `future`, those to come are not locked any more.
    /// O(VMAs). A VMA for which memory runs out stays as it was, as on Linux.
    ///
    /// # Errors
    ///
    /// [`Error::LockLimit`]: more is mapped than may be locked `now`. Nothing has changed.
    pub fn lock_all(&self, now: Option<LockMode>, future: Option<LockMode>) -> Result<()> {
        let mut layout = self.writer.lock();
        let guard = self.memory.pin();
        let mapped = self.vmas.load(&guard).summary().totals.pages.total;
        if now.is_some() && layout.lock_limit != u64::MAX && mapped > layout.lock_limit >> PAGE_SHIFT {
            return Err(Error::LockLimit);
        }
        layout.future_lock = future.map_or(VmaFlags::empty(), LockMode::flags);
        if let Some(now) = now {
            self.relock_all(now.flags());
        }
        Ok(())
    }

    /// munlockall: takes all locks away, and locks nothing that is mapped later.
    pub fn unlock_all(&self) {
        let mut layout = self.writer.lock();
        layout.future_lock = VmaFlags::empty();
        self.relock_all(VmaFlags::empty());
    }

    /// The caller holds the writers' lock.
    fn relock_all(&self, lock: VmaFlags) {
        let mut from = VirtAddr(0);
        loop {
            let guard = self.memory.pin();
            let Some(vma) = self.vmas.load(&guard).find_at_or_after(from) else { return };
            let range = vma.range;
            from = range.end();
            // Whole VMAs are not cut: what can go wrong is that there is no memory.
            let _ = self.modify(&guard, range, Holes::End, |piece, _| relock(piece, lock));
        }
    }
}

/// Gives a VMA a lock instead of the one it has, if it can be locked (`mlock_fixup` in Linux's `mm/mlock.c`).
#[expect(clippy::unnecessary_wraps, reason = "what `modify` takes")]
fn relock(piece: &mut Vma, lock: VmaFlags) -> Result<()> {
    if !piece.flags.intersects(VmaFlags::DROPPABLE | VmaFlags::SECRET) {
        piece.flags = (piece.flags - LOCK) | lock;
    }
    Ok(())
}
