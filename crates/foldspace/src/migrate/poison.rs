//! Frames that have failed, or are about to.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::NotMoved;
use super::run::{shoot, with_all_slots, word};
use crate::addr::{Level, VirtAddr};
use crate::backing::Object;
use crate::frame::{Frame, Memory};
use crate::reverse::in_earnest;
use crate::sync::atomic::Ordering;
use crate::table::Entry;

/// What was lost with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Private memory, of all who shared it.
    Private,
    /// A page of an object, and whether it had been written to.
    Page {
        /// What its source has, if it has one, is older.
        dirty: bool,
    },
}

impl Memory {
    /// `frame` has failed: what is in it is lost, and it is used for nothing any more. Whoever had it as private memory finds
    /// [`crate::space::Fault::Poisoned`] there, until that is unmapped or discarded; as a page of an object, whoever maps or reads that page, until it is
    /// cut out. Nobody else notices. Time: what [`Memory::mappings`] takes, and a shootdown of each address space that maps it.
    ///
    /// # Errors
    ///
    /// [`NotMoved`]; nothing has changed then.
    pub fn poison(self: &Arc<Memory>, frame: Frame) -> Result<Lost, NotMoved> {
        self.poison_at(frame, None)
    }

    /// As [`Memory::poison`], if `frame` is at `place`, an address below a root; [`NotMoved::Unused`] if not.
    pub(crate) fn poison_at(
        self: &Arc<Memory>,
        frame: Frame,
        place: Option<(Frame, VirtAddr)>,
    ) -> Result<Lost, NotMoved> {
        in_earnest(NotMoved::Busy, || {
            self.may_move(frame)?;
            let object = self.object_of(frame);
            let _whole = object.as_ref().map(|(object, _)| object.keep_whole());
            self.poison_of(object.as_ref().map(|(object, _)| &**object), frame, place)
        })
    }

    fn poison_of(
        &self,
        object: Option<&Object>,
        frame: Frame,
        place: Option<(Frame, VirtAddr)>,
    ) -> Result<Lost, NotMoved> {
        let _guard = self.pin();
        let mut spaces = Vec::new();
        let record = self.record(frame);
        let (lost, slots) = with_all_slots(self, object, frame, |picture, pages| {
            // As for who moves it.
            if pages.is_none() && picture.slots().next().is_none() {
                return Err(NotMoved::Unused);
            }
            // On its way, or kept by who takes it out of tables now.
            if record.pins() != pages.is_some() as u32 || record.is_out_of_reach() {
                return Err(NotMoved::Busy);
            }
            if place.is_some_and(|place| !picture.leads_to(place)) {
                return Err(NotMoved::Unused);
            }
            picture.spaces(&mut spaces)?;
            let mut dirty = record.is_dirty();
            let after = if pages.is_some() { Entry::NONE } else { Entry::POISON };
            for slot in picture.slots() {
                let before = Entry::from_bits(word(self, slot).swap(after.bits(), Ordering::AcqRel));
                self.record(slot.table).shift_counts(before.unit(Level::L1), after.unit(Level::L1));
                dirty |= before.is_dirty();
            }
            self.forget_home(frame);
            if pages.is_some() {
                record.lose();
            }
            let lost = if pages.is_some() { Lost::Page { dirty } } else { Lost::Private };
            Ok((lost, picture.slots().count() as u32))
        })?;
        shoot(self, &spaces);
        // What an object remembers goes when it does.
        if record.drop_refs(slots) == 0 {
            self.retire_frame(frame);
        }
        Ok(lost)
    }

    /// `frame` is expected to fail: moves what is in it elsewhere ([`Memory::migrate`]), and uses it for nothing any more.
    ///
    /// # Errors
    ///
    /// [`NotMoved`]; nothing has changed then.
    pub fn soft_offline(self: &Arc<Memory>, frame: Frame) -> Result<Frame, NotMoved> {
        self.migrate_with(frame, super::run::Then::Retire)
    }
}
