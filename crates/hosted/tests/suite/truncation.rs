//! What an object loses: all who map it lose it, and nothing else. What is expected here is what Linux's tmpfs does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Fault, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{AccessError, CacheSize, Host, Layouts, Processor, Refusal};

use crate::threads::{Dice, rounds, settle};

const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);
const SHARED: VirtAddr = VirtAddr(0x4000_0000);
const PRIVATE: VirtAddr = VirtAddr(0x8000_0000);
const PAGES: u64 = 8;
const MODES: [ForkMode; 3] = [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy];

fn page(area: VirtAddr, number: u64) -> VirtAddr {
    VirtAddr(area.get() + number * PAGE_SIZE)
}

fn range(area: VirtAddr, number: u64, pages: u64) -> PageRange {
    PageRange::from_len(page(area, number), pages * PAGE_SIZE).unwrap()
}

fn map(space: &AddressSpace, at: VirtAddr, pages: u64, flags: VmaFlags, object: &Arc<Object>) {
    let backing = Backing::Object(object.clone());
    let placement = Placement::Fixed(at);
    space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
}

/// A file of eight pages, `a` to `h`, mapped shared and private by a space; copies of pages 1, 3 and 5 in the private mapping.
struct Machine {
    host: Host,
    file: Arc<Object>,
    space: Arc<AddressSpace>,
    processor: Processor,
}

impl Machine {
    fn new() -> Machine {
        let host = Host::new(8 << 20).unwrap();
        let file = Object::anonymous(host.memory(), PAGES * PAGE_SIZE).unwrap();
        for number in 0..PAGES {
            file.write_at(number * PAGE_SIZE, &[b'a' + number as u8; PAGE_SIZE as usize]).unwrap();
        }
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        map(&space, SHARED, PAGES, RW | VmaFlags::SHARED, &file);
        map(&space, PRIVATE, PAGES, RW, &file);
        let mut processor = host.processor(CacheSize::Unbounded);
        processor.activate(&space);
        let mut machine = Machine { host, file, space, processor };
        for number in 0..PAGES {
            machine.load(page(SHARED, number)).unwrap();
            machine.load(page(PRIVATE, number)).unwrap();
        }
        for number in [1, 3, 5] {
            machine.processor.store(page(PRIVATE, number), b"X").unwrap();
        }
        machine
    }

    fn load(&mut self, addr: VirtAddr) -> Result<char, Fault> {
        load(&mut self.processor, addr)
    }

    /// The first bytes of the pages of an area.
    fn show(&mut self, area: VirtAddr) -> String {
        show(&mut self.processor, area)
    }

    fn check(&self, others: &[&AddressSpace]) {
        let spaces: Vec<&AddressSpace> = [&*self.space].into_iter().chain(others.iter().copied()).collect();
        self.host.memory().check(&spaces, &[&self.file]).unwrap();
        assert_eq!(self.host.stale(&spaces), []);
    }
}

fn load(processor: &mut Processor, addr: VirtAddr) -> Result<char, Fault> {
    let mut byte = [0];
    match processor.load(addr, &mut byte) {
        Ok(()) => Ok(byte[0] as char),
        Err(AccessError { refusal: Refusal::Fault(fault), .. }) => Err(fault),
        Err(error) => panic!("{error}"),
    }
}

/// The first byte of each page: `-` is zero, `!` past the end.
fn show(processor: &mut Processor, area: VirtAddr) -> String {
    let byte = |number| match load(processor, page(area, number)) {
        Ok('\0') => '-',
        Ok(byte) => byte,
        Err(Fault::PastEnd) => '!',
        Err(fault) => panic!("{fault:?}"),
    };
    (0..PAGES).map(byte).collect()
}

#[test]
fn a_cut_takes_pages_and_private_copies_past_the_end() {
    let mut machine = Machine::new();
    machine.file.set_len(3 * PAGE_SIZE + 1000).unwrap();
    machine.check(&[]);
    assert_eq!(machine.show(SHARED), "abcd!!!!");
    assert_eq!(machine.show(PRIVATE), "aXcX!!!!");
    // The rest of the last page is zeros, but where it is a copy.
    let rest = |area| VirtAddr(page(area, 3).get() + 1000);
    assert_eq!((machine.load(rest(SHARED)), machine.load(rest(PRIVATE))), (Ok('\0'), Ok('d')));
    assert_eq!(machine.load(VirtAddr(rest(SHARED).get() - 1)), Ok('d'));
    let store = machine.processor.store(page(PRIVATE, 5), b"y").map_err(|error| error.refusal);
    assert_eq!(store, Err(Refusal::Fault(Fault::PastEnd)));
    machine.file.set_len(PAGES * PAGE_SIZE).unwrap();
    assert_eq!(machine.show(SHARED), "abcd----");
    assert_eq!(machine.show(PRIVATE), "aXcX----");
    machine.check(&[]);
}

