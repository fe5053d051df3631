//! Readers of maps: one instant each, without the writers' lock, while writers go on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use foldspace::addr::PAGE_SIZE;
use foldspace::proc::{Query, Reach};
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, Name, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::threads::rounds;

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);

fn machine() -> (Host, Arc<AddressSpace>) {
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    (host, space)
}

fn map(space: &AddressSpace, start: VirtAddr, pages: u64) -> VirtAddr {
    let placement = Placement::Fixed(start);
    let request =
        MapRequest { placement, len: pages * PAGE_SIZE, flags: RW, backing: Backing::Anonymous, page_offset: 0 };
    space.map(request).unwrap()
}

fn at(addr: VirtAddr, reach: Reach) -> Query {
    Query { addr, reach, all: VmaFlags::empty(), any: VmaFlags::empty() }
}

/// Whoever holds the writers' lock keeps no reader waiting.
#[test]
fn readers_take_no_lock_of_writers() {
    let (_host, space) = machine();
    let base = map(&space, VirtAddr(0x7000_0000), 4);
    let (done, finished) = mpsc::channel();
    let reader = Arc::clone(&space);
    space.with_layout(|_| {
        let read = move || {
            let text = reader.maps().text();
            let smaps = reader.smaps().text(&reader).unwrap();
            reader.smaps_rollup(&mut Vec::new()).unwrap();
            let found = reader.query(&at(base, Reach::Covering)).map(|found| found.vma().start());
            done.send((text.len(), smaps.len(), found)).unwrap();
        };
        thread::spawn(read);
        let (text, smaps, found) = finished.recv_timeout(Duration::from_secs(60)).expect("a reader waits for the lock");
        assert!(text > 0 && smaps > text);
        assert_eq!(found, Some(base));
    });
}

/// The heap has its name in every version that has a heap, and nothing else has: its end is another word than the tree, and both are of one instant.
#[test]
fn the_heap_is_named_whenever_it_is_there() {
    let (_host, space) = machine();
    let start = space.layout().start_brk;
    let end = |pages: u64| VirtAddr(start.get() + pages * PAGE_SIZE);
    let stop = AtomicBool::new(false);
    let kinds = [const { AtomicUsize::new(0) }; 2];
    thread::scope(|scope| {
        let seen: Vec<_> = (0..2)
            .map(|reader| {
                let (space, stop, kinds) = (&space, &stop, &kinds);
                scope.spawn(move || {
                    let mut seen = BTreeSet::new();
                    let mut note = |pages: u64, name: &str| {
                        assert_eq!(name, if pages == 9 { "" } else { "[heap]" }, "{pages} pages");
                        seen.insert(pages);
                        kinds[reader].store(seen.len(), Ordering::Relaxed);
                    };
                    while !stop.load(Ordering::Relaxed) {
                        if reader == 0 {
                            let mut line = Vec::new();
                            if space.maps().line(start, &mut line).is_none() {
                                continue;
                            }
                            let line = String::from_utf8(line).unwrap();
                            let (range, rest) = line.split_once(' ').unwrap();
                            let (from, until) = range.split_once('-').unwrap();
                            let number = |text| u64::from_str_radix(text, 16).unwrap();
                            let name = rest.split_whitespace().nth(4).unwrap_or_default();
                            note((number(until) - number(from)) / PAGE_SIZE, name);
                        } else if let Some(found) = space.query(&at(start, Reach::CoveringOrNext)) {
                            let mut name = Vec::new();
                            found.name(&mut name);
                            note(found.vma().range.pages(), std::str::from_utf8(&name).unwrap());
                        }
                    }
                    seen
                })
            })
            .collect();
        // A heap of 1 to 3 pages comes and goes; where it was, nine pages of something else do.
        let patience = Instant::now() + Duration::from_secs(30);
        let one_sided = || kinds.iter().any(|kinds| kinds.load(Ordering::Relaxed) < 2);
        let mut round = 0;
        while round < rounds(100_000) || (one_sided() && Instant::now() < patience) {
            round += 1;
            let grown = end(1 + round % 3);
            assert_eq!(space.brk(grown), grown);
            assert_eq!(space.brk(end(2)), end(2));
            assert_eq!(space.brk(start), start);
            let other = PageRange::new(map(&space, end(1), 9), end(10)).unwrap();
            space.unmap(other).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for seen in seen {
            assert!(seen.join().unwrap().len() > 1, "a reader has seen only one state");
        }
    });
}

/// What one question finds is a VMA of a state that was, while areas are cut in two and become one again; and what was mapped all the time is always found.
#[test]
fn questions_while_areas_change() {
    let (_host, space) = machine();
    let base = map(&space, VirtAddr(0x7000_0000), 6);
    let page = |number: u64| VirtAddr(base.get() + number * PAGE_SIZE);
    let pages = |from, until| PageRange::new(page(from), page(until)).unwrap();
    let whole = [(0, 6)];
    let cut = [(0, 2), (2, 4), (4, 6)];
    let stop = AtomicBool::new(false);
    let kinds = AtomicUsize::new(0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                kinds.store(seen.len(), Ordering::Relaxed);
                for number in 0..6 {
                    let found = space.query(&at(page(number), Reach::Covering)).expect("it was mapped all the time");
                    let (from, until) = (found.vma().start(), found.vma().end());
                    let area = ((from.get() - base.get()) / PAGE_SIZE, (until.get() - base.get()) / PAGE_SIZE);
                    assert!(whole.contains(&area) || cut.contains(&area), "{area:?}");
                    assert!(area.0 <= number && number < area.1, "{area:?} for page {number}");
                    seen.insert(area);
                }
                let wanted = Query { all: VmaFlags::WRITE, ..at(page(2), Reach::CoveringOrNext) };
                let found = space.query(&wanted).expect("the last pages can be written at any time");
                assert!(found.vma().flags.contains(VmaFlags::WRITE));
            }
            seen
        });
        // And on, until the reader has had its turns: that it sees both states is the host's scheduler's to give.
        let patience = Instant::now() + Duration::from_secs(30);
        let mut round = 0;
        while round < rounds(20_000) || (kinds.load(Ordering::Relaxed) < 4 && Instant::now() < patience) {
            space.protect(pages(2, 4), VmaFlags::READ).unwrap();
            space.protect(pages(2, 4), VmaFlags::READ | VmaFlags::WRITE).unwrap();
            round += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap(), [(0, 2), (0, 6), (2, 4), (4, 6)].into());
    });
}

