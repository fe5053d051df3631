//! Guards: pages that nobody may access, whatever their VMA says.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crossbeam_epoch::Guard;
use foldspace::addr::PAGE_SIZE;
use foldspace::backing::Reference;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::space::{
    Access, Destination, Fault, ForkMode, Leave, MapRequest, Placement, PopulateError, RemapRequest,
};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, HostPlatform, Layouts, Processor, Refusal};

use crate::threads::rounds;

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
const RWX: VmaFlags = RW.union(VmaFlags::EXEC);
/// A table of level 2 begins here.
const AT: VirtAddr = VirtAddr(0x4000_0000);
const MODES: [ForkMode; 3] = [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy];

fn machine() -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    (host, space, processor)
}

fn map(space: &AddressSpace, from: u64, count: u64, flags: VmaFlags, backing: Backing) {
    let (placement, len) = (Placement::Fixed(page(from)), count * PAGE_SIZE);
    space.map(MapRequest { placement, len, flags, backing, page_offset: 0 }).unwrap();
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE_SIZE)
}

fn pages(from: u64, count: u64) -> PageRange {
    PageRange::from_len(page(from), count * PAGE_SIZE).unwrap()
}

/// The first byte of a page, or why there is none.
fn load(processor: &mut Processor, number: u64) -> Result<u8, Fault> {
    let mut byte = [0];
    outcome(processor.load(page(number), &mut byte))?;
    Ok(byte[0])
}

fn store(processor: &mut Processor, number: u64, byte: u8) -> Result<(), Fault> {
    outcome(processor.store(page(number), &[byte]))
}

fn outcome(outcome: Result<(), foldspace_hosted::AccessError>) -> Result<(), Fault> {
    outcome.map_err(|error| match error.refusal {
        Refusal::Fault(fault) => fault,
        other => panic!("{other}"),
    })
}

#[test]
fn nobody_gets_past_a_guard_until_it_is_removed() {
    let (host, space, mut processor) = machine();
    let object = Object::anonymous(host.memory(), 4 * PAGE_SIZE).unwrap();
    object.write_at(0, &[3; 4 * PAGE_SIZE as usize]).unwrap();
    let reference = Reference::new(host.memory(), &[4]).unwrap();
    // What a page shows when it was stored to and is new again.
    let kinds = [
        (Backing::Anonymous, RWX, 0),
        (Backing::Reference(reference), RWX, 4),
        (Backing::Object(object.clone()), RWX, 3),
        (Backing::Object(object), RWX | VmaFlags::SHARED, 9),
    ];
    for (backing, flags, fresh) in kinds {
        let what = format!("{backing:?}, {flags:?}");
        map(&space, 0, 4, flags, backing);
        for number in 0..4 {
            store(&mut processor, number, 9).unwrap();
        }
        space.guard_install(pages(1, 2)).unwrap();
        for number in [1, 2] {
            assert!(space.is_guarded(page(number)));
            assert_eq!(load(&mut processor, number), Err(Fault::NotMapped), "{what}");
            assert_eq!(store(&mut processor, number, 1), Err(Fault::NotMapped), "{what}");
            assert_eq!(outcome(processor.fetch(page(number), &mut [0])), Err(Fault::NotMapped), "{what}");
            assert_eq!(space.write_forced(page(number), b"x"), 0, "{what}");
            assert_eq!(space.fault(page(number), Access::Read), Err(Fault::NotMapped));
        }
        let mut bytes = vec![0; 4 * PAGE_SIZE as usize];
        assert_eq!(space.read(page(0), &mut bytes), PAGE_SIZE as usize, "{what}: up to the guard");
        assert_eq!(space.write(page(0), &bytes), PAGE_SIZE as usize, "{what}: up to the guard");
        assert_eq!(space.reference_at(page(1)).err(), Some(Error::NotMapped));
        assert_eq!(load(&mut processor, 3), Ok(9));
        host.memory().check(&[&space], &[]).unwrap();
        space.guard_remove(pages(2, 2)).unwrap();
        assert_eq!(load(&mut processor, 1), Err(Fault::NotMapped), "{what}");
        assert_eq!(load(&mut processor, 2), Ok(fresh), "{what}");
        assert_eq!(load(&mut processor, 3), Ok(9), "{what}");
        store(&mut processor, 2, 5).unwrap();
        host.memory().check(&[&space], &[]).unwrap();
    }
}