#[test]
fn a_hole_leaves_private_copies() {
    let mut machine = Machine::new();
    machine.file.punch_hole(PAGE_SIZE..3 * PAGE_SIZE + 100).unwrap();
    machine.check(&[]);
    assert_eq!(machine.show(SHARED), "a---efgh");
    assert_eq!(machine.show(PRIVATE), "aX-XeXgh");
    assert_eq!(machine.load(VirtAddr(page(SHARED, 3).get() + 99)), Ok('\0'));
    assert_eq!(machine.load(VirtAddr(page(SHARED, 3).get() + 100)), Ok('d'));
    // Past the end, and no bytes: nothing.
    machine.file.punch_hole(20 * PAGE_SIZE..30 * PAGE_SIZE).unwrap();
    machine.file.punch_hole(5 * PAGE_SIZE + 7..5 * PAGE_SIZE + 7).unwrap();
    assert_eq!((machine.show(SHARED).as_str(), machine.file.len()), ("a---efgh", PAGES * PAGE_SIZE));
}

/// Relatives share tables; cutting copies none of them, and needs no memory at all.
#[test]
fn relatives_lose_the_same_and_share_what_they_shared() {
    for mode in MODES {
        let mut machine = Machine::new();
        machine.space.set_fork_mode(mode);
        let child = machine.space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        // The grandchild has a copy of its own of page 6, and shares the others.
        let mut processor = machine.host.processor(CacheSize::Unbounded);
        processor.activate(&grandchild);
        processor.store(page(PRIVATE, 6), b"Y").unwrap();
        let mut other = machine.host.processor(CacheSize::Unbounded);
        other.activate(&child);
        assert_eq!((show(&mut other, PRIVATE), show(&mut other, SHARED)), ("aXcXeXgh".into(), "abcdefgh".into()));
        machine.host.memory().reclaim();
        let tables = machine.host.memory().stats().tables;
        machine.host.memory().fail_after(Some(0));
        machine.file.set_len(2 * PAGE_SIZE).unwrap();
        machine.host.memory().fail_after(None);
        machine.host.memory().reclaim();
        assert_eq!(machine.host.memory().stats().tables, tables, "{mode:?}");
        assert_eq!(machine.file.resident_pages(), 2);
        machine.check(&[&child, &grandchild]);
        for processor in [&mut machine.processor, &mut processor, &mut other] {
            assert_eq!((show(processor, PRIVATE), show(processor, SHARED)), ("aX!!!!!!".into(), "ab!!!!!!".into()));
        }
        drop(machine.processor);
        assert!(machine.host.memory().stats().data < 8, "{:?}", machine.host.memory().stats());
    }
}

#[test]
fn all_areas_of_all_who_map_it_are_found() {
    let machine = Machine::new();
    let stranger = AddressSpace::new(machine.host.memory(), Layouts::process()).unwrap();
    // Beside other files, at other offsets, far apart, some of it mapped away.
    for number in 0..40 {
        let other = Object::anonymous(machine.host.memory(), PAGE_SIZE).unwrap();
        map(&stranger, VirtAddr(0x1000_0000 + number * 0x20_0000), 1, RW | VmaFlags::SHARED, &other);
    }
    let parts = [(0x1010_0000, 2, 5), (0x2000_0000_0000, 6, 2), (0x3000_0000, 0, 3)];
    for (at, page_offset, pages) in parts {
        let backing = Backing::Object(machine.file.clone());
        let placement = Placement::Fixed(VirtAddr(at));
        let flags = RW | VmaFlags::SHARED;
        stranger.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset }).unwrap();
        assert_eq!(stranger.read(VirtAddr(at), &mut vec![0; (pages * PAGE_SIZE) as usize]) as u64, pages * PAGE_SIZE);
    }
    machine.file.set_len(4 * PAGE_SIZE).unwrap();
    machine.check(&[&stranger]);
    let readable = parts.map(|(at, _, pages)| {
        stranger.read(VirtAddr(at), &mut vec![0; (pages * PAGE_SIZE) as usize]) as u64 / PAGE_SIZE
    });
    assert_eq!(readable, [2, 0, 3]);
}

