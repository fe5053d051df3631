//! Some frames on their way, all of them private or all of one object, with as few shootdowns as that takes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use crossbeam_epoch::Guard;

use super::NotMoved;
use crate::backing::{Object, Pages};
use crate::frame::{Frame, Garbage, Home, Kind, Memory, Slot};
use crate::platform::Flush;
use crate::reverse::Picture;
use crate::space::AddressSpace;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::table::Entry;

/// Frames of one run at most: as long as it takes, stores to them wait, or copy what is copied anyway.
pub(crate) const AT_ONCE: usize = 32;

/// A frame on its way.
struct Step {
    from: Frame,
    to: Frame,
    outcome: Result<(), NotMoved>,
    /// Slots that refer to `to` instead of `from`.
    slots: u32,
}

/// What becomes of a frame that was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    Free,
    /// It is not to be used any more.
    Retire,
}

/// Frames that are moved together.
pub(super) struct Run<'m> {
    memory: &'m Arc<Memory>,
    then: Then,
    steps: ArrayVec<Step, AT_ONCE>,
}

impl<'m> Run<'m> {
    pub(super) fn new(memory: &'m Arc<Memory>, then: Then) -> Run<'m> {
        Run { memory, then, steps: ArrayVec::new() }
    }

    /// `from` is to be moved to `to`, an idle frame; nothing if the run is full.
    pub(super) fn push(&mut self, from: Frame, to: Frame) {
        let _ = self.steps.try_push(Step { from, to, outcome: Ok(()), slots: 0 });
    }

    /// Each frame that was to go somewhere, and whether it did. If not, that frame is the caller's still.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (Frame, Result<(), NotMoved>)> + '_ {
        self.steps.iter().map(|step| (step.to, step.outcome))
    }

    /// Moves them. Those of objects should be of one.
    pub(super) fn carry_out(&mut self) {
        let memory = self.memory;
        for step in &mut self.steps {
            step.outcome = memory.may_move(step.from);
        }
        let first = self.steps.iter().find_map(|step| memory.object_of(step.from));
        match first {
            Some((object, _)) => {
                let _whole = object.keep_whole();
                self.carry_out_of(Some(&object));
            }
            None => self.carry_out_of(None),
        }
    }

    fn carry_out_of(&mut self, object: Option<&Object>) {
        let memory = self.memory;
        let guard = memory.pin();
        // Let go of with nothing locked: the last one to let go of an address space drops it.
        let (mut writing, mut reading) = (Vec::new(), Vec::new());
        self.each(|step| freeze(memory, object, step.from, &mut writing));
        shoot(memory, &writing);
        self.each(|step| {
            memory.copy_frame(step.from, step.to);
            Ok(())
        });
        self.each(|step| {
            let switched = switch(memory, object, step.from, step.to, &mut reading);
            if switched.is_err() {
                thaw(memory, &guard, step.from);
            }
            step.slots = switched?;
            Ok(())
        });
        shoot(memory, &reading);
        let mut garbage = Garbage::new();
        for step in self.steps.iter().filter(|step| step.outcome.is_ok()) {
            step.finish(memory, self.then, &mut garbage);
            memory.note_moved();
        }
        garbage.retire(memory, &guard);
    }

    /// Takes those a step further that have come so far.
    fn each(&mut self, mut act: impl FnMut(&mut Step) -> Result<(), NotMoved>) {
        for step in self.steps.iter_mut().filter(|step| step.outcome.is_ok()) {
            step.outcome = act(step);
        }
    }
}

impl Step {
    /// No processor knows the old frame.
    fn finish(&self, memory: &Memory, then: Then, garbage: &mut Garbage) {
        let old = memory.record(self.from);
        let left = old.drop_refs(self.slots + old.pins());
        debug_assert!(left == 0, "the picture had all slots");
        match then {
            _ if left != 0 => {}
            Then::Free => garbage.push_data(memory, self.from),
            Then::Retire => memory.retire_frame(self.from),
        }
        if memory.end_move(self.to) {
            garbage.push_data(memory, self.to);
        }
    }
}

