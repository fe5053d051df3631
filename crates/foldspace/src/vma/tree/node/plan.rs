//! A change that is ready: the new tree, and which old nodes its copied slots came from.

use alloc::vec::Vec;
use core::mem;
use core::ptr::NonNull;

use super::{Header, NewNode, NodeRef, Slots, child_slots, freeze, owned_slots, pack, retain};
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// An old node whose slots outside `gone` were copied into the new tree.
struct Touched<'t> {
    node: NodeRef<'t>,
    gone_from: u8,
    gone_to: u8,
    /// It, and every node on the way to it from the root, had one owner when the plan was made.
    sole: bool,
}

/// A new tree that is complete but not published, and owns nothing of the old one yet.
///
/// # Invariants
///
/// The slots that nodes of the new tree hold as copies are, each exactly once, the slots outside `gone` of the nodes in `touched`,
/// or, of a narrow change, those beside the path and outside the leaf's `narrow`.
pub(in super::super) struct Plan<'t> {
    root: Option<NewNode<'t>>,
    touched: Vec<Touched<'t>>,
    /// The change is narrow: one path was rebuilt, node by node, each with one slot in the same place; in the old leaf
    /// these slots are gone. Then `touched` is empty: the path is found again from the roots.
    narrow: Option<(u8, u8)>,
}

impl<'t> Plan<'t> {
    /// Nothing touched, nothing built.
    #[inline]
    pub(in super::super) fn new() -> Plan<'t> {
        Plan { root: None, touched: Vec::new(), narrow: None }
    }

    /// Notes that the slots of `node` outside `gone_from..gone_to` are copied into the new tree, each once: the caller sees to it.
    #[inline]
    pub(in super::super) fn touch(
        &mut self,
        node: NodeRef<'t>,
        gone_from: usize,
        gone_to: usize,
        sole: bool,
    ) -> Result<()> {
        if gone_from == 0 && gone_to == node.len() {
            return Ok(()); // Nothing was copied.
        }
        #[cfg(test)]
        super::watch::about_to_allocate()?;
        self.touched.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.touched.push(Touched { node, gone_from: gone_from as u8, gone_to: gone_to as u8, sole });
        Ok(())
    }

    /// Sets the new tree's root.
    #[inline]
    pub(in super::super) fn set_root(&mut self, root: Option<NewNode<'t>>) {
        self.root = root;
    }

    /// Sets the new tree's root, for a narrow change: on the path of the new nodes, each differs from the old one in
    /// the slot that it owns, and in the leaf, which has lost the slots `gone_from..gone_to`. The caller sees to it.
    #[inline]
    pub(in super::super) fn set_narrow(&mut self, root: NewNode<'t>, gone_from: usize, gone_to: usize) {
        self.root = Some(root);
        self.narrow = Some((gone_from as u8, gone_to as u8));
    }

    /// The new tree as it can be read before it is published.
    #[inline]
    pub(in super::super) fn root(&self) -> Option<NodeRef<'_>> {
        self.root.as_ref().map(NewNode::as_ref)
    }

    /// Makes the new tree the owner of all it refers to, and gives it away with one count; and whether `base`, the old root, was frozen.
    ///
    /// If nobody else counts the old root, it is frozen, and what has one owner moves: only what is gone stays with the old nodes.
    /// Everything else is counted once more.
    ///
    /// # Safety
    ///
    /// `base` is the root of the tree that the plan was made from, readable during the call, and one count on it is the caller's.
    /// If it was frozen, that count is used up, and the caller has to see that `base` is destroyed once, when nobody can read it.
    #[inline]
    pub(in super::super) unsafe fn take_over(&mut self, base: Option<NodeRef<'t>>) -> (Option<NonNull<Header>>, bool) {
        // SAFETY: by the function's contract.
        let frozen = base.is_some_and(|base| unsafe { freeze(base.node) });
        let root = self.root.take().map(|root| {
            let node = root.node;
            mem::forget(root);
            node
        });
        match (self.narrow, root, base) {
            // SAFETY: unpublished, so ours; by the invariant of `Plan` it is what `take_over_path` asks for.
            (Some(gone), Some(new), Some(old)) => unsafe { take_over_path(old, new, gone, frozen) },
            _ => {
                self.touched.iter().for_each(|touched| hand_on(touched, frozen && touched.sole));
                // SAFETY: 1. unpublished, so ours; 2. by the invariant of `Plan` and the line above it may own all of its slots.
                root.inspect(|root| unsafe { adopt(*root) });
            }
        }
        (root, frozen)
    }
}

