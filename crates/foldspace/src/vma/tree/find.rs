//! Looking up VMAs: each call is O(log n).

use super::node::{Entry, NodeRef, Slots};
use super::summary::Summary;
use super::version::VersionRef;
use crate::addr::VirtAddr;
use crate::vma::{Vma, VmaFlags};

/// The VMAs on both sides of an address.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours<'t> {
    /// The last that ends at or before the address.
    pub before: Option<&'t Vma>,
    /// The first that ends after it: the one that covers it, or the next.
    pub at_or_after: Option<&'t Vma>,
}

/// The slot of the first child that ends after `addr`.
#[inline]
fn reaching(entries: &[Entry], addr: VirtAddr) -> usize {
    entries.partition_point(|entry| entry.end <= addr)
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
        loop {
            match node.slots() {
                Slots::Leaf(vmas) => return vmas.get(vmas.partition_point(|vma| vma.end() <= addr)),
                Slots::Inner(entries) => node = entries.get(reaching(entries, addr))?.node(),
            }
        }
    }

    /// The last VMA that ends at or before `addr`.
    #[inline]
    pub fn find_before(self, addr: VirtAddr) -> Option<&'t Vma> {
        self.neighbours(addr).before
    }

    /// The VMAs on both sides of `addr` (Linux's `find_vma_prev`).
    pub fn neighbours(self, addr: VirtAddr) -> Neighbours<'t> {
        let mut before = None;
        let Some(mut node) = self.root else { return Neighbours { before: None, at_or_after: None } };
        loop {
            match node.slots() {
                Slots::Leaf(vmas) => {
                    let at = vmas.partition_point(|vma| vma.end() <= addr);
                    let in_leaf = at.checked_sub(1).and_then(|i| vmas.get(i));
                    return Neighbours { before: in_leaf.or_else(|| last(before?)), at_or_after: vmas.get(at) };
                }
                Slots::Inner(entries) => {
                    // Past the end: the last child, so that `before` is found there.
                    let at = reaching(entries, addr).min(entries.len().saturating_sub(1));
                    if let Some(sibling) = at.checked_sub(1).and_then(|i| entries.get(i)) {
                        before = Some(sibling.node());
                    }
                    match entries.get(at) {
                        Some(entry) => node = entry.node(),
                        None => return Neighbours { before: None, at_or_after: None },
                    }
                }
            }
        }
    }

    /// The first VMA that ends after `from` and has any of `flags`. Subtrees without such a flag are not looked at.
    pub fn find_flag(self, flags: VmaFlags, from: VirtAddr) -> Option<&'t Vma> {
        find_flag(self.root?, flags, from)
    }
}

fn last(mut node: NodeRef<'_>) -> Option<&Vma> {
    loop {
        match node.slots() {
            Slots::Leaf(vmas) => return vmas.last(),
            Slots::Inner(entries) => node = entries.last()?.node(),
        }
    }
}

fn find_flag<'t>(node: NodeRef<'t>, flags: VmaFlags, from: VirtAddr) -> Option<&'t Vma> {
    if !node.summary().flags.intersects(flags) {
        return None;
    }
    match node.slots() {
        Slots::Leaf(vmas) => {
            let at = vmas.partition_point(|vma| vma.end() <= from);
            vmas.iter().skip(at).find(|vma| vma.flags.intersects(flags))
        }
        Slots::Inner(entries) => {
            entries.iter().skip(reaching(entries, from)).find_map(|entry| find_flag(entry.node(), flags, from))
        }
    }
}
