//! What an object has lost leaves the address spaces that map it.

use core::ops::Range;

use super::AddressSpace;
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::backing::Object;
use crate::frame::Held;
use crate::platform::Flush;
use crate::table::Copies;
use crate::vma::Vma;

impl AddressSpace {
    /// Takes pages `lost` of `object`, which have left its cache, out of the tables, and shoots down what processors remember of them. O(areas of
    /// objects + pages); O(1) if there are no such areas.
    ///
    /// Another address space that shares a table with this one may have taken them out of it before: so a shootdown is owed as soon as anything
    /// is held at all.
    pub(crate) fn lose(&self, object: &Object, lost: &Range<u64>, copies: Copies, held: &mut Held) {
        let guard = self.memory.pin();
        let _layout = self.writer.lock();
        let version = self.vmas.load(&guard);
        let (mut from, mut flush) = (VirtAddr(0), None);
        while let Some(vma) = version.find_object(object, from) {
            from = vma.end();
            let Some(range) = shown(vma, lost) else { continue };
            self.tables().cut_range(range, copies, held);
            flush = Some(if flush.is_none() { Flush::Range(range) } else { Flush::All });
        }
        if let Some(flush) = flush {
            if !held.is_empty() {
                self.memory.platform().shootdown(self.id, flush);
            }
        }
    }
}

/// Where `vma` shows pages `lost` of its object.
fn shown(vma: &Vma, lost: &Range<u64>) -> Option<PageRange> {
    let first = lost.start.saturating_sub(vma.page_offset).min(vma.range.pages());
    let end = lost.end.saturating_sub(vma.page_offset).min(vma.range.pages());
    let at = |page: u64| vma.start().checked_add(page << PAGE_SHIFT);
    PageRange::new(at(first)?, at(end)?)
}
