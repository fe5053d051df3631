//! Threads do anything to the same few address spaces, at addresses where tables meet. Nobody knows what the outcome should be, but at rest every
//! invariant holds, no processor is stale, and in the end every frame is back.

use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::Reference;
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::space::{Access, Failures, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor, Refusal};

use crate::threads::{Dice, rounds, settle};

const MEMORY: u64 = 64 << 20;
const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const THREADS: u64 = 4;
/// Around these addresses everything happens: a last-level table, a table of level 2, one of level 3 end there.
const MIDDLES: [u64; 3] = [0x20_0000 * 77, 0x4000_0000 * 5, 0x80_0000_0000];

/// The spaces that live; a thread takes one for a while, others use it at the same time.
type Living = RwLock<Vec<Arc<AddressSpace>>>;

/// Any outcome will do: others are at work in the same place.
fn whatever<T>(_outcome: T) {}

struct Thread<'a> {
    host: &'a Host,
    living: &'a Living,
    objects: &'a [Arc<Object>],
    processor: Processor,
    dice: Dice,
}

impl Thread<'_> {
    fn page(&mut self) -> VirtAddr {
        let middle = MIDDLES[self.dice.roll(3) as usize];
        VirtAddr(middle - 8 * PAGE_SIZE + self.dice.roll(16) * PAGE_SIZE)
    }

    fn range(&mut self) -> PageRange {
        let start = self.page();
        let pages = match self.dice.roll(20) {
            0 => 512,
            1 => 512 * 512,
            pages => pages,
        };
        PageRange::from_len(start, pages * PAGE_SIZE).unwrap()
    }

    fn access(&mut self) -> VmaFlags {
        const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);
        [RW, RW, RW, VmaFlags::READ, VmaFlags::empty(), VmaFlags::READ.union(VmaFlags::EXEC)]
            [self.dice.roll(6) as usize]
    }

    fn step(&mut self) {
        let space = {
            let living = self.living.read().unwrap();
            living[self.dice.roll(living.len() as u64) as usize].clone()
        };
        match self.dice.roll(40) {
            0..6 => self.map(&space),
            6..9 => whatever(space.unmap(self.range())),
            9..12 => {
                let (range, access) = (self.range(), self.access());
                whatever(space.protect(range, access));
            }
            12 => whatever(space.discard(self.range())),
            13 => self.guard(&space),
            14 => whatever(space.brk(VirtAddr(Layouts::process().start_brk.get() + self.dice.roll(20) * 1000))),
            15 => self.fork(&space),
            16 => self.exit(),
            17 if self.dice.roll(10) == 0 => space.clear(),
            18 => {
                let usage = space.usage();
                assert!(usage.tables >= 1, "{usage:?}");
                assert!(space.maps().text().len() < 1 << 20);
            }
            19 => {
                let object = &self.objects[self.dice.roll(2) as usize];
                let (at, byte) = (self.dice.roll(16 * PAGE_SIZE), self.dice.roll(256) as u8);
                whatever(object.write_at(at, &[byte; 100]));
                whatever(object.read_at(at, &mut [0; 5000]));
                if self.dice.roll(4) == 0 {
                    object.set_len(at).unwrap();
                }
            }
            20 => whatever(space.write(self.page(), &[1; 5000])),
            21 => whatever(space.read(self.page(), &mut [0; 5000])),
            22 => whatever(space.fault(self.page(), Access::Execute)),
            23 => self.processor.deactivate(),
            24 => self.look(&space),
            25 => self.advise(&space),
            26 => self.populate(&space),
            _ => self.touch(&space),
        }
    }

    /// What /proc and mincore say while others change it: something, in its form.
    fn look(&mut self, space: &AddressSpace) {
        let range = self.range();
        let range = PageRange::from_len(range.start(), range.len().min(512 * PAGE_SIZE)).unwrap();
        let smaps = space.smaps();
        let text = String::from_utf8(smaps.text(space).unwrap()).unwrap();
        assert_eq!(text.lines().count() % 25, 0, "{text}");
        let mut rollup = Vec::new();
        space.smaps_rollup(&mut rollup).unwrap();
        assert_eq!(rollup.iter().filter(|byte| **byte == b'\n').count(), 23);
        let mut entries = vec![PagemapEntry(0); range.pages() as usize];
        space.pagemap(range, FrameNumbers::Shown, &mut entries).unwrap();
        let frames = (MEMORY / PAGE_SIZE) as usize;
        assert!(entries.iter().all(|entry| entry.frame() < frames as u64));
        let mut resident = vec![2; range.pages() as usize];
        if let Ok(pages) = space.mincore(range, &mut resident) {
            assert!(resident[..pages].iter().all(|resident| *resident < 2));
        }
    }

    fn advise(&mut self, space: &AddressSpace) {
        let range = self.range();
        match self.dice.roll(4) {
            0 => whatever(space.cold(range)),
            1 => whatever(space.pageout(range)),
            _ => whatever(space.free(range)),
        }
    }

    fn populate(&mut self, space: &AddressSpace) {
        let range = self.range();
        let range = PageRange::from_len(range.start(), range.len().min(16 * PAGE_SIZE)).unwrap();
        match self.dice.roll(3) {
            0 => whatever(space.populate(range, Access::Read, &mut || false)),
            1 => whatever(space.populate(range, Access::Write, &mut || false)),
            _ => whatever(space.populate_mapped(range, Failures::Skip, &mut || false)),
        }
    }

    fn map(&mut self, space: &AddressSpace) {
        let range = self.range();
        let mut flags = self.access() | MAY;
        let backing = match self.dice.roll(5) {
            1 => match Reference::new(self.host.memory(), &[self.dice.roll(3) as u8]) {
                Ok(reference) => Backing::Reference(reference),
                Err(_) => return,
            },
            0 => Backing::Object(self.objects[self.dice.roll(2) as usize].clone()),
            _ => Backing::Anonymous,
        };
        if matches!(backing, Backing::Anonymous) {
            flags |= [VmaFlags::empty(), VmaFlags::GROWS_DOWN, VmaFlags::WIPE_ON_FORK]
                [self.dice.roll(8).saturating_sub(5) as usize];
        } else if self.dice.roll(2) == 0 && matches!(backing, Backing::Object(_)) {
            flags |= VmaFlags::SHARED;
        }
        let (placement, page_offset) = (Placement::Fixed(range.start()), self.dice.roll(4));
        whatever(space.map(MapRequest { placement, len: range.len(), flags, backing, page_offset }));
    }

    fn guard(&mut self, space: &AddressSpace) {
        let range = self.range();
        // A GiB of them would take half of the memory.
        match self.dice.roll(3) {
            0 if range.pages() <= 512 => whatever(space.guard_install(range)),
            0 | 1 => whatever(space.guard_remove(range)),
            _ => whatever(space.discard(range)),
        }
    }

    fn fork(&mut self, space: &AddressSpace) {
        space.set_fork_mode(
            [ForkMode::Full, ForkMode::Full, ForkMode::Leaf, ForkMode::Copy][self.dice.roll(4) as usize],
        );
        if let Ok(child) = space.fork() {
            let mut living = self.living.write().unwrap();
            if living.len() < 8 {
                living.push(child);
            } else {
                drop(living);
                // The child dies here, while others use what it shares.
                drop(child);
            }
        }
    }

    fn exit(&mut self) {
        let mut living = self.living.write().unwrap();
        if living.len() > 2 {
            let number = self.dice.roll(living.len() as u64) as usize;
            let gone = living.swap_remove(number);
            drop(living);
            // Whoever still runs it, or works on it, is the last to let go.
            drop(gone);
        }
    }

    fn touch(&mut self, space: &Arc<AddressSpace>) {
        self.processor.activate(space);
        for _ in 0..4 {
            let at = VirtAddr(self.page().get() + self.dice.roll(PAGE_SIZE));
            let outcome = match self.dice.roll(3) {
                0 => self.processor.load(at, &mut [0; 16]),
                _ => self.processor.store(at, &[7; 16]),
            };
            match outcome.map_err(|error| error.refusal) {
                Ok(()) | Err(Refusal::Fault(_)) => {}
                Err(refusal) => panic!("{refusal} at {at}"),
            }
        }
    }
}

