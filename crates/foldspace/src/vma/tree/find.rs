//! Looking up VMAs: each call is O(log n).

use core::ptr;

use super::node::{Child, NodeRef, Slots, first_after};
use super::summary::Summary;
use super::version::VersionRef;
use crate::addr::{PageRange, VirtAddr};
use crate::backing::Object;
use crate::vma::{Backing, Vma, VmaFlags};

/// The VMAs on both sides of an address.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours<'t> {
    /// The last that ends at or before the address.
    pub before: Option<&'t Vma>,
    /// The first that ends after it: the one that covers it, or the next.
    pub at_or_after: Option<&'t Vma>,
}

impl<'t> VersionRef<'t> {
    /// Whether there is no VMA.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.root.is_none()
    }

    /// What is known about all VMAs together. O(1).
    #[inline]
    pub fn summary(self) -> &'t Summary {
        self.root.map_or(&Summary::EMPTY, NodeRef::summary)
    }

    /// The VMA that covers `addr`.
    #[inline]
    pub fn find(self, addr: VirtAddr) -> Option<&'t Vma> {
        self.find_at_or_after(addr).filter(|vma| vma.start() <= addr)
    }

    /// The first VMA that ends after `addr`: the one that covers it, or else the next one up (Linux's `find_vma`).
    #[inline]
    pub fn find_at_or_after(self, addr: VirtAddr) -> Option<&'t Vma> {
        let mut node = self.root?;
        if node.summary().end <= addr {
            return None;
        }
        loop {
            match node.slots() {
                Slots::Leaf(vmas) => return vmas.get(first_after(vmas, addr)),
                Slots::Inner(children) => node = children.get(children.near(addr))?,
            }
        }
    }

    /// Whether all of `range` is mapped. O(VMAs in it + log n).
    pub fn covers(self, range: PageRange) -> bool {
        let mut reached = range.start();
        for vma in self.range(range) {
            if vma.start() > reached {
                return false;
            }
            reached = vma.end();
        }
        reached >= range.end()
    }

    /// The last VMA that ends at or before `addr`.
    #[inline]
    pub fn find_before(self, addr: VirtAddr) -> Option<&'t Vma> {
        self.neighbours(addr).before
    }

    /// `vma`, extended by what touches it on either side and may be one with it. What it replaces does not count.
    pub fn joined(self, vma: Vma) -> Vma {
        let (start, end) = (vma.start(), vma.end());
        let mut joined = vma;
        let around = self.neighbours(start);
        // Below: what ends at our start, or reaches over it and will be cut there.
        let below = around.before.filter(|before| before.end() == start);
        let below = below.or(around.at_or_after.filter(|at| at.start() < start));
        if let Some(below) = below {
            if joined.continues(below) {
                if let Some(range) = PageRange::new(below.start(), end) {
                    joined.page_offset = below.page_offset;
                    joined.range = range;
                    joined.flags |= below.flags;
                }
            }
        }
        // Above: what starts at our end, or before it and will be cut there.
        let above = self.find_at_or_after(end);
        if let Some(above) = above.filter(|above| above.start() <= end) {
            if above.continues(&joined) {
                if let Some(range) = PageRange::new(joined.start(), above.end()) {
                    joined.range = range;
                    joined.flags |= above.flags;
                }
            }
        }
        joined
    }

    /// The VMAs on both sides of `addr` (Linux's `find_vma_prev`).
    pub fn neighbours(self, addr: VirtAddr) -> Neighbours<'t> {
        let mut before = None;
        let Some(mut node) = self.root else { return Neighbours { before: None, at_or_after: None } };
        loop {
            match node.slots() {
                Slots::Leaf(vmas) => {
                    let at = first_after(vmas, addr);
                    let in_leaf = at.checked_sub(1).and_then(|i| vmas.get(i));
                    return Neighbours { before: in_leaf.or_else(|| last(before?)), at_or_after: vmas.get(at) };
                }
                Slots::Inner(children) => {
                    // Past the end: the last child, so that `before` is found there.
                    let at = children.first_or_last(addr);
                    before = at.checked_sub(1).and_then(|i| children.get(i)).or(before);
                    match children.get(at) {
                        Some(child) => node = child,
                        None => return Neighbours { before: None, at_or_after: None },
                    }
                }
            }
        }
    }

    /// The first VMA that ends after `from` and shows `object`. Subtrees that show none are not looked at.
    pub(crate) fn find_object(self, object: &Object, mut from: VirtAddr) -> Option<&'t Vma> {
        loop {
            let vma = self.find_flag(VmaFlags::OBJECT, from)?;
            if matches!(&vma.backing, Backing::Object(shown) if ptr::eq(&**shown, object)) {
                return Some(vma);
            }
            from = vma.end();
        }
    }

    /// The first VMA that ends after `from` and has all of `all`, and any of `any` unless that is empty. Subtrees in which some flag is missing are
    /// not looked at: O(log n) unless flags are together in the summaries that are never together in a VMA.
    pub fn find_with(self, all: VmaFlags, any: VmaFlags, from: VirtAddr) -> Option<&'t Vma> {
        let enough = |flags: VmaFlags| flags.contains(all) && (any.is_empty() || flags.intersects(any));
        find_where(self.root?, &enough, from)
    }

    /// The first VMA that ends after `from` and has any of `flags`. Subtrees without such a flag are not looked at.
    pub fn find_flag(self, flags: VmaFlags, from: VirtAddr) -> Option<&'t Vma> {
        find_where(self.root?, &|some: VmaFlags| some.intersects(flags), from)
    }
}

fn last(mut node: NodeRef<'_>) -> Option<&Vma> {
    loop {
        match node.slots() {
            Slots::Leaf(vmas) => return vmas.last(),
            Slots::Inner(children) => node = children.nodes().last().map(Child::node)?,
        }
    }
}

/// `enough` must hold for a union of flags if it holds for one of them.
fn find_where<'t>(node: NodeRef<'t>, enough: &impl Fn(VmaFlags) -> bool, from: VirtAddr) -> Option<&'t Vma> {
    if !enough(node.summary().flags) {
        return None;
    }
    match node.slots() {
        Slots::Leaf(vmas) => {
            let at = first_after(vmas, from);
            vmas.iter().skip(at).find(|vma| enough(vma.flags))
        }
        Slots::Inner(children) => {
            children.reaching(from).iter().find_map(|child| find_where(child.node(), enough, from))
        }
    }
}
