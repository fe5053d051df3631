//! The nodes: memory, reference counts, ownership. All `unsafe` of the tree is in this folder and in `version.rs`.
//!
//! # Invariants
//!
//! 1. The slots `0..len` of a node are initialised. They, `level`, `len` and the summary never change once the node is
//!    published; `refs` and `owned` may.
//! 2. A node that is part of a version is counted once by each node that owns a slot with it, and by each holder of it as a root.
//! 3. `owned` names the slots whose content (VMA, or count on a child) dies with the node. It is the whole node for a node that is
//!    part of a version. It is less for a node under construction, whose other slots are copies of slots of the version that it
//!    will supersede, and for a superseded node whose other slots have moved into the version that superseded it.
//! 4. `owned` is written only by the writer who has the node to himself: before it publishes it, or between taking the
//!    last count of its root and handing the root to the epoch. Its next reader is [`release`] or [`destroy`].
//! 5. What a published node refers to stays readable as long as the node: its content is released only when nobody can read it.

mod build;
pub(super) mod plan;
mod pool;
#[cfg(test)]
pub(super) mod watch;

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::{self, NonNull};

use super::summary::Summary;
use crate::addr::VirtAddr;
use crate::sync::Content;
use crate::sync::atomic::{AtomicU16, Ordering};
use crate::sync::watched::AtomicUsize;
use crate::vma::{Vma, VmaFlags};

pub(super) use build::{NewLeaf, NewNode};
pub use pool::free_spare_nodes;

/// Bytes that a node of any kind fits in.
const NODE_BYTES: usize = 1024;
/// VMAs in a leaf at most.
pub(super) const LEAF_CAP: usize = {
    let fits = (NODE_BYTES - size_of::<Header>()) / size_of::<Vma>();
    if fits < 16 { fits } else { 16 }
};
/// Children of an inner node at most.
pub(super) const INNER_CAP: usize = 16;
/// Levels at most: with at least [`min_len`] slots in each node but the root, more VMAs than there are pages in the user half.
pub(super) const MAX_HEIGHT: usize = 20;

/// Slots in a node of `level` at most.
pub(super) const fn cap(level: u8) -> usize {
    if level == 0 { LEAF_CAP } else { INNER_CAP }
}

/// Slots in a node of `level` at least, unless it is a root. A quarter and not a half, so that nodes which are filled in order
/// of addresses stay three quarters full.
pub(super) const fn min_len(level: u8) -> usize {
    cap(level) / 4
}

const _: () = assert!(size_of::<Leaf>() <= NODE_BYTES && size_of::<Inner>() <= NODE_BYTES);
const _: () = assert!(min_len(0) >= 3 && min_len(1) >= 4 && cap(0) <= u8::MAX as usize);
// 2 * 4^17 leaves of 3 are more than 2^35 pages.
const _: () = assert!(MAX_HEIGHT >= 20);

/// What every node begins with.
#[repr(C)]
pub(super) struct Header {
    /// Owners. 0: frozen (the root of a version that is being superseded), or not published yet.
    refs: AtomicUsize,
    /// Slots that die with the node: first in the low byte, one past the last in the high byte (invariants 3 and 4).
    owned: AtomicU16,
    /// For all that never changes.
    content: Content,
    /// Distance from the leaves.
    level: u8,
    /// Slots in use.
    len: u8,
    summary: Summary,
}

#[repr(C)]
struct Leaf {
    header: Header,
    vmas: [MaybeUninit<Vma>; LEAF_CAP],
}

#[repr(C)]
struct Inner {
    header: Header,
    /// Where each child's last VMA ends. The unused rest is [`NO_END`], so that a search looks at a fixed number of slots.
    ends: [VirtAddr; INNER_CAP],
    children: [MaybeUninit<Child>; INNER_CAP],
}

/// Greater than any VMA's end.
const NO_END: VirtAddr = VirtAddr(u64::MAX);

/// A slot of an inner node.
#[repr(transparent)]
pub(super) struct Child(NonNull<Header>);

