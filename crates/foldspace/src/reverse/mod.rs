//! From a frame back to the slots that refer to it: lineages of tables, and the list for frames mapped at unrelated places.
//!
//! A frame's [`Home`] says where its slots are. It costs nothing at fork: a copied table joins the lineage of the original, where every
//! frame that both map keeps its index. Only what is at unrelated places is listed: a frame of an object that is mapped from tables of different
//! lineages, and private memory that was moved while it was shared.

mod lineage;
mod listed;
mod picture;
mod private;
mod stats;

use alloc::vec::Vec;

use crate::addr::Index;
use crate::error::Result;
use crate::frame::{Frame, Home, LineageId, Memory, Slot};
use crate::sync::{Mutex, Rank};
use crate::table::Entry;
use listed::Listed;

pub(crate) use lineage::Joined;
pub(crate) use picture::{Picture, in_earnest};
pub(crate) use private::Promise;
pub use stats::ReverseStats;

/// What is needed beside the records.
pub(crate) struct Reverse {
    lineages: lineage::Lineages,
    listed: Mutex<Listed>,
}

/// The place of a slot as the list of homes names it: the lineage of its table, or the table while that has none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Anchor {
    Table(Frame),
    Lineage(LineageId),
}

/// Where a slot is, in the terms of its frame's home. What it says stays true when the slot's table is dead.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    anchor: Anchor,
    index: Index,
}

impl Place {
    /// The place at another index of the same table.
    #[inline]
    pub(crate) fn at(self, index: Index) -> Place {
        Place { index, ..self }
    }
}

impl Reverse {
    pub(crate) fn new() -> Reverse {
        Reverse { lineages: lineage::Lineages::new(), listed: Mutex::new(Rank::Homes, Listed::default()) }
    }
}

impl Memory {
    /// The place of a slot, under the lock of its table.
    #[inline]
    pub(crate) fn place(&self, slot: Slot) -> Place {
        Place { anchor: self.anchor(slot.table), index: slot.index }
    }

    #[inline]
    fn anchor(&self, table: Frame) -> Anchor {
        match self.record(table).lineage() {
            Some(id) => Anchor::Lineage(id),
            None => Anchor::Table(table),
        }
    }

    /// `slot` now maps an object's `frame`: adds the reference. Under the lock of the slot's table.
    ///
    /// # Errors
    ///
    /// Out of memory, if the frame becomes one that is listed; nothing has changed then.
    pub(crate) fn add_home(&self, frame: Frame, slot: Slot) -> Result<()> {
        let mut listed = self.reverse.listed.lock();
        let record = self.record(frame);
        let here = self.anchor(slot.table);
        let home = match record.home() {
            Home::None => Home::Slot(slot),
            Home::Slot(only) if self.anchor(only.table) == here && only.index == slot.index => match here {
                Anchor::Lineage(id) => Home::Lineage(id, slot.index),
                Anchor::Table(_) => Home::Slot(slot),
            },
            Home::Lineage(id, index) if here == Anchor::Lineage(id) && index == slot.index => Home::Lineage(id, index),
            Home::Slot(only) => {
                listed.start(frame, [(self.anchor(only.table), only.index, 1), (here, slot.index, 1)])?;
                Home::Listed
            }
            Home::Lineage(id, index) => {
                let slots = record.refs() - record.is_pinned() as u32;
                listed.start(frame, [(Anchor::Lineage(id), index, slots), (here, slot.index, 1)])?;
                Home::Listed
            }
            Home::Listed => {
                listed.add(frame, here, slot.index)?;
                Home::Listed
            }
        };
        record.set_home(home);
        record.add_ref();
        Ok(())
    }

    /// The slot at `from` that mapped an object's `frame` is being moved to `to`. Under the locks of both tables.
    ///
    /// # Errors
    ///
    /// Out of memory; nothing has changed then.
    pub(crate) fn move_home(&self, frame: Frame, from: Place, to: Slot) -> Result<()> {
        let mut listed = self.reverse.listed.lock();
        let record = self.record(frame);
        let (here, slots) = (self.anchor(to.table), record.refs() - record.is_pinned() as u32);
        match record.home() {
            Home::Listed => listed.moved(frame, (from.anchor, from.index), (here, to.index))?,
            Home::Lineage(id, index) if slots > 1 => {
                listed.start(frame, [(Anchor::Lineage(id), index, slots - 1), (here, to.index, 1)])?;
                record.set_home(Home::Listed);
            }
            _ => record.set_home(Home::Slot(to)),
        }
        Ok(())
    }

    /// A slot at `place` has ceased to map an object's `frame`: drops the reference and returns how many are left.
    pub(crate) fn drop_home(&self, frame: Frame, place: Place) -> u32 {
        let mut listed = self.reverse.listed.lock();
        let record = self.record(frame);
        let left = record.drop_ref().count();
        if record.home() == Home::Listed {
            // The table may have founded a lineage since it gave the entry up; a list begun after that names the place by the lineage.
            let place = match place.anchor {
                Anchor::Table(table) if !listed.has(frame, place.anchor, place.index) => {
                    Place { anchor: self.anchor(table), ..place }
                }
                _ => place,
            };
            if listed.remove(frame, place.anchor, place.index) {
                record.set_home(Home::None);
            }
        } else if left == record.is_pinned() as u32 {
            record.set_home(Home::None);
        }
        left
    }

    /// An object lets go of a page: drops its reference and returns how many are left.
    pub(crate) fn unpin_object(&self, frame: Frame) -> u32 {
        let _listed = self.reverse.listed.lock();
        let record = self.record(frame);
        record.unpin();
        record.drop_ref().count()
    }

