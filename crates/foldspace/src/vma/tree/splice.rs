//! Rebuilds the part of a tree that a change touches, from the leaves upwards.
//!
//! ```text
//!   L = the leaf of the first VMA that the range touches        R = the leaf of the last
//!
//!   level 0   | kept of L |  cut VMA, replacement, cut VMA  | kept of R |         -> new leaves
//!   level 1   | kept of L's parent |   the new leaves   | kept of R's parent |    -> new inner nodes
//!   ...                      up to a single node: the new root
//! ```
//!
//! What lies between the two paths is not looked at: it is dropped whole, with the slot that holds it. A level that would get
//! too small takes the node before it or after it in, and goes on from there.

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::edit::replace_child;
use super::node::plan::Plan;
use super::node::{NewNode, NodeRef, cap, first_after, min_len};
use super::path::{Path, Step};
use crate::addr::{PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::Vma;

/// New nodes of one level, in order.
type Level<'t> = SmallVec<[NewNode<'t>; 3]>;

/// Plans the tree in which `replacement` stands in `range` instead of what was there; VMAs across its ends are cut.
///
/// `replacement` must be sorted, disjoint and inside `range`: otherwise [`Error::BadRange`]. Needs O(k + log n) nodes for
/// k new VMAs among n: [`Error::OutOfMemory`] if there are none.
#[inline]
pub(super) fn plan<'t>(
    plan: &mut Plan<'t>,
    root: Option<NodeRef<'t>>,
    range: PageRange,
    replacement: &mut impl ExactSizeIterator<Item = Vma>,
) -> Result<()> {
    let mut mid =
        Mid { head: None, count: replacement.len(), replacement, at: range.start(), end: range.end(), tail: None };
    let Some(root) = root else {
        return plan_first(plan, mid);
    };
    let mut edges = Edges { left: Path::new(), right: None, keep: 0, resume: 0 };
    let (first, last) = edges.find(root, range);
    mid.head = first.vmas().get(edges.keep).filter(|vma| vma.start() < range.start());
    mid.tail = last.vmas().get(edges.resume.wrapping_sub(1)).filter(|vma| vma.end() > range.end());
    let height = edges.left.steps().len();
    let mut level = rebuild_leaves(plan, &mut edges, mid)?;
    for depth in (0..height - 1).rev() {
        level = rebuild_inner(plan, &mut edges, depth, level)?;
    }
    plan.set_root(grow(level, height as u8 - 1)?);
    Ok(())
}

/// What comes into the place of the slots between the edges.
struct Mid<'t, 'r, I> {
    /// The VMA of which the part below the range stays.
    head: Option<&'t Vma>,
    replacement: &'r mut I,
    /// VMAs left in `replacement`.
    count: usize,
    /// Where the range starts, then: where the last VMA of the replacement ended.
    at: VirtAddr,
    /// Where the range ends.
    end: VirtAddr,
    /// The VMA of which the part above the range stays.
    tail: Option<&'t Vma>,
}

impl<I: Iterator<Item = Vma>> Mid<'_, '_, I> {
    #[inline]
    fn len(&self) -> usize {
        usize::from(self.head.is_some()) + self.count + usize::from(self.tail.is_some())
    }

    #[inline]
    fn next_replacement(&mut self) -> Result<Vma> {
        match self.replacement.next() {
            Some(vma) if vma.start() >= self.at && vma.end() <= self.end => {
                self.at = vma.end();
                Ok(vma)
            }
            _ => Err(Error::BadRange),
        }
    }

    fn next(&mut self) -> Result<Vma> {
        if let Some(vma) = self.head.take() {
            // Nothing of the replacement was taken yet.
            return slice(vma, vma.start(), self.at);
        }
        if self.count > 0 {
            self.count -= 1;
            return self.next_replacement();
        }
        let vma = self.tail.take().ok_or(Error::BadRange)?;
        slice(vma, self.end, vma.end())
    }
}

#[inline]
fn slice(vma: &Vma, start: VirtAddr, end: VirtAddr) -> Result<Vma> {
    PageRange::new(start, end).map(|part| vma.slice(part)).ok_or(Error::BadRange)
}

/// The paths to both edges of a change.
struct Edges<'t> {
    left: Path<'t>,
    /// `None`: the same as `left`.
    right: Option<Path<'t>>,
    /// Slots of the left leaf that stay: those below.
    keep: usize,
    /// Slots of the right leaf that stay: those from here.
    resume: usize,
}

impl<'t> Edges<'t> {
    /// Descends to both edges of `range`; the leaves there.
    #[inline]
    fn find(&mut self, root: NodeRef<'t>, range: PageRange) -> (NodeRef<'t>, NodeRef<'t>) {
        let (start, end) = (range.start(), range.end());
        let leaf = self.left.descend(root, start);
        let vmas = leaf.vmas();
        self.keep = first_after(vmas, start);
        let reach = leaf.summary().end;
        if end <= reach || reach == root.summary().end {
            let touched = vmas.iter().skip(self.keep).take_while(|vma| vma.start() < end).count();
            self.resume = self.keep + touched;
            return (leaf, leaf);
        }
        (leaf, self.find_right(root, leaf, end))
    }