impl Child {
    #[inline]
    pub(super) fn node(&self) -> NodeRef<'_> {
        // SAFETY: 1. these exist only inside nodes; whoever can read one for a time can read what it refers to as long (invariant 5).
        unsafe { NodeRef::new(self.0) }
    }
}

/// The slots of an inner node.
#[derive(Clone, Copy)]
pub(super) struct Children<'t> {
    ends: &'t [VirtAddr; INNER_CAP],
    nodes: &'t [Child],
}

impl<'t> Children<'t> {
    /// In ascending order.
    #[inline]
    pub(super) fn nodes(self) -> &'t [Child] {
        self.nodes
    }

    #[inline]
    pub(super) fn get(self, index: usize) -> Option<NodeRef<'t>> {
        self.nodes.get(index).map(Child::node)
    }

    /// The slot of the first child that ends after `addr`; if `addr` lies above all, the last slot or one beyond the last.
    #[inline]
    pub(super) fn near(self, addr: VirtAddr) -> usize {
        const _: () = assert!(INNER_CAP == 16);
        let ends = self.ends;
        let mut at = if ends[7] <= addr { 8 } else { 0 };
        at |= if ends[at | 3] <= addr { 4 } else { 0 };
        at |= if ends[at | 1] <= addr { 2 } else { 0 };
        at |= if ends[at] <= addr { 1 } else { 0 };
        at
    }

    /// The children from the first that ends after `addr`.
    #[inline]
    pub(super) fn reaching(self, addr: VirtAddr) -> &'t [Child] {
        let at = self.near(addr);
        let at = if self.ends[at] <= addr { at + 1 } else { at };
        self.nodes.get(at..).unwrap_or(&[])
    }

    /// The slot of the first child that ends after `addr`, or else the last slot.
    #[inline]
    pub(super) fn first_or_last(self, addr: VirtAddr) -> usize {
        self.near(addr).min(self.nodes.len().saturating_sub(1))
    }
}

/// The slot of the first VMA of a leaf that ends after `addr`; the number of slots if there is none.
#[inline]
pub(super) fn first_after(vmas: &[Vma], addr: VirtAddr) -> usize {
    const _: () = assert!(LEAF_CAP <= 16);
    let mut at = 0;
    for step in [8, 4, 2, 1] {
        if vmas.get(at + step - 1).is_some_and(|vma| vma.end() <= addr) {
            at += step;
        }
    }
    if vmas.get(at).is_some_and(|vma| vma.end() <= addr) { at + 1 } else { at }
}

/// The largest hole between neighbours.
#[inline]
pub(super) fn widest_gap(vmas: &[Vma]) -> u64 {
    let Some((first, rest)) = vmas.split_first() else { return 0 };
    let (mut end, mut widest) = (first.end(), 0);
    for vma in rest {
        widest = widest.max(vma.start().get().wrapping_sub(end.get()));
        end = vma.end();
    }
    widest
}

/// A node that can be read for `'t`.
///
/// # Invariants
///
/// For `'t` the node is allocated and its slots do not change, and the same holds for everything that is reached from it.
#[derive(Clone, Copy)]
pub(super) struct NodeRef<'t> {
    node: NonNull<Header>,
    life: PhantomData<&'t Header>,
}

impl PartialEq for NodeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

