//! From a frame back to the slots that refer to it: lineages of tables, and the list for frames mapped at unrelated places.
//!
//! A frame's [`Home`] says where its slots are. It costs nothing at fork: a copied table joins the lineage of the original, where every
//! frame that both map keeps its index. Only a frame of an object that is mapped from tables of different lineages is listed.

mod lineage;
mod listed;
mod picture;
mod stats;

use crate::addr::{ENTRIES, Index, Level};
use crate::error::Result;
use crate::frame::{Frame, Home, LineageId, Memory, Slot};
use crate::sync::{Mutex, Rank};
use crate::table::{Entry, for_each_used};
use listed::Listed;

pub(crate) use picture::{Picture, in_earnest};
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    anchor: Anchor,
    index: Index,
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
            Home::Listed | Home::Scattered => {
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
        let left = record.drop_ref();
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
        record.drop_ref()
    }

    /// What `entry`, at `index` of `table`, refers to is now also in the same place of a copy of `table`, both in `lineage`: adds the
    /// reference. Under the lock of `table`.
    pub(crate) fn copy_home(&self, entry: Entry, table: Frame, lineage: LineageId, index: Index) {
        if entry.is_object() {
            self.copy_object_home(entry.frame(), table, lineage, index);
        } else {
            self.record(entry.frame()).share(lineage, index);
        }
    }

    /// [`Memory::copy_home`] of a frame of an object: it is mapped from unrelated tables too, which change its home under the list's lock.
    pub(crate) fn copy_object_home(&self, frame: Frame, table: Frame, lineage: LineageId, index: Index) {
        let record = self.record(frame);
        let mut listed = self.reverse.listed.lock();
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
        }
        record.set_home(Home::None);
        Ok(home)
    }

    /// No slot refers to `frame` any more: all were emptied under the locks of their tables.
    pub(crate) fn forget_home(&self, frame: Frame) {
        let record = self.record(frame);
        if record.home() == Home::Listed {
            self.reverse.listed.lock().forget(frame);
        }
        record.set_home(Home::None);
    }

    /// Puts `copy` beside `table` in its lineage, which is founded if there is none; `table` is locked.
    ///
    /// # Errors
    ///
    /// Out of memory, if a lineage cannot be founded.
    pub(crate) fn join_lineage(&self, table: Frame, copy: Frame) -> Result<LineageId> {
        self.reverse.lineages.join(self, table, copy)
    }

    /// Takes a dead table out of its lineage, if it is in one.
    pub(crate) fn leave_lineage(&self, table: Frame) {
        self.reverse.lineages.leave(self, table);
    }

    /// Calls `visit` for each slot that refers to `frame`. Time: tables that map it, and the copies in their lineages; all tables, if it is private
    /// memory that mremap moved while it was shared, and there was no heap to note where.
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
        match self.home(frame) {
            Home::None => {}
            Home::Slot(slot) => look_at_anchor(Anchor::Table(slot.table), slot.index),
            Home::Lineage(id, index) => look_at_anchor(Anchor::Lineage(id), index),
            Home::Listed => {
                for (anchor, index, _) in self.reverse.listed.lock().places(frame) {
                    look_at_anchor(anchor, index);
                }
            }
            Home::Scattered => self.search_slots(frame, look),
        }
    }

    /// Looks for a frame in every table that could hold it.
    fn search_slots(&self, frame: Frame, mut visit: impl FnMut(Slot)) {
        let level = match self.record(frame).table_level() {
            None => Some(Level::L1),
            Some(Level::L1) => Some(Level::L2),
            Some(Level::L2) => Some(Level::L3),
            Some(_) => Some(Level::L4),
        };
        for (number, record) in self.records().iter().enumerate() {
            if record.table_level() != level {
                continue;
            }
            let table = Frame(number as u32);
            // The upper half of a root is the embedder's.
            let ours = if level == Some(Level::L4) { ENTRIES / 2 } else { ENTRIES };
            for_each_used(&self.entries(table)[..ours], |index, entry| {
                if entry.is_present() && entry.frame() == frame {
                    visit(Slot { table, index });
                }
            });
        }
    }

    /// Calls `visit` for each member of a lineage.
    pub(crate) fn lineage_members(&self, id: LineageId, visit: impl FnMut(Frame)) {
        self.reverse.lineages.for_each(self, id, visit);
    }

    /// Slots that the list counts for a listed frame (for the checker).
    pub(crate) fn listed_slots(&self, frame: Frame) -> u32 {
        self.reverse.listed.lock().places(frame).map(|(_, _, slots)| slots).sum()
    }
}
