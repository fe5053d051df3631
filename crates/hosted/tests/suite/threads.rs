//! Threads: some fault, fork and map in the same spaces; at rest everything adds up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use foldspace::space::{Fault, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{AccessError, CacheSize, Host, Layouts, Refusal};

use crate::model::PAGE;

const RW: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);

fn request(placement: Placement, pages: u64) -> MapRequest {
    MapRequest { placement, len: pages * PAGE, flags: RW, backing: Backing::Anonymous, page_offset: 0 }
}

/// A generator for schedules: xorshift.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

pub fn rounds(usual: u64) -> u64 {
    std::env::var("FOLDSPACE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Tries again while there is no memory: what others have given back may wait for a thread that the host has stopped in the middle of an operation.
fn patiently<T>(mut act: impl FnMut() -> Result<T, AccessError>) -> Result<T, AccessError> {
    for _ in 0..2_000 {
        match act() {
            Err(AccessError { refusal: Refusal::Fault(Fault::OutOfMemory), .. }) => {
                thread::sleep(Duration::from_millis(1))
            }
            outcome => return outcome,
        }
    }
    act()
}

/// Frees what waits for a grace period. A thread that was joined may still be leaving its epoch.
pub fn settle(host: &Host) {
    for _ in 0..5_000 {
        host.memory().reclaim();
        if host.memory().stats().deferred == 0 {
            // Areas that were replaced wait as well, and keep their objects; they are not counted.
            (0..8).for_each(|_| host.memory().reclaim());
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("dead frames are not freed: {:?}", host.memory().stats());
}

/// Verifies what is left of a machine at rest.
fn at_rest(host: &Host, spaces: &[&AddressSpace], objects: &[&Object]) {
    settle(host);
    host.memory().check(spaces, objects).unwrap();
    assert_eq!(host.stale(spaces), []);
}

/// Each thread owns a column of bytes, one in each page, of one space: all share pages and tables, none shares a byte. Forks happen meanwhile, so
/// pages are copied under the others' stores; none may be lost.
#[test]
fn stores_beside_each_other_survive_copies() {
    const PAGES: u64 = 1100;
    const THREADS: usize = 4;
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        let host = Host::new(64 << 20).unwrap();
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        space.set_fork_mode(mode);
        let base = space.map(request(Placement::Anywhere, PAGES)).unwrap();
        let barrier = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for column in 0..THREADS {
                let (host, space, barrier) = (&host, &space, &barrier);
                scope.spawn(move || {
                    let mut processor = host.processor(CacheSize::Unbounded);
                    processor.activate(space);
                    barrier.wait();
                    let mut dice = Dice(0x1234_5678 + column as u64);
                    let mut mine = vec![0_u8; PAGES as usize];
                    for round in 0..rounds(20_000) {
                        let page = dice.roll(PAGES);
                        let at = VirtAddr(base.get() + page * PAGE + column as u64 * 8);
                        let mut seen = [0];
                        processor.load(at, &mut seen).unwrap();
                        assert_eq!(
                            seen[0], mine[page as usize],
                            "round {round}: a store of thread {column} to {at} is lost"
                        );
                        mine[page as usize] = dice.roll(256) as u8;
                        patiently(|| processor.store(at, &[mine[page as usize]])).unwrap();
                    }
                });
            }
            let (space, barrier) = (&space, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let mut children = Vec::new();
                for round in 0..rounds(20_000) / 100 {
                    children.push(space.fork().unwrap());
                    if round % 3 == 2 {
                        children.remove(0);
                    }
                    if children.len() > 8 {
                        children.clear();
                    }
                    thread::yield_now();
                }
            });
        });
        at_rest(&host, &[&space], &[]);
        drop(space);
        settle(&host);
        host.memory().check(&[], &[]).unwrap();
        assert_eq!(host.memory().stats(), Host::new(64 << 20).unwrap().memory().stats());
    }
}

