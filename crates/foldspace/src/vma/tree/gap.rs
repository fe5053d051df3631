//! Finding room: the highest or the lowest hole that fits, as Linux's `vm_unmapped_area` (`mm/vma.c`).
//!
//! A subtree whose largest hole is too small is passed over, so a search is O(log n); alignment and stack guards can make it look into
//! holes that are large enough and still do not fit.

use super::node::{NodeRef, Slots};
use super::version::VersionRef;
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::vma::{Vma, VmaFlags};

/// Which hole is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GapRequest {
    /// The area must not start below.
    pub low: VirtAddr,
    /// It must not end above.
    pub high: VirtAddr,
    /// Its length in bytes.
    pub len: u64,
    /// Its start is a multiple of this. A power of two; anything else counts as a page.
    pub align: u64,
    /// Bytes to stay clear of below a VMA that grows down (Linux's `stack_guard_gap`, 1 MiB by default).
    pub stack_guard: u64,
}

impl GapRequest {
    /// Any page-aligned place for `len` bytes in `low..high`.
    pub const fn new(low: VirtAddr, high: VirtAddr, len: u64) -> GapRequest {
        GapRequest { low, high, len, align: PAGE_SIZE, stack_guard: 0 }
    }

    fn align(&self) -> u64 {
        if self.align.is_power_of_two() { self.align } else { PAGE_SIZE }
    }

    /// The highest place in the hole `start..end`.
    fn highest_in(&self, start: VirtAddr, end: VirtAddr) -> Option<VirtAddr> {
        let at = end.min(self.high).get().checked_sub(self.len)? & !(self.align() - 1);
        (at >= start.max(self.low).get()).then_some(VirtAddr(at))
    }

    /// The lowest place in the hole `start..end`.
    fn lowest_in(&self, start: VirtAddr, end: VirtAddr) -> Option<VirtAddr> {
        let mask = self.align() - 1;
        let at = start.max(self.low).get().checked_add(mask)? & !mask;
        (at.checked_add(self.len)? <= end.min(self.high).get()).then_some(VirtAddr(at))
    }

    /// Where the hole below a VMA ends.
    fn end_below(&self, vma: &Vma) -> VirtAddr {
        let guard = if vma.flags.contains(VmaFlags::GROWS_DOWN) { self.stack_guard } else { 0 };
        VirtAddr(vma.start().get().saturating_sub(guard))
    }
}

impl<'t> VersionRef<'t> {
    /// The highest address at which the request fits between VMAs.
    pub fn gap_top_down(self, request: &GapRequest) -> Option<VirtAddr> {
        let mut hole = HoleBelow { end: request.high, guarded: request.high, limit: request.high };
        if let Some(found) = self.root.and_then(|root| top_down(root, request, &mut hole)) {
            return Some(found);
        }
        hole.highest(request, request.low)
    }

    /// The lowest address at which the request fits between VMAs.
    pub fn gap_bottom_up(self, request: &GapRequest) -> Option<VirtAddr> {
        // Where the hole starts that is looked at.
        let mut start = request.low;
        if let Some(found) = self.root.and_then(|root| bottom_up(root, request, &mut start)) {
            return Some(found);
        }
        request.lowest_in(start, request.high)
    }
}

/// The upper end of the hole that is looked at next, downwards.
struct HoleBelow {
    /// Where it ends: at a VMA, or at the limit.
    end: VirtAddr,
    /// Where the guard of that VMA begins.
    guarded: VirtAddr,
    /// Nothing is looked for above.
    limit: VirtAddr,
}

impl HoleBelow {
    /// Goes on below a VMA that starts there, whose guard begins at `guarded`.
    #[inline]
    fn pass(&mut self, start: VirtAddr, guarded: VirtAddr) {
        self.end = start.min(self.limit);
        self.guarded = guarded;
    }

    /// The highest place in the hole, which starts there.
    #[inline]
    fn highest(&mut self, request: &GapRequest, start: VirtAddr) -> Option<VirtAddr> {
        let found = request.highest_in(start, self.end)?;
        if self.guarded >= self.end {
            return Some(found);
        }
        // Large enough but for the guard: Linux begins again below the guard, however many holes are beside it.
        self.limit = self.guarded;
        self.end = self.guarded;
        request.highest_in(start, self.end)
    }
}

/// Looks at the holes above and inside `node`; leaves in `hole` the upper end of the one below it.
fn top_down(node: NodeRef<'_>, request: &GapRequest, hole: &mut HoleBelow) -> Option<VirtAddr> {
    let summary = node.summary();
    if let Some(found) = hole.highest(request, summary.end) {
        return Some(found);
    }
    let outside = summary.start >= request.high || summary.end <= request.low;
    let plain_edge = !summary.flags.contains(VmaFlags::GROWS_DOWN);
    if plain_edge && (outside || summary.largest_gap < request.len) {
        hole.pass(summary.start, summary.start);
        return None;
    }
    match node.slots() {
        Slots::Leaf(vmas) => vmas.iter().rev().find_map(|vma| {
            let found = hole.highest(request, vma.end());
            hole.pass(vma.start(), request.end_below(vma));
            found
        }),
        Slots::Inner(children) => children.nodes().iter().rev().find_map(|child| top_down(child.node(), request, hole)),
    }
}

/// Looks at the holes below and inside `node`; leaves in `start` where the one above it starts.
fn bottom_up(node: NodeRef<'_>, request: &GapRequest, start: &mut VirtAddr) -> Option<VirtAddr> {
    let summary = node.summary();
    let plain_edge = !summary.flags.contains(VmaFlags::GROWS_DOWN);
    if plain_edge {
        if let Some(found) = request.lowest_in(*start, summary.start) {
            return Some(found);
        }
        let outside = summary.start >= request.high || summary.end <= request.low;
        if outside || summary.largest_gap < request.len {
            *start = summary.end;
            return None;
        }
    }
    match node.slots() {
        Slots::Leaf(vmas) => vmas.iter().find_map(|vma| {
            let found = request.lowest_in(*start, request.end_below(vma));
            *start = vma.end();
            found
        }),
        Slots::Inner(children) => children.nodes().iter().find_map(|child| bottom_up(child.node(), request, start)),
    }
}
