//! Mistakes that were found once, each under the name of what must hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::threads::rounds;
use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Fault, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Refusal};

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
const AT: VirtAddr = VirtAddr(0x4000_0000);

fn machine(bytes: u64) -> (Host, Arc<AddressSpace>) {
    let host = Host::new(bytes).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    (host, space)
}

fn map(space: &AddressSpace, pages: u64, flags: VmaFlags, backing: Backing) {
    let len = pages * PAGE_SIZE;
    space.map(MapRequest { placement: Placement::Fixed(AT), len, flags, backing, page_offset: 0 }).unwrap();
}

fn range(page: u64, pages: u64) -> PageRange {
    PageRange::from_len(VirtAddr(AT.get() + page * PAGE_SIZE), pages * PAGE_SIZE).unwrap()
}

fn word(space: &AddressSpace, at: VirtAddr) -> u64 {
    let mut word = [0; 8];
    assert_eq!(space.read(at, &mut word), 8);
    u64::from_le_bytes(word)
}

#[test]
fn a_forced_write_to_a_writable_shared_mapping_is_a_write() {
    let (host, space) = machine(4 << 20);
    let object = Object::anonymous(host.memory(), PAGE_SIZE).unwrap();
    map(&space, 1, RW | VmaFlags::SHARED, Backing::Object(object.clone()));
    assert_eq!(space.write_forced(AT, b"text"), 4);
    let mut seen = [0; 4];
    assert_eq!(object.read_at(0, &mut seen), Ok(4));
    assert_eq!(&seen, b"text");
}

#[test]
fn a_forced_write_does_not_open_what_must_not_be_accessed() {
    let (host, space) = machine(4 << 20);
    map(&space, 1, MAY, Backing::Anonymous);
    assert_eq!(space.write_forced(AT, b"text"), 4);
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    let refusal = processor.load(AT, &mut [0]).map_err(|error| error.refusal);
    assert_eq!(refusal, Err(Refusal::Fault(Fault::AccessDenied)));
    assert_eq!(space.read(AT, &mut [0]), 0);
}

#[test]
fn a_forced_read_sees_what_must_not_be_accessed_and_does_not_open_it() {
    let (host, space) = machine(4 << 20);
    let object = Object::anonymous(host.memory(), 2 * PAGE_SIZE).unwrap();
    object.write_at(PAGE_SIZE, b"object").unwrap();
    map(&space, 4, RW, Backing::Anonymous);
    space.write(AT, b"private");
    space.protect(range(0, 4), VmaFlags::empty()).unwrap();
    let (at, len, flags) = (range(2, 1).start(), PAGE_SIZE, MAY | VmaFlags::SHARED);
    let backing = Backing::Object(object.clone());
    space.map(MapRequest { placement: Placement::Fixed(at), len, flags, backing, page_offset: 1 }).unwrap();
    space.guard_install(range(3, 1)).unwrap();

    let mut seen = [1; 7];
    assert_eq!(space.read_forced(AT, &mut seen), 7);
    assert_eq!(&seen, b"private");
    assert_eq!(space.read_forced(range(1, 1).start(), &mut seen), 7);
    assert_eq!(seen, [0; 7]);
    assert_eq!(space.read_forced(at, &mut seen[..6]), 6);
    assert_eq!(&seen[..6], b"object");
    // Up to the guard, and nothing where nothing is.
    let mut whole = vec![1; 4 * PAGE_SIZE as usize];
    assert_eq!(space.read_forced(AT, &mut whole), 3 * PAGE_SIZE as usize);
    assert_eq!(space.read_forced(range(4, 1).start(), &mut seen), 0);

    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    for page in 0..4 {
        assert!(processor.load(range(page, 1).start(), &mut [0]).is_err());
    }
    host.memory().check(&[&space], &[&object]).unwrap();
}

/// What was unmapped waits for a grace period, and is free for whoever needs it at once.
#[test]
fn unmapped_memory_serves_the_next_fault() {
    let (_host, space) = machine(8 << 20);
    let pages = 1500;
    for round in 0..10_u64 {
        map(&space, pages, RW, Backing::Anonymous);
        for page in 0..pages {
            let at = range(page, 1).start();
            assert_eq!(space.write(at, &round.to_le_bytes()), 8, "round {round}, page {page}");
        }
        space.unmap(range(0, pages)).unwrap();
    }
}

