//! The way from the root to a leaf, as far as a change needs it.

use arrayvec::ArrayVec;

use super::node::{MAX_HEIGHT, NodeRef, Slots};
use crate::addr::VirtAddr;

/// A node on a path.
#[derive(Clone, Copy)]
pub(super) struct Step<'t> {
    pub(super) node: NodeRef<'t>,
    /// The slot that the path goes through; 0 in a leaf.
    pub(super) index: usize,
}

/// Steps from the root (first) to a leaf (last).
#[derive(Clone)]
pub(super) struct Path<'t>(ArrayVec<Step<'t>, MAX_HEIGHT>);

impl<'t> Path<'t> {
    /// No steps.
    #[inline]
    pub(super) fn new() -> Path<'t> {
        Path(ArrayVec::new())
    }

    /// Descends to the first leaf that ends after `addr`, or else to the last; which is that.
    #[inline]
    pub(super) fn descend(&mut self, root: NodeRef<'t>, addr: VirtAddr) -> NodeRef<'t> {
        let mut node = root;
        loop {
            let (index, child) = match node.slots() {
                Slots::Leaf(_) => (0, None),
                Slots::Inner(children) => {
                    let index = children.first_or_last(addr);
                    (index, children.get(index))
                }
            };
            // A tree is never higher than MAX_HEIGHT.
            let _ = self.0.try_push(Step { node, index });
            match child {
                Some(child) => node = child,
                None => return node,
            }
        }
    }

    /// All steps, the root's first.
    #[inline]
    pub(super) fn steps(&self) -> &[Step<'t>] {
        &self.0
    }

    /// The last step's node is `node`.
    #[inline]
    pub(super) fn ends_at(&self, node: NodeRef<'t>) -> bool {
        self.0.last().is_some_and(|step| step.node == node)
    }

    /// The node at `depth`, counted from the root, and all above it have one owner each.
    pub(super) fn is_sole(&self, depth: usize) -> bool {
        self.0.iter().take(depth + 1).all(|step| step.node.has_one_owner())
    }

    /// Moves to the node before the one at `depth`, with the steps between; `None` (and nothing moves) if that is the first.
    pub(super) fn step_back(&mut self, depth: usize) -> Option<NodeRef<'t>> {
        let turn = (0..depth).rev().find(|&d| self.0.get(d).is_some_and(|step| step.index > 0))?;
        self.turn(turn, depth, |index| index - 1, |len| len.saturating_sub(1))
    }

    /// Moves to the node after the one at `depth`, with the steps between; `None` (and nothing moves) if that is the last.
    pub(super) fn step_forward(&mut self, depth: usize) -> Option<NodeRef<'t>> {
        let turn = (0..depth).rev().find(|&d| self.0.get(d).is_some_and(|step| step.index + 1 < step.node.len()))?;
        self.turn(turn, depth, |index| index + 1, |_| 0)
    }

    fn turn(
        &mut self,
        turn: usize,
        depth: usize,
        sibling: impl Fn(usize) -> usize,
        edge: impl Fn(usize) -> usize,
    ) -> Option<NodeRef<'t>> {
        let step = self.0.get_mut(turn)?;
        step.index = sibling(step.index);
        let mut child = step.node.child(step.index)?;
        for d in turn + 1..=depth {
            let step = self.0.get_mut(d)?;
            *step = Step { node: child, index: edge(child.len()) };
            if d < depth {
                child = child.child(step.index)?;
            }
        }
        Some(child)
    }
}
