//! madvise(MADV_FREE, MADV_COLD, MADV_PAGEOUT): pages that may go, or need not be near. There is no swap, and nothing is taken away for want of
//! memory: what can be seen of these on a Linux without swap.

use super::limits::may_lose_content;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::table::{Entry, Touch};
use crate::vma::{Backing, Vma, VmaFlags};

/// Refuses no VMA.
const ANY: fn(&Vma) -> Result<()> = |_| Ok(());

impl AddressSpace {
    /// Marks the private pages of `range` as no longer needed: clean and not accessed, and gone with the next [`AddressSpace::pageout`]. A
    /// store to one takes that back; until then its content stays. Tables that are shared are copied: what a relative sees of his pages stays.
    /// What was lost with its memory is as good as new.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] if a VMA in the range is not private and anonymous, or is locked, [`Error::Sealed`] if it is sealed and cannot be
    /// written to, and [`Error::NotMapped`] if part of it is not mapped: what comes before the first such VMA, and all around holes, is done all the same, as on Linux
    /// (`madvise_free_single_vma` in `mm/madvise.c`). [`Error::OutOfMemory`]: nothing of the VMA at which it happened.
    pub fn free(&self, range: PageRange) -> Result<()> {
        self.for_each_part(range, may_lose_content, |vma, part, garbage| {
            if matches!(vma.backing, Backing::Object(_)) {
                return Err(Error::WrongKind);
            }
            self.tables().own_range(part, Touch::Pages, garbage)?;
            self.tables().change_pages(part, garbage, &mut |table, index, entry, garbage| {
                if entry.is_poison() {
                    table.put(index, Entry::NONE);
                } else if entry.is_accessed() || entry.is_dirty() {
                    table.change(index, 0, Entry::ACCESSED | Entry::DIRTY);
                    garbage.stale = true;
                }
            });
            Ok(())
        })
    }

    /// Marks pages of `range` that nobody else maps as not accessed (`madvise_cold_or_pageout_pte_range` in Linux's `mm/madvise.c`).
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::free`], of locked VMAs and holes.
    pub fn cold(&self, range: PageRange) -> Result<()> {
        self.for_each_part(range, ANY, |_, part, garbage| {
            self.tables().change_pages(part, garbage, &mut |table, index, entry, garbage| {
                if entry.is_accessed() && self.is_mapped_once(entry) {
                    table.change(index, 0, Entry::ACCESSED);
                    garbage.stale = true;
                }
            });
            Ok(())
        })
    }

    /// Takes out of the tables what a Linux without swap would, of the pages of `range` that nobody else maps: those freed lazily, which are
    /// gone, and those of objects, which keep them.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::free`], of locked VMAs and holes.
    pub fn pageout(&self, range: PageRange) -> Result<()> {
        self.for_each_part(range, ANY, |_, part, garbage| {
            self.tables().change_pages(part, garbage, &mut |table, index, entry, garbage| {
                if entry.is_present() && (entry.is_object() || !entry.is_dirty()) && self.is_mapped_once(entry) {
                    let taken = table.put(index, Entry::NONE);
                    if taken.is_dirty() && !taken.is_object() {
                        // A processor has stored to it since we looked: it is needed again.
                        table.put(index, taken);
                    } else {
                        garbage.give_up(&self.memory, taken, table.level(), table.slot(index));
                    }
                }
            });
            Ok(())
        })
    }

    /// Whether the page that an exclusive table has this entry for is mapped nowhere else.
    fn is_mapped_once(&self, entry: Entry) -> bool {
        let record = self.memory.record(entry.frame());
        record.refs() - record.is_pinned() as u32 == 1
    }

    /// Calls `act` with what each VMA has of `range`, upwards, under the writers' lock. A VMA that `may` refuses, or that is locked, ends it.
    fn for_each_part(
        &self,
        range: PageRange,
        may: impl Fn(&Vma) -> Result<()>,
        act: impl Fn(&Vma, PageRange, &mut Garbage) -> Result<()>,
    ) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let (mut reached, mut holes) = (range.start(), false);
            for vma in self.vmas.load(guard).range(range) {
                let Some(part) = vma.range.intersect(range) else { continue };
                holes |= part.start() > reached;
                reached = part.end();
                may(vma)?;
                if vma.flags.contains(VmaFlags::LOCKED) {
                    return Err(Error::WrongKind);
                }
                let mut garbage = Garbage::new();
                let done = act(vma, part, &mut garbage);
                self.finish(&mut garbage, guard, part);
                done?;
            }
            if holes || reached < range.end() { Err(Error::NotMapped) } else { Ok(()) }
        })
    }
}
