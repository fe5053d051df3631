//! Questions about one VMA (`PROCMAP_QUERY` on a maps file: `query_matching_vma` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::maps;
use crate::addr::VirtAddr;
use crate::backing::Identity;
use crate::space::{AddressSpace, Marks};
use crate::vma::{VersionRef, Vma, VmaFlags};

/// Which VMA is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// Where.
    pub addr: VirtAddr,
    /// How far from there.
    pub reach: Reach,
    /// Flags that it must have, all of them.
    pub all: VmaFlags,
    /// Flags of which it must have one, unless there are none: [`VmaFlags::FILE`] for a VMA with a file behind it.
    pub any: VmaFlags,
}

/// Where a VMA may be for a query to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It covers the address.
    Covering,
    /// It covers the address, or is the next one above that has what is asked for.
    CoveringOrNext,
}

/// A VMA as it was at one instant, and what it was called.
pub struct Found {
    vma: Vma,
    marks: Marks,
}

impl AddressSpace {
    /// The VMA that is looked for, in the current version of the tree. O(log VMAs), see [`VersionRef::find_with`]; takes no lock, and no writer waits
    /// for it.
    pub fn query(&self, query: &Query) -> Option<Found> {
        let guard = self.memory().pin();
        let (marks, vma) = self.with_marks(|| self.current(&guard).matching(query));
        Some(Found { vma: vma?.clone(), marks })
    }
}

impl<'t> VersionRef<'t> {
    fn matching(self, query: &Query) -> Option<&'t Vma> {
        let vma = match query.reach {
            // The one that covers the address, whatever it has: what comes after it is not looked at.
            Reach::Covering => self.find(query.addr).filter(|vma| query.is_met_by(vma.flags)),
            Reach::CoveringOrNext => self.find_with(query.all, query.any, query.addr),
        };
        debug_assert!(vma.is_none_or(|vma| vma.end() > query.addr && query.is_met_by(vma.flags)));
        vma
    }
}

impl Query {
    fn is_met_by(&self, flags: VmaFlags) -> bool {
        flags.contains(self.all) && (self.any.is_empty() || flags.intersects(self.any))
    }
}

impl Found {
    /// The VMA.
    pub fn vma(&self) -> &Vma {
        &self.vma
    }

    /// Device and inode of the file behind it, and the byte of it at which the VMA starts; zeros without one.
    pub fn origin(&self) -> (Identity, u64) {
        maps::origin(&self.vma)
    }

    /// Appends what the last column of maps calls it, with nothing escaped: nothing if it has no name.
    pub fn name(&self, out: &mut Vec<u8>) {
        maps::name(&self.vma, &self.marks, out);
    }
}
