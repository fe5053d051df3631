//! Snapshots by themselves: what they cost, and what happens beside others. What they hold is for the lives to find out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Difference, MapRequest, PageState, Placement, Snapshot};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor};

use crate::threads::rounds;

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
const AT: VirtAddr = VirtAddr(0x80_0000_0000);

fn machine(bytes: u64) -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(bytes).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    (host, space, processor)
}

fn map(space: &AddressSpace, at: VirtAddr, pages: u64, flags: VmaFlags, backing: Backing) {
    let placement = Placement::Fixed(at);
    space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE_SIZE)
}

fn store(processor: &mut Processor, number: u64, value: u64) {
    processor.store(page(number), &value.to_le_bytes()).unwrap();
}

fn load(processor: &mut Processor, number: u64) -> u64 {
    let mut bytes = [0; 8];
    processor.load(page(number), &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// What the first word of each page holds.
fn contents(snapshot: &Snapshot, pages: u64) -> Vec<u64> {
    let word = |number| {
        let mut bytes = [0; 8];
        assert_eq!(snapshot.space().read(page(number), &mut bytes), bytes.len());
        u64::from_le_bytes(bytes)
    };
    (0..pages).map(word).collect()
}

/// Rows of pages that differ: first page, pages.
fn changed(snapshot: &Snapshot, space: &AddressSpace) -> Vec<(u64, u64)> {
    let mut rows = Vec::new();
    snapshot.space().diff(space, |difference| {
        if let Difference::Pages { range, .. } = difference {
            rows.push(((range.start().get() - AT.get()) / PAGE_SIZE, range.pages()));
        }
    });
    rows
}

fn check(host: &Host, spaces: &[&AddressSpace]) {
    host.memory().check(spaces, &[]).unwrap();
    assert_eq!(host.stale(spaces), []);
}

#[test]
fn a_snapshot_is_one_frame_and_a_restore_touches_what_has_changed() {
    const PAGES: u64 = 20_000;
    let (host, space, mut processor) = machine(128 << 20);
    map(&space, AT, PAGES, RW, Backing::Anonymous);
    (0..PAGES).for_each(|number| store(&mut processor, number, number));
    let before = host.memory().stats();
    let snapshot = space.snapshot().unwrap();
    assert_eq!(before.free - host.memory().stats().free, 1);

    // Three pages in two tables: a path of tables each, as far as they are not the same, and the pages.
    let stored = [7, 8, 3000];
    stored.iter().for_each(|number| store(&mut processor, *number, 1 << 40));
    assert_eq!(changed(&snapshot, &space), [(7, 2), (3000, 1)]);
    let apart = host.memory().stats();
    assert_eq!((apart.tables - before.tables, apart.data - before.data), (1 + 4, 3));
    space.restore(&snapshot).unwrap();
    host.memory().reclaim();
    let back = host.memory().stats();
    assert_eq!((back.tables - before.tables, back.data - before.data), (1 + 4, 0), "its tables stay");
    assert_eq!(changed(&snapshot, &space), []);
    stored.iter().for_each(|number| assert_eq!(load(&mut processor, *number), *number));
    check(&host, &[&space]);

    // Once more: now a store takes a page and nothing else.
    let faults = processor.stats().faults;
    store(&mut processor, 8, 5);
    assert_eq!((processor.stats().faults - faults, host.memory().stats().tables), (1, back.tables));
    space.restore(&snapshot).unwrap();
    assert_eq!(load(&mut processor, 8), 8);
    check(&host, &[&space]);
}

#[test]
fn snapshots_form_a_tree_and_go_in_any_order() {
    for order in 0..24_usize {
        let (host, space, mut processor) = machine(8 << 20);
        map(&space, AT, 600, RW, Backing::Anonymous);
        let mut snapshots = Vec::new();
        for turn in 1..=4 {
            store(&mut processor, 0, turn);
            store(&mut processor, 511 + turn, turn);
            snapshots.push((turn, space.snapshot().unwrap()));
            if turn == 2 {
                // From here on a branch beside the second.
                space.restore(&snapshots[0].1).unwrap();
                assert_eq!((load(&mut processor, 0), load(&mut processor, 513)), (1, 0));
            }
        }
        let child = snapshots[1].1.spawn().unwrap();
        processor.deactivate();
        drop(space);
        let mut left = order;
        while !snapshots.is_empty() {
            let (turn, snapshot) = snapshots.remove(left % snapshots.len());
            left /= 4;
            child.restore(&snapshot).unwrap();
            let mut word = [0; 8];
            assert_eq!(child.read(AT, &mut word), 8);
            assert_eq!(u64::from_le_bytes(word), turn);
            assert_eq!(changed(&snapshot, &child), []);
            drop(snapshot);
            check(&host, &[&child]);
        }
        drop(child);
        host.memory().check(&[], &[]).unwrap();
    }
}

#[test]
fn what_was_unmapped_protected_or_guarded_comes_back() {
    let (host, space, mut processor) = machine(8 << 20);
    map(&space, AT, 1024, RW, Backing::Anonymous);
    (0..1024).step_by(100).for_each(|number| store(&mut processor, number, number));
    let snapshot = space.snapshot().unwrap();
    let range = |from, pages| PageRange::from_len(page(from), pages * PAGE_SIZE).unwrap();
    space.unmap(range(0, 512)).unwrap();
    space.protect(range(600, 100), VmaFlags::READ).unwrap();
    space.guard_install(range(800, 1)).unwrap();
    map(&space, page(100), 8, RW, Backing::Anonymous);
    store(&mut processor, 101, 1);
    let mut vmas = (0, 0);
    let mut states = Vec::new();
    snapshot.space().diff(&space, |difference| match difference {
        Difference::Gone(_) => vmas.0 += 1,
        Difference::New(_) => vmas.1 += 1,
        Difference::Pages { range, before, after } => states.push((range.pages(), before, after)),
    });
    assert_eq!(vmas, (1, 4), "one area was cut, four there are now");
    assert!(states.contains(&(1, PageState::Untouched, PageState::Private)), "{states:?}");
    assert!(states.contains(&(1, PageState::Private, PageState::Guard)), "{states:?}");
    space.restore(&snapshot).unwrap();
    check(&host, &[&space]);
    (0..1024).step_by(100).for_each(|number| assert_eq!(load(&mut processor, number), number));
    store(&mut processor, 650, 3);
    assert_eq!(load(&mut processor, 101), 0);
}

/// Somebody who stores all over a large memory once, and to one page ever after, pays for one page in the end.
#[test]
fn tables_that_nobody_stores_to_any_more_are_given_up() {
    const TABLES: u64 = 300;
    let (host, space, mut processor) = machine(64 << 20);
    map(&space, AT, TABLES * 512, RW, Backing::Anonymous);
    let all = || (0..TABLES).map(|table| table * 512);
    all().for_each(|number| store(&mut processor, number, number));
    let snapshot = space.snapshot().unwrap();
    let none = host.memory().stats().tables;
    let tables = |host: &Host| {
        crate::threads::settle(host);
        host.memory().stats().tables - none
    };
    store(&mut processor, 7, 1);
    space.restore(&snapshot).unwrap();
    assert_eq!(tables(&host), 3, "those on the path to one page");
    all().for_each(|number| store(&mut processor, number, 1));
    space.restore(&snapshot).unwrap();
    assert!(tables(&host) >= TABLES, "what has changed just now is kept");
    for round in 0..100 {
        store(&mut processor, 512 + round % 512, 1);
        space.restore(&snapshot).unwrap();
    }
    assert_eq!(tables(&host), 3, "one path is used");
    all().for_each(|number| assert_eq!(load(&mut processor, number), number));
    check(&host, &[&space]);
    // And nobody stores at all.
    (0..100).for_each(|_| space.restore(&snapshot).unwrap());
    assert_eq!(tables(&host), 0);
    check(&host, &[&space]);
    all().for_each(|number| store(&mut processor, number, 2));
    assert_eq!(changed(&snapshot, &space).len() as u64, TABLES);
    space.restore(&snapshot).unwrap();
    assert_eq!(changed(&snapshot, &space), []);
    check(&host, &[&space]);
}

#[test]
fn strangers_and_snapshots_are_not_restored_to() {
    let (host, space, _processor) = machine(8 << 20);
    let stranger = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let snapshot = space.snapshot().unwrap();
    assert_eq!(stranger.restore(&snapshot), Err(Error::WrongKind));
    let second = space.snapshot().unwrap();
    assert_eq!(snapshot.space().restore(&second), Err(Error::WrongKind));
    let elsewhere = Host::new(8 << 20).unwrap();
    let other = AddressSpace::new(elsewhere.memory(), Layouts::process()).unwrap();
    assert_eq!(other.restore(&snapshot), Err(Error::WrongKind));
    assert_eq!(host.memory().spaces().filter(|space| space.is_snapshot()).count(), 2);
    check(&host, &[&space, &stranger]);
}

/// Says that it is over when it goes, so that threads end also where an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads store on processors of their own while another takes snapshots and goes back: each page is always one of what was stored to it, and what a
/// snapshot holds never changes. (Its frames may: see [`Snapshot`].)
#[test]
fn stores_beside_restores() {
    let (host, space, mut processor) = machine(16 << 20);
    map(&space, AT, 64, RW, Backing::Anonymous);
    (0..64).for_each(|number| store(&mut processor, number, number << 32));
    let (host, done) = (&host, &AtomicBool::new(false));
    thread::scope(|scope| {
        for thread in 0..2 {
            let space = &space;
            scope.spawn(move || {
                let mut processor = host.processor(CacheSize::Unbounded);
                processor.activate(space);
                for turn in 1.. {
                    let number = (turn * 7 + thread * 32) % 64;
                    let seen = load(&mut processor, number);
                    assert_eq!(seen >> 32, number, "page {number} holds {seen:#x}");
                    store(&mut processor, number, number << 32 | turn & 0xffff);
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let _over = Over(done);
        for _ in 0..rounds(300) {
            let snapshot = space.snapshot().unwrap();
            let frozen = contents(&snapshot, 64);
            for _ in 0..4 {
                space.restore(&snapshot).unwrap();
            }
            assert_eq!(frozen, contents(&snapshot, 64));
        }
    });
    check(host, &[&space]);
}

/// A file is cut again and again while a space that maps it goes back to a snapshot: no page past the end is left.
#[test]
fn cuts_beside_restores() {
    const PAGES: u64 = 64;
    let (host, space, mut processor) = machine(16 << 20);
    let object = Object::anonymous(host.memory(), PAGES * PAGE_SIZE).unwrap();
    map(&space, AT, PAGES, RW, Backing::Object(object.clone()));
    (0..PAGES).for_each(|number| store(&mut processor, number, number));
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let (space, object) = (&space, &object);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let snapshot = space.snapshot().unwrap();
                for _ in 0..8 {
                    space.restore(&snapshot).unwrap();
                }
            }
        });
        for round in 0..rounds(200) {
            object.set_len(PAGES * PAGE_SIZE).unwrap();
            (0..PAGES).for_each(|number| {
                let _ = processor.store(page(number), &number.to_le_bytes());
            });
            object.set_len(u64::from(round as u8 % 8) * PAGE_SIZE).unwrap();
            assert!(processor.store(page(8), &[1]).is_err(), "past the end");
        }
        done.store(true, Ordering::Relaxed);
    });
    check(&host, &[&space]);
}