/// The slots of a node.
pub(super) enum Slots<'t> {
    Leaf(&'t [Vma]),
    Inner(Children<'t>),
}

impl<'t> NodeRef<'t> {
    /// # Safety
    ///
    /// The type's invariant holds.
    #[inline]
    pub(super) unsafe fn new(node: NonNull<Header>) -> NodeRef<'t> {
        NodeRef { node, life: PhantomData }
    }

    #[inline]
    pub(super) fn as_ptr(self) -> *mut Header {
        self.node.as_ptr()
    }

    #[inline]
    fn header(self) -> &'t Header {
        // SAFETY: 1. readable for 't by the type's invariant; 2. what changes in it is atomic.
        let header = unsafe { &*self.node.as_ptr() };
        header.content.read();
        header
    }

    #[inline]
    pub(super) fn level(self) -> u8 {
        self.header().level
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.header().len as usize
    }

    #[inline]
    pub(super) fn summary(self) -> &'t Summary {
        &self.header().summary
    }

    /// Whether it had one owner a moment ago. Another owner can appear only through the node that owns it, or,
    /// for a root, through [`try_retain`].
    #[inline]
    pub(super) fn has_one_owner(self) -> bool {
        // Acquire: a reader who gave up his count a moment ago is done reading.
        self.header().refs.load(Ordering::Acquire) == 1
    }

    #[inline]
    pub(super) fn slots(self) -> Slots<'t> {
        let (node, len) = (self.node.as_ptr(), self.len());
        if self.level() == 0 {
            // SAFETY: 1. level 0 says that the allocation is a `Leaf`; 2. 0..len are initialised and do not change (invariant 1).
            Slots::Leaf(unsafe { core::slice::from_raw_parts(vma_slots(self.node), len) })
        } else {
            // SAFETY: 1. another level says that the allocation is an `Inner`; 2. `ends` is initialised, and so are the
            // children 0..len, and they do not change (invariant 1).
            Slots::Inner(unsafe {
                Children {
                    ends: &(*node.cast::<Inner>()).ends,
                    nodes: core::slice::from_raw_parts(child_slots(self.node), len),
                }
            })
        }
    }

    /// The VMAs of a leaf; nothing in an inner node.
    #[inline]
    pub(super) fn vmas(self) -> &'t [Vma] {
        match self.slots() {
            Slots::Leaf(vmas) => vmas,
            Slots::Inner(_) => &[],
        }
    }

    /// The children of an inner node; nothing in a leaf.
    #[inline]
    pub(super) fn children(self) -> &'t [Child] {
        match self.slots() {
            Slots::Leaf(_) => &[],
            Slots::Inner(children) => children.nodes,
        }
    }

    /// First byte and end of its VMAs, from the slots.
    #[inline]
    pub(super) fn extent(self) -> (VirtAddr, VirtAddr) {
        let ends = match self.slots() {
            Slots::Leaf(vmas) => vmas.first().zip(vmas.last()).map(|(a, b)| (a.start(), b.end())),
            Slots::Inner(Children { nodes, .. }) => {
                nodes.first().zip(nodes.last()).map(|(a, b)| (a.node().summary().start, b.node().summary().end))
            }
        };
        ends.unwrap_or_default()
    }

    /// The largest hole between its VMAs, from the slots.
    pub(super) fn largest_gap(self) -> u64 {
        match self.slots() {
            Slots::Leaf(vmas) => widest_gap(vmas),
            Slots::Inner(children) => {
                let (mut end, mut largest) = (None, 0);
                for summary in children.nodes.iter().map(|child| child.node().summary()) {
                    let below = end.map_or(0, |end: VirtAddr| summary.start.get().wrapping_sub(end.get()));
                    largest = largest.max(below).max(summary.largest_gap);
                    end = Some(summary.end);
                }
                largest
            }
        }
    }

    /// Every flag of its VMAs, from the slots.
    pub(super) fn flags(self) -> VmaFlags {
        match self.slots() {
            Slots::Leaf(vmas) => vmas.iter().fold(VmaFlags::empty(), |all, vma| all | vma.flags),
            Slots::Inner(children) => {
                children.nodes.iter().fold(VmaFlags::empty(), |all, child| all | child.node().summary().flags)
            }
        }
    }

    /// The child in slot `index`, if there is one.
    #[inline]
    pub(super) fn child(self, index: usize) -> Option<NodeRef<'t>> {
        self.children().get(index).map(Child::node)
    }
}

/// First VMA slot of a leaf.
///
/// # Safety
///
/// `node` is an allocated leaf.
#[inline]
unsafe fn vma_slots(node: NonNull<Header>) -> *mut Vma {
    // SAFETY: by the function's contract; only an address is computed.
    unsafe { (&raw mut (*node.as_ptr().cast::<Leaf>()).vmas).cast() }
}