#[test]
fn a_guard_over_an_area_that_allows_nothing_shows_when_it_does() {
    let (_host, space, mut processor) = machine();
    map(&space, 0, 4, MAY, Backing::Anonymous);
    space.guard_install(pages(1, 1)).unwrap();
    assert_eq!(load(&mut processor, 1), Err(Fault::AccessDenied), "the VMA is asked first");
    space.protect(pages(0, 4), VmaFlags::READ).unwrap();
    assert_eq!((load(&mut processor, 0), load(&mut processor, 1)), (Ok(0), Err(Fault::NotMapped)));
    assert_eq!(store(&mut processor, 1, 1), Err(Fault::AccessDenied));
}

#[test]
fn a_guard_past_the_end_of_an_object_comes_first() {
    let (host, space, mut processor) = machine();
    let object = Object::anonymous(host.memory(), PAGE_SIZE).unwrap();
    map(&space, 0, 4, RW | VmaFlags::SHARED, Backing::Object(object.clone()));
    map(&space, 4, 4, RW, Backing::Object(object));
    for number in [2, 6] {
        space.guard_install(pages(number, 1)).unwrap();
        for past in [number + 1, number] {
            let expected = if past == number { Fault::NotMapped } else { Fault::PastEnd };
            assert_eq!(load(&mut processor, past), Err(expected));
            assert_eq!(store(&mut processor, past, 1), Err(expected));
        }
    }
}

#[test]
fn the_errors_are_linuxs() {
    let (_host, space, mut processor) = machine();
    map(&space, 0, 2, RW, Backing::Anonymous);
    map(&space, 3, 2, RW, Backing::Anonymous);
    // Holes: the rest is done.
    assert_eq!(space.guard_install(pages(0, 6)), Err(Error::NotMapped));
    assert!([0, 1, 3, 4].into_iter().all(|number| space.is_guarded(page(number))));
    assert!(!space.is_guarded(page(2)));
    assert_eq!(space.guard_remove(pages(1, 6)), Err(Error::NotMapped));
    assert!(space.is_guarded(page(0)) && !space.is_guarded(page(4)));
    assert_eq!(space.guard_install(pages(2, 1)), Err(Error::NotMapped));
    // Locked: what comes before is done, what comes after is not. Removing is allowed.
    map(&space, 10, 2, RW, Backing::Anonymous);
    map(&space, 12, 2, RW | VmaFlags::LOCKED, Backing::Anonymous);
    map(&space, 14, 2, RW, Backing::Anonymous);
    assert_eq!(space.guard_install(pages(10, 6)), Err(Error::WrongKind));
    assert!(space.is_guarded(page(11)) && !space.is_guarded(page(12)) && !space.is_guarded(page(14)));
    assert_eq!(space.guard_remove(pages(10, 6)), Ok(()));
    // Sealed: only what could be stored to anyway.
    map(&space, 20, 1, RW | VmaFlags::SEALED, Backing::Anonymous);
    map(&space, 21, 1, VmaFlags::READ | MAY | VmaFlags::SEALED, Backing::Anonymous);
    assert_eq!(space.guard_install(pages(20, 2)), Err(Error::Sealed));
    assert!(space.is_guarded(page(20)) && !space.is_guarded(page(21)));
    assert_eq!(space.guard_remove(pages(20, 2)), Ok(()));
    assert_eq!(load(&mut processor, 20), Ok(0));
}

