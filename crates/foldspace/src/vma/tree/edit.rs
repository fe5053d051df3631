//! The common change: one VMA, or nothing, comes into the place of what a range touches in one leaf, and the leaf stays one leaf.
//!
//! ```text
//!   old leaf   | ...  low | gone | gone | high ... |       slots `from..to`: what the range touches, and what the new VMA joins
//!   new leaf   | ...  low |  vma  | high ... |             low and high: the same content with another end, or start
//! ```
//!
//! A VMA that is cut or extended moves, so nothing is counted for it; only the upper part of one that is cut in the middle is a
//! clone. Each node above is copied with one child changed. Everything else is for [`super::splice`].

use super::node::plan::Plan;
use super::node::{Child, LEAF_CAP, NewLeaf, NewNode, NodeRef, first_after, min_len, widest_gap};
use super::path::{Path, Step};
use super::single;
use super::summary::{Summary, Totals};
use super::version::VersionRef;
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Vma, VmaFlags};

/// Where a range is in a tree.
pub(super) struct Site<'t> {
    path: Path<'t>,
    /// The slots that the range touches in the leaf at the end of the path.
    from: usize,
    to: usize,
    /// It touches no other leaf.
    only: bool,
}

impl<'t> Site<'t> {
    /// Nowhere.
    #[inline(always)]
    pub(super) fn new() -> Site<'t> {
        Site { path: Path::new(), from: 0, to: 0, only: false }
    }

    /// Descends to the first VMA that ends after the start of `range`. Once only.
    #[inline]
    pub(super) fn find(&mut self, root: NodeRef<'t>, range: PageRange) {
        let leaf = self.path.descend(root, range.start());
        let vmas = leaf.vmas();
        self.from = first_after(vmas, range.start());
        self.to = self.from;
        while vmas.get(self.to).is_some_and(|vma| vma.start() < range.end()) {
            self.to += 1;
        }
        let reach = leaf.summary().end;
        self.only = range.end() <= reach || reach == root.summary().end;
    }

    /// The first VMA that the range touches.
    #[inline]
    pub(super) fn first_touched(&self) -> Option<&'t Vma> {
        let leaf = self.path.steps().last()?.node;
        if self.from < self.to { leaf.vmas().get(self.from) } else { None }
    }
}

/// Which slots of a leaf are replaced, and what stays of the first and the last of them.
struct Edit {
    from: usize,
    to: usize,
    /// Slot `from` stays, and ends here.
    low: Option<VirtAddr>,
    /// Slot `to - 1` stays, and starts here.
    high: Option<VirtAddr>,
    /// The new VMA is part of one of them.
    joined: bool,
}

impl Edit {
    /// `None`: the new VMA joins one in another leaf, or one with other flags.
    #[inline(always)]
    fn new(site: &Site<'_>, vmas: &[Vma], range: PageRange, new: Option<&Vma>) -> Option<Edit> {
        let (start, end) = (range.start(), range.end());
        let mut edit = Edit { from: site.from, to: site.to, low: None, high: None, joined: false };
        if let Some(touched) = vmas.get(site.from..site.to) {
            if let (Some(first), Some(last)) = (touched.first(), touched.last()) {
                edit.low = (first.start() < start).then_some(start);
                edit.high = (last.end() > end).then_some(end);
            }
        }
        let Some(new) = new else { return Some(edit) };
        // What ends at our start, or will be cut there; what starts at our end, or will be cut there.
        let below = if edit.low.is_some() { edit.from } else { edit.from.wrapping_sub(1) };
        let above = if edit.high.is_some() { edit.to - 1 } else { edit.to };
        let (vma_below, vma_above) = (vmas.get(below), vmas.get(above));
        if (vma_below.is_none() || vma_above.is_none()) && site.joins_other_leaf(range, new, vma_below, vma_above) {
            return None;
        }
        let joins_below = vma_below.is_some_and(|below| below.end() >= start && new.continues(below));
        let joined_above = vma_above.filter(|above| above.start() <= end && above.continues(new));
        let differs = |other: Option<&Vma>| other.is_some_and(|other| other.flags != new.flags);
        if joins_below && differs(vma_below) || differs(joined_above) {
            return None; // What one of them only hints at, both do then.
        }
        if joins_below {
            (edit.from, edit.low, edit.joined) = (below, Some(end), true);
        }
        if let Some(vma_above) = joined_above {
            (edit.to, edit.joined) = (above + 1, true);
            if joins_below {
                (edit.low, edit.high) = (Some(vma_above.end()), None);
            } else {
                edit.high = Some(start);
            }
        }
        Some(edit)
    }

