//! What all changes of layout share.

use crossbeam_epoch::Guard;

use super::AddressSpace;
use crate::addr::{PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::platform::Flush;
use crate::sync::watched::{AtomicU64, Ordering};
use crate::vma::{Change, Vma};

/// The range that a writer is replacing: faults in it wait. One range is enough, since writers take turns. The per-VMA write lock of
/// Linux, kept beside the VMAs because they are immutable.
///
/// A mapping that moves takes two ranges: the hull of both, but for the hole between them.
#[derive(Default)]
pub(super) struct InChange {
    start: AtomicU64,
    end: AtomicU64,
    hole_start: AtomicU64,
    hole_end: AtomicU64,
}

/// Orderings: that a change has begun is seen by who sees what came after it: the version that it published (release, acquire), or the entries of the
/// root that a fork has write-protected. That it is over, or that another one has begun instead, says that its shootdown is done, so whoever sees that
/// must see what was stored through translations until then: stores are release, loads acquire. Nothing here is sequentially consistent: a
/// fault asks under the lock of the table that it changes, and what a writer does under that lock later cannot be seen yet.
impl InChange {
    /// Before the version that replaces the range is published: who sees that version, under the lock of a table, sees this too.
    pub(super) fn begin(&self, range: PageRange) {
        // Release, both: each alone can say that the last change is over.
        self.start.store(range.start().get(), Ordering::Release);
        self.end.store(range.end().get(), Ordering::Release);
    }

    /// As [`InChange::begin`], of two ranges that do not overlap.
    pub(super) fn begin_two(&self, a: PageRange, b: PageRange) {
        let (low, high) = if a.start() < b.start() { (a, b) } else { (b, a) };
        // Relaxed: alone it says nothing, for the hole's end was 0.
        self.hole_start.store(low.end().get(), Ordering::Relaxed);
        // Release, all three: as in `begin`.
        self.hole_end.store(high.start().get(), Ordering::Release);
        self.start.store(low.start().get(), Ordering::Release);
        self.end.store(high.end().get(), Ordering::Release);
    }

    pub(super) fn end(&self) {
        // Release: it is over, with its shootdown.
        self.end.store(0, Ordering::Release);
        // Relaxed: without a hole only more would wait.
        self.hole_end.store(0, Ordering::Relaxed);
    }

    /// Whether a fault at `addr` has to wait.
    #[inline]
    pub(super) fn contains(&self, addr: VirtAddr) -> bool {
        // The end is read first and written last: a mix of two ranges can only say "wait" where that was not needed. Acquire: who need not wait (any
        // more) sees what the change did.
        addr.get() < self.end.load(Ordering::Acquire)
            && self.start.load(Ordering::Acquire) <= addr.get()
            && !self.in_hole(addr)
    }
}

impl InChange {
    #[cold]
    fn in_hole(&self, addr: VirtAddr) -> bool {
        // Acquire: as above. Relaxed: stored before the end.
        addr.get() < self.hole_end.load(Ordering::Acquire) && self.hole_start.load(Ordering::Relaxed) <= addr.get()
    }
}

/// What a range was before it changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing was mapped there, so nothing is present, and no fault installs anything before the new version is published.
    Hole,
    Mapped,
}

impl AddressSpace {
    /// Puts `vma` (merged with its neighbours where that can be), or nothing, in the place of whatever is in `range`.
    /// The caller holds the writers' lock.
    pub(super) fn replace(&self, guard: &Guard, range: PageRange, vma: Option<Vma>) -> Result<()> {
        self.carry_out(&mut self.vmas.change(guard, range), guard, range, vma)
    }

    /// As [`AddressSpace::replace`], of the range of a change that has begun.
    #[inline]
    pub(super) fn carry_out(
        &self,
        change: &mut Change<'_>,
        guard: &Guard,
        range: PageRange,
        vma: Option<Vma>,
    ) -> Result<()> {
        change.put(vma)?;
        self.apply(change, guard, range)
    }

    /// Carries out a change that has been planned.
    #[inline]
    pub(super) fn apply(&self, change: &mut Change<'_>, guard: &Guard, range: PageRange) -> Result<()> {
        let before = if change.first_touched().is_none() { Before::Hole } else { Before::Mapped };
        self.apply_where(change, guard, range, before)
    }

    /// As [`AddressSpace::apply`], of which only `range` is new.
    #[inline(always)]
    pub(super) fn apply_where(
        &self,
        change: &mut Change<'_>,
        guard: &Guard,
        range: PageRange,
        before: Before,
    ) -> Result<()> {
        let charge = self.charge(change)?;
        let mut garbage = Garbage::new();
        let end = match self.tables().own_edges(range, &mut garbage) {
            Ok(end) => end,
            Err(error) => {
                self.finish(&mut garbage, guard, range);
                return Err(error);
            }
        };
        if before == Before::Hole {
            change.publish();
        } else {
            self.in_change.begin(range);
            change.publish();
            let now = self.vmas.load(guard);
            let keep = |span: PageRange| now.find_at_or_after(span.start()).is_some_and(|vma| vma.start() < span.end());
            self.tables().clear_from(end, range, &mut garbage, &keep);
            self.in_change.end();
        }
        charge.keep();
        self.note_mapped(guard);
        self.finish(&mut garbage, guard, range);
        Ok(())
    }

    pub(super) fn note_mapped(&self, guard: &Guard) {
        let mapped = self.vmas.load(guard).summary().totals.pages.total;
        // Relaxed: writers take turns, and readers want a number.
        if mapped > self.mapped_peak.load(Ordering::Relaxed) {
            self.mapped_peak.store(mapped, Ordering::Relaxed);
        }
    }

    /// The end of every change: first no processor uses the old translations, then what they led to may go.
    #[inline]
    pub(super) fn finish(&self, garbage: &mut Garbage, guard: &Guard, range: PageRange) {
        garbage.settle(&self.memory, self.id, Flush::Range(range));
        garbage.retire(&self.memory, guard);
    }
}

/// `second`, extended down over `first` if the two may be one.
pub(super) fn join(first: &Vma, second: Vma) -> Vma {
    match PageRange::new(first.start(), second.end()) {
        Some(range) if first.merges_with(&second) => {
            Vma { range, page_offset: first.page_offset, flags: first.flags | second.flags, ..second }
        }
        _ => second,
    }
}

/// Bytes rounded up to pages: not empty, not wrapping.
pub(super) fn whole_pages(len: u64) -> Result<u64> {
    if len == 0 {
        return Err(Error::BadRange);
    }
    VirtAddr(len).page_ceil().map(VirtAddr::get).ok_or(Error::NoRoom)
}

#[cfg(all(test, foldspace_loom))]
mod loom;
