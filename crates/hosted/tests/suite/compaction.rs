//! Blocks of 2 MiB out of fragmented memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use foldspace::frame::{BLOCK_FRAMES, Frame, FrameUse};
use foldspace::space::{Difference, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts};

use crate::model::PAGE;
use crate::threads::{Dice, rounds, settle};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const AT: VirtAddr = VirtAddr(0x4000_0000);
const BLOCK_ORDER: u8 = 9;

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE)
}

fn map(space: &AddressSpace, at: VirtAddr, pages: u64, flags: VmaFlags, backing: Backing) {
    let request = MapRequest { placement: Placement::Fixed(at), len: pages * PAGE, flags, backing, page_offset: 0 };
    space.map(request).unwrap();
}

/// Memory of which every page in `left` of the first ones is in use, and all others in between are free.
fn fragmented(host: &Host, pages: u64, left: u64) -> (Arc<AddressSpace>, Vec<Frame>) {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, AT, pages, RW, Backing::Anonymous);
    for number in 0..pages {
        space.write(page(number), &number.to_le_bytes());
    }
    // What is free now is nobody's, so that only fragments are.
    let mut taken = Vec::new();
    while let Ok(block) = host.memory().alloc_contiguous(BLOCK_ORDER) {
        taken.push(block);
    }
    for number in (0..pages).filter(|number| number % left != 0) {
        space.discard(PageRange::new(page(number), page(number + 1)).unwrap()).unwrap();
    }
    settle(host);
    (space, taken)
}

fn assert_content(space: &AddressSpace, pages: u64, left: u64) {
    for number in (0..pages).step_by(left as usize) {
        let mut seen = [0; 8];
        assert_eq!(space.read(page(number), &mut seen), 8);
        assert_eq!(u64::from_le_bytes(seen), number);
    }
}

#[test]
fn fragments_become_blocks() {
    const PAGES: u64 = 5000;
    let host = Host::new(32 << 20).unwrap();
    let (space, _taken) = fragmented(&host, PAGES, 4);
    assert!(host.memory().alloc_contiguous(BLOCK_ORDER).is_err(), "it is fragmented");
    let child = space.fork().unwrap();
    let before = host.memory().stats();
    let one = host.memory().compact(1);
    assert_eq!(one.blocks, 1, "{one:?}");
    let block = host.memory().alloc_contiguous(BLOCK_ORDER).unwrap();
    host.memory().free_contiguous(block, BLOCK_ORDER);
    let done = host.memory().compact(u32::MAX);
    // A quarter is in use, so nearly three quarters of the blocks without tables come free.
    assert!(done.blocks >= 4, "{done:?}");
    settle(&host);
    assert_eq!(host.memory().stats().free, before.free);
    host.memory().check(&[&space, &child], &[]).unwrap();
    let blocks: Vec<_> = std::iter::from_fn(|| host.memory().alloc_contiguous(BLOCK_ORDER).ok()).collect();
    assert!(blocks.len() as u32 > done.blocks, "{} blocks, {done:?}", blocks.len());
    for block in &blocks {
        assert!(block.0 % BLOCK_FRAMES == 0);
        (block.0..block.0 + BLOCK_FRAMES)
            .for_each(|frame| assert_eq!(host.memory().frame_use(Frame(frame)), FrameUse::Reserved));
    }
    for space in [&space, &child] {
        assert_content(space, PAGES, 4);
    }
    // Nothing more can be had.
    assert_eq!(host.memory().compact(u32::MAX).blocks, 0);
}

#[test]
fn nothing_is_lost_for_want_of_room() {
    const PAGES: u64 = 5000;
    let host = Host::new(32 << 20).unwrap();
    let (space, _taken) = fragmented(&host, PAGES, 2);
    // Hardly anything is free.
    let rest: Vec<_> =
        (0..host.memory().stats().free - 80).map_while(|_| host.memory().alloc_contiguous(0).ok()).collect();
    let before = host.memory().stats();
    for enough in [None, Some(0), Some(10), Some(100)] {
        host.memory().fail_after(enough);
        host.memory().compact(u32::MAX);
        host.memory().fail_after(None);
        settle(&host);
        assert_eq!(host.memory().stats().free, before.free);
        assert_content(&space, PAGES, 2);
        host.memory().check(&[&space], &[]).unwrap();
    }
    drop(rest);
}