/// Gives the copies of an old node's slots their counts: the old node's own if it is `sole`, new ones otherwise.
#[inline]
fn hand_on(old: &Touched<'_>, sole: bool) {
    if sole {
        // INVARIANT (4 of the nodes): the root is frozen and there is one owner all the way down, so the node is ours.
        // Relaxed: read by who destroys the node, after the grace period that begins later.
        old.node.header().owned.store(pack(old.gone_from as usize..old.gone_to as usize), Ordering::Relaxed);
    } else {
        count_again(old.node, 0, old.gone_from as usize);
        count_again(old.node, old.gone_to as usize, old.node.len());
    }
}

/// [`Plan::take_over`] for a narrow change: goes down the old and the new path side by side.
///
/// # Safety
///
/// `new` is an unpublished node that is the caller's alone. Down to its leaf, it and the new nodes below each own one slot,
/// and are otherwise copies of `old` and the nodes below in the same slots; the new leaf is `old`'s without `gone`, and with what it owns.
#[inline]
unsafe fn take_over_path(old: NodeRef<'_>, new: NonNull<Header>, gone: (u8, u8), frozen: bool) {
    let (mut old, mut new, mut sole) = (old, new, frozen);
    loop {
        // SAFETY: `new` is ours, by the contract.
        let (header, own) = unsafe { (&*new.as_ptr(), owned_slots(new)) };
        // Relaxed: not published yet.
        header.owned.store(pack(0..header.len as usize), Ordering::Relaxed);
        let (from, to) = if header.level == 0 { gone } else { (own.start as u8, own.end as u8) };
        hand_on(&Touched { node: old, gone_from: from, gone_to: to, sole }, sole);
        if header.level == 0 {
            return;
        }
        let Some(child) = old.child(own.start) else { return };
        // One owner of the parent, and one of the child: nobody else reaches it to count it.
        sole = sole && child.has_one_owner();
        old = child;
        // SAFETY: an inner node of ours, and the slot is one that it owns: a new node.
        new = unsafe { (*child_slots(new).add(own.start)).0 };
    }
}

/// Counts the content of some slots once more, for the copies that were made of them.
#[cold]
fn count_again(node: NodeRef<'_>, from: usize, to: usize) {
    match node.slots() {
        Slots::Leaf(vmas) => vmas.get(from..to).unwrap_or(&[]).iter().for_each(|vma| mem::forget(vma.clone())),
        Slots::Inner(children) => children.nodes.get(from..to).unwrap_or(&[]).iter().for_each(|child| {
            // SAFETY: the node that owns the slot has a count on the child, and is not released during the call.
            unsafe { retain(child.0) }
        }),
    }
}

/// Declares all slots of new nodes their own.
///
/// # Safety
///
/// `node` is an unpublished node that is the caller's alone, and the count of each slot that is not in `owned` has been taken over.
unsafe fn adopt(node: NonNull<Header>) {
    // SAFETY: 1. by the contract, ours; 2. the owned slots of an unpublished inner node are the new nodes below it.
    unsafe {
        let own = owned_slots(node);
        // Relaxed: not published yet.
        (*node.as_ptr()).owned.store(pack(0..(*node.as_ptr()).len as usize), Ordering::Relaxed);
        if (*node.as_ptr()).level != 0 {
            let children = child_slots(node);
            own.for_each(|i| adopt((*children.add(i)).0));
        }
    }
}
