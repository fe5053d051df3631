//! The way from the root to a leaf, as far as a change needs it.

use arrayvec::ArrayVec;

use super::node::{Entry, MAX_HEIGHT, NodeRef, Slots};

/// A node on a path.
#[derive(Clone, Copy)]
pub(super) struct Step<'t> {
    pub(super) node: NodeRef<'t>,
    /// The slot that the path goes through. At the end of the path: the slot that was looked for, maybe one past the last.
    pub(super) index: usize,
    /// The node and all above it have one owner.
    pub(super) sole: bool,
}

/// Steps from the root (first) to a leaf (last).
#[derive(Clone)]
pub(super) struct Path<'t>(ArrayVec<Step<'t>, MAX_HEIGHT>);

impl<'t> Path<'t> {
    /// Descends through the children that `pick` chooses; the slot in the leaf is 0.
    #[inline]
    pub(super) fn descend(root: NodeRef<'t>, pick: impl Fn(&[Entry]) -> usize) -> Path<'t> {
        let mut path = Path(ArrayVec::new());
        let mut node = root;
        let mut sole = true;
        loop {
            sole = sole && node.has_one_owner();
            let (index, child) = match node.slots() {
                Slots::Leaf(_) => (0, None),
                Slots::Inner(entries) => {
                    let index = pick(entries);
                    (index, entries.get(index).map(Entry::node))
                }
            };
            // A tree is never higher than MAX_HEIGHT.
            let _ = path.0.try_push(Step { node, index, sole });
            match child {
                Some(child) => node = child,
                None => return path,
            }
        }
    }

    /// Number of steps.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The step at `depth`, counted from the root.
    #[inline]
    pub(super) fn step(&self, depth: usize) -> Option<&Step<'t>> {
        self.0.get(depth)
    }

    /// The last step.
    #[inline]
    pub(super) fn leaf(&self) -> Option<&Step<'t>> {
        self.0.last()
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
        let (mut child, mut sole) = (step.node.child(step.index)?, step.sole);
        for d in turn + 1..=depth {
            sole = sole && child.has_one_owner();
            let step = self.0.get_mut(d)?;
            *step = Step { node: child, index: edge(child.len()), sole };
            if d < depth {
                child = child.child(step.index)?;
            }
        }
        Some(child)
    }
}
