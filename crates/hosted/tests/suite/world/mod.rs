//! The manager and the model side by side: every step is done to both, and whatever can be seen is compared.

mod access;
mod failure;
mod files;
mod memory;
mod notes;
mod places;
mod remap;
mod snapshots;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::backing::Reference;
use foldspace::frame::Frame;
use foldspace::space::{Access, Layout, MapRequest, Placement, Snapshot};
use foldspace::vma::{Backing, ProtectionKey, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Processor};

use crate::model::{Content, Force, Model, ModelSpace, PAGE, Page, Policy, reference_content};
use crate::ops::{By, Len, Op, Pick, Sharing, What, Where};
pub use access::bytes;
use places::pages;

/// Address spaces at most: a fork too many replaces one.
const MOST_SPACES: usize = 6;
/// Pages of which the content is compared after each step, at most.
const MOST_TOUCHED: usize = 300;

/// Both sides of a life.
pub struct World {
    pub host: Host,
    pub spaces: Vec<Arc<AddressSpace>>,
    snapshots: Vec<Snapshot>,
    pub objects: Vec<Arc<Object>>,
    pub processors: Vec<Processor>,
    pub model: Model,
    /// Pages that were ever accessed, in any space.
    touched: BTreeSet<Page>,
    layout: Layout,
    /// Of address spaces that come from each other, so far.
    families: usize,
    /// Whether every step is first tried with too few frames, at each point where it takes one.
    pub starved: Starved,
    policy: Policy,
    /// Frames that have failed, or were about to.
    pub failed: u64,
    /// Frames that are kept from being used, so that all others are scattered.
    ballast: Vec<Frame>,
}

/// Whether frames run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Starved {
    No,
    /// At the first allocation of each step, then at the second, until the step succeeds.
    AtEachPoint,
}

/// How an attempt with too few frames ended.
enum Attempt<T> {
    /// As if there were enough, or refused for another reason.
    Over(T),
    /// It said that there was no memory, and nothing must have changed, not even the number of frames in use.
    NoMemory,
    /// The same of a fault, which may leave empty tables behind.
    NoMemoryForPage,
    /// It said so after a part that cannot be taken back: bytes stored before, pages that a stack grew by.
    NoMemoryAfterPart,
}

impl World {
    /// One space, one file, and processors with these caches.
    pub fn new(bytes: u64, processors: &[CacheSize], layout: Layout) -> World {
        World::on(Host::new(bytes).expect("the arena is large enough"), processors, layout)
    }

    /// The same on a machine that is there.
    pub fn on(host: Host, processors: &[CacheSize], layout: Layout) -> World {
        let policy = Policy {
            overcommit: host.memory().overcommit(),
            memory: host.memory().stats().total,
            ratio: host.memory().overcommit_ratio(),
            max_map_count: host.memory().max_map_count(),
            elsewhere: 0,
        };
        let processors = processors.iter().map(|size| host.processor(*size)).collect();
        let mut world = World {
            host,
            spaces: Vec::new(),
            snapshots: Vec::new(),
            objects: Vec::new(),
            processors,
            model: Model::default(),
            touched: BTreeSet::new(),
            layout,
            families: 0,
            starved: Starved::No,
            policy,
            failed: 0,
            ballast: Vec::new(),
        };
        world.new_space();
        world.new_file(5);
        world
    }

    /// Does something to the manager, if frames are to run out at each point where it allocates one first, until it succeeds.
    fn attempt<T>(&self, mut act: impl FnMut(&World) -> Attempt<T>) -> T {
        let memory = self.host.memory();
        let mut enough = match self.starved {
            Starved::No => None,
            Starved::AtEachPoint => Some(0),
        };
        loop {
            memory.reclaim();
            let before = memory.stats();
            memory.fail_after(enough);
            let outcome = act(self);
            memory.fail_after(None);
            match outcome {
                Attempt::Over(outcome) => return outcome,
                Attempt::NoMemory => {
                    memory.reclaim();
                    assert_eq!(memory.stats(), before, "frames after an attempt with {enough:?}");
                    self.verify();
                }
                Attempt::NoMemoryForPage => self.verify(),
                Attempt::NoMemoryAfterPart => {}
            }
            let tried = enough.expect("there is memory");
            assert!(tried < 1000, "an operation needs endlessly many frames");
            enough = Some(tried + 1);
        }
    }

    fn attempt_result<T>(&self, mut act: impl FnMut(&World) -> Result<T, Error>) -> Result<T, Error> {
        self.attempt(|world| match act(world) {
            Err(Error::OutOfMemory) => Attempt::NoMemory,
            outcome => Attempt::Over(outcome),
        })
    }

