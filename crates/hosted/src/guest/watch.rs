//! Watches: ranges of addresses of which an emulator wants to hear.

use std::ops::Range;

use foldspace::addr::PAGE_SHIFT;
use foldspace::space::Access;

/// Accesses of one kind to some addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Watch {
    addresses: Range<u64>,
    access: Access,
}

/// All watches of a guest.
#[derive(Default)]
pub(super) struct Watches(Vec<Watch>);

impl Watches {
    pub(super) fn add(&mut self, addresses: Range<u64>, access: Access) {
        self.0.push(Watch { addresses, access });
    }

    /// Takes all out that watch exactly this; whether there were any.
    pub(super) fn remove(&mut self, addresses: &Range<u64>, access: Access) -> bool {
        let before = self.0.len();
        self.0.retain(|watch| watch.addresses != *addresses || watch.access != access);
        self.0.len() != before
    }

    /// The first of `len` bytes from `addr` that is watched.
    pub(super) fn first(&self, addr: u64, len: usize, access: Access) -> Option<u64> {
        let end = addr.saturating_add(len as u64);
        let hits = self.0.iter().filter(|watch| watch.access == access);
        hits.filter(|watch| watch.addresses.start < end && addr < watch.addresses.end)
            .map(|watch| watch.addresses.start.max(addr))
            .min()
    }

    /// Whether anything in a page is watched.
    pub(super) fn touch(&self, page: u64, access: Access) -> bool {
        self.first(page << PAGE_SHIFT, 1 << PAGE_SHIFT, access).is_some()
    }
}
