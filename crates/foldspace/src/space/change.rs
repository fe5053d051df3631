//! What all changes of layout share.

use core::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::Guard;

use super::AddressSpace;
use crate::addr::{PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::platform::Flush;
use crate::table::Touch;
use crate::vma::{VersionRef, Vma};

/// The range that a writer is replacing: faults in it wait. One range is enough, since writers take turns. The per-VMA write lock of
/// Linux, kept beside the VMAs because they are immutable.
#[derive(Default)]
pub(super) struct InChange {
    start: AtomicU64,
    end: AtomicU64,
}

impl InChange {
    /// Before the version that replaces the range is published: who sees that version, under the lock of a table, sees this too.
    pub(super) fn begin(&self, range: PageRange) {
        self.start.store(range.start().get(), Ordering::SeqCst);
        self.end.store(range.end().get(), Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.end.store(0, Ordering::SeqCst);
    }

    /// Whether a fault at `addr` has to wait.
    #[inline]
    pub(super) fn contains(&self, addr: VirtAddr) -> bool {
        // The end is read first and written last: a mix of two ranges can only say "wait" where that was not needed.
        addr.get() < self.end.load(Ordering::SeqCst) && self.start.load(Ordering::SeqCst) <= addr.get()
    }
}

impl AddressSpace {
    /// Puts `vma` (merged with its neighbours where that can be), or nothing, in the place of whatever is in `range`.
    /// The caller holds the writers' lock.
    pub(super) fn replace(&self, guard: &Guard, range: PageRange, vma: Option<Vma>) -> Result<()> {
        // Where nothing was mapped nothing is present, and no fault installs anything before the new version is published.
        let next = self.vmas.load(guard).find_at_or_after(range.start());
        let was_hole = next.is_none_or(|vma| vma.start() >= range.end());
        let prepared = match vma {
            Some(vma) => {
                let vma = merge_with_neighbours(self.vmas.load(guard), vma);
                self.vmas.prepare(guard, vma.range, [vma])?
            }
            None => self.vmas.prepare(guard, range, [])?,
        };
        let mut garbage = Garbage::new();
        if let Err(error) = self.tables().own_range(range, Touch::Edges, &mut garbage) {
            drop(prepared);
            self.finish(garbage, guard, range);
            return Err(error);
        }
        if was_hole {
            prepared.publish();
        } else {
            self.in_change.begin(range);
            prepared.publish();
            let now = self.vmas.load(guard);
            let keep = |span: PageRange| now.find_at_or_after(span.start()).is_some_and(|vma| vma.start() < span.end());
            self.tables().clear_range(range, &mut garbage, &keep);
            self.in_change.end();
        }
        self.note_mapped(guard);
        self.finish(garbage, guard, range);
        Ok(())
    }

    pub(super) fn note_mapped(&self, guard: &Guard) {
        let mapped = self.vmas.load(guard).summary().totals.pages.total;
        if mapped > self.mapped_peak.load(Ordering::Relaxed) {
            self.mapped_peak.store(mapped, Ordering::Relaxed);
        }
    }

    /// The end of every change: first no processor uses the old translations, then what they led to may go.
    pub(super) fn finish(&self, garbage: Garbage, guard: &Guard, range: PageRange) {
        if garbage.stale {
            let flush = if garbage.stale_beyond { Flush::All } else { Flush::Range(range) };
            self.memory.platform().shootdown(self.id, flush);
        }
        garbage.retire(&self.memory, guard);
    }
}

/// `vma`, extended by what touches it on either side and may be one with it. What it replaces does not count.
pub(super) fn merge_with_neighbours(version: VersionRef<'_>, vma: Vma) -> Vma {
    let mut merged = vma;
    let (start, end) = (merged.start(), merged.end());
    let around = version.neighbours(start);
    // Below: what ends at our start, or reaches over it and will be cut there.
    let below = around.before.filter(|before| before.end() == start);
    let below = below.or(around.at_or_after.filter(|at| at.start() < start));
    if let Some(below) = below
        && merged.continues(below)
        && let Some(range) = PageRange::new(below.start(), end)
    {
        merged.page_offset = below.page_offset;
        merged.range = range;
    }
    // Above: what starts at our end, or before it and will be cut there.
    let mut above = around.at_or_after;
    if above.is_some_and(|above| above.end() <= end) {
        above = version.find_at_or_after(end);
    }
    if let Some(above) = above.filter(|above| above.start() <= end)
        && above.continues(&merged)
        && let Some(range) = PageRange::new(merged.start(), above.end())
    {
        merged.range = range;
    }
    merged
}

/// `second`, extended down over `first` if the two may be one.
pub(super) fn join(first: &Vma, second: Vma) -> Vma {
    match PageRange::new(first.start(), second.end()) {
        Some(range) if first.merges_with(&second) => Vma { range, page_offset: first.page_offset, ..second },
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
