//! What an address space may have: the resource limits, and its share of the memory that may be committed.
//!
//! Every operation asks before it changes anything, in Linux's order where the errors differ: locked memory ([`Error::LockLimit`]), seals
//! ([`Error::Sealed`]), size ([`Error::NoRoom`]), committed memory ([`Error::CommitLimit`]).

use super::{AddressSpace, Layout};
use crate::addr::{PAGE_SHIFT, PageRange};
use crate::error::{Error, Result};
use crate::frame::Charge;
use crate::sync::atomic::Ordering;
use crate::vma::{Backing, Change, PageCounts, VersionRef, Vma, VmaFlags};

/// Whether `more` pages of an area with `flags` may be added to `now`: RLIMIT_AS, and RLIMIT_DATA for private writable memory
/// (`may_expand_vm` in `mm/vma.c`).
#[inline]
pub(super) fn may_expand(layout: &Layout, now: &PageCounts, flags: VmaFlags, more: u64) -> Result<()> {
    let data_limit = if layout.data_limit == 0 { layout.data_limit_hard } else { layout.data_limit };
    let too_large = now.total.saturating_add(more) > layout.address_space_limit >> PAGE_SHIFT;
    if too_large || is_data(flags) && now.data.saturating_add(more) > data_limit >> PAGE_SHIFT {
        return Err(Error::NoRoom);
    }
    Ok(())
}

/// Whether `more` pages of an area with `flags` may be added to `now`, if they are locked (`mlock_future_ok` in `mm/mmap.c`).
#[inline]
pub(super) fn may_lock(layout: &Layout, now: &PageCounts, flags: VmaFlags, more: u64) -> Result<()> {
    let over = || now.locked.saturating_add(more) > layout.lock_limit >> PAGE_SHIFT;
    if flags.contains(VmaFlags::LOCKED) && layout.lock_limit != u64::MAX && over() {
        return Err(Error::LockLimit);
    }
    Ok(())
}

/// Private, writable, and not a stack: what RLIMIT_DATA counts.
#[inline]
pub(super) fn is_data(flags: VmaFlags) -> bool {
    const DECIDING: VmaFlags = VmaFlags::WRITE.union(VmaFlags::SHARED).union(VmaFlags::GROWS_DOWN);
    flags & DECIDING == VmaFlags::WRITE
}

/// Whether a new mapping counts as committed (`accountable_mapping` in `mm/vma.c`).
#[inline]
pub(super) fn is_accountable(flags: VmaFlags) -> bool {
    const DECIDING: VmaFlags = VmaFlags::WRITE.union(VmaFlags::SHARED).union(VmaFlags::NO_RESERVE);
    flags & DECIDING == VmaFlags::WRITE
}

/// Whether content may be taken from a VMA by advice, sealed or not (`can_madvise_modify` in `mm/madvise.c`): who could write to it
/// anyway may, and a mapping of an object never loses anything for good.
pub(super) fn may_lose_content(vma: &Vma) -> Result<()> {
    let lasting = matches!(vma.backing, Backing::Object(_));
    if vma.flags.contains(VmaFlags::SEALED) && !lasting && !vma.flags.contains(VmaFlags::WRITE) {
        return Err(Error::Sealed);
    }
    Ok(())
}

/// The first sealed VMA in `range`. O(1) where nothing is sealed.
#[inline]
pub(super) fn sealed_in<'t>(version: VersionRef<'t>, range: PageRange) -> Option<&'t Vma> {
    if !version.summary().flags.contains(VmaFlags::SEALED) {
        return None;
    }
    version.find_flag(VmaFlags::SEALED, range.start()).filter(|vma| vma.start() < range.end())
}

/// Pages that a planned change adds to the memory that is committed.
#[inline]
pub(super) fn committed_growth(change: &Change<'_>) -> i64 {
    let accounted = |version: VersionRef<'_>| version.summary().totals.pages.accounted;
    accounted(change.view()).wrapping_sub(accounted(change.base())) as i64
}

impl AddressSpace {
    /// Charges what a planned change adds to the memory that is committed. To be kept once the change is published.
    #[inline]
    pub(super) fn charge(&self, change: &Change<'_>) -> Result<Charge<'_>> {
        self.charge_growth(committed_growth(change), || change.base().summary().totals.pages.total)
    }

    /// As [`AddressSpace::charge`], of a change that adds `growth` pages; `mapped` says how many there were.
    #[inline]
    pub(super) fn charge_growth(&self, growth: i64, mapped: impl FnOnce() -> u64) -> Result<Charge<'_>> {
        let mut charge = self.memory.charge();
        if growth > 0 {
            charge.take(growth as u64, || self.kept_back(mapped()))?;
        }
        charge.settle(growth);
        Ok(charge)
    }

    /// Pages of the commit limit that this address space, which has `mapped` pages, may not use.
    #[cold]
    pub(super) fn kept_back(&self, mapped: u64) -> u64 {
        // Relaxed: a setting.
        let admin = self.commit_reserve.load(Ordering::Relaxed) >> PAGE_SHIFT;
        admin.saturating_add(self.memory.user_reserve(mapped))
    }

    /// Charges a child's VMAs: as Linux does it, VMA by VMA and without those that it does not inherit, where that makes a difference.
    pub(super) fn charge_fork(&self, version: VersionRef<'_>) -> Result<Charge<'_>> {
        let mut charge = self.memory.charge();
        let summary = version.summary();
        let pages = summary.totals.pages;
        if pages.accounted == 0 {
            return Ok(charge);
        }
        if self.memory.is_reasonable(pages.accounted) && !summary.flags.contains(VmaFlags::DONT_FORK) {
            charge.take(pages.accounted, || self.kept_back(pages.total))?;
            return Ok(charge);
        }
        let left_out = |vma: &&Vma| vma.flags.contains(VmaFlags::DONT_FORK);
        let accounted = || version.iter().filter(|vma| vma.flags.contains(VmaFlags::ACCOUNT));
        for vma in accounted().filter(|vma| !left_out(vma)) {
            charge.take(vma.range.pages(), || self.kept_back(pages.total))?;
        }
        // Given back when they are unmapped in the child.
        charge.take_anyway(accounted().filter(left_out).map(|vma| vma.range.pages()).sum());
        Ok(charge)
    }
}
