//! What an operation takes out of tables and out of use. Three stages, which none may overtake:
//!
//! 1. *given up*: taken out of its slot; still counted, for a processor may remember a translation to it. A sharer that saw its count
//!    drop now would reuse it in place, and that processor would see what the sharer stores.
//! 2. *released*, after the shootdown: no longer counted; dead if that was the last reference.
//! 3. *freed*, after the grace period: nobody looks at it any more.

use alloc::sync::Arc;
use core::mem;

use arrayvec::ArrayVec;
use crossbeam_epoch::Guard;

use super::record::{Kind, NONE};
use super::{Frame, Memory, Slot};
use crate::addr::Level;
use crate::platform::{Flush, SpaceId};
use crate::reverse::Place;
use crate::table::{Entry, release_entry};

/// What one operation has given up and released. Ends in [`Garbage::settle`] and [`Garbage::retire`]; forgetting that leaks frames.
#[must_use = "frames in it are lost unless settled and retired"]
pub(crate) struct Garbage {
    given_up: ArrayVec<GivenUp, AT_ONCE>,
    dead: Dead,
    /// A translation was taken away or replaced, so a shootdown is owed.
    pub(crate) stale: bool,
    /// It also covered addresses outside the range of the operation.
    pub(crate) stale_beyond: bool,
}

/// Entries that are given up before a shootdown at the latest. A fault gives up four: three tables and a page.
const AT_ONCE: usize = 16;

/// An entry of a table of `level`, on its way out.
struct GivenUp {
    entry: Entry,
    level: Level,
    place: Place,
}

/// Idle frames in a row, linked through their records.
pub(super) struct Chain {
    head: u32,
    len: u32,
}

impl Chain {
    const EMPTY: Chain = Chain { head: NONE, len: 0 };

    pub(super) fn head(&self) -> u32 {
        self.head
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    fn push(&mut self, memory: &Memory, frame: Frame) {
        let record = memory.record(frame);
        record.mark(Kind::Idle, 0);
        record.set_next(self.head);
        self.head = frame.0;
        self.len += 1;
    }

    /// Puts another chain before this one. O(its length): it is short.
    #[inline]
    fn append(&mut self, memory: &Memory, other: Chain) {
        if self.len != 0 && other.len != 0 {
            let mut last = memory.record(Frame(other.head));
            while last.next() != NONE {
                last = memory.record(Frame(last.next()));
            }
            last.set_next(self.head);
        }
        if other.len != 0 {
            *self = Chain { head: other.head, len: self.len + other.len };
        }
    }
}

/// Frames that are out of use.
pub(super) struct Dead {
    /// All of whose entries are zero.
    pub(super) tables: Chain,
    pub(super) data: Chain,
}

impl Dead {
    pub(super) const NONE: Dead = Dead { tables: Chain::EMPTY, data: Chain::EMPTY };

    pub(super) fn len(&self) -> u32 {
        self.tables.len + self.data.len
    }

    #[inline]
    pub(super) fn append(&mut self, memory: &Memory, other: Dead) {
        self.tables.append(memory, other.tables);
        self.data.append(memory, other.data);
    }
}

impl Garbage {
    pub(crate) const fn new() -> Garbage {
        Garbage { given_up: ArrayVec::new_const(), dead: Dead::NONE, stale: false, stale_beyond: false }
    }

    /// Whether nothing is owed: no shootdown, and nothing to release or to retire.
    #[inline]
    pub(crate) fn is_nothing(&self) -> bool {
        // What is given up is stale, too.
        !self.stale && self.dead.len() == 0
    }

    /// Whether nothing more can be given up before a shootdown.
    pub(crate) fn is_full(&self) -> bool {
        self.given_up.is_full()
    }

    /// Whether a path can be made exclusive before a shootdown: a table a level.
    pub(crate) fn has_room_for_a_path(&self) -> bool {
        self.given_up.remaining_capacity() >= 4
    }

    /// Gives up what `entry`, just taken out of `slot` in a locked table of `level`, refers to.
    #[inline]
    pub(crate) fn give_up(&mut self, memory: &Memory, entry: Entry, level: Level, slot: Slot) {
        self.stale = true;
        if !entry.is_present() || entry.is_reference() {
            return;
        }
        let given_up = GivenUp { entry, level, place: memory.place(slot) };
        if let Err(full) = self.given_up.try_push(given_up) {
            debug_assert!(false, "callers ask whether there is room");
            let GivenUp { entry, level, place } = full.element();
            release_entry(memory, entry, level, place, self);
        }
    }

    /// Shoots stale translations down, then releases what was given up. With no table locked.
    #[inline]
    pub(crate) fn settle(&mut self, memory: &Memory, space: SpaceId, flush: Flush) {
        if self.stale {
            let flush = if self.stale_beyond { Flush::All } else { flush };
            #[cfg(feature = "watch")]
            crate::sync::watch::may_hold_up_to(Some(crate::sync::Rank::Turn));
            memory.platform().shootdown(space, flush);
            self.stale = false;
        }
        // One by one: to take the list is to copy all of it, and most faults give up a single entry.
        while let Some(GivenUp { entry, level, place }) = self.given_up.pop() {
            release_entry(memory, entry, level, place, self);
        }
    }

    /// A dead table, all of whose entries are zero.
    pub(crate) fn push_table(&mut self, memory: &Memory, table: Frame) {
        self.dead.tables.push(memory, table);
    }

    /// A data frame without references.
    pub(crate) fn push_data(&mut self, memory: &Memory, frame: Frame) {
        self.dead.data.push(memory, frame);
    }

    /// Queues the dead frames to be freed once no processor that is pinned now can still look at them. Waits for nothing.
    #[inline]
    pub(crate) fn retire(&mut self, memory: &Arc<Memory>, guard: &Guard) {
        debug_assert!(self.given_up.is_empty(), "settled before it is retired");
        if self.dead.len() != 0 {
            memory.bury(mem::replace(&mut self.dead, Dead::NONE), guard);
        }
    }
}

/// Every operation ends in `settle` and `retire`, also one that fails.
#[cfg(debug_assertions)]
impl Drop for Garbage {
    fn drop(&mut self) {
        assert!(self.given_up.is_empty() && !self.stale, "an operation ended without its shootdown");
        assert!(self.dead.len() == 0, "an operation ended without retiring what is dead");
    }
}