    /// What is at `index` of a table, private memory or a table, is now also there in a copy of it, which has joined its `lineage`: adds the reference.
    /// Under the lock of the table.
    #[inline]
    pub(crate) fn share_home(&self, frame: Frame, lineage: LineageId, index: Index) {
        if !self.record(frame).share(lineage, index) {
            self.share_listed(frame, lineage, index);
        }
    }

    /// As [`Memory::share_home`], of a frame of an object that `table` has; or of one slot of anything, where both tables are of `lineage` already and
    /// nobody knows that it is copied. Frames of objects are mapped from unrelated tables too, which change the home under the lists' lock, and who
    /// moves private memory begins a list under it.
    pub(crate) fn relink_home(&self, frame: Frame, table: Frame, lineage: LineageId, index: Index) {
        let mut listed = self.reverse.listed.lock();
        let record = self.record(frame);
        if record.home() == Home::Listed {
            listed.copied(frame, Anchor::Table(table), Anchor::Lineage(lineage), index);
        } else {
            record.set_home(Home::Lineage(lineage, index));
        }
        record.add_ref();
    }

    /// Where the slots are that refer to `from`, all of which are to refer to `to` instead, under the locks of their tables.
    ///
    /// # Errors
    ///
    /// Out of memory; nothing has changed then.
    pub(crate) fn rename_home(&self, from: Frame, to: Frame) -> Result<Home> {
        let record = self.record(from);
        let home = record.home();
        if home == Home::Listed {
            self.reverse.listed.lock().rename(from, to)?;
            record.forget_list();
        }
        record.set_home(Home::None);
        Ok(home)
    }

    /// No slot refers to `frame` any more: all were emptied under the locks of their tables.
    pub(crate) fn forget_home(&self, frame: Frame) {
        let record = self.record(frame);
        if record.home() == Home::Listed {
            self.reverse.listed.lock().forget(frame);
            record.forget_list();
        }
        record.set_home(Home::None);
    }

    /// Puts `copy` beside `root` in its lineage, which is founded if there is none; `root` is locked. For roots: nothing that they link ever moves.
    ///
    /// # Errors
    ///
    /// Out of memory, if a lineage cannot be founded.
    pub(crate) fn join_lineage(&self, root: Frame, copy: Frame) -> Result<LineageId> {
        self.reverse.lineages.join(self, root, copy)
    }

    /// As [`Memory::join_lineage`], of any table. Its entries are copied while what it returns lives, which is not for long.
    ///
    /// # Errors
    ///
    /// As there.
    pub(crate) fn join_to_copy(&self, table: Frame, copy: Frame) -> Result<Joined<'_>> {
        self.reverse.lineages.join_to_copy(self, table, copy)
    }

    /// Takes a dead table out of its lineage, if it is in one.
    pub(crate) fn leave_lineage(&self, table: Frame) {
        self.reverse.lineages.leave(self, table);
    }

    /// Calls `visit` for each slot that refers to `frame`. Time: tables that map it, and the copies in their lineages.
    ///
    /// Takes no lock of a table. So while others change tables, each slot that it visits did refer to `frame` when it was looked at, and one that
    /// comes, goes or moves meanwhile may be left out or visited; those that stay are visited once. [`Memory::mappings`] gives one instant.
    pub fn slots(&self, frame: Frame, mut visit: impl FnMut(Slot)) {
        self.for_each_place(frame, |slot| {
            let entry = Entry::load(&self.entries(slot.table)[slot.index.get()]);
            if entry.is_tracked() && entry.frame() == frame {
                visit(slot);
            }
        });
    }

    /// How many tables [`Memory::slots`] looks at for `frame`.
    pub fn visited_tables(&self, frame: Frame) -> u64 {
        let mut count = 0;
        self.for_each_place(frame, |_| count += 1);
        count
    }

    /// What the record of `frame` says of where its slots are.
    pub fn home(&self, frame: Frame) -> Home {
        match self.records().get(frame.0 as usize) {
            Some(record) if record.kind().is_tracked() => record.home(),
            _ => Home::None,
        }
    }

    /// Calls `look` with each slot that may refer to `frame`.
    fn for_each_place(&self, frame: Frame, mut look: impl FnMut(Slot)) {
        let mut look_at_anchor = |anchor: Anchor, index: Index| match anchor {
            Anchor::Table(table) => look(Slot { table, index }),
            Anchor::Lineage(id) => self.reverse.lineages.for_each(self, id, |table| look(Slot { table, index })),
        };
        let mut home = self.home(frame);
        if home == Home::Listed {
            let listed = self.reverse.listed.lock();
            // Its list may just have ended.
            home = self.home(frame);
            if home == Home::Listed {
                return listed.places(frame).for_each(|(anchor, index, _)| look_at_anchor(anchor, index));
            }
        }
        match home {
            Home::None | Home::Listed => {}
            Home::Slot(slot) => look_at_anchor(Anchor::Table(slot.table), slot.index),
            Home::Lineage(id, index) => look_at_anchor(Anchor::Lineage(id), index),
        }
    }

    /// Calls `visit` for each member of a lineage.
    pub(crate) fn lineage_members(&self, id: LineageId, visit: impl FnMut(Frame)) {
        self.reverse.lineages.for_each(self, id, visit);
    }

    /// The places of a listed frame and the slots that are counted there (for the checker).
    pub(crate) fn listed_places(&self, frame: Frame) -> Vec<(Place, u32)> {
        let places = |(anchor, index, slots)| (Place { anchor, index }, slots);
        self.reverse.listed.lock().places(frame).map(places).collect()
    }

    /// Slots that the list counts for a listed frame (for the checker).
    pub(crate) fn listed_slots(&self, frame: Frame) -> u32 {
        self.reverse.listed.lock().slots(frame)
    }
}
