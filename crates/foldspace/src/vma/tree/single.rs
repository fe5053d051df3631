//! The simplest changes of a leaf, which mmap and munmap make most of the time: one VMA comes into a hole and joins nothing, or one goes whole.

use super::edit::all_flags;
use super::node::{LEAF_CAP, NewNode, NodeRef, widest_gap};
use crate::addr::PageRange;
use crate::error::Result;
use crate::vma::Vma;

/// `leaf` with `vma` in a hole before its slot `at`. `None`, and nothing is taken, if it has no room, the VMA may be one with a neighbour, or a neighbour
/// is in another leaf (unless there are `no_others`).
#[inline]
pub(super) fn insert<'t>(
    leaf: NodeRef<'t>,
    at: usize,
    vma: &mut Option<Vma>,
    no_others: bool,
) -> Result<Option<NewNode<'t>>> {
    let vmas = leaf.vmas();
    let (below, above) = (vmas.get(at.wrapping_sub(1)), vmas.get(at));
    let Some(new) = vma.as_ref() else { return Ok(None) };
    let joins = below.is_some_and(|below| below.merges_with(new)) || above.is_some_and(|above| new.merges_with(above));
    let known = no_others || below.is_some() && above.is_some();
    if joins || !known || vmas.len() >= LEAF_CAP {
        return Ok(None);
    }
    let (range, flags) = (new.range, new.flags);
    let Some(mut node) = NewNode::with_slots(leaf, at..at, vma.take())? else { return Ok(None) };
    let summary = node.summary_mut();
    summary.totals.vmas += 1;
    summary.totals.add_pages(flags, range.pages());
    summary.flags |= flags;
    match (below, above) {
        (Some(below), Some(above)) => {
            if above.start().get() - below.end().get() == summary.largest_gap {
                let (low, high) = (range.start().get() - below.end().get(), above.start().get() - range.end().get());
                shrink_gap(&mut node, low.max(high));
            }
        }
        (Some(below), None) => {
            summary.end = range.end();
            summary.largest_gap = summary.largest_gap.max(range.start().get() - below.end().get());
        }
        (None, Some(above)) => {
            summary.start = range.start();
            summary.largest_gap = summary.largest_gap.max(above.start().get() - range.end().get());
        }
        (None, None) => {}
    }
    Ok(Some(node))
}

/// `leaf` without the VMA in slot `at`, which lies inside `range`. `None` if it does not, or fewer than `least` would be left.
#[inline]
pub(super) fn remove<'t>(leaf: NodeRef<'t>, at: usize, range: PageRange, least: usize) -> Result<Option<NewNode<'t>>> {
    let vmas = leaf.vmas();
    let Some(gone) = vmas.get(at).filter(|vma| range.start() <= vma.start() && vma.end() <= range.end()) else {
        return Ok(None);
    };
    if vmas.len() <= least {
        return Ok(None);
    }
    let (below, above) = (vmas.get(at.wrapping_sub(1)), vmas.get(at + 1));
    let Some(mut node) = NewNode::with_slots(leaf, at..at + 1, None)? else { return Ok(None) };
    let has_all = |vma: Option<&Vma>| vma.is_some_and(|vma| vma.flags.contains(gone.flags));
    if !has_all(below) && !has_all(above) {
        let flags = all_flags(node.as_ref().vmas());
        node.summary_mut().flags = flags;
    }
    let summary = node.summary_mut();
    summary.totals.vmas -= 1;
    summary.totals.add_pages(gone.flags, gone.range.pages().wrapping_neg());
    let lost = match (below, above) {
        (Some(below), Some(above)) => {
            summary.largest_gap = summary.largest_gap.max(above.start().get() - below.end().get());
            None
        }
        (Some(below), None) => {
            summary.end = below.end();
            Some(gone.start().get() - below.end().get())
        }
        (None, Some(above)) => {
            summary.start = above.start();
            Some(above.start().get() - gone.end().get())
        }
        (None, None) => None,
    };
    if lost == Some(summary.largest_gap) {
        shrink_gap(&mut node, 0);
    }
    Ok(Some(node))
}

/// The largest hole of a leaf has become smaller; `left` bytes of it are left.
#[inline]
pub(super) fn shrink_gap(node: &mut NewNode<'_>, left: u64) {
    let is_still = node.as_ref().summary().is_mostly(left);
    node.summary_mut().largest_gap = if is_still { left } else { widest_gap(node.as_ref().vmas()) };
}
