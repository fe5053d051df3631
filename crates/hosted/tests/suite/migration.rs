//! Frames move under those who use them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use foldspace::frame::{Frame, FrameUse};
use foldspace::migrate::{Lost, NotMoved};
use foldspace::space::{Access, Fault, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor, Refusal};

use crate::isolation::{Callback, Stopping};
use crate::model::PAGE;
use crate::threads::{Dice, rounds, settle};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const AT: VirtAddr = VirtAddr(0x4000_0000);

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE)
}

fn map(space: &AddressSpace, at: VirtAddr, pages: u64, flags: VmaFlags, backing: Backing) {
    let request = MapRequest { placement: Placement::Fixed(at), len: pages * PAGE, flags, backing, page_offset: 0 };
    space.map(request).unwrap();
}

fn frame_at(host: &Host, space: &AddressSpace, at: VirtAddr) -> Frame {
    host.translate(space, at).expect("something is there").frame
}

fn byte(space: &AddressSpace, at: VirtAddr) -> u8 {
    let mut byte = [0];
    assert_eq!(space.read(at, &mut byte), 1, "{at} can be read");
    byte[0]
}

fn places(host: &Host, frame: Frame) -> Vec<(u64, VirtAddr)> {
    let mut found = Vec::new();
    host.memory().mappings(frame, |space, at| found.push((space.id().0, at))).unwrap();
    found.sort();
    found
}

/// Moves a frame: it is free then, and whoever mapped it maps the other.
fn migrate(host: &Host, frame: Frame) -> Frame {
    let before = places(host, frame);
    let to = host.memory().migrate(frame).unwrap();
    assert_ne!(to, frame);
    assert_eq!(host.memory().frame_use(frame), FrameUse::Idle);
    assert_eq!(places(host, to), before);
    to
}

#[test]
fn a_page_of_a_family_moves_for_all_of_them() {
    let host = Host::new(8 << 20).unwrap();
    let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&parent, AT, 8, RW, Backing::Anonymous);
    parent.write(page(0), &[1; 100]);
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        parent.set_fork_mode(mode);
        let children: Vec<_> = (0..5).map(|_| parent.fork().unwrap()).collect();
        // One has unshared the table, one the page as well.
        children[0].write(page(1), &[2]);
        children[1].write(page(0), &[3]);
        let frame = frame_at(&host, &parent, page(0));
        assert_eq!(places(&host, frame).len(), 5);
        let to = migrate(&host, frame);
        for (number, space) in children.iter().chain([&parent]).enumerate() {
            let (expected, own) = if number == 1 { (3, true) } else { (1, false) };
            assert_eq!(byte(space, page(0)), expected);
            assert_eq!(frame_at(&host, space, page(0)) != to, own);
        }
        let all: Vec<&AddressSpace> = children.iter().chain([&parent]).map(|space| &**space).collect();
        host.memory().check(&all, &[]).unwrap();
        // Each writes it for itself.
        for space in &children {
            space.write(page(0), &[9]);
        }
        assert_eq!(byte(&parent, page(0)), 1);
        host.memory().check(&all, &[]).unwrap();
    }
}

