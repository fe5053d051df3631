//! Steps that madvise takes.

use foldspace::space::{Access, PopulateError};
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};

use super::{Attempt, World};
use crate::model::PAGE;
use crate::ops::{Len, Pick, Place};
use crate::sizes::Shown;

impl World {
    /// Advice to a space: what it says, after as many attempts as it takes. What came before a failure for want of memory is done.
    pub(super) fn advise(
        &self,
        space: usize,
        advice: impl Fn(&AddressSpace) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.attempt(|world| match advice(&world.spaces[space]) {
            Err(Error::OutOfMemory) => Attempt::NoMemoryAfterPart,
            outcome => Attempt::Over(outcome),
        })
    }

    fn picked(&self, space: Pick, place: Place, len: Len) -> Option<(usize, PageRange, u64, u64)> {
        let space = self.space(space);
        let range = self.range(space, place, len)?;
        Some((space, range, range.start().get() / PAGE, range.end().get() / PAGE))
    }

    pub(super) fn free(&mut self, space: Pick, place: Place, len: Len) {
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        let real = self.advise(space, |space| space.free(range));
        assert_eq!(real, self.model.spaces[space].free(start, end), "free {range:?}");
    }

    pub(super) fn cold(&mut self, space: Pick, place: Place, len: Len) {
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        let shown = self.shown();
        let real = self.advise(space, |space| space.cold(range));
        let model = self.model.spaces[space].cold(start, end);
        assert_eq!(real, model, "cold {range:?}");
        if model.is_ok() {
            let leaves = self.host.leaves(&self.spaces[space]);
            for leaf in leaves.iter().filter(|leaf| range.contains(leaf.addr)) {
                let alone = shown.mapped[&leaf.frame] == 1;
                assert!(!(alone && leaf.accessed), "{} of space {space} is not cold", leaf.addr);
            }
        }
    }

    pub(super) fn pageout(&mut self, space: Pick, place: Place, len: Len) {
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        let shown = self.shown();
        let real = self.advise(space, |space| space.pageout(range));
        let alone = |page: u64| {
            let leaf = shown.leaves[space].iter().find(|leaf| leaf.addr == VirtAddr(page * PAGE));
            leaf.is_some_and(|leaf| shown.mapped[&leaf.frame] == 1)
        };
        let model = self.model.spaces[space].pageout(start, end, alone);
        assert_eq!(real, model, "pageout {range:?}");
        if model.is_ok() {
            let leaves = self.host.leaves(&self.spaces[space]);
            for leaf in leaves.iter().filter(|leaf| range.contains(leaf.addr)) {
                let stays = shown.mapped[&leaf.frame] > 1 || leaf.dirty && !leaf.object;
                assert!(stays, "{} of space {space} is still there", leaf.addr);
            }
        }
    }

    pub(super) fn populate(&mut self, space: Pick, place: Place, len: Len, access: Access) {
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        let mut after = self.model.clone();
        let expected = after.populate(space, start, end, access);
        let real = self.attempt(|world| match world.spaces[space].populate(range, access, &mut || false) {
            Err(PopulateError::OutOfMemory) => Attempt::NoMemoryAfterPart,
            outcome => Attempt::Over(outcome),
        });
        assert_eq!(real, expected, "populate {range:?} {access:?}");
        self.model = after;
        if real.is_ok() {
            let mut resident = vec![0; range.pages() as usize];
            let mut at = range;
            // One VMA at a time.
            loop {
                let done = self.spaces[space].mincore(at, &mut resident).expect("it is mapped");
                assert!(resident[..done].iter().all(|resident| *resident == 1), "{range:?} is populated");
                let Some(rest) = PageRange::new(VirtAddr(at.start().get() + done as u64 * PAGE), range.end()) else {
                    break;
                };
                at = rest;
            }
        }
        for page in start..end {
            self.touch(VirtAddr(page * PAGE), 1);
        }
    }

    pub(super) fn guard_install(&mut self, space: Pick, place: Place, len: Len) {
        // Each table of them takes memory.
        let len = if matches!(len, Len::Huge(_)) { Len::Tables(2, 1) } else { len };
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        let real = self.advise(space, |space| space.guard_install(range));
        assert_eq!(real, self.model.spaces[space].guard_install(start, end), "guards into {range:?}");
        self.touch(range.start(), 1);
        self.touch(VirtAddr(range.end().get() - 1), 1);
    }

    pub(super) fn guard_remove(&mut self, space: Pick, place: Place, len: Len) {
        let Some((space, range, start, end)) = self.picked(space, place, len) else { return };
        if range.pages() < 1 << 14 {
            let real = self.advise(space, |space| space.guard_remove(range));
            assert_eq!(real, self.model.spaces[space].guard_remove(start, end), "guards out of {range:?}");
        }
    }

    fn shown(&self) -> Shown {
        Shown::count(&self.host, &self.everything())
    }
}