/// Ranges from one page to more than a table of level 2, in a space alone and in one that shares its tables.
#[test]
fn guards_stay_when_memory_is_discarded_and_go_when_it_is_unmapped() {
    const GIB: u64 = 1 << 18;
    for mode in MODES {
        for shared in [false, true] {
            let (host, space, mut processor) = machine();
            map(&space, 0, GIB + 1024, RW, Backing::Anonymous);
            for number in [0, 1, 511, 512, 1000, GIB - 1, GIB, GIB + 600] {
                store(&mut processor, number, 7).unwrap();
            }
            let guarded = [1, 511, 600, 5000, GIB, GIB + 1023];
            for number in guarded {
                space.guard_install(pages(number, 1)).unwrap();
            }
            space.set_fork_mode(mode);
            let child = shared.then(|| space.fork().unwrap());
            let everybody: Vec<&AddressSpace> =
                [Some(&space), child.as_ref()].into_iter().flatten().map(|s| &**s).collect();
            space.discard(pages(0, GIB + 1024)).unwrap();
            host.memory().check(&everybody, &[]).unwrap();
            for number in [0, 1, 511, 512, 600, 1000, 5000, GIB - 1, GIB, GIB + 600, GIB + 1023] {
                let expected = if guarded.contains(&number) { Err(Fault::NotMapped) } else { Ok(0) };
                assert_eq!(load(&mut processor, number), expected, "page {number}, {mode:?}");
            }
            assert_eq!(space.usage().resident_anon, 0);
            if let Some(child) = &child {
                processor.activate(child);
                assert_eq!((load(&mut processor, 512), load(&mut processor, 511)), (Ok(7), Err(Fault::NotMapped)));
                child.guard_remove(pages(0, GIB)).unwrap();
                assert_eq!((load(&mut processor, 511), load(&mut processor, GIB)), (Ok(0), Err(Fault::NotMapped)));
                processor.activate(&space);
                assert_eq!(load(&mut processor, 511), Err(Fault::NotMapped), "the child's are its own");
            }
            space.unmap(pages(600, GIB)).unwrap();
            map(&space, 600, GIB, RW, Backing::Anonymous);
            assert_eq!((load(&mut processor, 600), load(&mut processor, GIB)), (Ok(0), Ok(0)));
            assert_eq!(load(&mut processor, 511), Err(Fault::NotMapped));
            map(&space, 511, 1, RW, Backing::Anonymous);
            assert_eq!(load(&mut processor, 511), Ok(0), "mapped over");
            host.memory().check(&everybody, &[]).unwrap();
        }
    }
}

#[test]
fn a_child_inherits_guards_unless_its_memory_is_wiped() {
    for mode in MODES {
        let (host, space, mut processor) = machine();
        map(&space, 0, 600, RW, Backing::Anonymous);
        map(&space, 600, 600, RW | VmaFlags::WIPE_ON_FORK, Backing::Anonymous);
        for number in [3, 700] {
            space.guard_install(pages(number, 1)).unwrap();
        }
        space.set_fork_mode(mode);
        let child = space.fork().unwrap();
        processor.activate(&child);
        assert_eq!((load(&mut processor, 3), load(&mut processor, 700)), (Err(Fault::NotMapped), Ok(0)), "{mode:?}");
        // What is discarded in a grandchild, which has never put one.
        let grandchild = child.fork().unwrap();
        grandchild.discard(pages(0, 1024)).unwrap();
        processor.activate(&grandchild);
        assert_eq!(load(&mut processor, 3), Err(Fault::NotMapped), "{mode:?}");
        processor.activate(&space);
        assert_eq!(load(&mut processor, 700), Err(Fault::NotMapped), "{mode:?}");
        host.memory().check(&[&space, &child, &grandchild], &[]).unwrap();
    }
}

#[test]
fn pagemap_shows_guards() {
    let (_host, space, mut processor) = machine();
    map(&space, 0, 3, RW, Backing::Anonymous);
    store(&mut processor, 1, 1).unwrap();
    space.guard_install(pages(1, 1)).unwrap();
    let mut entries = [PagemapEntry::default(); 3];
    space.pagemap(pages(0, 3), FrameNumbers::Hidden, &mut entries).unwrap();
    assert_eq!(entries.map(|entry| entry.0), [0, 1 << 62 | 1 << 58, 0]);
    // As Linux 6.18 shows it to root.
    space.pagemap(pages(0, 3), FrameNumbers::Shown, &mut entries).unwrap();
    assert_eq!(entries[1].0, 0x4400_0000_0000_009f);
    let mut resident = [9; 3];
    assert_eq!((space.mincore(pages(0, 3), &mut resident), resident), (Ok(3), [0; 3]));
    let populated = space.populate(pages(0, 3), Access::Write, &mut || false);
    assert_eq!(populated, Err(PopulateError::Faulted(Fault::NotMapped)));
    assert_eq!(space.usage().resident_anon, 1, "up to the guard");
}

