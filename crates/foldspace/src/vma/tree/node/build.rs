//! Nodes under construction.

use core::marker::PhantomData;
use core::mem::{self, MaybeUninit};
use core::ops::Range;
use core::ptr::{self, NonNull};

use super::super::summary::{Summary, Totals};
use super::{
    Child, Header, INNER_CAP, Inner, LEAF_CAP, Leaf, NO_END, NodeRef, Slots, cap, child_slots, destroy, end_slots,
    pack, pool, vma_slots,
};
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::sync::Content;
use crate::sync::atomic::AtomicU16;
use crate::sync::watched::AtomicUsize;
use crate::vma::Vma;

/// A node under construction: alone in our hands, not published. Slots are appended in ascending order; those that were put in by
/// value are its own, those copied from old nodes are not (yet). Drops what it owns.
///
/// # Invariants
///
/// The slots it owns are contiguous: copies, then own, then copies again. Copies stay readable for `'t`.
pub(in super::super) struct NewNode<'t> {
    pub(super) node: NonNull<Header>,
    life: PhantomData<NodeRef<'t>>,
}

impl<'t> NewNode<'t> {
    /// An empty node. Fails with [`crate::Error::OutOfMemory`].
    #[inline]
    pub(in super::super) fn new(level: u8) -> Result<NewNode<'t>> {
        let new = NewNode::bare(level, 0, &Summary::EMPTY)?;
        if level != 0 {
            // SAFETY: an inner node of our own.
            unsafe { end_slots(new.node).cast::<[VirtAddr; INNER_CAP]>().write([NO_END; INNER_CAP]) };
        }
        Ok(new)
    }

    /// A node with a header; the slots up to `len`, and `ends`, are still to be initialised.
    #[inline]
    fn bare(level: u8, len: u8, summary: &Summary) -> Result<NewNode<'t>> {
        let new = NewNode::unsummarised(level, len)?;
        // SAFETY: a node of our own.
        unsafe { (&raw mut (*new.node.as_ptr()).summary).copy_from_nonoverlapping(summary, 1) };
        Ok(new)
    }

    /// As [`NewNode::bare`], but for the summary.
    #[inline]
    fn unsummarised(level: u8, len: u8) -> Result<NewNode<'t>> {
        let node = pool::allocate(level)?;
        let header = node.as_ptr();
        // SAFETY: `allocate` gives memory for a node of that level, to us alone.
        unsafe {
            (&raw mut (*header).refs).write(AtomicUsize::new(1));
            (&raw mut (*header).content).write(Content::new());
            (&raw mut (*header).owned).write(AtomicU16::new(0));
            (&raw mut (*header).level).write(level);
            (&raw mut (*header).len).write(len);
        }
        Ok(NewNode { node, life: PhantomData })
    }

    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: 1. initialised by `new`; 2. unpublished, so ours alone, and borrowed with `self`.
        unsafe { &mut *self.node.as_ptr() }
    }

    /// It can be read as long as nobody changes it.
    #[inline]
    pub(in super::super) fn as_ref(&self) -> NodeRef<'_> {
        // SAFETY: changes need `&mut self`; own content lives as long as `self`, copies for 't, which is longer.
        unsafe { NodeRef::new(self.node) }
    }

    #[inline]
    pub(in super::super) fn is_full(&self) -> bool {
        let node = self.as_ref();
        node.len() >= cap(node.level())
    }

    /// Notes the slot that was just written as our own.
    #[inline]
    fn own_last(&mut self) {
        let header = self.header_mut();
        let at = header.len as usize;
        header.len += 1;
        let owned = header.owned.get_mut();
        let from = if *owned == 0 { at } else { (*owned & 0xff) as usize };
        debug_assert!(*owned == 0 || (*owned >> 8) as usize == at);
        *owned = pack(from..at + 1);
    }

    /// Appends a VMA to a leaf. Gives it back if there is no room for it.
    #[inline]
    pub(in super::super) fn push_vma(&mut self, vma: Vma) -> Result<(), Vma> {
        let node = self.as_ref();
        if self.is_full() || node.level() != 0 {
            return Err(vma);
        }
        let at = node.len();
        // SAFETY: a leaf of our own, and the slot is below its capacity.
        unsafe { vma_slots(self.node).add(at).write(vma) };
        self.own_last();
        Ok(())
    }

    /// Appends a child to an inner node and takes over its count. Gives it back if there is no room for it.
    #[inline]
    pub(in super::super) fn push_node(&mut self, child: NewNode<'t>) -> Result<(), NewNode<'t>> {
        let node = self.as_ref();
        if self.is_full() || node.level() != child.as_ref().level() + 1 {
            return Err(child);
        }
        let at = node.len();
        // SAFETY: an inner node of our own, and the slot is below its capacity.
        unsafe { self.write_child(at, child) };
        self.own_last();
        Ok(())
    }

    /// Puts a child and its count into a slot.
    ///
    /// # Safety
    ///
    /// This is an inner node, `index` is below its capacity, and what the slot held is not owned.
    #[inline]
    unsafe fn write_child(&mut self, index: usize, child: NewNode<'t>) {
        let end = child.as_ref().summary().end;
        // SAFETY: by the function's contract.
        unsafe {
            end_slots(self.node).add(index).write(end);
            child_slots(self.node).add(index).write(Child(child.node));
        }
        mem::forget(child);
    }

    /// Appends copies of as many of the slots `range` of an old node of the same level as there is room for; how many.
    #[inline]
    pub(in super::super) fn copy_slots(&mut self, from: NodeRef<'t>, range: Range<usize>) -> usize {
        let (level, at) = (self.as_ref().level(), self.as_ref().len());
        let end = range.end.min(from.len());
        let count = end.saturating_sub(range.start).min(cap(level) - at);
        if from.level() != level || count == 0 {
            return 0;
        }
        // SAFETY: 1. both are nodes of `level`; 2. source slots are below `len`, so initialised; 3. destination slots
        // are below the capacity and ours; 4. the nodes differ, since ours cannot be referred to for 't.
        unsafe {
            if level == 0 {
                ptr::copy_nonoverlapping(vma_slots(from.node).add(range.start), vma_slots(self.node).add(at), count);
            } else {
                ptr::copy_nonoverlapping(end_slots(from.node).add(range.start), end_slots(self.node).add(at), count);
                ptr::copy_nonoverlapping(
                    child_slots(from.node).add(range.start),
                    child_slots(self.node).add(at),
                    count,
                );
            }
        }
        self.header_mut().len += count as u8;
        count
    }

    /// A copy of an inner node, and of its summary, with another child in slot `index`. `None` if there is no such slot.
    #[inline]
    pub(in super::super) fn with_child(
        from: NodeRef<'t>,
        index: usize,
        child: NewNode<'t>,
    ) -> Result<Option<NewNode<'t>>> {
        let (level, len) = (from.level(), from.len());
        if index >= len || level == 0 || level != child.as_ref().level() + 1 {
            return Ok(None);
        }
        let mut new = NewNode::unsummarised(level, len as u8)?;
        let (old, to) = (from.as_ptr(), new.node.as_ptr());
        // SAFETY: 1. both are inner nodes, and differ; 2. what is not initialised is copied as the uninitialised memory that it is;
        // 3. `index < len`, and what the slot holds is a copy.
        unsafe {
            let (old, to) = (&raw const (*old).summary, &raw mut (*to).summary);
            let bytes = size_of::<Inner>() - mem::offset_of!(Header, summary);
            ptr::copy_nonoverlapping(old.cast::<MaybeUninit<u8>>(), to.cast(), bytes);
            new.write_child(index, child);
        }
        *new.header_mut().owned.get_mut() = pack(index..index + 1);
        Ok(Some(new))
    }

    /// An old leaf, and its summary, with `vma` or nothing in the place of its slots `gone`. `None` if it has no such slots, or no room.
    #[inline]
    pub(in super::super) fn with_slots(
        old: NodeRef<'t>,
        gone: Range<usize>,
        vma: Option<Vma>,
    ) -> Result<Option<NewNode<'t>>> {
        let vmas = old.vmas();
        let (Some(below), Some(above)) = (vmas.get(..gone.start), vmas.get(gone.end..)) else { return Ok(None) };
        let put = usize::from(vma.is_some());
        let len = below.len() + put + above.len();
        if len > LEAF_CAP {
            return Ok(None);
        }
        let mut new = NewNode::unsummarised(0, len as u8)?;
        let (from, to) = (old.as_ptr(), new.node.as_ptr());
        // SAFETY: 1. both are leaves, and differ, since ours cannot be referred to for 't; 2. the slots follow the summary; those of `below`,
        // initialised, are the first of them; 3. `len` slots are written, each once, and there is room for them; 4. what is copied is readable for
        // 't, and is not owned by us.
        unsafe {
            let (from, to) = (&raw const (*from).summary, &raw mut (*to).summary);
            let bytes = SUMMARY_AND_GAP + size_of_val(below);
            ptr::copy_nonoverlapping(from.cast::<MaybeUninit<u8>>(), to.cast(), bytes);
            let slots = vma_slots(new.node).add(below.len());
            ptr::copy_nonoverlapping(above.as_ptr(), slots.add(put), above.len());
            if let Some(vma) = vma {
                slots.write(vma);
                *new.header_mut().owned.get_mut() = pack(below.len()..below.len() + 1);
            }
        }
        Ok(Some(new))
    }

    /// The summary, which is the caller's to get right.
    #[inline]
    pub(in super::super) fn summary_mut(&mut self) -> &mut Summary {
        &mut self.header_mut().summary
    }

    /// Computes the summary from the slots.
    pub(in super::super) fn summarise(&mut self) {
        let totals = match self.as_ref().slots() {
            Slots::Leaf(vmas) => {
                let mut totals = Totals::default();
                vmas.iter().for_each(|vma| totals.add(vma));
                totals
            }
            Slots::Inner(children) => sum_of(children.nodes),
        };
        let node = self.as_ref();
        let (start, end) = node.extent();
        let summary = Summary { start, end, largest_gap: node.largest_gap(), totals, flags: node.flags() };
        *self.summary_mut() = summary;
    }
}

