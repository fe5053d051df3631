//! What is left of the references to a frame.

use super::record::LISTED;

/// What is left of the references to a frame when one was dropped.
#[derive(Clone, Copy)]
pub(crate) struct Left(u32);

impl Left {
    #[inline]
    pub(super) fn new(refs: u32) -> Left {
        Left(refs)
    }

    /// Nothing.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
    /// Whether the one that was dropped is listed still.
    #[inline]
    pub(crate) fn is_listed(self) -> bool {
        self.0 & LISTED != 0
    }
    /// How many.
    pub(crate) fn count(self) -> u32 {
        self.0 & !LISTED
    }
}