#[test]
fn guards_move_with_their_memory() {
    // Whole tables and single entries; alone, and with tables that a relative shares.
    for (from, to, len) in [(0, 2048, 1024), (100, 2048, 700), (511, 3000, 2), (3, 5000, 1)] {
        for shared in [false, true] {
            for leave in [Leave::Hole, Leave::Area] {
                let (host, space, mut processor) = machine();
                map(&space, 0, 1100, RW, Backing::Anonymous);
                store(&mut processor, from, 7).unwrap();
                let guarded = [from, from + len - 1];
                for number in guarded {
                    space.guard_install(pages(number, 1)).unwrap();
                }
                let child = shared.then(|| space.fork().unwrap());
                let len_bytes = len * PAGE_SIZE;
                let request = RemapRequest {
                    start: page(from),
                    len: len_bytes,
                    new_len: len_bytes,
                    to: Destination::Fixed(page(to)),
                    leave,
                };
                assert_eq!(space.remap(request), Ok(page(to)));
                for number in guarded {
                    let left = if leave == Leave::Area { Ok(0) } else { Err(Fault::NotMapped) };
                    assert_eq!(load(&mut processor, number - from + to), Err(Fault::NotMapped));
                    assert!(space.is_guarded(page(number - from + to)) && !space.is_guarded(page(number)));
                    assert_eq!(load(&mut processor, number), left);
                }
                space.discard(pages(to, len)).unwrap();
                assert!(space.is_guarded(page(to)) && space.is_guarded(page(to + len - 1)));
                if let Some(child) = &child {
                    assert!(child.is_guarded(page(from)) && child.is_guarded(page(from + len - 1)));
                }
                let everybody: Vec<&AddressSpace> =
                    [Some(&space), child.as_ref()].into_iter().flatten().map(|space| &**space).collect();
                host.memory().check(&everybody, &[]).unwrap();
            }
        }
    }
}

/// A thread stack's guard costs no VMA, no page, and no table that the stack does not need anyway.
#[test]
fn a_guard_costs_an_entry() {
    let (host, space, mut processor) = machine();
    map(&space, 0, 512, RW, Backing::Anonymous);
    store(&mut processor, 511, 1).unwrap();
    let before = host.memory().stats();
    let lines = space.maps().text();
    space.guard_install(pages(0, 1)).unwrap();
    assert_eq!((host.memory().stats(), space.maps().text()), (before, lines));
    assert_eq!(space.usage().resident_anon, 1);
}

type Callback = Box<dyn FnOnce() + Send>;
type KindOfMemory = fn(&Host) -> (Backing, VmaFlags);

/// Calls back once, where a frame is about to be allocated.
struct Stopping {
    inner: HostPlatform,
    callback: Arc<Mutex<Option<Callback>>>,
}

// SAFETY: nothing is different but what happens before an allocation.
unsafe impl Platform for Stopping {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.inner.shootdown(space, flush);
    }
    fn pin(&self) -> Guard {
        self.inner.pin()
    }
    fn processor(&self) -> usize {
        let callback = self.callback.lock().unwrap().take();
        if let Some(callback) = callback {
            callback();
        }
        self.inner.processor()
    }
}

/// A store that has looked at the place, and has not locked it yet, finds the guard that comes in between.
#[test]
fn a_guard_is_not_replaced_by_a_store_that_came_before() {
    let kinds: [KindOfMemory; 4] = [
        |_| (Backing::Anonymous, RW),
        |host| (Backing::Reference(Reference::new(host.memory(), &[3]).unwrap()), RW),
        |host| {
            let object = Object::anonymous(host.memory(), 8 * PAGE_SIZE).unwrap();
            // Its page is there: the only frame that the store needs is the copy.
            object.write_at(0, &[5; 8 * PAGE_SIZE as usize]).unwrap();
            (Backing::Object(object), RW)
        },
        |host| (Backing::Object(Object::anonymous(host.memory(), 8 * PAGE_SIZE).unwrap()), RW | VmaFlags::SHARED),
    ];
    for kind in kinds {
        let callback: Arc<Mutex<Option<Callback>>> = Arc::default();
        let kept = callback.clone();
        let host = Host::with_platform(8 << 20, |inner| Box::new(Stopping { inner, callback: kept })).unwrap();
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let mut processor = host.processor(CacheSize::Unbounded);
        processor.activate(&space);
        let (backing, flags) = kind(&host);
        let what = format!("{backing:?}, {flags:?}");
        map(&space, 0, 8, flags, backing);
        // The last-level table is there.
        store(&mut processor, 7, 1).unwrap();
        let guarded = space.clone();
        *callback.lock().unwrap() = Some(Box::new(move || guarded.guard_install(pages(1, 2)).unwrap()));
        assert_eq!(store(&mut processor, 1, 1), Err(Fault::NotMapped), "{what}");
        assert!(callback.lock().unwrap().is_none(), "{what}: it was called");
        assert!(space.is_guarded(page(1)) && space.is_guarded(page(2)), "{what}");
        host.memory().check(&[&space], &[]).unwrap();
    }
}

