//! Frames mapped at unrelated places: a list of places each, with the slots counted.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::Anchor;
use crate::addr::Index;
use crate::error::{Error, Result};
use crate::frame::{Frame, NONE};

/// A place and the slots there: tables of one lineage at one index.
type Place = (Anchor, Index, u32);

/// The explicit lists. Adding may need memory, which is taken before anything changes, or was promised; removing and copying never do.
pub(super) struct Listed {
    /// The number of the first place of each frame's list.
    first: HashMap<Frame, u32>,
    places: Vec<Link>,
    /// The first free one of them, and how many are free.
    free: u32,
    spare: usize,
    /// So many of either are kept for those who were promised them.
    promised: Room,
}

struct Link {
    place: Place,
    next: u32,
}

/// What lists may need: that of one frame begins with two places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Room {
    pub(super) lists: usize,
    pub(super) places: usize,
}

impl Room {
    pub(super) const LIST: Room = Room { lists: 1, places: 2 };
    const PLACE: Room = Room { lists: 0, places: 1 };
    const NAME: Room = Room { lists: 1, places: 0 };
}

impl Default for Listed {
    fn default() -> Listed {
        Listed { first: HashMap::default(), places: Vec::new(), free: NONE, spare: 0, promised: Room::default() }
    }
}

impl Listed {
    /// Makes sure of room besides what was promised.
    fn ensure(&mut self, room: Room) -> Result<()> {
        let lists = self.promised.lists + room.lists;
        let places = (self.promised.places + room.places).saturating_sub(self.spare);
        self.first.try_reserve(lists).map_err(|_| Error::OutOfMemory)?;
        self.places.try_reserve(places).map_err(|_| Error::OutOfMemory)
    }

    /// Makes sure of room until [`Listed::end_promise`], for what is started and put by whoever was promised it.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(super) fn promise(&mut self, room: Room) -> Result<()> {
        self.ensure(room)?;
        self.promised.lists += room.lists;
        self.promised.places += room.places;
        Ok(())
    }

    pub(super) fn end_promise(&mut self, room: Room) {
        self.promised.lists -= room.lists;
        self.promised.places -= room.places;
    }

    /// Begins the list of a frame with its first two places.
    pub(super) fn start(&mut self, frame: Frame, places: [Place; 2]) -> Result<()> {
        self.ensure(Room::LIST)?;
        for (anchor, index, slots) in places {
            self.put(frame, anchor, index, slots);
        }
        Ok(())
    }

    /// One more slot.
    pub(super) fn add(&mut self, frame: Frame, anchor: Anchor, index: Index) -> Result<()> {
        if !self.first.contains_key(&frame) {
            return Ok(());
        }
        self.ensure(Room::PLACE)?;
        self.put(frame, anchor, index, 1);
        Ok(())
    }

    /// More slots at a place, where there is room for it.
    pub(super) fn put(&mut self, frame: Frame, anchor: Anchor, index: Index, slots: u32) {
        if let Some(place) = self.find(frame, anchor, index) {
            place.2 += slots;
            return;
        }
        if slots == 0 {
            return;
        }
        let link = Link { place: (anchor, index, slots), next: self.first.get(&frame).copied().unwrap_or(NONE) };
        let number = match self.free {
            NONE => {
                self.places.push(link);
                self.places.len() as u32 - 1
            }
            free => {
                let at = &mut self.places[free as usize];
                self.free = at.next;
                self.spare -= 1;
                *at = link;
                free
            }
        };
        self.set_head(frame, number);
    }

    /// A slot in a table of `lineage` was copied; until now the place may have been named by the table alone.
    pub(super) fn copied(&mut self, frame: Frame, table: Anchor, lineage: Anchor, index: Index) {
        if let Some(place) = self.find(frame, lineage, index) {
            place.2 += 1;
        } else if let Some(place) = self.find(frame, table, index) {
            *place = (lineage, index, 2);
        }
    }

    /// The table that a place is named by has founded a lineage.
    pub(super) fn name(&mut self, frame: Frame, index: Index, table: Anchor, lineage: Anchor) {
        if let Some(place) = self.find(frame, table, index) {
            place.0 = lineage;
        }
    }

    /// A slot at one place is at another now.
    pub(super) fn moved(&mut self, frame: Frame, from: (Anchor, Index), to: (Anchor, Index)) -> Result<()> {
        self.add(frame, to.0, to.1)?;
        self.remove(frame, from.0, from.1);
        Ok(())
    }

    /// Whether a place is listed.
    pub(super) fn has(&self, frame: Frame, anchor: Anchor, index: Index) -> bool {
        self.places(frame).any(|place| (place.0, place.1) == (anchor, index))
    }

    /// One slot less; true if that was the last, and the list is gone.
    pub(super) fn remove(&mut self, frame: Frame, anchor: Anchor, index: Index) -> bool {
        let (mut before, mut at) = (NONE, self.head(frame));
        while at != NONE {
            let link = &mut self.places[at as usize];
            let next = link.next;
            if (link.place.0, link.place.1) == (anchor, index) {
                link.place.2 -= 1;
                if link.place.2 == 0 {
                    self.unlink(frame, before, at, next);
                }
                break;
            }
            (before, at) = (at, next);
        }
        self.head(frame) == NONE
    }

    /// All places of a frame.
    pub(super) fn forget(&mut self, frame: Frame) {
        let mut at = self.first.remove(&frame).unwrap_or(NONE);
        while at != NONE {
            let next = self.places[at as usize].next;
            self.release(at);
            at = next;
        }
    }

    /// The places of `from` are those of `to`, which has none.
    pub(super) fn rename(&mut self, from: Frame, to: Frame) -> Result<()> {
        self.ensure(Room::NAME)?;
        if let Some(list) = self.first.remove(&from) {
            self.first.insert(to, list);
        }
        Ok(())
    }

    /// The places of a frame.
    pub(super) fn places(&self, frame: Frame) -> impl Iterator<Item = Place> + '_ {
        let mut at = self.head(frame);
        core::iter::from_fn(move || {
            let link = self.places.get(at as usize)?;
            at = link.next;
            Some(link.place)
        })
    }

    /// Slots that a frame's list counts.
    pub(super) fn slots(&self, frame: Frame) -> u32 {
        self.places(frame).map(|(_, _, slots)| slots).sum()
    }

    /// Frames that have a list, and places in all of them.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.first.len() as u64, (self.places.len() - self.spare) as u64)
    }

    fn head(&self, frame: Frame) -> u32 {
        self.first.get(&frame).copied().unwrap_or(NONE)
    }

    fn set_head(&mut self, frame: Frame, at: u32) {
        // The map would grow before it found out that it need not.
        match self.first.get_mut(&frame) {
            Some(head) => *head = at,
            None => drop(self.first.insert(frame, at)),
        }
    }

    fn find(&mut self, frame: Frame, anchor: Anchor, index: Index) -> Option<&mut Place> {
        let mut at = self.head(frame);
        while let Some(link) = self.places.get(at as usize) {
            if (link.place.0, link.place.1) == (anchor, index) {
                return self.places.get_mut(at as usize).map(|link| &mut link.place);
            }
            at = link.next;
        }
        None
    }

    /// Takes a place out of a frame's list.
    fn unlink(&mut self, frame: Frame, before: u32, at: u32, next: u32) {
        match before {
            NONE if next == NONE => drop(self.first.remove(&frame)),
            NONE => self.set_head(frame, next),
            _ => self.places[before as usize].next = next,
        }
        self.release(at);
    }

    fn release(&mut self, at: u32) {
        self.places[at as usize].next = self.free;
        self.free = at;
        self.spare += 1;
    }
}