/// A child shows one instant of its parent: a thread counts up in one word, then in another of another page; a fork never sees the second ahead of the
/// first, and sees the same whenever it looks.
#[test]
fn a_fork_is_one_instant() {
    let host = Host::new(32 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let first = space.map(request(Placement::Fixed(VirtAddr(0x3fff_f000)), 2)).unwrap();
    let second = VirtAddr(first.get() + PAGE);
    let stop = AtomicU64::new(0);
    let read = |space: &AddressSpace, at| {
        let mut word = [0; 8];
        assert_eq!(space.read(at, &mut word), 8);
        u64::from_le_bytes(word)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut processor = host.processor(CacheSize::Unbounded);
            processor.activate(&space);
            let mut count = 0_u64;
            while stop.load(Ordering::Relaxed) == 0 {
                count += 1;
                processor.store(first, &count.to_le_bytes()).unwrap();
                processor.store(second, &count.to_le_bytes()).unwrap();
            }
        });
        let mut last = 0;
        for round in 0..rounds(3_000) {
            space.set_fork_mode([ForkMode::Full, ForkMode::Leaf, ForkMode::Copy][round as usize % 3]);
            let child = space.fork().unwrap();
            let (a, b) = (read(&child, first), read(&child, second));
            assert!(b <= a && a <= b + 1, "{a} then {b}");
            assert!(a >= last, "time goes on");
            last = a;
            assert_eq!((read(&child, first), read(&child, second)), (a, b), "a child does not change by itself");
        }
        stop.store(1, Ordering::Relaxed);
        assert!(last > 0, "the counting thread ran");
    });
    at_rest(&host, &[&space], &[]);
}

/// Threads map, unmap and protect their own slices of one last-level table, with forks in between, while they load and store there: what is unmapped
/// faults, what is new is zero.
#[test]
fn layouts_change_side_by_side() {
    const THREADS: u64 = 4;
    let host = Host::new(64 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let base = 0x4000_0000_u64;
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (host, space) = (&host, &space);
            scope.spawn(move || {
                let mut processor = host.processor(CacheSize::Unbounded);
                processor.activate(space);
                let mut dice = Dice(0x9876_5432 + number);
                let slice = base + number * 16 * PAGE;
                for round in 0..rounds(3_000) {
                    let start = VirtAddr(slice + dice.roll(8) * PAGE);
                    let pages = 1 + dice.roll(8);
                    assert_eq!(space.map(request(Placement::Fixed(start), pages)), Ok(start));
                    let page = VirtAddr(start.get() + dice.roll(pages) * PAGE + dice.roll(4096));
                    let mut seen = [1];
                    let loaded = patiently(|| processor.load(page, &mut seen));
                    assert_eq!(loaded, Ok(()), "round {round}: {:?}", host.memory().stats());
                    assert_eq!(seen, [0], "round {round}: old content at {page}");
                    patiently(|| processor.store(page, &[round as u8 | 1])).unwrap();
                    processor.load(page, &mut seen).unwrap();
                    assert_eq!(seen, [round as u8 | 1]);
                    let range = PageRange::from_len(start, pages * PAGE).unwrap();
                    if dice.roll(4) == 0 {
                        space.protect(range, VmaFlags::READ).unwrap();
                        let refusal = processor.store(page, &[9]).unwrap_err().refusal;
                        assert!(matches!(refusal, Refusal::Fault(Fault::AccessDenied)), "{refusal}");
                        processor.load(page, &mut seen).unwrap();
                        assert_eq!(seen, [round as u8 | 1]);
                    }
                    if dice.roll(16) == 0 {
                        drop(space.fork().unwrap());
                    }
                    space.unmap(range).unwrap();
                    let refusal = processor.load(page, &mut seen).unwrap_err().refusal;
                    assert!(matches!(refusal, Refusal::Fault(Fault::NotMapped)), "{refusal}");
                }
            });
        }
    });
    at_rest(&host, &[&space], &[]);
}

