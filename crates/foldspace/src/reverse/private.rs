//! Private memory and tables with slots at unrelated places, since mremap has moved some of them while they were shared.
//!
//! They are found by one home each until then: an index in a lineage. The first move of one of several slots begins a list of places with the slots
//! counted, and a bit in the count of references ([`Record::is_listed`]) that says so to whoever drops one: it costs those whose memory was never
//! moved nothing to be told that they need not care.
//!
//! ```text
//!   who                         holds                                           and so
//!   ──────────────────────────  ──────────────────────────────────────────────  ──────────────────────────────────────────────────
//!   moves a slot                both tables, the lists; the lineage is quiet    counts what the frame has, sets the bit: in one step
//!   copies a table              the table, is noted as copying in the lineage   the home says lineage: nobody begins a list; else counts
//!   relinks a slot (restore)    both tables, the lists                          counts if there is a list
//!   drops one, the bit is set   the lists, afterwards                           counts down; ends the list when one place is left
//!   pins, or lets go of a pin   the lists                                       pins and references agree for all of the above
//! ```
//!
//! A list ends when its last place but one is gone: the home is an index in a lineage again.

use super::lineage::Number;
use super::listed::{Listed, Room};
use super::{Anchor, Place};
use crate::addr::Index;
use crate::error::Result;
use crate::frame::{Frame, Home, Left, LineageId, Memory, Record, Slot};
use crate::sync::hint::spin_loop;
use crate::table::for_each_used;

/// Room for the lists that a move of memory may begin, until this is dropped.
#[must_use = "it is kept as long as this lives"]
pub(crate) struct Promise<'m> {
    memory: &'m Memory,
    room: Room,
    lineages: usize,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.lineages != 0 {
            self.memory.reverse.lineages.end_promise(self.lineages);
            self.memory.reverse.listed.lock().end_promise(self.room);
        }
    }
}

