//! VMAs in ascending order.

use core::iter::FusedIterator;
use core::slice;

use arrayvec::ArrayVec;

use super::node::{Child, MAX_HEIGHT, NodeRef, Slots, first_after};
use super::version::VersionRef;
use crate::addr::{PageRange, VirtAddr};
use crate::vma::Vma;

/// VMAs of a version in ascending order. O(1) per VMA over a whole walk, and no allocation.
#[derive(Clone)]
pub struct Iter<'t> {
    leaf: slice::Iter<'t, Vma>,
    /// What is still to come at each level above, the root's first.
    above: ArrayVec<slice::Iter<'t, Child>, MAX_HEIGHT>,
    /// VMAs that start here or later are left out.
    end: VirtAddr,
}

impl<'t> VersionRef<'t> {
    /// All VMAs.
    pub fn iter(self) -> Iter<'t> {
        self.iter_from(VirtAddr(0))
    }

    /// VMAs that end after `addr`. A reader that gives the version up in between goes on with the end of the last VMA he saw.
    pub fn iter_from(self, addr: VirtAddr) -> Iter<'t> {
        self.iter_between(addr, VirtAddr(u64::MAX))
    }

    /// VMAs that have a page in common with `range`.
    pub fn range(self, range: PageRange) -> Iter<'t> {
        self.iter_between(range.start(), range.end())
    }

    #[inline]
    fn iter_between(self, from: VirtAddr, end: VirtAddr) -> Iter<'t> {
        let mut iter = Iter { leaf: [].iter(), above: ArrayVec::new(), end };
        if let Some(root) = self.root {
            iter.descend(root, from);
        }
        iter
    }
}

impl<'t> IntoIterator for VersionRef<'t> {
    type Item = &'t Vma;
    type IntoIter = Iter<'t>;
    fn into_iter(self) -> Iter<'t> {
        self.iter()
    }
}

impl<'t> Iter<'t> {
    #[inline]
    fn descend(&mut self, mut node: NodeRef<'t>, from: VirtAddr) {
        loop {
            match node.slots() {
                Slots::Leaf(vmas) => {
                    let at = first_after(vmas, from);
                    self.leaf = vmas.get(at..).unwrap_or(&[]).iter();
                    return;
                }
                Slots::Inner(children) => {
                    let mut rest = children.reaching(from).iter();
                    let Some(child) = rest.next() else { return };
                    // A tree is never higher than MAX_HEIGHT.
                    let _ = self.above.try_push(rest);
                    node = child.node();
                }
            }
        }
    }
}

impl<'t> Iterator for Iter<'t> {
    type Item = &'t Vma;

    #[inline]
    fn next(&mut self) -> Option<&'t Vma> {
        loop {
            if let Some(vma) = self.leaf.next() {
                if vma.start() < self.end {
                    return Some(vma);
                }
                self.leaf = [].iter();
                self.above.clear();
                return None;
            }
            match self.above.last_mut()?.next() {
                Some(child) => {
                    let node = child.node();
                    self.descend(node, VirtAddr(0));
                }
                None => {
                    self.above.pop();
                }
            }
        }
    }
}

impl FusedIterator for Iter<'_> {}
