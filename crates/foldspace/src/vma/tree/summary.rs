//! What a node knows about everything below it.

use crate::addr::{PAGE_SHIFT, VirtAddr};
use crate::vma::{Vma, VmaFlags};

/// Pages of VMAs by kind: the kinds of `vm_stat_account` in Linux's `mm/mmap.c` (exec, stack and data exclude each other),
/// and two more that overlap with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct PageCounts {
    /// All pages (VmSize).
    pub total: u64,
    /// Private and writable, not a stack (VmData).
    pub data: u64,
    /// Of areas that grow down (VmStk).
    pub stack: u64,
    /// Executable and neither writable nor a stack (VmExe + VmLib).
    pub exec: u64,
    /// That count towards the memory that is committed.
    pub accounted: u64,
    /// Locked into memory (VmLck).
    pub locked: u64,
}

impl PageCounts {
    /// Sums modulo 2^64, so that a difference taken with [`Self::minus`] may be added.
    #[inline]
    #[must_use]
    pub fn plus(self, other: PageCounts) -> PageCounts {
        self.zip(other, u64::wrapping_add)
    }

    /// Differences modulo 2^64.
    #[inline]
    #[must_use]
    pub fn minus(self, other: PageCounts) -> PageCounts {
        self.zip(other, u64::wrapping_sub)
    }

    #[inline]
    fn zip(self, other: PageCounts, f: impl Fn(u64, u64) -> u64) -> PageCounts {
        PageCounts {
            total: f(self.total, other.total),
            data: f(self.data, other.data),
            stack: f(self.stack, other.stack),
            exec: f(self.exec, other.exec),
            accounted: f(self.accounted, other.accounted),
            locked: f(self.locked, other.locked),
        }
    }
}

/// Sums over a set of VMAs; as a change, modulo 2^64.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Totals {
    /// Pages by kind.
    pub pages: PageCounts,
    /// Number of VMAs.
    pub vmas: usize,
}

impl Totals {
    /// Counts a VMA in.
    #[inline]
    pub fn add(&mut self, vma: &Vma) {
        self.vmas = self.vmas.wrapping_add(1);
        self.add_pages(vma.flags, vma.range.pages());
    }

    /// Counts pages of a VMA with `flags` in, modulo 2^64.
    #[inline]
    pub(super) fn add_pages(&mut self, flags: VmaFlags, pages: u64) {
        let counts = &mut self.pages;
        let (write, exec) = (VmaFlags::WRITE, VmaFlags::EXEC);
        let (shared, stack) = (VmaFlags::SHARED, VmaFlags::GROWS_DOWN);
        let add = |count: &mut u64| *count = count.wrapping_add(pages);
        add(&mut counts.total);
        if flags & (write.union(shared).union(stack)) == write {
            add(&mut counts.data);
        }
        if flags.contains(VmaFlags::ACCOUNT) {
            add(&mut counts.accounted);
        }
        if !flags.intersects(exec.union(stack).union(VmaFlags::LOCKED)) {
            return; // Mostly.
        }
        if flags.contains(stack) {
            add(&mut counts.stack);
        }
        if flags & (write.union(exec).union(stack)) == exec {
            add(&mut counts.exec);
        }
        if flags.contains(VmaFlags::LOCKED) {
            add(&mut counts.locked);
        }
    }

    /// Sums modulo 2^64.
    #[inline]
    #[must_use]
    pub fn plus(self, other: Totals) -> Totals {
        Totals { pages: self.pages.plus(other.pages), vmas: self.vmas.wrapping_add(other.vmas) }
    }
    /// Adds a difference, modulo 2^64.
    #[inline]
    pub fn change(&mut self, by: &Totals) {
        *self = self.plus(*by);
    }
    /// Differences modulo 2^64.
    #[inline]
    #[must_use]
    pub fn minus(&self, other: &Totals) -> Totals {
        Totals { pages: self.pages.minus(other.pages), vmas: self.vmas.wrapping_sub(other.vmas) }
    }
}

/// Summary of all VMAs of a tree or subtree. All zero when there are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Summary {
    /// First byte of the first VMA.
    pub start: VirtAddr,
    /// One past the last byte of the last VMA.
    pub end: VirtAddr,
    /// Bytes of the largest hole between two neighbours; what lies before the first and after the last does not count.
    pub largest_gap: u64,
    /// Sums.
    pub totals: Totals,
    /// Every flag that some VMA has.
    pub flags: VmaFlags,
}

impl Summary {
    /// The summary of no VMA.
    pub const EMPTY: Summary = Summary {
        start: VirtAddr(0),
        end: VirtAddr(0),
        largest_gap: 0,
        totals: Totals { pages: PageCounts { total: 0, data: 0, stack: 0, exec: 0, accounted: 0, locked: 0 }, vmas: 0 },
        flags: VmaFlags::empty(),
    };

    /// Whether a hole of so many bytes is surely the largest: it makes up half of all holes.
    #[inline]
    pub(super) fn is_mostly(&self, hole: u64) -> bool {
        let holes = (self.end.get() - self.start.get()).wrapping_sub(self.totals.pages.total << PAGE_SHIFT);
        hole >= holes.wrapping_sub(hole)
    }
}