#[test]
fn it_is_known_who_may_write() {
    let host = Host::new(8 << 20).unwrap();
    let file = Object::anonymous(host.memory(), PAGE_SIZE).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let known = |file: &Object| (file.mapped_shared(), file.mapped_writable());
    assert_eq!(known(&file), (false, false));
    map(&space, PRIVATE, 1, RW, &file);
    assert_eq!(known(&file), (false, false));
    // As a descriptor that was opened for reading only is mapped.
    map(&space, SHARED, 1, VmaFlags::READ | VmaFlags::MAY_READ | VmaFlags::SHARED, &file);
    assert_eq!(known(&file), (true, false));
    let child = space.fork().unwrap();
    map(&child, SHARED, 1, VmaFlags::READ | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::SHARED, &file);
    assert_eq!(known(&file), (true, true));
    child.unmap(range(SHARED, 0, 1)).unwrap();
    assert_eq!(known(&file), (true, false));
    drop(child);
    space.clear();
    assert_eq!(known(&file), (false, false));
}

#[test]
fn what_is_shown_can_be_removed() {
    let mut machine = Machine::new();
    let remove = |machine: &Machine, range| machine.space.remove(range, |object, bytes| object.punch_hole(bytes));
    assert_eq!(remove(&machine, range(SHARED, 2, 2)), Ok(()));
    assert_eq!((machine.show(SHARED), machine.show(PRIVATE)), ("ab--efgh".into(), "aX-XeXgh".into()));
    assert_eq!(remove(&machine, range(PRIVATE, 2, 2)), Err(Error::AccessDenied));
    // Around a hole.
    machine.space.unmap(range(SHARED, 5, 1)).unwrap();
    assert_eq!(remove(&machine, range(SHARED, 4, 3)), Err(Error::NotMapped));
    let mut content = [0; 1];
    let read = |number: u64, content: &mut [u8]| machine.file.read_at(number * PAGE_SIZE, content).map(|_| content[0]);
    assert_eq!([4, 5, 6, 7].map(|number| read(number, &mut content)), [Ok(0), Ok(b'f'), Ok(0), Ok(b'h')]);
    let anonymous = MapRequest {
        placement: Placement::Fixed(page(SHARED, 5)),
        len: PAGE_SIZE,
        flags: RW,
        backing: Backing::Anonymous,
        page_offset: 0,
    };
    machine.space.map(anonymous).unwrap();
    assert_eq!(remove(&machine, range(SHARED, 0, 8)), Err(Error::WrongKind));
    assert_eq!(read(0, &mut content), Ok(0), "what comes before is done");
}

/// Pages that nobody used go again when there is no memory for the last of them.
#[test]
fn pages_are_given_all_or_none() {
    let host = Host::new(1 << 20).unwrap();
    let file = Object::anonymous(host.memory(), 0).unwrap();
    file.write_at(3 * PAGE_SIZE, b"3").unwrap();
    let before = host.memory().stats();
    for frames in 0..9 {
        host.memory().fail_after(Some(frames));
        assert_eq!(file.ensure(0..10 * PAGE_SIZE), Err(Error::OutOfMemory), "{frames}");
        host.memory().fail_after(None);
        host.memory().reclaim();
        assert_eq!((host.memory().stats(), file.resident_pages()), (before, 1));
    }
    assert_eq!(file.ensure(0..1 << 40), Err(Error::OutOfMemory));
    assert_eq!(file.ensure(1..9 * PAGE_SIZE + 1), Ok(()));
    assert_eq!((file.resident_pages(), file.len()), (10, 3 * PAGE_SIZE + 1));
    assert!((0..10).all(|index| file.is_dirty(index)));
}

