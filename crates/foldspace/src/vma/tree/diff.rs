//! In what two versions differ: subtrees that they share are passed over.

use core::cmp::Ordering;

use arrayvec::ArrayVec;

use super::node::{Child, INNER_CAP, LEAF_CAP, MAX_HEIGHT, NodeRef, Slots};
use super::version::VersionRef;
use crate::addr::VirtAddr;
use crate::vma::Vma;

/// What one of two versions has and the other has not.
#[derive(Clone, Copy, Debug)]
pub enum VmaChange<'t> {
    /// Only the first has it.
    Gone(&'t Vma),
    /// Only the second has it.
    New(&'t Vma),
}

/// What is still to come of one version, the next last.
struct Rest<'t> {
    nodes: ArrayVec<NodeRef<'t>, { MAX_HEIGHT * INNER_CAP }>,
    /// Before all nodes.
    vmas: ArrayVec<&'t Vma, LEAF_CAP>,
}

impl<'t> Rest<'t> {
    fn of(version: VersionRef<'t>) -> Rest<'t> {
        let mut rest = Rest { nodes: ArrayVec::new(), vmas: ArrayVec::new() };
        rest.nodes.extend(version.root);
        rest
    }

    /// The next node, if no VMA comes before it.
    fn node(&self) -> Option<NodeRef<'t>> {
        if self.vmas.is_empty() { self.nodes.last().copied() } else { None }
    }

    fn vma(&self) -> Option<&'t Vma> {
        self.vmas.last().copied()
    }

    /// Puts the slots of the next node in its place.
    fn open(&mut self) {
        let Some(node) = self.nodes.pop() else { return };
        match node.slots() {
            Slots::Leaf(vmas) => self.vmas.extend(vmas.iter().rev()),
            Slots::Inner(children) => self.nodes.extend(children.nodes().iter().rev().map(Child::node)),
        }
    }

    /// Where what is to come begins; the end of all addresses if nothing is.
    fn start(&self) -> VirtAddr {
        let node = || self.nodes.last().map(|node| node.summary().start);
        self.vma().map(Vma::start).or_else(node).unwrap_or(VirtAddr(u64::MAX))
    }
}

impl<'t> VersionRef<'t> {
    /// Calls `visit` for each VMA that only one of the two versions has, upwards by where each begins. O(what differs * log n), where one comes from
    /// the other by changes; O(n) at most.
    pub fn diff(self, other: VersionRef<'t>, mut visit: impl FnMut(VmaChange<'t>)) {
        let (mut a, mut b) = (Rest::of(self), Rest::of(other));
        loop {
            match (a.node(), b.node()) {
                (Some(mine), Some(other)) if mine == other => {
                    a.nodes.pop();
                    b.nodes.pop();
                }
                // What begins first cannot be what the other begins with; of two that begin together the higher may contain the lower.
                (Some(mine), Some(other)) => match mine.summary().start.cmp(&other.summary().start) {
                    Ordering::Less => a.open(),
                    Ordering::Greater => b.open(),
                    Ordering::Equal if mine.level() < other.level() => b.open(),
                    Ordering::Equal if mine.level() > other.level() => a.open(),
                    Ordering::Equal => {
                        a.open();
                        b.open();
                    }
                },
                _ => match (a.vma(), b.vma()) {
                    (Some(mine), Some(other)) if mine.start() == other.start() => {
                        if !mine.is_same(other) {
                            visit(VmaChange::Gone(mine));
                            visit(VmaChange::New(other));
                        }
                        a.vmas.pop();
                        b.vmas.pop();
                    }
                    (Some(mine), _) if mine.start() < b.start() => {
                        visit(VmaChange::Gone(mine));
                        a.vmas.pop();
                    }
                    (_, Some(other)) if other.start() < a.start() => {
                        visit(VmaChange::New(other));
                        b.vmas.pop();
                    }
                    // A node that begins where a VMA of the other does, or before, or to which the other has nothing more.
                    _ if a.node().is_some() => a.open(),
                    _ if b.node().is_some() => b.open(),
                    _ => return,
                },
            }
        }
    }
}