/// Calls `act` with all slots of `from`, and, if it is to be a page of `object`, with the pages of that, all locked.
pub(super) fn with_all_slots<T>(
    memory: &Memory,
    object: Option<&Object>,
    from: Frame,
    mut act: impl FnMut(&Picture<'_>, Option<&mut Pages<'_>>) -> Result<T, NotMoved>,
) -> Result<T, NotMoved> {
    let outcome = memory.with_picture(from, |picture| {
        let record = memory.record(from);
        let mut pages = object.map(Object::lock_pages);
        let known = match &pages {
            Some(pages) => record.kind() == Kind::Object && pages.has(record.owner().1, from),
            None => record.kind() == Kind::Anon,
        };
        if !known {
            return Some(Ok(Err(NotMoved::Unused)));
        }
        picture.is_whole().then(|| Ok(act(picture, pages.as_mut())))
    });
    outcome?
}

/// Nobody begins to write `from`. Appends the address spaces whose processors may remember that they could.
fn freeze(
    memory: &Memory,
    object: Option<&Object>,
    from: Frame,
    spaces: &mut Vec<Arc<AddressSpace>>,
) -> Result<(), NotMoved> {
    with_all_slots(memory, object, from, |picture, _| {
        // Private memory without a slot has been let go of: whoever did so is about to say that it is dead.
        if object.is_none() && picture.slots().next().is_none() {
            return Err(NotMoved::Unused);
        }
        // What several slots have of private memory was write-protected, and shot down, before the second one came.
        if object.is_some() || picture.slots().count() == 1 {
            picture.spaces(spaces)?;
        }
        if !memory.begin_move(from) {
            return Err(NotMoved::Busy);
        }
        for slot in picture.slots() {
            word(memory, slot).fetch_and(!Entry::WRITE, Ordering::AcqRel);
        }
        Ok(())
    })
}

/// Whoever had `from` has `to`, which has its content. Returns how many slots that were; appends the address spaces whose processors may remember
/// `from`.
fn switch(
    memory: &Memory,
    object: Option<&Object>,
    from: Frame,
    to: Frame,
    spaces: &mut Vec<Arc<AddressSpace>>,
) -> Result<u32, NotMoved> {
    with_all_slots(memory, object, from, |picture, pages| {
        let (old, new) = (memory.record(from), memory.record(to));
        let slots = picture.slots().count() as u32;
        if slots == 0 && pages.is_none() {
            // All who had it have copied it, or let go of it.
            return Err(NotMoved::Unused);
        }
        if old.is_held() {
            // Who cuts the object that it was copied from has taken some slots of it, and lets go of the frame that he has seen there.
            return Err(NotMoved::Busy);
        }
        picture.spaces(spaces)?;
        let home = memory.rename_home(from, to)?;
        match pages {
            Some(pages) => pages.replace(old.owner().1, from, to, home, slots),
            None => {
                new.begin(Kind::Anon, home);
                new.set_refs(slots);
                if home == Home::Listed {
                    new.begin_list();
                }
            }
        }
        memory.begin_move(to);
        for slot in picture.slots() {
            replace(word(memory, slot), to);
        }
        Ok(slots)
    })
}

/// `from` stays where it is.
fn thaw(memory: &Arc<Memory>, guard: &Guard, from: Frame) {
    if memory.end_move(from) {
        let mut garbage = Garbage::new();
        garbage.push_data(memory, from);
        garbage.retire(memory, guard);
    }
}

pub(super) fn word(memory: &Memory, slot: Slot) -> &AtomicU64 {
    &memory.entries(slot.table)[slot.index.get()]
}

/// The slot refers to `to`. What a processor notes in it meanwhile stays.
fn replace(word: &AtomicU64, to: Frame) {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let entry = Entry::from_bits(seen).with_frame(to).bits();
        match word.compare_exchange(seen, entry, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Nobody uses what is remembered of `spaces`: everything, since a move of memory may be about to shoot down the place that it has left.
pub(super) fn shoot(memory: &Memory, spaces: &[Arc<AddressSpace>]) {
    for (number, space) in spaces.iter().enumerate() {
        if !spaces[..number].iter().any(|before| Arc::ptr_eq(before, space)) {
            memory.platform().shootdown(space.id(), Flush::All);
        }
    }
}