/// Which VMA a question finds, for all that can be asked.
#[test]
fn questions_skip_what_does_not_fit() {
    let (_host, space) = machine();
    let base = map(&space, VirtAddr(0x7000_0000), 300);
    let page = |number: u64| VirtAddr(base.get() + number * PAGE_SIZE);
    // Many areas of two kinds; one can be executed.
    for number in (0..300).step_by(2) {
        space.protect(PageRange::new(page(number), page(number + 1)).unwrap(), VmaFlags::READ).unwrap();
    }
    space.protect(PageRange::new(page(201), page(202)).unwrap(), VmaFlags::READ | VmaFlags::EXEC).unwrap();
    space.set_name(PageRange::new(page(7), page(8)).unwrap(), Name::new(b"seven")).unwrap();
    let found = |query: Query| space.query(&query).map(|found| (found.vma().start().get() - base.get()) / PAGE_SIZE);
    let asked = |number: u64, reach, all| found(Query { all, ..at(page(number), reach) });
    assert_eq!(asked(4, Reach::Covering, VmaFlags::WRITE), None);
    assert_eq!(asked(4, Reach::CoveringOrNext, VmaFlags::WRITE), Some(5));
    assert_eq!(asked(5, Reach::Covering, VmaFlags::WRITE), Some(5));
    assert_eq!(asked(0, Reach::CoveringOrNext, VmaFlags::EXEC), Some(201));
    assert_eq!(asked(202, Reach::CoveringOrNext, VmaFlags::EXEC), None);
    assert_eq!(asked(0, Reach::CoveringOrNext, VmaFlags::EXEC | VmaFlags::WRITE), None);
    assert_eq!(found(at(VirtAddr(0), Reach::Covering)), None);
    assert_eq!(found(at(VirtAddr(0), Reach::CoveringOrNext)), Some(0));
    assert_eq!(found(at(page(300), Reach::CoveringOrNext)), None);
    assert_eq!(found(Query { any: VmaFlags::FILE, ..at(page(0), Reach::CoveringOrNext) }), None);
    let mut name = Vec::new();
    space.query(&at(page(7), Reach::Covering)).unwrap().name(&mut name);
    assert_eq!(name, b"[anon:seven]");
}