#[test]
fn a_page_of_a_file_moves_in_its_cache_and_wherever_it_is_mapped() {
    let host = Host::new(8 << 20).unwrap();
    let file = Object::anonymous(host.memory(), 1024 * PAGE).unwrap();
    file.write_at(0, &[7; 3 * PAGE as usize]).unwrap();
    let spaces: Vec<_> = (0..4).map(|_| AddressSpace::new(host.memory(), Layouts::process()).unwrap()).collect();
    map(&spaces[0], page(5), 3, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    map(&spaces[1], page(77), 3, RW, Backing::Object(file.clone()));
    // This one links a table of the file's.
    map(&spaces[2], VirtAddr(0x8000_0000), 1024, VmaFlags::READ, Backing::Object(file.clone()));
    map(&spaces[3], page(5), 3, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    spaces[0].write(page(5), &[8]);
    assert_eq!(byte(&spaces[1], page(77)), 8);
    assert_eq!(byte(&spaces[2], VirtAddr(0x8000_0000)), 8);
    spaces[3].write(page(5), &[9]);
    let child = spaces[3].fork().unwrap();
    let all: Vec<&AddressSpace> = spaces.iter().chain([&child]).map(|space| &**space).collect();
    let mut frame = frame_at(&host, &spaces[0], page(5));
    for round in 0..10 {
        frame = migrate(&host, frame);
        host.memory().check(&all, &[&file]).unwrap();
        let now = 10 + round;
        spaces[round as usize % 2 * 3].write(page(5), &[now]);
        let mut read = [0];
        file.read_at(0, &mut read).unwrap();
        let seen =
            [byte(&spaces[1], page(77)), byte(&spaces[2], VirtAddr(0x8000_0000)), byte(&child, page(5)), read[0]];
        assert_eq!(seen, [now; 4]);
    }
    // A page that nobody maps is its file's still.
    file.write_at(2 * PAGE, b"x").unwrap();
    map(&spaces[0], page(0), 3, VmaFlags::READ, Backing::Object(file.clone()));
    assert_eq!(byte(&spaces[0], page(2)), b'x');
    let unmapped = frame_at(&host, &spaces[0], page(2));
    spaces[0].unmap(PageRange::new(page(0), page(3)).unwrap()).unwrap();
    migrate(&host, unmapped);
    let mut read = [0];
    file.read_at(2 * PAGE, &mut read).unwrap();
    assert_eq!(&read, b"x");
    assert!(file.is_dirty(2));
    host.memory().check(&all, &[&file]).unwrap();
}

/// A table of an object's has slots to its pages, whether anybody has linked it or not.
#[test]
fn a_page_moves_that_is_in_a_table_of_its_object_that_nobody_links_any_more() {
    const BLOCK: u64 = 512;
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let object = Object::anonymous(host.memory(), BLOCK * PAGE).unwrap();
    let read_shared = VmaFlags::READ | VmaFlags::MAY_READ | VmaFlags::SHARED;
    map(&space, AT, BLOCK, read_shared, Backing::Object(object.clone()));
    space.fault(page(7), Access::Read).unwrap();
    let mut frame = migrate(&host, frame_at(&host, &space, page(7)));
    // Now a table of the space's own shows it, beside that of the object, which stays.
    space.unmap(PageRange::page_of(page(BLOCK - 1)).unwrap()).unwrap();
    space.fault(page(7), Access::Read).unwrap();
    frame = migrate(&host, frame);
    assert_eq!(places(&host, frame).len(), 1);
    space.unmap(PageRange::from_len(AT, BLOCK * PAGE).unwrap()).unwrap();
    frame = migrate(&host, frame);
    assert_eq!(places(&host, frame), []);
    host.memory().check(&[&space], &[&object]).unwrap();
}

#[test]
fn what_cannot_move_says_so() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, AT, 8, RW, Backing::Anonymous);
    assert_eq!(byte(&space, page(0)), 0);
    let zero = frame_at(&host, &space, page(0));
    assert_eq!(host.memory().migrate(zero), Err(NotMoved::Fixed));
    assert_eq!(host.memory().migrate(space.root()), Err(NotMoved::Fixed));
    let own = host.memory().alloc_contiguous(3).unwrap();
    assert_eq!(host.memory().migrate(Frame(own.0)), Err(NotMoved::Fixed));
    let free = (0..host.frames()).map(Frame).find(|frame| host.memory().frame_use(*frame) == FrameUse::Free);
    assert_eq!(host.memory().migrate(free.unwrap()), Err(NotMoved::Unused));
    assert_eq!(host.memory().migrate(Frame(u32::MAX)), Err(NotMoved::Unused));
    assert!(places(&host, zero).is_empty() && places(&host, Frame(u32::MAX)).is_empty());
}

type Seen = Arc<Mutex<Vec<u8>>>;