    /// Slots below that stay, that of the low part among them.
    #[inline(always)]
    fn keep(&self) -> usize {
        self.from + usize::from(self.low.is_some())
    }

    /// The first slot from which on all stay.
    #[inline(always)]
    fn resume(&self) -> usize {
        self.to - usize::from(self.high.is_some() && !self.splits())
    }

    /// Slots that there will be.
    #[inline(always)]
    fn len_after(&self, len: usize, put: bool) -> usize {
        self.keep() + usize::from(put && !self.joined) + usize::from(self.splits()) + (len - self.resume())
    }

    /// Where one VMA starts and ends, if nothing else changes.
    #[inline(always)]
    fn moved_ends(&self, vmas: &[Vma], new: Option<&Vma>) -> Option<(VirtAddr, VirtAddr)> {
        if self.to - self.from != 1 || new.is_some() && !self.joined {
            return None;
        }
        let vma = vmas.get(self.from)?;
        match (self.low, self.high) {
            (Some(end), None) => Some((vma.start(), end)),
            (None, Some(start)) => Some((start, vma.end())),
            _ => None,
        }
    }

    /// The VMA is in one piece, and both its ends stay.
    #[inline(always)]
    fn splits(&self) -> bool {
        self.to - self.from == 1 && self.low.is_some() && self.high.is_some()
    }
}

impl Site<'_> {
    /// Whether `new` may be one with its neighbour on a side where this leaf has none.
    fn joins_other_leaf(&self, range: PageRange, new: &Vma, below: Option<&Vma>, above: Option<&Vma>) -> bool {
        let Some(root) = self.path.steps().first().map(|step| step.node) else { return false };
        let version = VersionRef { root: Some(root) };
        root.level() != 0
            && (below.is_none()
                && version
                    .find_before(range.start())
                    .is_some_and(|vma| vma.end() == range.start() && new.continues(vma))
                || above.is_none()
                    && version
                        .find_at_or_after(range.end())
                        .is_some_and(|vma| vma.start() == range.end() && vma.continues(new)))
    }
}

/// Plans the tree in which `vma`, as one with the neighbours that it may merge with, stands in `range`, for which `site` was found.
/// `false`, and nothing is planned or taken, if more has to change than one leaf.
#[inline]
pub(super) fn plan<'t>(plan: &mut Plan<'t>, site: &Site<'t>, range: PageRange, vma: &mut Option<Vma>) -> Result<bool> {
    let Some((last, above)) = site.path.steps().split_last() else { return Ok(false) };
    let (leaf, vmas) = (last.node, last.node.vmas());
    if !site.only {
        return Ok(false);
    }
    let least = if above.is_empty() { 1 } else { min_len(0) };
    let single = match site.to - site.from {
        0 => single::insert(leaf, site.from, vma, above.is_empty())?,
        1 if vma.is_none() => single::remove(leaf, site.from, range, least)?,
        _ => None,
    };
    if let Some(new) = single {
        replace_above(plan, above, leaf, new, (site.from, site.to))?;
        return Ok(true);
    }
    let Some(edit) = Edit::new(site, vmas, range, vma.as_ref()) else { return Ok(false) };
    let (new, keep, resume) = if let Some((start, end)) = edit.moved_ends(vmas, vma.as_ref()) {
        drop(vma.take());
        (move_ends(leaf, vmas, edit.from, start, end)?, edit.from, edit.from)
    } else {
        let (keep, resume) = (edit.keep(), edit.resume());
        let len = edit.len_after(vmas.len(), vma.is_some());
        if len < least || len > LEAF_CAP {
            return Ok(false);
        }
        (replace_slots(leaf, vmas, &edit, site, range, vma)?, keep, resume)
    };
    replace_above(plan, above, leaf, new, (keep, resume))?;
    Ok(true)
}

