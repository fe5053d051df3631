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

use super::node::plan::Plan;
use super::node::{Entry, NewNode, NodeRef, cap, min_len, reserve};
use super::path::{Path, Step};
use super::summary::{Summary, Totals};
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
    root: Option<NodeRef<'t>>,
    range: PageRange,
    replacement: impl ExactSizeIterator<Item = Vma>,
) -> Result<Plan<'t>> {
    let mut plan = Plan::new();
    let replacement =
        Replacement { count: replacement.len(), source: replacement, at: range.start(), end: range.end() };
    let (mut level, mut height) = (Level::new(), 0);
    if let Some(root) = root {
        let mut edges = Edges::find(root, range);
        height = edges.left.len();
        level = rebuild_leaves(&mut plan, &mut edges, range, replacement)?;
        for depth in (0..height.saturating_sub(1)).rev() {
            level = rebuild_inner(&mut plan, &mut edges, depth, level)?;
        }
    } else if replacement.count > 0 {
        let mut source = replacement;
        level = fill(0, source.count, Runs::new(), Runs::new(), |node| push_vma(node, source.next()?))?;
        level.iter_mut().for_each(NewNode::summarise);
        height = 1;
    }
    while level.len() > 1 {
        level = parents(height as u8, level, Runs::new(), Runs::new())?;
        level.iter_mut().for_each(NewNode::summarise);
        height += 1;
    }
    plan.set_root(level.pop());
    Ok(plan)
}

/// What is put in, checked as it comes.
struct Replacement<I> {
    source: I,
    count: usize,
    /// No VMA may start below.
    at: VirtAddr,
    /// None may end above.
    end: VirtAddr,
}

impl<I: Iterator<Item = Vma>> Replacement<I> {
    #[inline]
    fn next(&mut self) -> Result<Vma> {
        let vma = self.source.next().ok_or(Error::BadRange)?;
        if vma.start() < self.at || vma.end() > self.end {
            return Err(Error::BadRange);
        }
        self.at = vma.end();
        self.count -= 1;
        Ok(vma)
    }
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
    fn find(root: NodeRef<'t>, range: PageRange) -> Edges<'t> {
        let (start, end) = (range.start(), range.end());
        let left = Path::descend(root, |entries| first_or_last(entries, |entry| entry.end > start));
        let leaf = left.leaf().map_or(root, |step| step.node);
        let keep = leaf.vmas().partition_point(|vma| vma.end() <= start);
        let reach = leaf.summary().end;
        if end <= reach || reach == root.summary().end {
            let touched = leaf.vmas().iter().skip(keep).take_while(|vma| vma.start() < end).count();
            return Edges { left, right: None, keep, resume: keep + touched };
        }
        let mut right = Path::descend(root, |entries| first_or_last(entries, |entry| entry.end >= end));
        let vmas = right.leaf().map_or(root, |step| step.node).vmas();
        let mut resume = vmas.partition_point(|vma| vma.end() < end);
        if vmas.get(resume).is_some_and(|vma| vma.start() < end) {
            resume += 1;
        }
        if resume == 0 {
            // The range ends in the hole before this leaf.
            resume = right.step_back(right.len() - 1).map_or(0, NodeRef::len);
        }
        let same = right.leaf().is_some_and(|step| step.node == leaf);
        Edges { left, right: if same { None } else { Some(right) }, keep, resume }
    }

    #[inline]
    fn at(&self, depth: usize) -> Result<(Step<'t>, Step<'t>)> {
        let right = self.right.as_ref().unwrap_or(&self.left);
        // There is a step at each depth.
        Ok((*self.left.step(depth).ok_or(Error::BadRange)?, *right.step(depth).ok_or(Error::BadRange)?))
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
        } else if let Some(right) = &mut self.right
            && let Some(node) = right.step_forward(depth)
        {
            after.0.push(Run::whole(node));
            (node, &*right)
        } else {
            return Ok(false);
        };
        let sole = path.step(depth).is_some_and(|step| step.sole);
        plan.touch(neighbour, neighbour.len(), neighbour.len(), sole)?;
        Ok(true)
    }
}

#[inline]
fn first_or_last(entries: &[Entry], reaches: impl Fn(&Entry) -> bool) -> usize {
    entries.partition_point(|entry| !reaches(entry)).min(entries.len().saturating_sub(1))
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
#[inline]
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
    reserve(&mut nodes, count)?;
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

/// Notes what is kept of the nodes at both edges of one level.
#[inline]
fn touch<'t>(plan: &mut Plan<'t>, left: &Step<'t>, keep: usize, right: &Step<'t>, resume: usize) -> Result<()> {
    if left.node == right.node {
        plan.touch(left.node, keep, resume, left.sole)
    } else {
        plan.touch(left.node, keep, left.node.len(), left.sole)?;
        plan.touch(right.node, 0, resume, right.sole)
    }
}

