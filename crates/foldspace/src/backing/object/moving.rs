//! A page's content goes to another frame.

use super::Object;
use super::cache::Cache;
use crate::frame::{Frame, Garbage, Home, Kind, Memory};
use crate::sync::{Mutex, MutexGuard};

impl Memory {
    /// An object lets go of a page that it has taken out of its cache.
    pub(super) fn drop_page(&self, frame: Frame, garbage: &mut Garbage) {
        let lost = self.record(frame).is_lost();
        match self.unpin_object(frame) {
            0 if lost => self.retire_frame(frame),
            0 => garbage.push_data(self, frame),
            _ => {}
        }
    }

    /// The object that `frame` is a page of, and which page, if the object lives. Whether it still is, its cache knows.
    pub(crate) fn object_of(&self, frame: Frame) -> Option<(alloc::sync::Arc<Object>, u64)> {
        let record = self.records().get(frame.0 as usize)?;
        let (number, index) = (record.kind() == Kind::Object).then(|| record.owner())?;
        Some((self.objects().at(number)?, index))
    }
}

impl Object {
    /// Nothing is cut out of it, and nobody writes to it as a file, until the guard is dropped.
    pub(crate) fn keep_whole(&self) -> MutexGuard<'_, ()> {
        let cutting: &Mutex<()> = &self.cutting;
        cutting.lock()
    }

    /// Its pages, so that none is lent or asked for meanwhile.
    pub(crate) fn lock_pages(&self) -> Pages<'_> {
        Pages { object: self, cache: self.cache.lock() }
    }
}

/// The pages of an object, locked.
pub(crate) struct Pages<'o> {
    object: &'o Object,
    cache: MutexGuard<'o, Cache>,
}

impl Pages<'_> {
    /// Whether page `index` is `frame`.
    pub(crate) fn has(&self, index: u64, frame: Frame) -> bool {
        self.cache.get(index) == Some(frame)
    }

    /// `to`, which nobody knows, begins as another frame for the page that `from` is, with `slots` slots that are to map it, at the same places.
    /// It is page `index` from now on.
    pub(crate) fn replace(&mut self, index: u64, from: Frame, to: Frame, home: Home, slots: u32) {
        let memory = &self.object.memory;
        let (old, new) = (memory.record(from), memory.record(to));
        new.begin(Kind::Object, home);
        let (number, index_of) = old.owner();
        debug_assert_eq!(index, index_of, "a frame knows which page it is");
        new.set_owner(number, index);
        new.pin();
        new.set_refs(slots + 1);
        if old.is_dirty() {
            new.set_dirty();
        }
        self.cache.put_in_place(index, to);
    }
}
