//! Frames that move, and frames that fail.

use foldspace::frame::{Frame, FrameUse};
use foldspace::migrate::{Lost, NotMoved};
use foldspace::platform::SpaceId;
use foldspace::{Memory, VirtAddr};

use super::{Attempt, Starved, World};
use crate::model::{Content, Dirty, PAGE};
use crate::ops::{Pick, Place};

/// Frames that fail in a life, at most: they do not come back.
const MOST_FAILED: u64 = 300;

/// From one free frame to the next that is handed out: a prime larger than a block.
const STRIDE: usize = 1009;

impl World {
    /// The space that a pick names, the address at a place of it, and the frame that is there.
    pub(super) fn shown_at(&self, space: Pick, place: Place) -> Option<(usize, VirtAddr, Frame)> {
        let space = self.space(space);
        let at = VirtAddr(self.page(space, place) * PAGE);
        self.host.translate(&self.spaces[space], at).ok().map(|shown| (space, at, shown.frame))
    }

    /// Nothing that a program sees may change.
    pub(super) fn migrate(&self, frame: Frame) {
        let memory = self.host.memory();
        self.empty(frame, |frame| memory.migrate(frame));
    }

    /// The same; and the frame is not used any more.
    pub(super) fn offline(&mut self, space: Pick, place: Place) {
        let Some((_, _, frame)) = self.shown_at(space, place).filter(|_| self.failed < MOST_FAILED) else { return };
        let memory = self.host.memory();
        if self.empty(frame, |frame| memory.soft_offline(frame)) {
            assert_eq!(memory.frame_use(frame), FrameUse::Poisoned);
            self.failed += 1;
        }
    }

    /// Whether what is in a frame is elsewhere after `act`; it must be, if it can be.
    fn empty(&self, frame: Frame, act: impl Fn(Frame) -> Result<Frame, NotMoved>) -> bool {
        let memory = self.host.memory();
        let movable = memory.frame_use(frame).is_movable();
        let before = slots(memory, frame);
        let to = self.attempt(|_| match act(frame) {
            Err(NotMoved::OutOfMemory) => Attempt::NoMemory,
            Err(NotMoved::Fixed) if !movable => Attempt::Over(None),
            Err(error) => panic!("{frame:?} stays where it is: {error}"),
            Ok(to) => Attempt::Over(Some(to)),
        });
        if let Some(to) = to {
            assert_eq!((slots(memory, frame), slots(memory, to)), (0, before), "slots of {frame:?}, {to:?}");
        }
        to.is_some()
    }

    /// Nothing is lost, and nothing changes that a program sees, however few frames there are for it. What comes afterwards is scattered over all
    /// blocks, so that there is something to be moved the next time.
    pub(super) fn compact(&mut self, blocks: u32) {
        let memory = self.host.memory();
        for frame in self.ballast.drain(..) {
            memory.free_contiguous(frame, 0);
        }
        let enough: &[Option<u32>] = match self.starved {
            Starved::No => &[None],
            Starved::AtEachPoint => &[Some(0), Some(1), Some(7), None],
        };
        memory.reclaim();
        let before = memory.stats();
        for enough in enough {
            memory.fail_after(*enough);
            let done = memory.compact(blocks);
            memory.fail_after(None);
            memory.reclaim();
            let after = memory.stats();
            assert_eq!((after.data, after.tables), (before.data, before.tables), "{done:?}");
            // What has moved may wait for readers who stay.
            assert_eq!(after.free + after.deferred, before.free + before.deferred, "{done:?}");
        }
        let all = memory.stats().free;
        let mut taken: Vec<Frame> = (0..all).map_while(|_| memory.alloc_contiguous(0).ok()).collect();
        taken.sort();
        if taken.len() % STRIDE == 0 {
            taken.pop().into_iter().for_each(|frame| memory.free_contiguous(frame, 0));
        }
        let (mut kept, mut at) = (Vec::new(), 0);
        for number in 0..taken.len() {
            at = (at + STRIDE) % taken.len();
            match number % 2 {
                0 => memory.free_contiguous(taken[at], 0),
                _ => kept.push(taken[at]),
            }
        }
        self.ballast = kept;
    }

    /// What was in a frame is lost to all who had it, and to nobody else.
    pub(super) fn fail(&mut self, space: Pick, place: Place) {
        let Some((space, at, frame)) = self.shown_at(space, place).filter(|_| self.failed < MOST_FAILED) else {
            return;
        };
        let memory = self.host.memory();
        if !memory.frame_use(frame).is_movable() {
            assert_eq!(memory.poison(frame), Err(NotMoved::Fixed));
            return;
        }
        let mut mapped = Vec::new();
        memory.mappings(frame, |space, at| mapped.push((space.id(), at))).expect("heap");
        let lost = memory.poison(frame).expect("it is in use, and nobody is in the way");
        assert_eq!((memory.frame_use(frame), slots(memory, frame)), (FrameUse::Poisoned, 0));
        self.failed += 1;
        let page = at.get() / PAGE;
        if self.model.spaces[space].private.contains_key(&page) {
            assert_eq!(lost, Lost::Private);
            let ids: Vec<SpaceId> = self.everything().iter().map(|space| space.id()).collect();
            for (id, at) in mapped {
                let number = ids.iter().position(|other| *other == id).expect("it is one of ours");
                let page = at.get() / PAGE;
                let model = self.model.all_mut().nth(number).expect("the model has as many");
                assert!(model.private.remove(&page).is_some(), "{at} of space {number} has it as its own");
                model.lazy.remove(&page);
                model.lost.insert(page);
                self.touch(at, 1);
            }
        } else {
            assert!(matches!(lost, Lost::Page { .. }), "{lost:?}");
            let (start, area) = self.model.spaces[space].area(page).expect("what is present is mapped");
            let Content::Object(object) = area.content else { panic!("{at} of space {space} shows an object") };
            let (object, index) = (&mut self.model.objects[object], area.offset + (page - start));
            object.pages.remove(&index);
            object.lost.insert(index);
            object.dirty.insert(index, Dirty::Perhaps);
            self.touch(at, 1);
        }
    }
}

/// How many slots refer to a frame.
fn slots(memory: &Memory, frame: Frame) -> usize {
    let mut count = 0;
    memory.slots(frame, |_| count += 1);
    count
}
