//! Anonymous pages.

use crate::anon_vma::AnonVmaId;

/// Names a page; used again once the page has gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId(pub(crate) usize);

/// A page that belongs to processes, not to a file.
#[derive(Debug)]
pub(crate) struct Page {
    /// Through which its mappings are found.
    pub anon_vma: AnonVmaId,
    /// What it is called there.
    pub offset: u64,
    /// How many address spaces map it.
    pub mapped: u32,
}
