//! A change that is ready: the new tree, and which old nodes its copied slots came from.

use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::{Header, NewNode, NodeRef, Slots, entry_slots, owned_slots, pack, reserve, retain};
use crate::error::Result;

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
/// The slots that nodes of the new tree hold as copies are, each exactly once, the slots outside `gone` of the nodes in `touched`.
pub(in super::super) struct Plan<'t> {
    root: Option<NewNode<'t>>,
    touched: SmallVec<[Touched<'t>; 8]>,
}

impl<'t> Plan<'t> {
    /// Nothing touched, nothing built.
    #[inline]
    pub(in super::super) fn new() -> Plan<'t> {
        Plan { root: None, touched: SmallVec::new() }
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
        reserve(&mut self.touched, 1)?;
        self.touched.push(Touched { node, gone_from: gone_from as u8, gone_to: gone_to as u8, sole });
        Ok(())
    }

    /// Sets the new tree's root.
    #[inline]
    pub(in super::super) fn set_root(&mut self, root: Option<NewNode<'t>>) {
        self.root = root;
    }

    /// The new tree as it can be read before it is published.
    pub(in super::super) fn root(&self) -> Option<NodeRef<'_>> {
        self.root.as_ref().map(NewNode::as_ref)
    }

    /// Makes the new tree the owner of all it refers to, and gives it away with one count.
    ///
    /// `frozen`: the old root's last count was taken away by [`super::freeze`], so what had one owner when the plan was made
    /// still has. Then the contents of such nodes move, and only what is gone stays with the old ones. Everything
    /// else is counted once more.
    ///
    /// # Safety
    ///
    /// The old tree is the one that the plan was made from, and it stays readable during the call. With `frozen`, whoever
    /// gets the old root destroys it once; otherwise it is left as it is.
    #[inline]
    pub(in super::super) unsafe fn take_over(&mut self, frozen: bool) -> Option<NonNull<Header>> {
        for touched in &self.touched {
            let (from, to) = (touched.gone_from as usize, touched.gone_to as usize);
            if frozen && touched.sole {
                // INVARIANT (4 of the nodes): the root is frozen and there is one owner all the way down, so the node is ours.
                touched.node.header().owned.store(pack(from..to), Ordering::Relaxed);
            } else {
                count_again(touched.node, 0, from);
                count_again(touched.node, to, touched.node.len());
            }
        }
        let root = self.root.take()?;
        let node = root.node;
        mem::forget(root);
        // SAFETY: 1. unpublished, so ours; 2. by the invariant of `Plan` and the loop above it may own all of its slots.
        unsafe { adopt(node) };
        Some(node)
    }

    /// Whether the root of the old tree may be frozen to move instead of count: it had one owner.
    #[inline]
    pub(in super::super) fn wants_frozen(&self) -> bool {
        // The root comes last: levels are rebuilt from the leaves upwards.
        self.touched.last().is_some_and(|touched| touched.sole)
    }
}

/// Counts the content of some slots once more, for the copies that were made of them.
#[cold]
fn count_again(node: NodeRef<'_>, from: usize, to: usize) {
    match node.slots() {
        Slots::Leaf(vmas) => vmas.get(from..to).unwrap_or(&[]).iter().for_each(|vma| mem::forget(vma.clone())),
        Slots::Inner(entries) => entries.get(from..to).unwrap_or(&[]).iter().for_each(|entry| {
            // SAFETY: the node that owns the slot has a count on the child, and is not released during the call.
            unsafe { retain(entry.child) }
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
        if (*node.as_ptr()).level != 0 {
            let entries = entry_slots(node);
            owned_slots(node).for_each(|i| adopt((*entries.add(i)).child));
        }
        let all = pack(0..(*node.as_ptr()).len as usize);
        (*node.as_ptr()).owned.store(all, Ordering::Relaxed);
    }
}
