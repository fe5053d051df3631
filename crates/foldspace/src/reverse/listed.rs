//! Frames mapped at unrelated places: a list of places each, with the slots counted.

use alloc::vec::Vec;

use hashbrown::HashMap;

use super::Anchor;
use crate::addr::Index;
use crate::error::{Error, Result};
use crate::frame::Frame;

/// A place and the slots there: tables of one lineage at one index.
type Place = (Anchor, Index, u32);

/// The explicit lists. Adding may need memory, which is taken before anything changes; removing and copying never do.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) frames: HashMap<Frame, Vec<Place>>,
}

impl Listed {
    /// Begins the list of a frame with its first two places.
    pub(super) fn start(&mut self, frame: Frame, places: [Place; 2]) -> Result<()> {
        let mut list = Vec::new();
        list.try_reserve(4).map_err(|_| Error::OutOfMemory)?;
        self.frames.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        list.extend(places);
        self.frames.insert(frame, list);
        Ok(())
    }

    /// One more slot.
    pub(super) fn add(&mut self, frame: Frame, anchor: Anchor, index: Index) -> Result<()> {
        let Some(list) = self.frames.get_mut(&frame) else { return Ok(()) };
        if let Some(place) = find(list, anchor, index) {
            place.2 += 1;
            return Ok(());
        }
        list.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        list.push((anchor, index, 1));
        Ok(())
    }

    /// A slot in a table of `lineage` was copied; until now the place may have been named by the table alone.
    pub(super) fn copied(&mut self, frame: Frame, table: Anchor, lineage: Anchor, index: Index) {
        let Some(list) = self.frames.get_mut(&frame) else { return };
        if let Some(place) = find(list, lineage, index) {
            place.2 += 1;
        } else if let Some(place) = find(list, table, index) {
            *place = (lineage, index, 2);
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
        let Some(list) = self.frames.get_mut(&frame) else { return true };
        if let Some(place) = find(list, anchor, index) {
            place.2 -= 1;
        }
        list.retain(|place| place.2 > 0);
        let empty = list.is_empty();
        if empty {
            self.frames.remove(&frame);
        }
        empty
    }

    /// All places of a frame.
    pub(super) fn forget(&mut self, frame: Frame) {
        self.frames.remove(&frame);
    }

    /// The places of `from` are those of `to`, which has none.
    pub(super) fn rename(&mut self, from: Frame, to: Frame) -> Result<()> {
        self.frames.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        if let Some(list) = self.frames.remove(&from) {
            self.frames.insert(to, list);
        }
        Ok(())
    }

    /// The places of a frame.
    pub(super) fn places(&self, frame: Frame) -> impl Iterator<Item = Place> + '_ {
        self.frames.get(&frame).into_iter().flatten().copied()
    }
}

fn find(list: &mut [Place], anchor: Anchor, index: Index) -> Option<&mut Place> {
    list.iter_mut().find(|place| place.0 == anchor && place.1 == index)
}