    fn new_space(&mut self) {
        let layout = self.layout;
        let space = self.attempt_result(|world| AddressSpace::new(world.host.memory(), layout)).expect("enough");
        self.families += 1;
        self.add_space(space, ModelSpace::new(layout, self.policy, self.families));
    }

    fn add_space(&mut self, space: Arc<AddressSpace>, model: ModelSpace) {
        if self.spaces.len() == MOST_SPACES {
            self.exit(1);
        }
        self.spaces.push(space);
        self.model.spaces.push(model);
    }

    fn exit(&mut self, space: usize) {
        let gone = self.spaces.remove(space);
        self.model.spaces.remove(space);
        for processor in &mut self.processors {
            if processor.running().is_some_and(|running| Arc::ptr_eq(running, &gone)) {
                processor.deactivate();
            }
        }
        assert_eq!(Arc::strong_count(&gone), 1, "nobody else keeps an address space that exits");
    }

    fn space(&self, pick: Pick) -> usize {
        pick as usize % self.spaces.len()
    }

    /// Does a step to both sides and compares what they say.
    pub fn step(&mut self, op: Op) {
        self.model.settle(self.policy);
        match op {
            Op::Map(space, target, len, what, flags) => self.map(space, target, len, what, flags),
            Op::Unmap(space, place, len) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    self.unmap(space, range);
                }
            }
            Op::UnmapArea(space, area) => {
                let space = self.space(space);
                if let Some(range) = self.area(space, area).and_then(|(start, end)| page_range(start, end)) {
                    self.unmap(space, range);
                }
            }
            Op::Protect(space, place, len, access) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    self.protect(space, range, access, None);
                }
            }
            Op::ProtectKeyed(space, place, len, access, key) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    self.protect(space, range, access, ProtectionKey::new(key.into()));
                }
            }
            Op::Discard(space, place, len) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    let (start, end) = (range.start().get() / PAGE, range.end().get() / PAGE);
                    let real = self.advise(space, |space| space.discard(range));
                    assert_eq!(real, self.model.spaces[space].discard(start, end), "discard {range:?}");
                }
            }
            Op::Free(space, place, len) => self.free(space, place, len),
            Op::Cold(space, place, len) => self.cold(space, place, len),
            Op::Pageout(space, place, len) => self.pageout(space, place, len),
            Op::Populate(space, place, pages, access) => self.populate(space, place, Len::Pages(pages), access),
            Op::GuardInstall(space, place, len) => self.guard_install(space, place, len),
            Op::GuardRemove(space, place, len) => self.guard_remove(space, place, len),
            Op::ProtectArea(space, area, access) => {
                let space = self.space(space);
                if let Some(range) = self.area(space, area).and_then(|(start, end)| page_range(start, end)) {
                    self.protect(space, range, access, None);
                }
            }
            Op::Remap(space, at, len, new_len, to, leave) => self.remap(space, at, len, new_len, to, leave),
            Op::MoveAligned(space, area, skip, by) => self.move_aligned(space, area, skip, by),
            Op::ProtectStack(space, place, len, access) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    let real = self.attempt_result(|world| world.spaces[space].protect_stack(range, access));
                    let (start, end) = model_range(range);
                    let model = self.model.spaces[space].protect_stack(start, end, access);
                    assert_eq!(real, model, "protect the stack in {range:?}: {access:?}");
                }
            }
            Op::Note(space, place, len, note) => {
                let space = self.space(space);
                if let Some(range) = self.range(space, place, len) {
                    self.note(space, range, note);
                }
            }
            Op::NoteArea(space, area, note) => {
                let space = self.space(space);
                if let Some(range) = self.area(space, area).and_then(|(start, end)| page_range(start, end)) {
                    self.note(space, range, note);
                }
            }
            Op::LockAll(space, now, future) => {
                let space = self.space(space);
                let real = self.spaces[space].lock_all(now, future);
                assert_eq!(real, self.model.spaces[space].lock_all(now, future), "lock all {now:?}, then {future:?}");
            }
            Op::UnlockAll(space) => {
                let space = self.space(space);
                self.spaces[space].unlock_all();
                self.model.spaces[space].unlock_all();
            }
            Op::Overcommit(mode, percent) => self.set_overcommit(mode, percent),
            Op::MapCount(space, more) => self.set_map_count(space, more),
            Op::Brk(space, by) => {
                let space = self.space(space);
                let now = self.model.spaces[space].layout.brk;
                let end = VirtAddr(now.get().saturating_add_signed(i64::from(by) * 11));
                let mut after = self.model.spaces[space].clone();
                let expected = after.brk(end);
                // Like Linux's, it does not say why it did nothing.
                let seen = self.attempt(|world| match world.spaces[space].brk(end) {
                    seen if seen == now && expected != now && world.starved != Starved::No => Attempt::NoMemory,
                    seen => Attempt::Over(seen),
                });
                assert_eq!(seen, expected, "brk");
                self.model.spaces[space] = after;
            }
            Op::Load(space, by, place, span) => {
                let space = self.space(space);
                let addr = self.address(space, place, span);
                self.load(space, by, addr, span.len.into(), Access::Read);
            }
            Op::Fetch(space, processor, place, span) => {
                let space = self.space(space);
                let addr = self.address(space, place, span);
                self.load(space, By::Processor(processor), addr, span.len.into(), Access::Execute);
            }
            Op::Store(space, by, place, span, seed) => {
                let space = self.space(space);
                let addr = self.address(space, place, span);
                self.store(space, by, addr, &bytes(seed, span.len.into()));
            }
            Op::StoreForced(space, place, span, seed) => {
                let space = self.space(space);
                let addr = self.address(space, place, span);
                let bytes = bytes(seed, span.len.into());
                let mut after = self.model.clone();
                let (expected, _) = after.store(space, addr, &bytes, Force::Yes);
                let done = self.attempt(|world| match world.spaces[space].write_forced(addr, &bytes) {
                    done if done >= expected => Attempt::Over(done),
                    _ => Attempt::NoMemoryAfterPart,
                });
                assert_eq!(done, expected, "forced write at {addr}");
                self.model = after;
                self.touch(addr, bytes.len());
            }
            Op::Fill(space, processor, place, pages, seed) => {
                let space = self.space(space);
                let start = self.page(space, place);
                for page in start..start + u64::from(pages) {
                    self.store(space, By::Processor(processor), VirtAddr(page * PAGE), &[seed, page as u8]);
                }
            }
            Op::Fork(space, mode) => {
                let space = self.space(space);
                self.spaces[space].set_fork_mode(mode);
                let child = self.attempt_result(|world| world.spaces[space].fork());
                let model = self.model.fork(space);
                let (child, model) = match (child, model) {
                    (Ok(child), Ok(model)) => (child, model),
                    (child, model) => {
                        assert_eq!(child.map(drop), model.map(drop), "fork");
                        return;
                    }
                };
                assert_eq!(child.fork_mode(), mode, "a child inherits the mode");
                self.add_space(child, model);
            }
            Op::Exit(space) => {
                let space = self.space(space);
                if self.spaces.len() > 1 {
                    self.exit(space);
                }
            }
            Op::Clear(space) => {
                let space = self.space(space);
                self.spaces[space].clear();
                self.model.spaces[space].areas.clear();
                self.model.spaces[space].private.clear();
                self.model.spaces[space].guards.clear();
                self.model.spaces[space].lost.clear();
            }
            Op::NewSpace => self.new_space(),
            Op::NewFile(pages) => self.new_file(pages.into()),
            Op::ReadFile(object, offset, len) => self.read_file(object, offset.into(), len.into()),
            Op::WriteFile(object, offset, len, seed) => {
                self.write_file(object, offset.into(), &bytes(seed, len.into()))
            }
            Op::ResizeFile(object, len) => self.resize_file(object, len.into()),
            Op::PunchFile(object, at, len) => self.punch_file(object, u64::from(at)..u64::from(at) + u64::from(len)),
            Op::EnsureFile(object, at, len) => self.ensure_file(object, u64::from(at)..u64::from(at) + u64::from(len)),
            Op::Remove(space, place, len) => {
                let space = self.space(space);
                let Some(range) = self.range(space, place, len) else { return };
                let (gone, expected) =
                    self.model.spaces[space].remove(range.start().get() / PAGE, range.end().get() / PAGE);
                let seen = self.attempt(|world| {
                    match world.spaces[space].remove(range, |object, bytes| object.punch_hole(bytes)) {
                        Err(Error::OutOfMemory) => Attempt::NoMemoryAfterPart,
                        outcome => Attempt::Over(outcome),
                    }
                });
                assert_eq!(seen, expected, "remove {range:?}");
                for (object, bytes) in gone {
                    self.model.punch_hole(object, bytes);
                }
            }
            Op::Switch(processor, space) => {
                let (processor, space) = (processor as usize % self.processors.len(), self.space(space));
                self.processors[processor].activate(&self.spaces[space]);
            }
            Op::Snapshot(space) => self.take_snapshot(space),
            Op::Restore(space, snapshot) => self.restore(space, snapshot),
            Op::Spawn(snapshot) => self.spawn(snapshot),
            Op::Diff(snapshot, space) => self.compare_picked(snapshot, space),
            Op::DropSnapshot(snapshot) => self.drop_snapshot(snapshot),
            Op::Reclaim => self.host.memory().reclaim(),
            Op::Migrate(space, place) => {
                if let Some((_, _, frame)) = self.shown_at(space, place) {
                    self.migrate(frame);
                }
            }
            Op::MigrateAny(pick) => {
                let memory = self.host.memory();
                let frames = (0..self.host.frames()).map(Frame);
                let movable: Vec<Frame> = frames.filter(|frame| memory.frame_use(*frame).is_movable()).collect();
                if !movable.is_empty() {
                    self.migrate(movable[pick as usize % movable.len()]);
                }
            }
            Op::Compact(blocks) => self.compact(blocks.into()),
            Op::Offline(space, place) => self.offline(space, place),
            Op::Fail(space, place) => self.fail(space, place),
            Op::Audit(by) => self.audit(by),
        }
    }

    fn map(&mut self, space: Pick, target: Where, len: Len, what: What, mut flags: VmaFlags) {
        let space = self.space(space);
        let place = |place| VirtAddr(self.page(space, place) * PAGE);
        let placement = match target {
            Where::Anywhere => Placement::Anywhere,
            Where::Hint(at, offset) => Placement::Hint(VirtAddr(place(at).get() + u64::from(offset))),
            Where::Fixed(at) => Placement::Fixed(place(at)),
            Where::FixedNoReplace(at) => Placement::FixedNoReplace(place(at)),
            Where::Low => Placement::Low(None),
        };
        let len = pages(len) * PAGE;
        let (content, page_offset) = match what {
            What::Private => (Content::Anonymous, 0),
            What::Shared => match self.new_shared(len) {
                Some(object) => (Content::Object(object), 0),
                None => return,
            },
            What::Reference(number) => (Content::Reference(number % 4), 0),
            What::Object(object, at, _) => (Content::Object(object as usize % self.objects.len()), at.into()),
        };
        if !matches!(what, What::Private | What::Reference(_)) {
            // A stack, and memory that is wiped, are anonymous and private.
            flags -= VmaFlags::GROWS_DOWN | VmaFlags::WIPE_ON_FORK;
        }
        if matches!(what, What::Shared | What::Object(_, _, Sharing::Shared)) {
            flags |= VmaFlags::SHARED;
        }
        let backing = match content {
            Content::Anonymous => Backing::Anonymous,
            Content::Object(object) => Backing::Object(self.objects[object].clone()),
            Content::Reference(number) => Backing::Reference(self.reference(number)),
        };
        let request = MapRequest { placement, len, flags, backing, page_offset };
        let real = self.attempt_result(|world| world.spaces[space].map(request.clone()));
        let model = self.model.spaces[space].map(placement, len, flags, content, page_offset);
        assert_eq!(real, model.map(|page| VirtAddr(page * PAGE)), "map {placement:x?} of {len:#x}");
    }

    /// One that lives already, if there is one.
    fn reference(&self, number: u8) -> Arc<Reference> {
        let content = reference_content(number);
        self.attempt_result(|world| Reference::new(world.host.memory(), &content)).expect("enough")
    }

    fn unmap(&mut self, space: usize, range: PageRange) {
        let real = self.attempt_result(|world| world.spaces[space].unmap(range));
        let model = self.model.spaces[space].unmap(range.start().get() / PAGE, range.end().get() / PAGE);
        assert_eq!(real, model, "unmap {range:?}");
    }

    fn protect(&mut self, space: usize, range: PageRange, access: VmaFlags, key: Option<ProtectionKey>) {
        let real = self.attempt_result(|world| match key {
            None => world.spaces[space].protect(range, access),
            Some(key) => world.spaces[space].protect_with_key(range, access, key),
        });
        let (start, end) = model_range(range);
        let model = self.model.spaces[space].protect(start, end, access, key.map(ProtectionKey::number));
        assert_eq!(real, model, "protect {range:?} {access:?} {key:?}");
    }

    /// Ends everything and says how many frames are left over.
    pub fn end(self) -> Host {
        let World { host, spaces, snapshots, objects, processors, ballast, .. } = self;
        drop(processors);
        drop(spaces);
        drop(snapshots);
        drop(objects);
        ballast.into_iter().for_each(|frame| host.memory().free_contiguous(frame, 0));
        host
    }
}

fn model_range(range: PageRange) -> (Page, Page) {
    (range.start().get() / PAGE, range.end().get() / PAGE)
}

fn page_range(start: Page, end: Page) -> Option<PageRange> {
    PageRange::new(VirtAddr(start * PAGE), VirtAddr(end * PAGE))
}