/// Plans the tree in which `new` has taken the place of `leaf`, below the steps `above`, having lost the slots `gone.0..gone.1`.
#[inline(always)]
fn replace_above<'t>(
    plan: &mut Plan<'t>,
    above: &[Step<'t>],
    leaf: NodeRef<'t>,
    mut new: NewNode<'t>,
    gone: (usize, usize),
) -> Result<()> {
    if !above.is_empty() {
        let change = new.as_ref().summary().totals.minus(&leaf.summary().totals);
        for step in above.iter().rev() {
            new = replace_child(step.node, step.index, new, &change)?;
        }
    }
    plan.set_narrow(new, gone.0, gone.1);
    Ok(())
}

/// The simplest change: one VMA starts or ends elsewhere.
#[inline]
fn move_ends<'t>(leaf: NodeRef<'t>, vmas: &'t [Vma], at: usize, start: VirtAddr, end: VirtAddr) -> Result<NewNode<'t>> {
    let Some(vma) = vmas.get(at) else { return Err(Error::BadRange) };
    let mut new = NewLeaf::copy_of(leaf)?;
    new.move_ends(at, start, end)?;
    let mut new = new.finish();
    let summary = new.summary_mut();
    // The holes beside it, as they were and as they are.
    let (mut was, mut now) = (0, 0);
    match vmas.get(at.wrapping_sub(1)) {
        None => summary.start = start,
        Some(below) if vma.start() != start => {
            (was, now) = (vma.start().get() - below.end().get(), start.get() - below.end().get());
        }
        Some(_) => {}
    }
    match vmas.get(at + 1) {
        None => summary.end = end,
        Some(above) if vma.end() != end => {
            (was, now) = (above.start().get() - vma.end().get(), above.start().get() - end.get());
        }
        Some(_) => {}
    }
    let bytes = (end.get() - start.get()).wrapping_sub(vma.range.len());
    summary.totals.add_pages(vma.flags, (bytes as i64 >> PAGE_SHIFT) as u64);
    if now > summary.largest_gap {
        summary.largest_gap = now;
    } else if was == summary.largest_gap && now < was {
        single::shrink_gap(&mut new, now);
    }
    Ok(new)
}

/// The general change of one leaf.
fn replace_slots<'t>(
    leaf: NodeRef<'t>,
    vmas: &'t [Vma],
    edit: &Edit,
    site: &Site<'t>,
    range: PageRange,
    vma: &mut Option<Vma>,
) -> Result<NewNode<'t>> {
    let (splits, keep, resume) = (edit.splits(), edit.keep(), edit.resume());
    let mut new = NewLeaf::following(leaf, keep)?;
    if let (Some(end), Some(low)) = (edit.low, vmas.get(edit.from)) {
        new.move_ends(edit.from, low.start(), end)?;
    }
    let added = vma.take().map(|vma| -> Result<VmaFlags> {
        let flags = vma.flags;
        if !edit.joined {
            new.push(vma)?;
        }
        Ok(flags)
    });
    let added = added.transpose()?;
    if splits {
        if let (Some(start), Some(high)) = (edit.high, vmas.get(edit.from)) {
            new.push(high.slice(PageRange::new(start, high.end()).ok_or(Error::BadRange)?))?;
        }
    }
    new.copy(vmas.get(resume..).unwrap_or(&[]));
    if !splits {
        if let (Some(start), Some(high)) = (edit.high, vmas.get(resume)) {
            new.move_ends(new.len() - (vmas.len() - resume), start, high.end())?;
        }
    }
    let mut new = new.finish();

    let old = leaf.summary();
    let slots = new.as_ref().vmas();
    let len = slots.len();
    let gone = all_flags(vmas.get(keep..resume).unwrap_or(&[]));
    let flags = if slots.get(keep).is_some_and(|vma| vma.flags.contains(gone)) {
        old.flags | added.unwrap_or_default()
    } else {
        all_flags(slots)
    };
    let largest_gap = match site.gap_after(vmas, range, added.is_some(), old.largest_gap) {
        Some(gap) => gap,
        None => widest_gap(slots),
    };
    let (start, end) = new.as_ref().extent();
    let summary = new.summary_mut();
    (summary.start, summary.end, summary.largest_gap, summary.flags) = (start, end, largest_gap, flags);
    let totals = &mut summary.totals;
    totals.vmas = len;
    for cut in vmas.get(site.from..site.to).unwrap_or(&[]) {
        let (start, end) = (cut.start().max(range.start()), cut.end().min(range.end()));
        totals.add_pages(cut.flags, ((end.get() - start.get()) >> PAGE_SHIFT).wrapping_neg());
    }
    if let Some(flags) = added {
        totals.add_pages(flags, range.pages());
    }

    Ok(new)
}