/// Moves a page that processors remember to be writable, and has `meanwhile` done at the first shootdown, or at the second.
fn while_it_moves(
    kind: VmaFlags,
    shootdown: usize,
    meanwhile: impl Fn(&mut Processor, &Seen) + Send + Sync + 'static,
) -> (u8, Vec<u8>) {
    let callback: Arc<Mutex<Option<Callback>>> = Arc::default();
    let kept = callback.clone();
    let host = Host::with_platform(8 << 20, |inner| Box::new(Stopping { inner, callback: kept })).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let backing = match kind.contains(VmaFlags::SHARED) {
        true => Backing::Object(Object::anonymous(host.memory(), 8 * PAGE).unwrap()),
        false => Backing::Anonymous,
    };
    map(&space, AT, 8, RW | kind, backing);
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    processor.store(AT, &[1]).unwrap();
    let frame = frame_at(&host, &space, AT);
    let seen = Seen::default();
    let processor = Arc::new(Mutex::new(processor));
    let act: Arc<dyn Fn() + Send + Sync> = {
        let (processor, seen) = (processor.clone(), seen.clone());
        Arc::new(move || meanwhile(&mut processor.lock().unwrap(), &seen))
    };
    let first: Callback = match shootdown {
        0 => Box::new(move || act()),
        _ => {
            let callback = callback.clone();
            Box::new(move || *callback.lock().unwrap() = Some(Box::new(move || act())))
        }
    };
    *callback.lock().unwrap() = Some(first);
    let _ = host.memory().migrate(frame);
    assert!(callback.lock().unwrap().is_none(), "there were so many shootdowns");
    host.memory().check(&[&space], &[]).unwrap();
    assert_eq!(host.stale(&[&space]), []);
    let end = byte(&space, AT);
    let seen = seen.lock().unwrap().clone();
    (end, seen)
}

/// Until the first shootdown is done a processor may store through what it remembers, and what it stores must not be lost.
#[test]
fn a_store_through_what_is_remembered_is_not_lost() {
    for kind in [VmaFlags::empty(), VmaFlags::SHARED] {
        let (end, _) = while_it_moves(kind, 0, |processor, _| processor.store(AT, &[2]).unwrap());
        assert_eq!(end, 2, "{kind:?}");
    }
}

/// Until the second one it may load through what it remembers, and must see what it has stored.
#[test]
fn a_load_through_what_is_remembered_is_not_of_something_else() {
    for kind in [VmaFlags::empty(), VmaFlags::SHARED] {
        let load = |processor: &mut Processor, seen: &Seen| {
            let mut byte = [0];
            processor.load(AT, &mut byte).unwrap();
            seen.lock().unwrap().push(byte[0]);
        };
        assert_eq!(while_it_moves(kind, 1, load), (1, vec![1]), "{kind:?}");
    }
    // A private page that is stored to meanwhile becomes one more copy, and the frame is free all the same.
    let (end, _) = while_it_moves(VmaFlags::empty(), 1, |processor, _| processor.store(AT, &[3]).unwrap());
    assert_eq!(end, 3);
}