/// First child slot of an inner node.
///
/// # Safety
///
/// `node` is an allocated inner node.
#[inline]
unsafe fn child_slots(node: NonNull<Header>) -> *mut Child {
    // SAFETY: by the function's contract; only an address is computed.
    unsafe { (&raw mut (*node.as_ptr().cast::<Inner>()).children).cast() }
}

/// First `ends` slot of an inner node.
///
/// # Safety
///
/// `node` is an allocated inner node.
#[inline]
unsafe fn end_slots(node: NonNull<Header>) -> *mut VirtAddr {
    // SAFETY: by the function's contract; only an address is computed.
    unsafe { (&raw mut (*node.as_ptr().cast::<Inner>()).ends).cast() }
}

/// Counts one more owner of a root, unless it is frozen or nobody's.
///
/// # Safety
///
/// `node` is readable during the call.
pub(super) unsafe fn try_retain(node: NonNull<Header>) -> bool {
    // SAFETY: by the function's contract.
    let refs = unsafe { &(*node.as_ptr()).refs };
    // Relaxed, as with `Arc`: what is in the node was seen when it was found.
    let mut seen = refs.load(Ordering::Relaxed);
    while seen != 0 {
        match refs.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

/// Counts one more owner.
///
/// # Safety
///
/// The caller knows of an owner who stays during the call.
#[inline]
pub(super) unsafe fn retain(node: NonNull<Header>) {
    // Relaxed, as with `Arc`: there is an owner.
    // SAFETY: by the function's contract the node is allocated.
    unsafe { (*node.as_ptr()).refs.fetch_add(1, Ordering::Relaxed) };
}

/// Takes the only count of a root away and leaves it frozen: from now on [`try_retain`] fails. `false`: it has other owners.
///
/// # Safety
///
/// One count is the caller's; if the answer is `true` it is used up.
#[inline]
pub(super) unsafe fn freeze(node: NonNull<Header>) -> bool {
    // SAFETY: by the function's contract the node is allocated.
    let refs = unsafe { &(*node.as_ptr()).refs };
    // Acquire: who held it before is done reading, and it is destroyed without asking again. Relaxed: others hold it, nothing happens.
    refs.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Gives up one count; the last one destroys the node.
///
/// # Safety
///
/// One count is the caller's and is used up. Whoever reads the node without a count has stopped to do so.
pub(super) unsafe fn release(node: NonNull<Header>) {
    // Release: we are done reading. Acquire: so are all others, if we are the last.
    // SAFETY: by the function's contract the node is allocated.
    let before = unsafe { (*node.as_ptr()).refs.fetch_sub(1, Ordering::AcqRel) };
    if before == 1 {
        // SAFETY: that was the last count, and by the contract nobody reads.
        unsafe { destroy(node) };
    }
}

/// Releases what a node owns, and its memory. The depth of the recursion is the height of the tree.
///
/// # Safety
///
/// Nobody counts or reads the node.
pub(super) unsafe fn destroy(node: NonNull<Header>) {
    // SAFETY: 1. allocated, and the caller's alone; 2. owned slots are below `len`, so they are initialised, of the kind
    // that `level` says, and dropped nowhere else (invariants 1 and 3); 3. an owned child's count is used up here.
    unsafe {
        let level = (*node.as_ptr()).level;
        (*node.as_ptr()).content.write();
        let owned = owned_slots(node);
        if level == 0 {
            let vmas = vma_slots(node);
            owned.for_each(|i| ptr::drop_in_place(vmas.add(i)));
        } else {
            let children = child_slots(node);
            owned.for_each(|i| release((*children.add(i)).0));
        }
        pool::free(node, level);
    }
}

/// # Safety
///
/// `node` is allocated.
#[inline]
unsafe fn owned_slots(node: NonNull<Header>) -> Range<usize> {
    // Relaxed: changed by the writer that took its content over, before it gave the node to the epoch.
    // SAFETY: by the function's contract.
    let owned = unsafe { (*node.as_ptr()).owned.load(Ordering::Relaxed) };
    (owned & 0xff) as usize..(owned >> 8) as usize
}

#[inline]
const fn pack(owned: Range<usize>) -> u16 {
    owned.start as u16 | (owned.end as u16) << 8
}
