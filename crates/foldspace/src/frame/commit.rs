//! How much memory may be promised: Linux's overcommit accounting (`__vm_enough_memory` in `mm/util.c`), and how many VMAs there may be.
//!
//! Committed are the pages of all VMAs with [`VmaFlags::ACCOUNT`](crate::vma::VmaFlags::ACCOUNT), which each tree of VMAs sums up, and the
//! lengths of shared anonymous objects. A change is charged with what it adds to its tree's sum before it changes anything, and gives
//! back what it takes from it when it is done. So nothing can drift: the charge is the sum over the trees and the objects.

use super::Memory;
use crate::error::{Error, Result};
use crate::space::MAX_MAP_COUNT;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How much memory may be committed (`vm.overcommit_memory`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Overcommit {
    /// 0: no single request may be larger than all memory.
    #[default]
    Heuristic = 0,
    /// 1: anything goes.
    Always = 1,
    /// 2: no more than [`Memory::commit_limit`] at once; MAP_NORESERVE is ignored.
    Never = 2,
}

/// Pages that are kept from any one address space in [`Overcommit::Never`] at most (`vm.user_reserve_kbytes`, 128 MiB).
const USER_RESERVE: u64 = (128 << 20) >> crate::addr::PAGE_SHIFT;

/// The settings, and what is committed. All relaxed: sums, to which each adds before it compares, and settings that hold for what comes later.
pub(super) struct Commit {
    /// Pages, those of objects included.
    pages: AtomicU64,
    /// Of these, those of objects.
    objects: AtomicU64,
    mode: AtomicU8,
    ratio: AtomicU64,
    kbytes: AtomicU64,
    max_map_count: AtomicU64,
    protection_keys: AtomicBool,
}

impl Commit {
    pub(super) const fn new() -> Commit {
        Commit {
            pages: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            mode: AtomicU8::new(Overcommit::Heuristic as u8),
            ratio: AtomicU64::new(50),
            kbytes: AtomicU64::new(0),
            max_map_count: AtomicU64::new(MAX_MAP_COUNT),
            protection_keys: AtomicBool::new(false),
        }
    }
}

/// Settings.
impl Memory {
    /// `vm.overcommit_memory`.
    pub fn overcommit(&self) -> Overcommit {
        match self.commit.mode.load(Ordering::Relaxed) {
            0 => Overcommit::Heuristic,
            1 => Overcommit::Always,
            _ => Overcommit::Never,
        }
    }

    /// Sets `vm.overcommit_memory`. What is committed already stays so.
    pub fn set_overcommit(&self, mode: Overcommit) {
        self.commit.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// `vm.overcommit_ratio`: percent of all memory that may be committed, unless [`Memory::overcommit_kbytes`] says how much. 50 at first.
    pub fn overcommit_ratio(&self) -> u64 {
        self.commit.ratio.load(Ordering::Relaxed)
    }

    /// Sets it; then the kilobytes are 0, as on Linux.
    pub fn set_overcommit_ratio(&self, percent: u64) {
        self.commit.ratio.store(percent, Ordering::Relaxed);
        self.commit.kbytes.store(0, Ordering::Relaxed);
    }

    /// `vm.overcommit_kbytes`: KiB that may be committed; 0: by [`Memory::overcommit_ratio`].
    pub fn overcommit_kbytes(&self) -> u64 {
        self.commit.kbytes.load(Ordering::Relaxed)
    }

    /// Sets it; then the ratio is 0, as on Linux.
    pub fn set_overcommit_kbytes(&self, kbytes: u64) {
        self.commit.kbytes.store(kbytes, Ordering::Relaxed);
        self.commit.ratio.store(0, Ordering::Relaxed);
    }

    /// Pages that are committed (Committed_AS in /proc/meminfo).
    pub fn committed_pages(&self) -> u64 {
        self.commit.pages.load(Ordering::Relaxed)
    }

    /// Pages that may be committed in [`Overcommit::Never`] (CommitLimit in /proc/meminfo, `vm_commit_limit` in `mm/util.c`).
    pub fn commit_limit(&self) -> u64 {
        match self.overcommit_kbytes() {
            0 => self.total.saturating_mul(self.overcommit_ratio()) / 100,
            kbytes => kbytes >> (crate::addr::PAGE_SHIFT - 10),
        }
    }

    /// `vm.max_map_count`: VMAs in one address space at most, give or take one as on Linux. [`MAX_MAP_COUNT`] at first.
    #[inline]
    pub fn max_map_count(&self) -> u64 {
        self.commit.max_map_count.load(Ordering::Relaxed)
    }

    /// Sets it. Address spaces that have more keep them.
    pub fn set_max_map_count(&self, count: u64) {
        self.commit.max_map_count.store(count, Ordering::Relaxed);
    }

    /// Whether processors heed protection keys (PKRU on x86). Not at first.
    #[inline]
    pub fn has_protection_keys(&self) -> bool {
        self.commit.protection_keys.load(Ordering::Relaxed)
    }

    /// Says that they do. Before the first address space is made.
    pub fn set_protection_keys(&self) {
        self.commit.protection_keys.store(true, Ordering::Relaxed);
    }
}

/// Charges.
impl Memory {
    /// A charge of nothing yet.
    #[inline]
    pub(crate) fn charge(&self) -> Charge<'_> {
        Charge { memory: self, taken: 0, freed: 0 }
    }

    /// Gives pages back that were charged and kept.
    #[inline]
    pub(crate) fn uncharge(&self, pages: u64) {
        self.commit.pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Charges the length of an object, or gives it back.
    pub(crate) fn charge_object(&self, pages: u64) -> Result<()> {
        let mut charge = self.charge();
        charge.take(pages, || 0)?;
        charge.keep();
        self.commit.objects.fetch_add(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back what [`Memory::charge_object`] took.
    pub(crate) fn uncharge_object(&self, pages: u64) {
        self.commit.objects.fetch_sub(pages, Ordering::Relaxed);
        self.uncharge(pages);
    }

    /// Pages of objects that are committed.
    pub(crate) fn committed_by_objects(&self) -> u64 {
        self.commit.objects.load(Ordering::Relaxed)
    }

    /// Whether one request for so many pages is within reason for [`Overcommit::Heuristic`].
    pub(crate) fn is_reasonable(&self, pages: u64) -> bool {
        pages <= self.total
    }

    /// What [`Overcommit::Never`] keeps back for a user who has `mapped` pages in one address space, so that he can still end it.
    pub(crate) fn user_reserve(&self, mapped: u64) -> u64 {
        (mapped / 32).min(USER_RESERVE.min(self.total / 32))
    }

    #[cold]
    fn check_limit(&self, pages: u64, kept_back: u64) -> Result<()> {
        let committed = self.commit.pages.load(Ordering::Relaxed);
        if committed < self.commit_limit().saturating_sub(kept_back) {
            return Ok(());
        }
        self.uncharge(pages);
        Err(Error::CommitLimit)
    }
}

/// What a change adds to the memory that is committed, and takes from it. Dropped, it leaves everything as it was.
#[must_use = "given back unless it is kept"]
pub(crate) struct Charge<'m> {
    memory: &'m Memory,
    /// Charged already.
    taken: u64,
    /// To be given back at the end.
    freed: u64,
}

impl Charge<'_> {
    /// Takes `pages` more. `kept_back` says how many pages of the limit the asker may not have; asked only in [`Overcommit::Never`].
    #[inline]
    pub(crate) fn take(&mut self, pages: u64, kept_back: impl FnOnce() -> u64) -> Result<()> {
        let commit = &self.memory.commit;
        let mode = commit.mode.load(Ordering::Relaxed);
        if mode == Overcommit::Heuristic as u8 && !self.memory.is_reasonable(pages) {
            return Err(Error::CommitLimit);
        }
        commit.pages.fetch_add(pages, Ordering::Relaxed);
        if mode == Overcommit::Never as u8 {
            self.memory.check_limit(pages, kept_back())?;
        }
        self.taken += pages;
        Ok(())
    }

    /// Takes pages that nobody may refuse.
    pub(crate) fn take_anyway(&mut self, pages: u64) {
        self.memory.commit.pages.fetch_add(pages, Ordering::Relaxed);
        self.taken += pages;
    }

    /// The change adds `growth` pages in all, no more than were taken: what is left over is given back once it is kept.
    #[inline]
    pub(crate) fn settle(&mut self, growth: i64) {
        debug_assert!(growth <= self.taken as i64);
        self.freed = self.taken.wrapping_sub(growth as u64);
    }

    /// The change has happened.
    #[inline]
    pub(crate) fn keep(self) {
        if self.freed != 0 {
            self.memory.uncharge(self.freed);
        }
        core::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.taken != 0 {
            self.memory.uncharge(self.taken);
        }
    }
}