/// Threads store each to a byte of its own in each page, private and shared, while all these pages move, and the space is forked: nothing is lost.
#[test]
fn stores_survive_pages_that_move_all_the_time() {
    const PAGES: u64 = 600;
    const THREADS: u64 = 3;
    let host = Host::new(32 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let file = Object::anonymous(host.memory(), PAGES * PAGE).unwrap();
    map(&space, page(0), PAGES, RW, Backing::Anonymous);
    map(&space, page(2048), PAGES, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    let (done, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let storing: Vec<_> = (0..THREADS)
            .map(|column| {
                let (host, space) = (&host, &space);
                scope.spawn(move || {
                    let mut processor = host.processor(CacheSize::Unbounded);
                    processor.activate(space);
                    let mut dice = Dice::new(column + 1);
                    let mut mine = vec![0_u8; 2 * PAGES as usize];
                    for round in 0..rounds(20_000) {
                        let number = dice.roll(2 * PAGES);
                        let at = page(if number < PAGES { number } else { 2048 + number - PAGES });
                        let at = VirtAddr(at.get() + column * 8);
                        let mut seen = [0];
                        processor.load(at, &mut seen).unwrap();
                        assert_eq!(
                            seen[0], mine[number as usize],
                            "round {round}: a store of {column} to {at} is lost"
                        );
                        mine[number as usize] = dice.roll(256) as u8;
                        processor.store(at, &[mine[number as usize]]).unwrap();
                    }
                })
            })
            .collect();
        let forks = scope.spawn(|| {
            let mut children = Vec::new();
            while !done.load(Ordering::Relaxed) {
                children.push(space.fork().unwrap());
                if children.len() > 3 {
                    children.remove(0);
                }
                thread::yield_now();
            }
        });
        let mover = scope.spawn(|| {
            let mut dice = Dice::new(77);
            while !done.load(Ordering::Relaxed) {
                let number = dice.roll(2 * PAGES);
                let at = page(if number < PAGES { number } else { 2048 + number - PAGES });
                let Ok(shown) = host.translate(&space, at) else { continue };
                match host.memory().migrate(shown.frame) {
                    Ok(_) => drop(moved.fetch_add(1, Ordering::Relaxed)),
                    Err(NotMoved::OutOfMemory) => panic!("there is memory"),
                    Err(_) => {}
                }
            }
        });
        storing.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        forks.join().unwrap();
        mover.join().unwrap();
    });
    assert!(moved.into_inner() > 100, "pages have moved");
    settle(&host);
    host.memory().check(&[&space], &[&file]).unwrap();
    assert_eq!(host.stale(&[&space]), []);
}

/// What a load of the page at `at` comes to.
fn loaded(processor: &mut Processor, at: VirtAddr) -> Result<u8, Refusal> {
    let mut byte = [0];
    processor.load(at, &mut byte).map(|()| byte[0]).map_err(|error| error.refusal)
}

const LOST: Result<u8, Refusal> = Err(Refusal::Fault(Fault::Poisoned));

#[test]
fn private_memory_that_fails_is_lost_to_those_who_share_it_and_to_nobody_else() {
    let host = Host::new(8 << 20).unwrap();
    let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&parent, AT, 8, RW, Backing::Anonymous);
    (0..4).for_each(|number| assert_eq!(parent.write(page(number), &[1]), 1));
    let (child, other) = (parent.fork().unwrap(), parent.fork().unwrap());
    assert_eq!(other.write(page(0), &[2]), 1);
    let mut processors = [&parent, &child, &other].map(|space| {
        let mut processor = host.processor(CacheSize::Unbounded);
        processor.activate(space);
        assert!(loaded(&mut processor, page(0)).is_ok());
        processor
    });
    let before = host.memory().stats();
    let frame = frame_at(&host, &parent, page(0));
    assert_eq!(parent.poison(page(0)), Ok(Lost::Private));
    assert_eq!(host.memory().frame_use(frame), FrameUse::Poisoned);
    let [first, second, third] = &mut processors;
    assert_eq!([loaded(first, page(0)), loaded(second, page(0)), loaded(third, page(0))], [LOST, LOST, Ok(2)]);
    assert_eq!([first, second, third].map(|processor| loaded(processor, page(1))), [Ok(1); 3]);
    let all = [&*parent, &*child, &*other];
    host.memory().check(&all, &[]).unwrap();
    assert_eq!(host.stale(&all), []);
    // Neither a store nor the kernel gets it back, nor a child; the page is as good as new where it is discarded, or mapped anew.
    let [first, second, _] = &mut processors;
    assert_eq!(first.store(page(0), &[3]).map_err(|error| error.refusal), Err(Refusal::Fault(Fault::Poisoned)));
    assert_eq!((parent.write(page(0), &[3]), parent.read(page(0), &mut [0])), (0, 0));
    let grandchild = child.fork().unwrap();
    assert_eq!(grandchild.fault(page(0), Access::Read), Err(Fault::Poisoned));
    assert_eq!(parent.poison(page(0)), Err(Error::NotMapped));
    parent.discard(PageRange::page_of(page(0)).unwrap()).unwrap();
    assert_eq!(loaded(first, page(0)), Ok(0));
    child.unmap(PageRange::page_of(page(0)).unwrap()).unwrap();
    map(&child, page(0), 1, RW, Backing::Anonymous);
    assert_eq!(loaded(second, page(0)), Ok(0));
    host.memory().check(&[&*parent, &*child, &*other, &*grandchild], &[]).unwrap();
    drop((processors, parent, child, other, grandchild));
    settle(&host);
    // One frame less for ever.
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats().reserved, before.reserved + 1);
    assert_eq!(host.memory().frame_use(frame), FrameUse::Poisoned);
}