/// The same for processes: each exits before the next begins.
#[test]
fn memory_of_the_dead_serves_the_living() {
    let (host, space) = machine(8 << 20);
    drop(space);
    for round in 0..10_u64 {
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        map(&space, 1500, RW, Backing::Anonymous);
        for page in 0..1500 {
            assert_eq!(space.write(range(page, 1).start(), &[1]), 1, "round {round}, page {page}");
        }
    }
}

/// The same when there is not one frame left but those of the dead.
#[test]
fn the_last_frames_are_those_of_the_dead() {
    let (host, living) = machine(4 << 20);
    map(&living, 600, RW, Backing::Anonymous);
    for round in 0..5 {
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        map(&space, 2000, RW, Backing::Anonymous);
        let taken = (0..2000).take_while(|page| space.write(range(*page, 1).start(), &[1]) == 1).count();
        assert!(taken > 200, "round {round}: {taken}");
        drop(space);
        assert_eq!(living.write(range(round * 100, 1).start(), &[1]), 1, "round {round}: a fault");
        assert_eq!(living.fork().map(drop), Ok(()), "round {round}: a fork");
    }
}

/// Few frames are queued differently from many.
#[test]
fn a_few_frames_of_the_dead_are_enough() {
    let (host, living) = machine(4 << 20);
    map(&living, 2000, RW, Backing::Anonymous);
    let mut store = (0..2000).map(|page| living.write(range(page, 1).start(), &[1]) == 1);
    for round in 0..5 {
        let small = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        // Each round leaves one frame more to the living.
        let pages = 20 - round;
        map(&small, pages, RW, Backing::Anonymous);
        let bytes = vec![1; (pages * PAGE_SIZE) as usize];
        assert_eq!(small.write(AT, &bytes), bytes.len());
        if round == 0 {
            assert!(store.by_ref().take_while(|stored| *stored).count() > 500, "the rest is full");
        }
        drop(small);
        assert_eq!(store.next(), Some(true), "round {round}");
    }
}

/// And in the middle of one long copy.
#[test]
fn a_long_write_uses_frames_of_the_dead() {
    let (_host, space) = machine(8 << 20);
    let bytes = vec![1; 1500 * PAGE_SIZE as usize];
    for round in 0..5 {
        map(&space, 1500, RW, Backing::Anonymous);
        assert_eq!(space.write(AT, &bytes), bytes.len(), "round {round}");
        space.clear();
    }
}

