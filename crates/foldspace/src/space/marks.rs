//! Where heap and stack are, for who names VMAs without the writers' lock.
//!
//! The truth is in the [`Layout`], under that lock. Here is a copy of three addresses that belongs to the published version of the tree at every instant:
//! when the heap grows it is changed before the version with the larger heap can be seen, when it shrinks after the one with the smaller. In between it
//! says more of a heap than there is, of addresses at which nothing is mapped.
//!
//! ```text
//!   reader                                  writer, under the writers' lock
//!   turn, odd: again                        turn + 1
//!   three addresses, and a version          addresses
//!   turn, not the same: again               turn + 1
//! ```
//!
//! A writer is between its two steps for three stores, so a reader hardly ever goes round again.

use super::AddressSpace;
use super::types::Layout;
use crate::addr::VirtAddr;
use crate::sync::hint;
use crate::sync::watched::{AtomicU64, Ordering, fence};

/// The addresses of a layout that give VMAs names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Marks {
    pub start_brk: VirtAddr,
    pub brk: VirtAddr,
    pub start_stack: VirtAddr,
}

impl From<&Layout> for Marks {
    fn from(layout: &Layout) -> Marks {
        Marks { start_brk: layout.start_brk, brk: layout.brk, start_stack: layout.start_stack }
    }
}

/// The copy.
pub(super) struct MarksCell {
    /// Odd while a writer stores.
    turn: AtomicU64,
    addresses: [AtomicU64; 3],
}

impl MarksCell {
    pub(super) fn new(layout: &Layout) -> MarksCell {
        let marks = Marks::from(layout);
        MarksCell {
            turn: AtomicU64::new(0),
            addresses: [marks.start_brk, marks.brk, marks.start_stack].map(|mark| AtomicU64::new(mark.get())),
        }
    }

    /// Changes them. The caller has the writers' lock.
    pub(super) fn set(&self, marks: Marks) {
        let turn = self.turn.load(Ordering::Relaxed);
        self.turn.store(turn + 1, Ordering::Relaxed);
        // Whoever sees one of the addresses sees the odd turn.
        fence(Ordering::Release);
        for (address, mark) in self.addresses.iter().zip([marks.start_brk, marks.brk, marks.start_stack]) {
            address.store(mark.get(), Ordering::Relaxed);
        }
        // Release: whoever sees the even turn sees the addresses, and a version that was published before.
        self.turn.store(turn + 2, Ordering::Release);
    }

    /// What `take` returns, and the marks of the instant at which it ran.
    fn read<T>(&self, mut take: impl FnMut() -> T) -> (Marks, T) {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn % 2 == 0 {
                let [start_brk, brk, start_stack] =
                    self.addresses.each_ref().map(|address| VirtAddr(address.load(Ordering::Relaxed)));
                let taken = take();
                // Acquire: if one of the addresses, or the version, is a later one, so is the turn.
                fence(Ordering::Acquire);
                if self.turn.load(Ordering::Relaxed) == turn {
                    return (Marks { start_brk, brk, start_stack }, taken);
                }
            }
            hint::spin_loop();
        }
    }
}

impl AddressSpace {
    /// A version that `take` gets from the tree, and the marks that belong to it. No lock; `take` may run again if the heap's end moves meanwhile.
    pub(crate) fn with_marks<T>(&self, take: impl FnMut() -> T) -> (Marks, T) {
        self.marks.read(take)
    }
}

#[cfg(all(test, foldspace_loom))]
mod loom;
