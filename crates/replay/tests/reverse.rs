//! The exact reverse map beside the published ones, over the same random histories. After each step
//!
//! - what is found from a frame is what a walk of all tables finds, no more and no less: by its slots and theirs, and by [`foldspace::Memory::mappings`];
//! - those who have a page are those whom the published reverse maps say it is shared by, and all of them are among the candidates there.
//!
//! Between two steps frames move, which the published ones are not told. (Rules that count users and children in one number may free an anon_vma that is in
//! use, as `crates/classic/tests/published.rs` shows. That takes a chain of forks and exits that these histories do not come upon; a much longer run may.)

#[path = "../../classic/tests/steps/mod.rs"]
mod steps;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldspace::{Frame, Memory, VirtAddr};
use foldspace_classic::{Area, Mapping, Operation, PageId, Process, Rule, World};
use foldspace_replay::Manager;
use proptest::prelude::*;
use steps::{histories, operations, runner};

/// Bytes that an address space of a history may take, and all that share with it.
const MEMORY: u64 = 16 << 20;

/// Foldspace and everybody else.
struct Beside {
    manager: Manager,
    worlds: Vec<World>,
}

/// How far the histories went.
#[derive(Default)]
struct Reached {
    moved: Cell<u64>,
    listed: Cell<u64>,
    shared: Cell<u64>,
}

impl Beside {
    fn new() -> Beside {
        let worlds = Rule::ALL.into_iter().map(World::new).collect();
        Beside { manager: Manager::new(MEMORY).expect("the arena is there"), worlds }
    }

    /// Whether everybody can do it: what lies in one VMA is for each rule to decide.
    fn can(&self, operation: &Operation) -> bool {
        let in_one = |areas: &[Area], from: Area| areas.iter().any(|area| area.intersection(from) == Some(from));
        match *operation {
            Operation::Move { process, from, to } => {
                let target = Area { start: to, end: to + from.pages() };
                from.intersection(target).is_none()
                    && self.worlds.iter().all(|world| in_one(&world.areas(process), from))
                    && in_one(&self.areas(process), from)
            }
            Operation::Grow { process, end, .. } => {
                self.worlds.iter().all(|world| world.areas(process).iter().any(|area| area.end == end))
            }
            // mprotect ends at a hole.
            Operation::Change { process, area, .. } => {
                let mapped: u64 =
                    self.areas(process).iter().filter_map(|vma| vma.intersection(area)).map(Area::pages).sum();
                mapped == area.pages()
            }
            _ => true,
        }
    }

    /// The areas of Foldspace's VMAs.
    fn areas(&self, process: Process) -> Vec<Area> {
        let space = self.manager.spaces().find(|(number, _)| *number == process).expect("it lives").1;
        let vmas = space.vmas();
        let page = |addr: VirtAddr| addr.get() >> 12;
        vmas.view().iter().map(|vma| Area { start: page(vma.start()), end: page(vma.end()) }).collect()
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), String> {
        if !self.can(operation) {
            return Ok(());
        }
        self.manager.apply(operation).map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))?;
        for world in &mut self.worlds {
            world.apply(operation).map_err(|refusal| format!("{}: {refusal}", world.rule()))?;
        }
        Ok(())
    }

    /// What a walk of all tables finds: by frame, whether it is an object's, and where it is.
    fn walk(&self) -> BTreeMap<Frame, (bool, BTreeSet<Mapping>)> {
        let mut all: BTreeMap<Frame, (bool, BTreeSet<Mapping>)> = BTreeMap::new();
        for (process, space) in self.manager.spaces() {
            for leaf in self.manager.host().leaves(space) {
                let (_, places) = all.entry(leaf.frame).or_insert((leaf.object, BTreeSet::new()));
                places.insert(Mapping { process, page: leaf.addr.get() >> 12 });
            }
        }
        all
    }

    /// Moves the content of a frame elsewhere.
    fn disturb(&self, turn: usize, reached: &Reached) -> Result<(), String> {
        let memory = self.manager.host().memory();
        if turn % 3 != 2 {
            return Ok(());
        }
        let frames: Vec<Frame> = self.walk().into_keys().collect();
        let Some(frame) = frames.get(turn.wrapping_mul(7) % frames.len().max(1)) else { return Ok(()) };
        memory.migrate(*frame).map_err(|error| format!("{frame:?} stays where it is: {error}"))?;
        reached.moved.set(reached.moved.get() + 1);
        Ok(())
    }

    fn compare(&self, reached: &Reached) -> Result<(), String> {
        let memory = self.manager.host().memory();
        let by_root: HashMap<Frame, Process> =
            self.manager.spaces().map(|(process, space)| (space.root(), process)).collect();
        let walked = self.walk();
        for (frame, (_, places)) in &walked {
            let mut climbed = Vec::new();
            climb(memory, *frame, 0, 0, &mut |root, page| climbed.push(Mapping { process: by_root[&root], page }));
            let mut mapped = Vec::new();
            let instant = memory.mappings(*frame, |space, at| {
                mapped.push(Mapping { process: by_root[&space.root()], page: at.get() >> 12 });
            });
            instant.map_err(|error| format!("{frame:?}: {error}"))?;
            for (way, mut found) in [("its slots", climbed), ("its mappings", mapped)] {
                found.sort();
                if !found.iter().eq(places) {
                    return Err(format!("{frame:?} is at {places:?}; by {way} it is at {found:?}"));
                }
            }
            reached.shared.set(reached.shared.get().max(places.len() as u64));
        }
        reached.listed.set(reached.listed.get().max(memory.reverse_stats().listed_frames));
        let private: Vec<_> =
            walked.iter().filter(|(_, (object, _))| !object).map(|(frame, (_, places))| (*frame, places)).collect();
        self.worlds.iter().try_for_each(|world| compare_with(world, &private))
    }
}

