//! VMAs as the algorithm sees them.

use crate::anon_vma::AnonVmaId;
use crate::operation::{Area, Backing, Process, VmaFlags};
use crate::rule::Rule;

/// Where a [`Vma`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct VmaId(pub usize);

/// Part of an address space.
#[derive(Clone, Debug)]
pub(crate) struct Vma {
    pub process: Process,
    pub area: Area,
    /// What the page at the start is called by whoever looks for it: a page of the file, or for anonymous memory the page number
    /// at which it was first mapped.
    pub offset: u64,
    pub file: Option<u32>,
    pub flags: VmaFlags,
    /// That of pages that are made from now on.
    pub own: Option<AnonVmaId>,
    /// All whose pages may be here, oldest first.
    pub chain: Vec<AnonVmaId>,
}

impl Vma {
    pub fn new(process: Process, area: Area, backing: Backing, flags: VmaFlags) -> Vma {
        let (file, offset) = match backing {
            Backing::Anonymous => (None, area.start),
            Backing::File { file, offset } => (Some(file), offset),
        };
        Vma { process, area, offset, file, flags, own: None, chain: Vec::new() }
    }

    /// What the page at `page` is called.
    pub fn offset_of(&self, page: u64) -> u64 {
        self.offset + (page - self.area.start)
    }

    /// Where the page called `offset` is, if it lies in this VMA.
    pub fn page_of(&self, offset: u64) -> Option<u64> {
        let page = self.area.start + offset.checked_sub(self.offset)?;
        self.area.contains(page).then_some(page)
    }

    /// Whether stores make pages of its own.
    pub fn is_private(&self) -> bool {
        !self.flags.contains(VmaFlags::SHARED)
    }

    /// Whether `next`, right above, is of the same kind and goes on where this ends.
    fn goes_on_in(&self, next: &Vma) -> bool {
        self.area.end == next.area.start && self.file == next.file && self.offset_of(self.area.end) == next.offset
    }

    /// Whether this and `next` may be one VMA, as far as all but their anon_vmas go.
    pub fn is_like(&self, next: &Vma) -> bool {
        self.goes_on_in(next) && self.flags == next.flags
    }

    /// Whether a VMA without an anon_vma may share that of a neighbour, `next` being above the other (`anon_vma_compatible`).
    pub fn may_share_with(&self, next: &Vma) -> bool {
        self.goes_on_in(next) && self.flags | VmaFlags::ACCESS == next.flags | VmaFlags::ACCESS
    }

    /// Whether its chain is just its own anon_vma: it was not inherited.
    pub fn is_single(&self) -> bool {
        self.chain.len() == 1
    }
}

/// Whether the anon_vmas of two VMAs let them be one: `extended`, which stays, and `taken`, which it is extended over
/// (`is_mergeable_anon_vma`). VMAs that were inherited do not merge with those that have none: it would make them all share a lock.
pub(crate) fn anon_vmas_merge(rule: Rule, extended: &Vma, taken: &Vma) -> bool {
    match (extended.own, taken.own) {
        (Some(a), Some(b)) => a == b,
        (None, None) => true,
        (Some(_), None) => extended.is_single(),
        (None, Some(_)) => rule.merges_into_unfaulted() && taken.is_single(),
    }
}