/// Snapshots hold pages that no program runs on: they move as well, and going back to one finds them where they are.
#[test]
fn snapshots_hold_while_memory_is_compacted() {
    const PAGES: u64 = 5000;
    let host = Host::new(32 << 20).unwrap();
    let (space, _taken) = fragmented(&host, PAGES, 4);
    let snapshot = space.snapshot().unwrap();
    // Of its own from here on.
    let stored = |number: u64| number.is_multiple_of(12);
    for number in (0..PAGES).filter(|number| stored(*number)) {
        assert_eq!(space.write(page(number), &(!number).to_le_bytes()), 8);
    }
    let second = space.snapshot().unwrap();
    let spawned = snapshot.spawn().unwrap();
    let done = host.memory().compact(u32::MAX);
    assert!(done.blocks >= 2 && done.moved > 100, "{done:?}");
    settle(&host);
    let all = [&*space, snapshot.space(), second.space(), &*spawned];
    host.memory().check(&all, &[]).unwrap();
    assert_eq!(host.stale(&all), []);
    let differs = |a: &AddressSpace, b: &AddressSpace| {
        let mut pages = 0;
        a.diff(b, |difference| match difference {
            Difference::Pages { range, .. } => pages += range.pages(),
            other => panic!("{other:?}"),
        });
        pages
    };
    let expected = (0..PAGES).filter(|number| number.is_multiple_of(4) && stored(*number)).count() as u64;
    assert!(expected > 400);
    assert_eq!((differs(snapshot.space(), &spawned), differs(second.space(), &space)), (0, 0));
    assert_eq!(differs(snapshot.space(), &space), expected);
    assert_content(snapshot.space(), PAGES, 4);
    assert_content(&spawned, PAGES, 4);
    space.restore(&snapshot).unwrap();
    assert_content(&space, PAGES, 4);
    assert_eq!(differs(snapshot.space(), &space), 0);
    let again = host.memory().compact(u32::MAX);
    settle(&host);
    space.restore(&second).unwrap();
    for number in (0..PAGES).step_by(12) {
        let mut seen = [0; 8];
        assert_eq!(space.read(page(number), &mut seen), 8);
        assert_eq!(u64::from_le_bytes(seen), !number, "{again:?}");
    }
    host.memory().check(&all, &[]).unwrap();
}

/// Everybody stores, forks, maps and unmaps while memory is compacted again and again.
#[test]
fn programs_run_while_memory_is_compacted() {
    const PAGES: u64 = 700;
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let file = Object::anonymous(host.memory(), PAGES * PAGE).unwrap();
    map(&space, page(0), PAGES, RW, Backing::Anonymous);
    map(&space, page(1024), PAGES, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    let done = AtomicBool::new(false);
    let moved = thread::scope(|scope| {
        let storing: Vec<_> = (0..2_u64)
            .map(|column| {
                let (host, space) = (&host, &space);
                scope.spawn(move || {
                    let mut processor = host.processor(CacheSize::Unbounded);
                    processor.activate(space);
                    let mut dice = Dice::new(column + 5);
                    let mut mine = vec![0_u8; 2 * PAGES as usize];
                    for _ in 0..rounds(20_000) {
                        let number = dice.roll(2 * PAGES);
                        let at = page(if number < PAGES { number } else { 1024 + number - PAGES });
                        let at = VirtAddr(at.get() + column * 8);
                        let mut seen = [0];
                        processor.load(at, &mut seen).unwrap();
                        assert_eq!(seen[0], mine[number as usize], "a store of {column} to {at} is lost");
                        mine[number as usize] = dice.roll(256) as u8;
                        processor.store(at, &[mine[number as usize]]).unwrap();
                    }
                })
            })
            .collect();
        let layout = scope.spawn(|| {
            let mut dice = Dice::new(99);
            while !done.load(Ordering::Relaxed) {
                let child = space.fork().unwrap();
                for number in 0..dice.roll(100) {
                    child.write(page(number * 3), &[1]);
                }
                child.unmap(PageRange::new(page(0), page(1 + dice.roll(PAGES))).unwrap()).unwrap();
            }
        });
        let compacting = scope.spawn(|| {
            let mut moved = 0;
            while !done.load(Ordering::Relaxed) {
                moved += host.memory().compact(2).moved;
            }
            moved
        });
        storing.into_iter().for_each(|thread| thread.join().unwrap());
        done.store(true, Ordering::Relaxed);
        layout.join().unwrap();
        compacting.join().unwrap()
    });
    assert!(moved > 0, "something was moved");
    settle(&host);
    host.memory().check(&[&space], &[&file]).unwrap();
    assert_eq!(host.stale(&[&space]), []);
}