/// Calls `visit` with each root, and the page below it, that leads to a frame through slots: those of the frame, those of their tables, and so on.
fn climb(memory: &Memory, frame: Frame, level: u32, page: u64, visit: &mut dyn FnMut(Frame, u64)) {
    let mut slots = Vec::new();
    memory.slots(frame, |slot| slots.push(slot));
    for slot in slots {
        let page = page | (slot.index.get() as u64) << (9 * level);
        match level {
            3 => visit(slot.table, page),
            _ => climb(memory, slot.table, level + 1, page, visit),
        }
    }
}

/// Whether those who have a frame have one page in that world, and are found there.
fn compare_with(world: &World, private: &[(Frame, &BTreeSet<Mapping>)]) -> Result<(), String> {
    let rule = world.rule();
    let mut pages: BTreeSet<PageId> = BTreeSet::new();
    for (frame, places) in private {
        let page = places.first().and_then(|place| world.page_at(place.process, place.page));
        let Some(page) = page else { return Err(format!("{rule}: there is no page at {places:?}")) };
        if !pages.insert(page) {
            return Err(format!("{rule}: {page:?} has two frames, one of them at {places:?}"));
        }
        if let Some(other) = places.iter().find(|place| world.page_at(place.process, place.page) != Some(page)) {
            return Err(format!("{rule}: {frame:?} is at {places:?}; at {other:?} there is another page"));
        }
        let lookup = world.look_up(page);
        let candidates: BTreeSet<Mapping> = lookup.candidates.iter().copied().collect();
        if let Some(missed) = places.difference(&candidates).next() {
            return Err(format!("{rule}: {page:?} is at {places:?}; {missed:?} is no candidate: {candidates:?}"));
        }
        let found: BTreeSet<Mapping> = lookup.found.into_iter().collect();
        if found != **places {
            return Err(format!("{rule}: {page:?} is at {places:?}, and is found at {found:?}"));
        }
    }
    // No page that nobody has a frame for.
    match world.tally().pages as usize == pages.len() {
        true => Ok(()),
        false => Err(format!("{rule}: {} pages, {} frames", world.tally().pages, pages.len())),
    }
}

#[test]
fn what_is_found_from_a_frame_is_exact_and_among_the_published_candidates() {
    let reached = Reached::default();
    let all = runner(1000).run(&histories(100), |steps| {
        let mut beside = Beside::new();
        for (turn, operation) in operations(&steps).iter().enumerate() {
            let done = beside.apply(operation).and_then(|()| beside.disturb(turn, &reached));
            let compared = done.and_then(|()| beside.compare(&reached));
            compared.map_err(|wrong| TestCaseError::fail(format!("after {operation:?}: {wrong}")))?;
        }
        beside.manager.check().map_err(TestCaseError::fail)
    });
    all.unwrap_or_else(|wrong| panic!("{wrong}"));
    let (moved, listed, shared) = (reached.moved.get(), reached.listed.get(), reached.shared.get());
    println!("{moved} frames moved; at most {listed} listed at a time, and a page at {shared} places");
    assert!(moved > 100 && listed > 3 && shared > 3, "histories go far");
}