/// Sums over children.
#[inline]
pub(in super::super) fn sum_of(children: &[Child]) -> Totals {
    children.iter().fold(Totals::default(), |sum, child| sum.plus(child.node().summary().totals))
}

/// Bytes from a leaf's summary to its first slot.
const SUMMARY_AND_GAP: usize = mem::offset_of!(Leaf, vmas) - mem::offset_of!(Header, summary);

/// A leaf under construction that follows an old one: copies of its slots, own VMAs, copies again.
pub(in super::super) struct NewLeaf<'t> {
    node: NewNode<'t>,
    /// Slots in use; the header learns of it at the end.
    len: usize,
    own: Range<usize>,
}

impl<'t> NewLeaf<'t> {
    /// Starts with the old leaf's slots below `keep` (if it has so many), and its summary.
    #[inline]
    pub(in super::super) fn following(old: NodeRef<'t>, keep: usize) -> Result<NewLeaf<'t>> {
        let node = NewNode::bare(0, 0, old.summary())?;
        let mut leaf = NewLeaf { node, len: 0, own: 0..0 };
        leaf.copy(old.vmas().get(..keep).unwrap_or(&[]));
        leaf.own = leaf.len..leaf.len;
        Ok(leaf)
    }

    /// Starts with all of the old leaf's slots, and its summary.
    #[inline]
    pub(in super::super) fn copy_of(old: NodeRef<'t>) -> Result<NewLeaf<'t>> {
        let mut leaf = NewLeaf { node: NewNode::unsummarised(0, 0)?, len: 0, own: 0..0 };
        let vmas = old.vmas();
        let (from, to) = (old.as_ptr(), leaf.node.node.as_ptr());
        // SAFETY: 1. both are leaves, and differ, since ours cannot be referred to for 't; 2. the slots follow the summary; those of
        // `vmas`, initialised, are the first of them; 3. what is copied is readable for 't, and is not owned by us.
        unsafe {
            let (from, to) = (&raw const (*from).summary, &raw mut (*to).summary);
            let bytes = SUMMARY_AND_GAP + size_of_val(vmas);
            ptr::copy_nonoverlapping(from.cast::<MaybeUninit<u8>>(), to.cast(), bytes);
        }
        leaf.len = vmas.len();
        Ok(leaf)
    }

    /// Slots so far.
    #[inline]
    pub(in super::super) fn len(&self) -> usize {
        self.len
    }

    /// Appends copies of an old leaf's slots, as many as there is room for.
    #[inline]
    pub(in super::super) fn copy(&mut self, old: &'t [Vma]) {
        let count = old.len().min(LEAF_CAP - self.len);
        // SAFETY: 1. our own leaf, written below its capacity; 2. what is copied is readable for 't, is not owned
        // by us, and lies in another node, since ours cannot be referred to for 't.
        unsafe { ptr::copy_nonoverlapping(old.as_ptr(), vma_slots(self.node.node).add(self.len), count) };
        self.len += count;
    }

    /// Appends a VMA: [`Error::BadRange`] if there is no room for it, or if it does not come between the copies.
    #[inline]
    pub(in super::super) fn push(&mut self, vma: Vma) -> Result<()> {
        if self.len >= LEAF_CAP || self.len != self.own.end {
            return Err(Error::BadRange);
        }
        // SAFETY: our own leaf, and the slot is below its capacity.
        unsafe { vma_slots(self.node.node).add(self.len).write(vma) };
        self.len += 1;
        self.own.end = self.len;
        Ok(())
    }

    /// Lets the VMA in slot `at`, a copy, start and end elsewhere: [`Error::BadRange`] if there is none, or the range is none.
    #[inline]
    pub(in super::super) fn move_ends(&mut self, at: usize, start: VirtAddr, end: VirtAddr) -> Result<()> {
        let range = PageRange::new(start, end).filter(|_| at < self.len).ok_or(Error::BadRange)?;
        // SAFETY: 1. our own leaf, and the slots below `len` are initialised; 2. what is changed has no owner.
        let vma = unsafe { &mut *vma_slots(self.node.node).add(at) };
        if vma.backing.has_offsets() {
            let pages = (start.get().wrapping_sub(vma.start().get()) as i64 >> PAGE_SHIFT) as u64;
            vma.page_offset = vma.page_offset.wrapping_add(pages);
        }
        vma.range = range;
        Ok(())
    }

    #[inline]
    fn note(&mut self) {
        let (len, own) = (self.len as u8, if self.own.is_empty() { 0 } else { pack(self.own.clone()) });
        let header = self.node.header_mut();
        header.len = len;
        *header.owned.get_mut() = own;
    }

    /// The node; the summary is still that of the old leaf.
    #[inline]
    pub(in super::super) fn finish(mut self) -> NewNode<'t> {
        self.note();
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, so the node is taken out once.
        unsafe { ptr::read(&this.node) }
    }
}

impl Drop for NewLeaf<'_> {
    fn drop(&mut self) {
        // The node drops what it owns.
        self.note();
    }
}

impl Drop for NewNode<'_> {
    fn drop(&mut self) {
        // SAFETY: unpublished, so nobody counts or reads it; its copies are not in `owned`.
        unsafe { destroy(self.node) };
    }
}