#[inline]
fn rebuild_leaves<'t, I: Iterator<Item = Vma>>(
    plan: &mut Plan<'t>,
    edges: &mut Edges<'t>,
    range: PageRange,
    mut replacement: Replacement<I>,
) -> Result<Level<'t>> {
    let depth = edges.left.len() - 1;
    let (keep, resume) = (edges.keep, edges.resume);
    let (left, right) = edges.at(depth)?;
    let cut = |vma: &Vma, start, end| PageRange::new(start, end).map(|part| vma.slice(part));
    let mut head = match left.node.vmas().get(keep) {
        Some(vma) if vma.start() < range.start() => cut(vma, vma.start(), range.start()),
        _ => None,
    };
    let mut tail = match right.node.vmas().get(resume.wrapping_sub(1)) {
        Some(vma) if vma.end() > range.end() => cut(vma, range.end(), vma.end()),
        _ => None,
    };
    let mid = usize::from(head.is_some()) + replacement.count + usize::from(tail.is_some());
    let mut total = keep + mid + right.node.len() - resume;
    let mut before = Runs::of(left.node, 0, keep);
    let mut after = Runs::of(right.node, resume, right.node.len());
    touch(plan, &left, keep, &right, resume)?;
    let widened = total < min_len(0) && depth > 0 && edges.widen(plan, depth, &mut before, &mut after)?;
    if widened {
        total = before.len() + mid + after.len();
    }
    let alone = left.node == right.node && !widened && total <= cap(0);

    let mut added = Totals::default();
    let mut level = fill(0, mid, before, after, |node| {
        let vma = match head.take() {
            Some(vma) => vma,
            None if replacement.count > 0 => replacement.next()?,
            None => tail.take().ok_or(Error::BadRange)?,
        };
        if alone {
            added = added.plus(Totals::of(&vma));
        }
        push_vma(node, vma)
    })?;
    match level.as_mut_slice() {
        [node] if alone => {
            let gone = left.node.vmas().get(keep..resume).unwrap_or(&[]);
            let gone = gone.iter().fold(Totals::default(), |sum, vma| sum.plus(Totals::of(vma)));
            node.summarise_with(left.node.summary().totals.plus(added).minus(gone));
        }
        nodes => nodes.iter_mut().for_each(NewNode::summarise),
    }
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
    if left.node == right.node && resume == keep + 1 && children.len() == 1 {
        touch(plan, &left, keep, &right, resume)?;
        if let Some(child) = children.pop() {
            children.push(replace_child(left.node, keep, child)?);
        }
        return Ok(children);
    }
    let total = keep + children.len() + right.node.len() - resume;
    let mut before = Runs::of(left.node, 0, keep);
    let mut after = Runs::of(right.node, resume, right.node.len());
    let mut widened = false;
    if total < min_len(left.node.level()) && depth > 0 {
        widened = edges.widen(plan, depth, &mut before, &mut after)?;
    }
    if total <= 1 && !widened {
        // Nothing else is left at this level, nor above: the node below is the root.
        return Ok(children);
    }
    touch(plan, &left, keep, &right, resume)?;
    let added = children.iter().fold(Totals::default(), |sum, node| sum.plus(node.as_ref().summary().totals));
    let mut level = parents(left.node.level(), children, before, after)?;
    match level.as_mut_slice() {
        [node] if left.node == right.node && !widened => {
            let gone = left.node.entries().get(keep..resume).unwrap_or(&[]);
            let gone = gone.iter().fold(Totals::default(), |sum, entry| sum.plus(entry.node().summary().totals));
            node.summarise_with(left.node.summary().totals.plus(added).minus(gone));
        }
        nodes => nodes.iter_mut().for_each(NewNode::summarise),
    }
    Ok(level)
}

/// A copy of `node` with another child in slot `index`. Its summary follows from the old one and the two children, most of the time.
fn replace_child<'t>(node: NodeRef<'t>, index: usize, child: NewNode<'t>) -> Result<NewNode<'t>> {
    let (old, entries) = (node.summary(), node.entries());
    let was = entries.get(index).ok_or(Error::BadRange)?.node().summary();
    let now = *child.as_ref().summary();
    let end_before = index.checked_sub(1).and_then(|i| entries.get(i)).map(|entry| entry.end);
    let start_after = entries.get(index + 1).map(|entry| entry.node().summary().start);
    // The largest of the holes that the child takes part in.
    let around = |part: &Summary| {
        let below = end_before.map_or(0, |end| part.start.get().wrapping_sub(end.get()));
        let above = start_after.map_or(0, |start| start.get().wrapping_sub(part.end.get()));
        part.largest_gap.max(below).max(above)
    };
    let (gap_was, gap_now) = (around(was), around(&now));
    let totals = old.totals.plus(now.totals).minus(was.totals);

    let mut new = NewNode::with_child(node, index, child)?.ok_or(Error::BadRange)?;
    if (gap_now >= old.largest_gap || gap_was < old.largest_gap) && now.flags.contains(was.flags) {
        new.set_summary(Summary {
            start: if index == 0 { now.start } else { old.start },
            end: if index + 1 == entries.len() { now.end } else { old.end },
            largest_gap: gap_now.max(old.largest_gap),
            totals,
            flags: old.flags | now.flags,
        });
    } else {
        new.summarise_with(totals);
    }
    Ok(new)
}
