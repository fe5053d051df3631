//! What changes areas and not what is in them, and what holds for the whole machine.

use foldspace::PageRange;
use foldspace::frame::Overcommit;
use foldspace::space::MAX_MAP_COUNT;
use foldspace::vma::Name;

use super::{World, model_range};
use crate::model::{NAMES, Policy};
use crate::ops::{Note, Pick};

impl World {
    pub(super) fn note(&mut self, space: usize, range: PageRange, note: Note) {
        let real = self.attempt_result(|world| {
            let space = &world.spaces[space];
            match note {
                Note::Advice(advice) => space.advise(range, advice),
                Note::Name(name) => space.set_name(range, name.and_then(|name| Name::new(NAMES[name as usize]))),
                Note::Lock(mode) => space.lock(range, mode),
                Note::Unlock => space.unlock(range),
                Note::Seal => space.seal(range),
            }
        });
        let (start, end) = model_range(range);
        let model = match note {
            Note::Advice(advice) => self.model.spaces[space].advise(start, end, advice),
            Note::Name(name) => self.model.set_name(space, start, end, name),
            Note::Lock(mode) => self.model.spaces[space].lock(start, end, mode),
            Note::Unlock => self.model.spaces[space].unlock(start, end),
            Note::Seal => self.model.spaces[space].seal(start, end),
        };
        assert_eq!(real, model, "{note:?} in {range:?}");
    }

    pub(super) fn set_overcommit(&mut self, overcommit: Overcommit, percent: u8) {
        let memory = self.host.memory();
        memory.set_overcommit(overcommit);
        memory.set_overcommit_ratio(percent.into());
        self.policy = Policy { overcommit, ratio: percent.into(), ..self.policy };
    }

    /// As many areas as a space has, and some more; or the usual number.
    pub(super) fn set_map_count(&mut self, space: Pick, more: Option<u8>) {
        let areas = self.model.spaces[self.space(space)].areas.len() as u64;
        let count = more.map_or(MAX_MAP_COUNT, |more| areas + u64::from(more));
        self.host.memory().set_max_map_count(count);
        self.policy = Policy { max_map_count: count, ..self.policy };
    }
}