#[test]
fn a_page_of_a_file_that_fails_is_lost_to_all_who_map_or_read_it() {
    let host = Host::new(8 << 20).unwrap();
    let file = Object::anonymous(host.memory(), 1024 * PAGE).unwrap();
    file.write_at(0, &[7; 3 * PAGE as usize]).unwrap();
    let spaces: Vec<_> = (0..3).map(|_| AddressSpace::new(host.memory(), Layouts::process()).unwrap()).collect();
    map(&spaces[0], page(5), 3, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    map(&spaces[1], page(77), 3, RW, Backing::Object(file.clone()));
    map(&spaces[2], VirtAddr(0x8000_0000), 1024, VmaFlags::READ, Backing::Object(file.clone()));
    let places = [page(5), page(77), VirtAddr(0x8000_0000)];
    let mut processors: Vec<_> = spaces
        .iter()
        .zip(places)
        .map(|(space, at)| {
            let mut processor = host.processor(CacheSize::Unbounded);
            processor.activate(space);
            assert_eq!(loaded(&mut processor, at), Ok(7));
            processor
        })
        .collect();
    // One has a copy of the second page.
    assert_eq!(spaces[1].write(page(78), &[8]), 1);
    let frame = frame_at(&host, &spaces[0], page(5));
    assert_eq!(spaces[0].poison(page(5)), Ok(Lost::Page { dirty: true }));
    assert_eq!(
        spaces[0].frame_at(page(6)).map(|frame| host.memory().poison(frame)),
        Ok(Ok(Lost::Page { dirty: true }))
    );
    for (processor, at) in processors.iter_mut().zip(places) {
        assert_eq!(loaded(processor, at), LOST);
        assert_eq!(loaded(processor, VirtAddr(at.get() + 2 * PAGE)), Ok(7));
    }
    assert_eq!(loaded(&mut processors[1], page(78)), Ok(8), "a copy is its own");
    assert_eq!(file.read_at(0, &mut [0]), Err(Error::Poisoned));
    assert_eq!(file.write_at(10, &[0]), Err(Error::Poisoned));
    let all: Vec<&AddressSpace> = spaces.iter().map(|space| &**space).collect();
    host.memory().check(&all, &[&file]).unwrap();
    assert_eq!(host.stale(&all), []);
    // A hole gives another page.
    file.punch_hole(0..PAGE).unwrap();
    assert_eq!(loaded(&mut processors[0], page(5)), Ok(0));
    assert_eq!(host.memory().frame_use(frame), FrameUse::Poisoned);
    host.memory().check(&all, &[&file]).unwrap();
    drop((processors, spaces, file));
    settle(&host);
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().frame_use(frame), FrameUse::Poisoned);
}

#[test]
fn a_page_leaves_a_frame_that_will_fail_and_nobody_notices() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, AT, 8, RW, Backing::Anonymous);
    space.write(page(0), &[1]);
    let frame = frame_at(&host, &space, page(0));
    space.soft_offline(page(0)).unwrap();
    assert_eq!(host.memory().frame_use(frame), FrameUse::Poisoned);
    assert_ne!(frame_at(&host, &space, page(0)), frame);
    assert_eq!(byte(&space, page(0)), 1);
    assert_eq!((space.soft_offline(page(2)), space.poison(page(3))), (Err(Error::Busy), Err(Error::Busy)), "zeros");
    host.memory().check(&[&space], &[]).unwrap();
}