/// While one thread cuts a file and lets it grow, others access it, fork, and exit. As long as the length is settled, exactly what lies past the end
/// is refused. Somebody else's pages, which are made of the frames that are given back, stay what they are.
#[test]
fn faults_race_with_cuts() {
    const READERS: u64 = 3;
    let host = Host::new(16 << 20).unwrap();
    let file = Object::anonymous(host.memory(), PAGES * PAGE_SIZE).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, SHARED, PAGES, RW | VmaFlags::SHARED, &file);
    map(&space, PRIVATE, PAGES, RW, &file);
    // The number of the cut, and the pages that the file has: odd numbers while that changes.
    let settled = AtomicU64::new(PAGES);
    let ended = AtomicBool::new(false);
    let (refused, allowed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (host, file, space, settled, ended) = (&host, &file, &space, &settled, &ended);
        let (refused, allowed) = (&refused, &allowed);
        scope.spawn(move || {
            let mut dice = Dice::new(99);
            // Longer, if the host has let nobody else run.
            let seen_enough = || refused.load(Ordering::Relaxed).min(allowed.load(Ordering::Relaxed)) > 100;
            for round in 0..rounds(6_000) * 100 {
                if round >= rounds(6_000) && seen_enough() {
                    break;
                }
                let pages = dice.roll(PAGES + 1);
                settled.store((round * 2 + 1) << 8, Ordering::SeqCst);
                match dice.roll(4) {
                    0 => file.punch_hole(dice.roll(4) * PAGE_SIZE..(4 + pages) * PAGE_SIZE).unwrap(),
                    _ => file.set_len(pages * PAGE_SIZE).unwrap(),
                }
                settled.store(((round * 2 + 2) << 8) | (file.len() / PAGE_SIZE), Ordering::SeqCst);
                match round % 64 {
                    0 => thread::sleep(Duration::from_micros(50)),
                    step if step % 3 == 0 => thread::yield_now(),
                    _ => {}
                }
            }
            ended.store(true, Ordering::SeqCst);
        });
        for number in 0..READERS {
            scope.spawn(move || {
                let mut dice = Dice::new(number + 1);
                let mut processor = host.processor(CacheSize::Unbounded);
                let mut own = space.clone();
                processor.activate(&own);
                while !ended.load(Ordering::SeqCst) {
                    let (area, wanted) = ([SHARED, PRIVATE][dice.roll(2) as usize], dice.roll(PAGES));
                    match dice.roll(60) {
                        // The last one's child exits with this.
                        0 => {
                            space.set_fork_mode(MODES[dice.roll(3) as usize]);
                            let Ok(child) = space.fork() else { continue };
                            processor.activate(&child);
                            own = child;
                        }
                        1 => {
                            processor.activate(space);
                            own = space.clone();
                        }
                        2 => drop(own.discard(range(PRIVATE, 0, PAGES))),
                        kind => {
                            let before = settled.load(Ordering::SeqCst);
                            let outcome = match kind % 2 {
                                0 => processor.store(page(area, wanted), b"s"),
                                _ => processor.load(page(area, wanted), &mut [0]),
                            };
                            let outcome = outcome.map_err(|error| error.refusal);
                            if outcome == Err(Refusal::Fault(Fault::OutOfMemory)) {
                                continue;
                            }
                            if settled.load(Ordering::SeqCst) != before || (before >> 8) & 1 == 1 {
                                continue;
                            }
                            let past_end = wanted >= before & 0xff;
                            let expected = if past_end { Err(Refusal::Fault(Fault::PastEnd)) } else { Ok(()) };
                            assert_eq!(outcome, expected, "page {wanted} of {}", before & 0xff);
                            (if past_end { refused } else { allowed }).fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        scope.spawn(move || {
            let stranger = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
            let backing = Backing::Anonymous;
            let request = MapRequest {
                placement: Placement::Fixed(SHARED),
                len: 64 * PAGE_SIZE,
                flags: RW,
                backing,
                page_offset: 0,
            };
            let mut round = 0_u8;
            while !ended.load(Ordering::SeqCst) {
                stranger.map(request.clone()).unwrap();
                round = round.wrapping_add(1);
                let bytes = [round; PAGE_SIZE as usize];
                let stored: Vec<u64> =
                    (0..64).filter(|number| stranger.write(page(SHARED, *number), &bytes) == bytes.len()).collect();
                for number in stored {
                    let mut seen = [0; PAGE_SIZE as usize];
                    assert_eq!(stranger.read(page(SHARED, number), &mut seen), seen.len());
                    assert!(seen == bytes, "somebody has stored to a page of a stranger");
                }
                stranger.unmap(range(SHARED, 0, 64)).unwrap();
            }
        });
    });
    settle(&host);
    host.memory().check(&[&space], &[&file]).unwrap();
    assert_eq!(host.stale(&[&space]), []);
    let (refused, allowed) = (refused.into_inner(), allowed.into_inner());
    assert!(refused > 100 && allowed > 100, "{refused} refused and {allowed} allowed in time");
}
