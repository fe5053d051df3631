//! Where the slots are that refer to a frame, as its record says it.

use super::Frame;
use crate::addr::Index;

/// A place in a table that refers to a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot {
    /// The table.
    pub table: Frame,
    /// The entry.
    pub index: Index,
}

/// Names a lineage: all live tables that descend from one table by unsharing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineageId(pub(crate) u32);

/// Where the slots are that refer to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Nowhere, or not tracked.
    None,
    /// The only slot.
    Slot(Slot),
    /// This index in tables of this lineage.
    Lineage(LineageId, Index),
    /// At unrelated places, each of which is in the list of [`crate::reverse`]: of an object that several programs map, or private memory (or a table)
    /// that mremap moved while it was shared after a fork.
    Listed,
}

impl Home {
    #[inline(always)]
    pub(super) fn pack(self) -> u64 {
        let place = |tag: u64, number: u32, index: Index| tag << 62 | (number as u64) << 9 | index.get() as u64;
        match self {
            Home::None => 0,
            Home::Slot(slot) => place(1, slot.table.0, slot.index),
            Home::Lineage(id, index) => place(2, id.0, index),
            Home::Listed => 3 << 62,
        }
    }

    pub(super) fn unpack(bits: u64) -> Home {
        let number = (bits >> 9) as u32;
        let index = Index::truncate(bits);
        match bits >> 62 {
            0 => Home::None,
            1 => Home::Slot(Slot { table: Frame(number), index }),
            2 => Home::Lineage(LineageId(number), index),
            _ => Home::Listed,
        }
    }
}