/// A family: every member forks, stores, and exits at random, on its own thread, with tables shared across all of them. Each member's pages hold its
/// own number or an ancestor's, never a relative's.
#[test]
fn a_family_keeps_its_members_apart() {
    const PAGES: u64 = 600;
    let host = Host::new(128 << 20).unwrap();
    let shared = Object::anonymous(host.memory(), PAGE).unwrap();
    let living: Mutex<Vec<(Arc<AddressSpace>, Vec<u32>)>> = Mutex::default();
    let next = AtomicU64::new(1);
    let base = VirtAddr(0x7fff_0000_0000);
    let eldest = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    eldest.map(request(Placement::Fixed(base), PAGES)).unwrap();
    let common = eldest
        .map(MapRequest {
            placement: Placement::Anywhere,
            len: PAGE,
            flags: RW | VmaFlags::SHARED,
            backing: Backing::Object(shared.clone()),
            page_offset: 0,
        })
        .unwrap();
    living.lock().unwrap().push((eldest, vec![0; PAGES as usize]));
    thread::scope(|scope| {
        for number in 0..4 {
            let (host, living, next) = (&host, &living, &next);
            scope.spawn(move || {
                let mut dice = Dice(0x5555_0001 + number);
                let mut processor = host.processor(CacheSize::Unbounded);
                for _ in 0..rounds(1_500) {
                    // A member that is taken is this thread's alone; what it shares with others are nodes.
                    let taken = {
                        let mut living = living.lock().unwrap();
                        let count = living.len() as u64;
                        (count > 0).then(|| living.swap_remove(dice.roll(count) as usize))
                    };
                    let Some((space, mut pages)) = taken else { continue };
                    processor.activate(&space);
                    let name = next.fetch_add(1, Ordering::Relaxed) as u32;
                    for _ in 0..dice.roll(12) {
                        let page = dice.roll(PAGES);
                        let at = VirtAddr(base.get() + page * PAGE + 16);
                        let mut seen = [0; 4];
                        processor.load(at, &mut seen).unwrap();
                        assert_eq!(u32::from_le_bytes(seen), pages[page as usize], "{at} in a space of this family");
                        if dice.roll(2) == 0 {
                            processor.store(at, &name.to_le_bytes()).unwrap();
                            pages[page as usize] = name;
                        }
                    }
                    processor.store(VirtAddr(common.get() + number * 8), &name.to_le_bytes()).unwrap();
                    let child = (dice.roll(2) == 0).then(|| {
                        space.set_fork_mode([ForkMode::Full, ForkMode::Leaf, ForkMode::Copy][dice.roll(3) as usize]);
                        (space.fork().unwrap(), pages.clone())
                    });
                    let mut living = living.lock().unwrap();
                    let dies = living.len() > 12 || child.is_some() && dice.roll(3) == 0;
                    living.extend(child);
                    if dies && !living.is_empty() {
                        drop(living);
                        processor.deactivate();
                        drop(space);
                    } else {
                        living.push((space, pages));
                    }
                }
            });
        }
    });
    let living = living.into_inner().unwrap();
    let spaces: Vec<&AddressSpace> = living.iter().map(|(space, _)| &**space).collect();
    at_rest(&host, &spaces, &[&shared]);
    for (space, pages) in &living {
        for (page, name) in (0..).zip(pages) {
            let mut seen = [0; 4];
            assert_eq!(space.read(VirtAddr(base.get() + page * PAGE + 16), &mut seen), 4);
            assert_eq!(u32::from_le_bytes(seen), *name);
        }
    }
    drop((living, shared));
    settle(&host);
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats(), Host::new(128 << 20).unwrap().memory().stats());
}

/// MADV_PAGEOUT takes pages that were freed lazily, but not one that a processor stores to at the same moment: a store that came after
/// MADV_FREE is not lost.
#[test]
fn a_store_takes_a_page_back_that_is_on_its_way_out() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let at = space.map(request(Placement::Anywhere, 1)).unwrap();
    let range = PageRange::page_of(at).unwrap();
    let (before, after) = (Barrier::new(2), Barrier::new(2));
    let rounds = rounds(3_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                before.wait();
                space.pageout(range).unwrap();
                after.wait();
            }
        });
        let mut processor = host.processor(CacheSize::Unbounded);
        processor.activate(&space);
        for round in 1..=rounds {
            patiently(|| processor.store(at, &0_u64.to_le_bytes())).unwrap();
            space.free(range).unwrap();
            // A translation is remembered, as one through which nothing was stored.
            processor.load(at, &mut [0; 8]).unwrap();
            before.wait();
            patiently(|| processor.store(at, &round.to_le_bytes())).unwrap();
            after.wait();
            let mut seen = [0; 8];
            processor.load(at, &mut seen).unwrap();
            assert_eq!(u64::from_le_bytes(seen), round);
        }
    });
    at_rest(&host, &[&space], &[]);
}
