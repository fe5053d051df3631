//! Names of anonymous memory.

use alloc::sync::Arc;
use core::ops::Deref;

use arrayvec::ArrayVec;

/// A name given to anonymous memory: immutable, shared by everything that was split or forked from the VMA it was given to.
///
/// One pointer wide, unlike an `Arc<[u8]>`: VMAs are copied with each change of the tree, so their size is what a change costs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name(Arc<ArrayVec<u8, { Name::MAX }>>);

impl Name {
    /// Bytes that a name may have: Linux's `ANON_VMA_NAME_MAX_LEN` (`include/linux/mm_inline.h`) without the NUL.
    pub const MAX: usize = 79;

    /// `None` if `bytes` are too many. Which bytes make a name is for the caller to say.
    pub fn new(bytes: &[u8]) -> Option<Name> {
        ArrayVec::try_from(bytes).ok().map(|bytes| Name(Arc::new(bytes)))
    }

    /// How many have it: VMAs, and whoever else holds it.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.0)
    }
}

impl<const N: usize> From<[u8; N]> for Name {
    fn from(bytes: [u8; N]) -> Name {
        const { assert!(N <= Name::MAX, "too long for a name") };
        Name(Arc::new(bytes.into_iter().collect()))
    }
}

impl Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