impl Memory {
    /// Keeps room for moves of `slots` slots of shared memory to `tables` tables, for which `copies` tables may have to be copied.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn promise_homes(&self, slots: usize, tables: usize, copies: usize) -> Result<Promise<'_>> {
        let mut promise = Promise { memory: self, room: Room::default(), lineages: 0 };
        if slots != 0 {
            self.reverse.lineages.promise(tables + copies)?;
            // Who copies a table takes a number as anybody does: there is room for it now.
            self.reverse.lineages.end_promise(copies);
            let room = Room { lists: slots, places: Room::LIST.places * slots };
            let kept = self.reverse.listed.lock().promise(room);
            if let Err(error) = kept {
                self.reverse.lineages.end_promise(tables);
                return Err(error);
            }
            (promise.room, promise.lineages) = (room, tables);
        }
        Ok(promise)
    }

    /// The slot at `from`, which refers to private memory, or to a table, that others may refer to as well, is being moved to `to`. Under the locks of
    /// both tables, by who was promised room for it.
    #[cold]
    pub(crate) fn move_shared_home(&self, frame: Frame, from: Slot, to: Slot) {
        let record = self.record(frame);
        loop {
            let mut listed = self.reverse.listed.lock();
            let home = record.home();
            let (id, index) = match home {
                Home::Lineage(id, index) => (id, index),
                Home::Listed => {
                    let there = self.founded(to.table, &mut listed);
                    listed.put(frame, there, to.index, 1);
                    listed.remove(frame, self.anchor(from.table), from.index);
                    self.end_list(&mut listed, frame);
                    return;
                }
                // The only slot: what else is counted is a pin.
                Home::Slot(_) | Home::None => return record.set_home(Home::Slot(to)),
            };
            // Who is copying a table of the lineage counts entry by entry, and may need the lists for it.
            let Some(quiet) = self.reverse.lineages.quiet(id) else {
                drop(listed);
                spin_loop();
                continue;
            };
            if record.refs() - record.pins() == 1 {
                return record.set_home(Home::Slot(to));
            }
            let there = self.founded(to.table, &mut listed);
            if (there, to.index) != (Anchor::Lineage(id), index) {
                let slots = record.begin_list() - record.pins();
                listed.put(frame, Anchor::Lineage(id), index, slots - 1);
                listed.put(frame, there, to.index, 1);
                record.set_home(Home::Listed);
                drop(quiet);
                self.end_list(&mut listed, frame);
            }
            return;
        }
    }

    /// The lineage of a locked table that private memory moves to while it is shared: then who copies the table need not look for its name in lists.
    fn founded(&self, table: Frame, listed: &mut Listed) -> Anchor {
        let before = self.anchor(table);
        // There is a number for it, or this would have failed before anything was changed.
        let Ok(id) = self.reverse.lineages.of(self, table, Number::Promised) else { return before };
        let now = Anchor::Lineage(id);
        if now != before {
            for_each_used(self.entries(table), |index, entry| {
                if entry.is_present() && entry.is_object() {
                    listed.name(entry.frame(), index, before, now);
                }
            });
        }
        now
    }

    /// What a table and its copy have at `index` is listed: counts the copy's slot, and adds the reference. Under the lock of the table.
    #[cold]
    pub(crate) fn share_listed(&self, frame: Frame, lineage: LineageId, index: Index) {
        let mut listed = self.reverse.listed.lock();
        let record = self.record(frame);
        match record.home() {
            // The place is listed, for the table has a slot there.
            Home::Listed => listed.put(frame, Anchor::Lineage(lineage), index, 1),
            // It was until now.
            _ => record.set_home(Home::Lineage(lineage, index)),
        }
        record.add_ref();
    }

    /// A slot at `place` has ceased to refer to private memory, or to a table: drops the reference; true if it was the last.
    #[inline]
    pub(crate) fn drop_slot(&self, frame: Frame, place: Place) -> bool {
        let left = self.record(frame).drop_ref();
        left.is_none() || left.is_listed() && self.drop_listed(frame, left, place)
    }

    #[cold]
    fn drop_listed(&self, frame: Frame, left: Left, place: Place) -> bool {
        let mut listed = self.reverse.listed.lock();
        if self.record(frame).home() != Home::Listed {
            return left.count() == 0;
        }
        debug_assert!(listed.has(frame, place.anchor, place.index), "{frame:?}: {place:?} is not listed");
        listed.remove(frame, place.anchor, place.index);
        self.end_list(&mut listed, frame)
    }

    /// Ends the list of a frame if it has one place at most, and everybody who has dropped a reference has said so there; true if nothing refers to the
    /// frame any more.
    fn end_list(&self, listed: &mut Listed, frame: Frame) -> bool {
        let record = self.record(frame);
        let mut places = listed.places(frame);
        let (first, second) = (places.next(), places.next());
        drop(places);
        let (home, slots, lineage) = match first {
            Some((Anchor::Lineage(id), index, slots)) => (Home::Lineage(id, index), slots, Some(id)),
            Some((Anchor::Table(table), index, slots)) => (Home::Slot(Slot { table, index }), slots, None),
            None => (Home::None, 0, None),
        };
        if second.is_some() {
            return false;
        }
        // Who copies a table meanwhile, and sees that there is no list, must find that to be so. If somebody does, the list stays until the next time.
        let quiet = lineage.map(|id| self.reverse.lineages.quiet(id));
        if matches!(quiet, Some(None)) {
            return false;
        }
        let refs = slots + record.pins();
        // First the home: who finds itself alone may set another.
        record.set_home(home);
        if !record.end_list(refs) {
            // Someone has dropped one, and waits for the lists: he does this in turn.
            record.set_home(Home::Listed);
            return false;
        }
        listed.forget(frame);
        refs == 0
    }

    /// Keeps `frame` from being reused in place, or freed, until [`Memory::end_hold`]; false if it is held already. Under the lock of a table that has
    /// a slot to it.
    pub(crate) fn begin_hold(&self, frame: Frame) -> bool {
        let _lists = self.reverse.listed.lock();
        self.record(frame).begin_hold()
    }

    /// Ends it; true if nothing refers to the frame any more.
    pub(crate) fn end_hold(&self, frame: Frame) -> bool {
        self.end_pin(frame, Record::end_hold)
    }

    /// See [`Record::begin_move`].
    pub(crate) fn begin_move(&self, frame: Frame) -> bool {
        let _lists = self.reverse.listed.lock();
        self.record(frame).begin_move()
    }

    /// Ends it; true if nothing refers to the frame any more.
    pub(crate) fn end_move(&self, frame: Frame) -> bool {
        self.end_pin(frame, Record::end_move)
    }

    fn end_pin(&self, frame: Frame, end: impl FnOnce(&Record) -> Left) -> bool {
        let mut listed = self.reverse.listed.lock();
        let left = end(self.record(frame));
        left.is_none() || left.is_listed() && self.end_list(&mut listed, frame)
    }

    /// Whether a frame with so many slots has no others, nor is one that was dropped still listed. Under the locks of their tables.
    pub(super) fn has_all_slots(&self, frame: Frame, slots: usize) -> bool {
        let record = self.record(frame);
        record.refs() == slots as u32 + record.pins()
            && (!record.is_listed() || self.reverse.listed.lock().slots(frame) == slots as u32)
    }
}