/// Several processors store all the time where guards come and go: none that begins while there is a guard succeeds.
#[test]
fn a_guard_holds_on_all_processors() {
    let anonymous = |_: &Host| (Backing::Anonymous, RW);
    holds_on_all_processors(anonymous);
    holds_on_all_processors(|host| (Backing::Reference(Reference::new(host.memory(), &[3]).unwrap()), RW));
    for sharing in [VmaFlags::empty(), VmaFlags::SHARED] {
        let object = |host: &Host| Backing::Object(Object::anonymous(host.memory(), 1024 * PAGE_SIZE).unwrap());
        holds_on_all_processors(|host| (object(host), RW | sharing));
    }
}

fn holds_on_all_processors(backing: impl Fn(&Host) -> (Backing, VmaFlags)) {
    let (host, space, _) = machine();
    let (backing, flags) = backing(&host);
    map(&space, 0, 1024, flags, backing);
    let stop = AtomicBool::new(false);
    let counters: Vec<_> = (0..3).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
    let mut outcomes = BTreeSet::new();
    thread::scope(|scope| {
        let (stop, host, space) = (&stop, &host, &space);
        for (begun, succeeded) in &counters {
            scope.spawn(move || {
                let mut processor = host.processor(CacheSize::Unbounded);
                processor.activate(space);
                let mut number = 0;
                while !stop.load(Ordering::SeqCst) {
                    number += 1;
                    begun.store(number, Ordering::SeqCst);
                    if store(&mut processor, 510 + number % 4, 1).is_ok() {
                        succeeded.store(number, Ordering::SeqCst);
                    }
                    if number % 32 == 0 {
                        // Who shoots down wants our caches' lock.
                        thread::yield_now();
                    }
                }
            });
        }
        for round in 0..rounds(200) {
            // Over two tables; now and then with a relative that shares them.
            let child = (round % 8 == 0).then(|| space.fork().unwrap());
            space.guard_install(pages(508, 8)).unwrap();
            let at: Vec<u64> = counters.iter().map(|(begun, _)| begun.load(Ordering::SeqCst)).collect();
            if round % 3 == 0 {
                space.discard(pages(0, 1024)).unwrap();
            }
            let mut patience = 0;
            while counters.iter().zip(&at).any(|((begun, _), at)| begun.load(Ordering::SeqCst) < at + 3)
                && patience < 1_000_000
            {
                patience += 1;
                thread::yield_now();
            }
            for ((_, succeeded), at) in counters.iter().zip(&at) {
                assert!(succeeded.load(Ordering::SeqCst) <= *at, "round {round}: a store got through");
                outcomes.insert(succeeded.load(Ordering::SeqCst) + 1 >= *at);
            }
            space.guard_remove(pages(508, 8)).unwrap();
            drop(child);
            thread::yield_now();
        }
        stop.store(true, Ordering::SeqCst);
    });
    assert!(outcomes.contains(&true), "stores got through between the guards");
    host.memory().check(&[space.as_ref()], &[]).unwrap();
}

/// A program may reserve more addresses than there is memory for tables of guards: it is told so at once.
#[test]
fn guards_that_need_more_tables_than_there_are_frames_take_none() {
    let (host, space, _) = machine();
    map(&space, 0, 4 << 20, MAY, Backing::Anonymous);
    host.memory().fail_after(Some(1));
    assert_eq!(space.guard_install(pages(0, 4 << 20)), Err(Error::OutOfMemory));
    let other = AddressSpace::new(host.memory(), Layouts::process());
    host.memory().fail_after(None);
    let other = other.expect("the one frame that there was is there still");
    assert_eq!(space.guard_install(pages(1 << 20, 1024)), Ok(()));
    assert!(!space.is_guarded(page(0)) && space.is_guarded(page(1 << 20)));
    host.memory().check(&[&space, &other], &[]).unwrap();
}