    fn find_right(&mut self, root: NodeRef<'t>, left: NodeRef<'t>, end: VirtAddr) -> NodeRef<'t> {
        let path = self.right.insert(Path::new());
        // The first VMA that ends at `end` or after.
        let before = VirtAddr(end.get() - 1);
        let mut leaf = path.descend(root, before);
        self.resume = first_after(leaf.vmas(), before);
        if leaf.vmas().get(self.resume).is_some_and(|vma| vma.start() < end) {
            self.resume += 1;
        }
        if self.resume == 0 {
            if let Some(previous) = path.step_back(path.steps().len() - 1) {
                // The range ends in the hole before this leaf.
                leaf = previous;
                self.resume = leaf.len();
            }
        }
        if self.left.ends_at(leaf) {
            self.right = None;
        }
        debug_assert!(self.right.is_some() || leaf == left);
        leaf
    }

    #[inline]
    fn right(&self) -> &Path<'t> {
        self.right.as_ref().unwrap_or(&self.left)
    }

    #[inline]
    fn at(&self, depth: usize) -> Result<(Step<'t>, Step<'t>)> {
        // There is a step at each depth.
        let step = |path: &Path<'t>| path.steps().get(depth).copied().ok_or(Error::BadRange);
        Ok((step(&self.left)?, step(self.right())?))
    }

    /// Notes what is kept of the nodes at both edges of one level.
    fn touch(&self, plan: &mut Plan<'t>, depth: usize, keep: usize, resume: usize) -> Result<()> {
        let (left, right) = self.at(depth)?;
        if left.node == right.node {
            plan.touch(left.node, keep, resume, self.left.is_sole(depth))
        } else {
            plan.touch(left.node, keep, left.node.len(), self.left.is_sole(depth))?;
            plan.touch(right.node, 0, resume, self.right().is_sole(depth))
        }
    }

    /// Takes in the node before, or else after, those at `depth`, if there is one.
    #[cold]
    fn widen(
        &mut self,
        plan: &mut Plan<'t>,
        depth: usize,
        before: &mut Runs<'t>,
        after: &mut Runs<'t>,
    ) -> Result<bool> {
        if self.right.is_none() {
            self.right = Some(self.left.clone());
        }
        let (neighbour, path) = if let Some(node) = self.left.step_back(depth) {
            before.0.insert(0, Run::whole(node));
            (node, &self.left)
        } else {
            let Some(right) = &mut self.right else { return Ok(false) };
            let Some(node) = right.step_forward(depth) else { return Ok(false) };
            after.0.push(Run::whole(node));
            (node, &*right)
        };
        let sole = path.is_sole(depth);
        plan.touch(neighbour, neighbour.len(), neighbour.len(), sole)?;
        Ok(true)
    }
}

/// Consecutive slots of an old node, to be copied.
struct Run<'t> {
    node: NodeRef<'t>,
    from: usize,
    to: usize,
}

impl<'t> Run<'t> {
    fn whole(node: NodeRef<'t>) -> Run<'t> {
        Run { node, from: 0, to: node.len() }
    }
}

/// What stays on one side of a change, at one level.
struct Runs<'t>(ArrayVec<Run<'t>, 2>);

impl<'t> Runs<'t> {
    #[inline]
    fn new() -> Runs<'t> {
        Runs(ArrayVec::new())
    }

    #[inline]
    fn of(node: NodeRef<'t>, from: usize, to: usize) -> Runs<'t> {
        let mut runs = Runs::new();
        runs.0.push(Run { node, from, to });
        runs
    }

    #[inline]
    fn len(&self) -> usize {
        self.0.iter().map(|run| run.to - run.from).sum()
    }

    /// Copies up to `room` slots, and forgets them; how many.
    #[inline]
    fn copy_to(&mut self, node: &mut NewNode<'t>, room: usize) -> usize {
        let mut copied = 0;
        for run in &mut self.0 {
            let count = node.copy_slots(run.node, run.from..run.to.min(run.from + room - copied));
            run.from += count;
            copied += count;
        }
        copied
    }
}