/// A processor touches pages all the time while another thread maps, protects and unmaps them: when that thread is done, what is present is what
/// the VMAs say.
#[test]
fn a_change_of_layout_leaves_nothing_behind_that_a_fault_put_there_meanwhile() {
    let (host, space) = machine(16 << 20);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut processor = host.processor(CacheSize::Unbounded);
                processor.activate(&space);
                while !stop.load(Ordering::Relaxed) {
                    match processor.store(AT, &[1]).map_err(|error| error.refusal) {
                        Ok(()) | Err(Refusal::Fault(Fault::NotMapped | Fault::AccessDenied)) => {}
                        Err(refusal) => panic!("{refusal}"),
                    }
                }
            });
        }
        for round in 0..rounds(3_000) {
            map(&space, 4, RW, Backing::Anonymous);
            if round % 2 == 0 {
                space.protect(range(0, 4), VmaFlags::READ).unwrap();
                let translation = host.translate(&space, AT);
                let writable = translation.is_ok_and(|translation| translation.rights.writable);
                if writable {
                    stop.store(true, Ordering::Relaxed);
                    panic!("round {round}: a page is writable after mprotect took that away");
                }
            }
            space.unmap(range(0, 4)).unwrap();
            if host.translate(&space, AT).is_ok() {
                stop.store(true, Ordering::Relaxed);
                panic!("round {round}: a page is present after munmap");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    host.memory().check(&[&space], &[]).unwrap();
}

/// A child is one instant of its parent, whatever writes there: the kernel's copies to user memory end, or begin, at a fork like a program's stores.
#[test]
fn a_kernel_write_does_not_reach_into_a_child() {
    let (_host, space) = machine(16 << 20);
    map(&space, 1, RW, Backing::Anonymous);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut count = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                count += 1;
                space.write(AT, &count.to_le_bytes());
            }
        });
        for round in 0..rounds(5_000) {
            space.set_fork_mode([ForkMode::Full, ForkMode::Leaf, ForkMode::Copy][round as usize % 3]);
            let child = space.fork().unwrap();
            let first = word(&child, AT);
            for _ in 0..50 {
                let again = word(&child, AT);
                if again != first {
                    stop.store(true, Ordering::Relaxed);
                    panic!(
                        "round {round}: a child's memory changes from {first} to {again}, and the child did nothing"
                    );
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Frames that wait for a grace period are counted once.
#[test]
fn frames_are_counted_once() {
    let (host, space) = machine(8 << 20);
    map(&space, 1000, RW, Backing::Anonymous);
    for page in 0..1000 {
        assert_eq!(space.write(range(page, 1).start(), &[1]), 1);
    }
    space.clear();
    let stats = host.memory().stats();
    assert_eq!(stats.free + stats.deferred + stats.data + stats.tables + stats.reserved, stats.total, "{stats:?}");
}

#[test]
fn a_fixed_address_is_checked_before_anything_changes() {
    let (_host, space) = machine(4 << 20);
    map(&space, 1, RW, Backing::Anonymous);
    let request = |at, len| MapRequest {
        placement: Placement::Fixed(VirtAddr(at)),
        len,
        flags: RW,
        backing: Backing::Anonymous,
        page_offset: 0,
    };
    for (at, len) in
        [(1, 1), (0x7fff_ffff_f000, 1), (0x7fff_ffff_e000, PAGE_SIZE + 1), (u64::MAX - 4095, 1), (0x1000, 0)]
    {
        assert_eq!(space.map(request(at, len)), Err(Error::BadRange), "{at:#x} {len:#x}");
    }
    assert_eq!(space.map(request(0x1000, u64::MAX)), Err(Error::NoRoom));
    assert_eq!(space.maps().text().iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(space.map(request(0x7fff_ffff_e000, 1)), Ok(VirtAddr(0x7fff_ffff_e000)), "the highest page");
    assert_eq!(space.write(VirtAddr(0x7fff_ffff_efff), b"xy"), 1);
    assert_eq!(space.map(request(0, 1)), Ok(VirtAddr(0)), "the lowest page");
    assert_eq!(space.write(VirtAddr(0), b"x"), 1);
}

/// Linux's vm.max_map_count: 65,530 areas, one more by mmap as there, and no split beyond.
#[test]
fn the_number_of_areas_is_limited() {
    let (host, space) = machine(8 << 20);
    let before = host.memory().stats();
    let most = foldspace::space::MAX_MAP_COUNT;
    let area = |number: u64| VirtAddr(AT.get() + number * 4 * PAGE_SIZE);
    let request = |number| MapRequest {
        placement: Placement::FixedNoReplace(area(number)),
        len: 3 * PAGE_SIZE,
        flags: RW,
        backing: Backing::Anonymous,
        page_offset: 0,
    };
    for number in 0..=most {
        assert_eq!(space.map(request(number)), Ok(area(number)));
    }
    assert_eq!(space.map(request(most + 1)), Err(Error::TooManyVmas));
    let middle = PageRange::from_len(VirtAddr(area(7).get() + PAGE_SIZE), PAGE_SIZE).unwrap();
    assert_eq!(space.unmap(middle), Err(Error::TooManyVmas));
    assert_eq!(space.protect(middle, VmaFlags::READ), Err(Error::TooManyVmas));
    assert_eq!(space.usage().mapped, 3 * (most + 1));
    let whole = PageRange::from_len(area(9), 3 * PAGE_SIZE).unwrap();
    assert_eq!(space.protect(whole, VmaFlags::READ), Ok(()), "no more areas than before");
    assert_eq!(space.unmap(whole), Ok(()));
    let child = space.fork().unwrap();
    assert_eq!(child.maps().text(), space.maps().text());
    let lines = space.maps().text().split(|byte| *byte == b'\n').count() as u64 - 1;
    assert_eq!(lines, most);
    for number in (0..=most).filter(|number| number % 2 == 0) {
        space.unmap(PageRange::from_len(area(number), 3 * PAGE_SIZE).unwrap()).unwrap();
    }
    assert_eq!(child.usage().mapped, 3 * most, "the child's areas are its own");
    host.memory().check(&[&space, &child], &[]).unwrap();
    drop(child);
    space.clear();
    host.memory().reclaim();
    assert_eq!(host.memory().stats(), before);
}

/// Two areas of one object at unrelated places, in spaces that fork and part: their frames' homes are lists.
#[test]
fn frames_at_unrelated_places_are_found_from_their_homes() {
    let (host, space) = machine(8 << 20);
    let object = Object::anonymous(host.memory(), 8 * PAGE_SIZE).unwrap();
    let place = |space: &AddressSpace, at: u64, offset: u64, flags| {
        space
            .map(MapRequest {
                placement: Placement::Fixed(VirtAddr(at)),
                len: 4 * PAGE_SIZE,
                flags,
                backing: Backing::Object(object.clone()),
                page_offset: offset,
            })
            .unwrap();
        for page in 0..4 {
            let mut seen = [0];
            assert_eq!(space.read(VirtAddr(at + page * PAGE_SIZE), &mut seen), 1);
        }
    };
    let check = |spaces: &[&AddressSpace]| host.memory().check(spaces, &[&object]).unwrap();
    place(&space, 0x4000_0000, 0, RW | VmaFlags::SHARED);
    place(&space, 0x4000_3000, 1, RW);
    check(&[&space]);
    place(&space, 0x7f00_0000_0000, 2, RW | VmaFlags::SHARED);
    let child = space.fork().unwrap();
    check(&[&space, &child]);
    assert_eq!(child.write(VirtAddr(0x4000_0000), b"c"), 1);
    check(&[&space, &child]);
    place(&child, 0x4000_1000, 3, RW | VmaFlags::SHARED);
    check(&[&space, &child]);
    let grandchild = child.fork().unwrap();
    assert_eq!(grandchild.write(VirtAddr(0x7f00_0000_0000), b"g"), 1);
    check(&[&space, &child, &grandchild]);
    drop(space);
    check(&[&child, &grandchild]);
    child.unmap(PageRange::from_len(VirtAddr(0x4000_0000), 16 * PAGE_SIZE).unwrap()).unwrap();
    check(&[&child, &grandchild]);
    drop(child);
    check(&[&grandchild]);
    grandchild.clear();
    check(&[&grandchild]);
    let mut seen = [0];
    assert_eq!(object.read_at(2 * PAGE_SIZE, &mut seen), Ok(1));
    assert_eq!(&seen, b"g");
}

/// A file whose source has content: cut and grown again it reads as zeros there (ftruncate(2)), however little of it was in the cache.
#[test]
fn what_a_file_gains_is_zero() {
    struct Ones;
    impl foldspace::backing::Source for Ones {
        fn fill(&self, _index: u64, page: &mut [u8]) -> foldspace::Result<()> {
            page.fill(1);
            Ok(())
        }
        fn identity(&self) -> foldspace::backing::Identity {
            Default::default()
        }
        fn path(&self, _out: &mut Vec<u8>) {}
    }
    let (host, _space) = machine(4 << 20);
    let file = Object::new(host.memory(), Box::new(Ones), 3 * PAGE_SIZE).unwrap();
    file.set_len(PAGE_SIZE / 2).unwrap();
    assert_eq!(file.write_at(2 * PAGE_SIZE, b"end"), Ok(3));
    let mut seen = vec![9; 3 * PAGE_SIZE as usize];
    assert_eq!(file.read_at(0, &mut seen), Ok(2 * PAGE_SIZE as usize + 3));
    let half = PAGE_SIZE as usize / 2;
    assert!(seen[..half].iter().all(|byte| *byte == 1));
    assert!(seen[half..2 * PAGE_SIZE as usize].iter().all(|byte| *byte == 0), "the gap is not zero");
    file.set_len(0).unwrap();
    file.set_len(3 * PAGE_SIZE).unwrap();
    assert_eq!(file.read_at(0, &mut seen), Ok(seen.len()));
    assert!(seen.iter().all(|byte| *byte == 0), "content came back from the dead");
}

/// The last mapping of shared memory goes, and with it the memory: its frames are free for who needs one at once, when there is no other.
#[test]
fn memory_of_an_unmapped_object_serves_the_next_fault() {
    let (host, space) = machine(4 << 20);
    // Keeps the table, so that nothing but the object's frames is given back.
    map(&space, 100, RW, Backing::Anonymous);
    assert_eq!(space.write(range(99, 1).start(), &[1]), 1);
    let other = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&other, 2000, RW, Backing::Anonymous);
    let mut store = (0..2000).map(|page| other.write(range(page, 1).start(), &[1]) == 1);
    for round in 0..5 {
        let object = Object::anonymous(host.memory(), 16 * PAGE_SIZE).unwrap();
        map(&space, 16, RW | VmaFlags::SHARED, Backing::Object(object));
        let stored = (0..16).take_while(|page| space.write(range(*page, 1).start(), &[1]) == 1).count();
        assert!(stored > 3, "round {round}");
        if round == 0 {
            assert!(store.by_ref().take_while(|stored| *stored).count() > 500, "the rest is full");
        }
        space.unmap(range(0, 16)).unwrap();
        assert_eq!(store.next(), Some(true), "round {round}: {:?}", host.memory().stats());
    }
}