#[test]
fn whatever_threads_do_everything_adds_up() {
    let host = Host::new(MEMORY).unwrap();
    let fresh = host.memory().stats();
    let objects: Vec<Arc<Object>> = (0..2).map(|_| Object::anonymous(host.memory(), 20 * PAGE_SIZE).unwrap()).collect();
    let first = (0..2).map(|_| AddressSpace::new(host.memory(), Layouts::process()).unwrap()).collect();
    let living: Living = RwLock::new(first);
    for season in 0..rounds(4_000) / 1_000 {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (host, living, objects) = (&host, &living, &objects[..]);
                scope.spawn(move || {
                    let processor = host.processor(CacheSize::Unbounded);
                    let dice = Dice::new(season * THREADS + number + 1);
                    let mut thread = Thread { host, living, objects, processor, dice };
                    for step in 0..1_000 {
                        thread.step();
                        if step % 64 == 0 && thread.host.memory().stats().free < 1_000 {
                            // Others are held up by the host, in the middle of something: dead frames wait for them.
                            thread::sleep(Duration::from_millis(1));
                        }
                    }
                });
            }
        });
        settle(&host);
        let living = living.read().unwrap();
        let spaces: Vec<&AddressSpace> = living.iter().map(|space| &**space).collect();
        let objects: Vec<&Object> = objects.iter().map(|object| &**object).collect();
        host.memory().check(&spaces, &objects).unwrap_or_else(|violation| panic!("season {season}: {violation}"));
        assert_eq!(host.stale(&spaces), [], "season {season}");
    }
    drop(living);
    drop(objects);
    // Objects go with the last areas that show them, which are not counted, and wait for threads that are still leaving their epoch.
    for _ in 0..1_000 {
        settle(&host);
        if host.memory().stats() == fresh {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats(), fresh);
}