impl Site<'_> {
    /// The largest gap of the leaf, `old` until now, after something, or nothing, was put into the range. `None` if it must be looked for.
    #[inline(always)]
    fn gap_after(&self, vmas: &[Vma], range: PageRange, put: bool, old: u64) -> Option<u64> {
        let (start, end) = (range.start().get(), range.end().get());
        let below = vmas.get(self.from.wrapping_sub(1)).map(|vma| vma.end().get());
        let above = vmas.get(self.to).map(|vma| vma.start().get());
        if self.from == self.to {
            if !put {
                return Some(old);
            }
            // A hole is filled. Without neighbours on both sides it did not count.
            return match (below, above) {
                (Some(below), Some(above)) if above - below < old => Some(old),
                (Some(_), Some(_)) => None,
                (Some(below), None) => Some(old.max(start - below)),
                (None, Some(above)) => Some(old.max(above - end)),
                (None, None) => Some(old),
            };
        }
        let (first, last) = (vmas.get(self.from)?, vmas.get(self.to - 1)?);
        let (from, to) = (first.start().get(), last.end().get());
        let single = self.to - self.from == 1;
        if put {
            return (single && from <= start && to >= end).then_some(old);
        }
        // One hole, if something stays on both sides, and it holds all others that were there.
        let below = if from < start { Some(start) } else { below };
        let above = if to > end { Some(end) } else { above };
        match (below, above) {
            (Some(below), Some(above)) => Some(old.max(above - below)),
            _ if single && (from < start || to > end) => Some(old),
            _ => None,
        }
    }
}

#[inline]
pub(super) fn all_flags(vmas: &[Vma]) -> VmaFlags {
    vmas.iter().fold(VmaFlags::empty(), |all, vma| all | vma.flags)
}

/// A copy of `node` with another child in slot `index`. Its summary follows from the old one and the two children, most of the time.
#[inline]
pub(super) fn replace_child<'t>(
    node: NodeRef<'t>,
    index: usize,
    child: NewNode<'t>,
    change: &Totals,
) -> Result<NewNode<'t>> {
    let children = node.children();
    let was = children.get(index).ok_or(Error::BadRange)?.node().summary();
    let now = child.as_ref().summary();
    let same_place = now.start == was.start && now.end == was.end;
    let same = same_place && now.largest_gap == was.largest_gap && now.flags == was.flags;
    let mut new = NewNode::with_child(node, index, child)?.ok_or(Error::BadRange)?;
    new.summary_mut().totals.change(change);
    if !same {
        reshape(node.summary(), children, index, &mut new);
    }
    Ok(new)
}

/// Extent, largest gap and flags of a node that differs from an old one in child `index`.
fn reshape(old: &Summary, children: &[Child], index: usize, new: &mut NewNode<'_>) {
    let node = new.as_ref();
    let (Some(was), Some(now)) = (children.get(index), node.child(index)) else { return };
    let summary_of = |i: usize| children.get(i).map(|child| child.node().summary());
    let (before, after) = (index.checked_sub(1).and_then(summary_of), summary_of(index + 1));
    // The largest gap in a child and beside it, and the flags of it and its neighbours.
    let around = |part: &Summary| {
        let below = before.map_or(0, |before| part.start.get().wrapping_sub(before.end.get()));
        let above = after.map_or(0, |after| after.start.get().wrapping_sub(part.end.get()));
        let flags = [before, after].into_iter().flatten().fold(part.flags, |all, summary| all | summary.flags);
        (part.largest_gap.max(below).max(above), flags)
    };
    let ((was_gap, was_flags), (now_gap, now_flags)) = (around(was.node().summary()), around(now.summary()));
    let (start, end) = node.extent();
    let largest_gap = match old.largest_gap {
        old_gap if now_gap >= old_gap => now_gap,
        old_gap if was_gap < old_gap => old_gap,
        _ => node.largest_gap(),
    };
    let flags = if now_flags.contains(was_flags) { old.flags | now_flags } else { node.flags() };
    let summary = new.summary_mut();
    *summary = Summary { start, end, largest_gap, flags, totals: summary.totals };
}