/// Lays `before`, then `mid` slots that `put` appends, then `after` out in as few nodes as hold them.
fn fill<'t>(
    level: u8,
    mid: usize,
    mut before: Runs<'t>,
    mut after: Runs<'t>,
    mut put: impl FnMut(&mut NewNode<'t>) -> Result<()>,
) -> Result<Level<'t>> {
    let (cap, min) = (cap(level), min_len(level));
    let total = before.len() + mid + after.len();
    let count = total.div_ceil(cap);
    // Two nodes are divided right after what is new: whoever fills an address space in order, upwards or downwards, then leaves
    // full nodes behind.
    let first = match count {
        0 | 1 => total,
        2 => (before.len() + mid).clamp(min.max(total - cap), cap.min(total - min)),
        _ => total / count,
    };
    let mut nodes = Level::new();
    #[cfg(test)]
    super::node::watch::about_to_allocate()?;
    nodes.try_reserve(count).map_err(|_| Error::OutOfMemory)?;
    let (mut unplaced, mut unput) = (total, mid);
    for done in 0..count {
        let size = if done == 0 { first } else { unplaced / (count - done) };
        let mut node = NewNode::new(level)?;
        let mut room = size - before.copy_to(&mut node, size);
        while room > 0 && unput > 0 {
            put(&mut node)?;
            (room, unput) = (room - 1, unput - 1);
        }
        after.copy_to(&mut node, room);
        nodes.push(node);
        unplaced -= size;
    }
    Ok(nodes)
}

#[inline]
fn push_vma(node: &mut NewNode<'_>, vma: Vma) -> Result<()> {
    // `fill` never puts more into a node than it holds.
    node.push_vma(vma).map_err(|_| Error::BadRange)
}

/// New nodes that hold `before`, the nodes of the level below, and `after`.
fn parents<'t>(level: u8, children: Level<'t>, before: Runs<'t>, after: Runs<'t>) -> Result<Level<'t>> {
    let count = children.len();
    let mut children = children.into_iter();
    fill(level, count, before, after, |node| {
        let child = children.next().ok_or(Error::BadRange)?;
        node.push_node(child).map_err(|_| Error::BadRange)
    })
}

/// An empty tree gets its first VMAs.
#[inline(never)]
fn plan_first<'t, I: Iterator<Item = Vma>>(plan: &mut Plan<'t>, mut mid: Mid<'t, '_, I>) -> Result<()> {
    let mut leaves = fill(0, mid.count, Runs::new(), Runs::new(), |node| push_vma(node, mid.next()?))?;
    leaves.iter_mut().for_each(NewNode::summarise);
    plan.set_root(grow(leaves, 0)?);
    Ok(())
}

/// Builds levels above nodes of level `height` until there is one node.
fn grow<'t>(mut level: Level<'t>, mut height: u8) -> Result<Option<NewNode<'t>>> {
    while level.len() > 1 {
        height += 1;
        level = parents(height, level, Runs::new(), Runs::new())?;
        level.iter_mut().for_each(NewNode::summarise);
    }
    Ok(level.pop())
}

fn rebuild_leaves<'t, I: Iterator<Item = Vma>>(
    plan: &mut Plan<'t>,
    edges: &mut Edges<'t>,
    mut mid: Mid<'t, '_, I>,
) -> Result<Level<'t>> {
    let depth = edges.left.steps().len() - 1;
    let (keep, resume, count) = (edges.keep, edges.resume, mid.len());
    let (left, right) = edges.at(depth)?;
    let mut before = Runs::of(left.node, 0, keep);
    let mut after = Runs::of(right.node, resume, right.node.len());
    edges.touch(plan, depth, keep, resume)?;
    if before.len() + count + after.len() < min_len(0) && depth > 0 {
        edges.widen(plan, depth, &mut before, &mut after)?;
    }
    let mut level = fill(0, count, before, after, |node| push_vma(node, mid.next()?))?;
    level.iter_mut().for_each(NewNode::summarise);
    Ok(level)
}

fn rebuild_inner<'t>(
    plan: &mut Plan<'t>,
    edges: &mut Edges<'t>,
    depth: usize,
    mut children: Level<'t>,
) -> Result<Level<'t>> {
    let (left, right) = edges.at(depth)?;
    let (keep, resume) = (left.index, right.index + 1);
    let same = left.node == right.node;
    if same && resume == keep + 1 && children.len() == 1 {
        edges.touch(plan, depth, keep, resume)?;
        if let (Some(child), Some(was)) = (children.pop(), left.node.child(keep)) {
            let change = child.as_ref().summary().totals.minus(&was.summary().totals);
            children.push(replace_child(left.node, keep, child, &change)?);
        }
        return Ok(children);
    }
    let total = keep + children.len() + right.node.len() - resume;
    let mut before = Runs::of(left.node, 0, keep);
    let mut after = Runs::of(right.node, resume, right.node.len());
    edges.touch(plan, depth, keep, resume)?; // A no-op if nothing is kept.
    let widened =
        total < min_len(left.node.level()) && depth > 0 && edges.widen(plan, depth, &mut before, &mut after)?;
    if total <= 1 && !widened {
        // Nothing else is left at this level, nor above: the node below is the root.
        return Ok(children);
    }
    let mut level = parents(left.node.level(), children, before, after)?;
    level.iter_mut().for_each(NewNode::summarise);
    Ok(level)
}
