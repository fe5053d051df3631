//! The difference of two address spaces that come from each other: proportional to what differs, not to what there is.

use super::AddressSpace;
use crate::addr::{Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::table::PageState;
use crate::vma::{Vma, VmaChange};

/// One thing in which the second of two address spaces differs from the first.
#[derive(Clone, Debug)]
pub enum Difference<'t> {
    /// A VMA that only the first has. All that differs in a VMA makes it another: its range, flags, backing, name.
    Gone(&'t Vma),
    /// A VMA that only the second has.
    New(&'t Vma),
    /// A row of pages of which the two have different private copies, or only one has one, a guard, or one that is lost. Content is not compared: what was stored
    /// and is the same as before counts as changed.
    Pages {
        /// Which.
        range: PageRange,
        /// What each of them is in the first.
        before: PageState,
        /// What each of them is in the second.
        after: PageState,
    },
}

impl AddressSpace {
    /// Calls `visit` for everything in which `after` differs from this: the VMAs first, then the pages, each upwards. So the pages that a program
    /// has stored to since a snapshot are `snapshot.space().diff(&space, ..)`; of two snapshots it is exact while the program runs. What shared
    /// mappings show belongs to their objects and is not compared.
    ///
    /// Time: for VMAs what differs, times the height of the tree; for pages the tables that the two do not share. Needs no memory, takes no lock:
    /// of address spaces that change meanwhile it says something that was so at some time at each place.
    pub fn diff(&self, after: &AddressSpace, mut visit: impl FnMut(Difference<'_>)) {
        let guard = self.memory.pin();
        self.vmas.load(&guard).diff(after.vmas.load(&guard), |change| {
            visit(match change {
                VmaChange::Gone(vma) => Difference::Gone(vma),
                VmaChange::New(vma) => Difference::New(vma),
            });
        });
        self.tables()
            .diff(&after.tables(), &mut |range, before, after| visit(Difference::Pages { range, before, after }));
    }

    /// Copies the private page at `addr` out, whatever its area allows; `false` if there is none. For who writes snapshots down.
    pub fn read_private(&self, addr: VirtAddr, out: &mut [u8; PAGE_SIZE as usize]) -> bool {
        let _guard = self.memory.pin();
        let leaf = self.tables().look(addr);
        let private = leaf.level == Level::L1 && leaf.entry.is_private();
        if private {
            self.memory.read_frame(leaf.entry.frame(), 0, out);
        }
        private
    }
}
