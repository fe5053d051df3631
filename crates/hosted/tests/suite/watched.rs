//! Memory whose faults somebody else answers.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{
    Absent, Access, Destination, Fault, Fill, ForkMode, Leave, MapRequest, Placement, Protection, RemapRequest, Shift,
    Watched,
};
use foldspace::vma::{Backing, Vma, VmaFlags, Watcher};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor, Refusal};

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
const AT: VirtAddr = VirtAddr(0x4000_0000);
/// More than one table's worth.
const PAGES: u64 = 1024;
const WATCHER: Watcher = Watcher(7);
const MODES: [ForkMode; 3] = [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy];

fn machine(backing: impl FnOnce(&Host) -> (VmaFlags, Backing)) -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (flags, backing) = backing(&host);
    let placement = Placement::Fixed(AT);
    space.map(MapRequest { placement, len: PAGES * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    (host, space, processor)
}

fn anonymous(_: &Host) -> (VmaFlags, Backing) {
    (RW, Backing::Anonymous)
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE_SIZE)
}

fn pages(from: u64, count: u64) -> PageRange {
    PageRange::from_len(page(from), count * PAGE_SIZE).unwrap()
}

fn watch(space: &AddressSpace, range: PageRange, kinds: VmaFlags) -> Result<(), Error> {
    space.watch(range, WATCHER, kinds, |_: &Vma| true)
}

fn watched(kind: Watched) -> Result<(), Fault> {
    Err(Fault::Watched { watcher: WATCHER, kind })
}

fn refusal(result: Result<(), foldspace_hosted::AccessError>) -> Option<Refusal> {
    result.err().map(|error| error.refusal)
}

const BYTES: [u8; PAGE_SIZE as usize] = [9; PAGE_SIZE as usize];

#[test]
fn missing_pages_wait_until_they_are_filled() {
    let (host, space, mut processor) = machine(anonymous);
    // Read before: zeros that nobody stored are missing again; stored to before: still there.
    processor.load(page(3), &mut [0]).unwrap();
    processor.store(page(4), b"x").unwrap();
    watch(&space, pages(0, 600), VmaFlags::WATCH_MISSING).unwrap();
    let missing = Some(Refusal::Fault(Fault::Watched { watcher: WATCHER, kind: Watched::Missing }));
    assert_eq!(refusal(processor.load(page(3), &mut [0])), missing);
    assert_eq!(refusal(processor.store(page(599), b"y")), missing);
    assert_eq!(refusal(processor.load(page(4), &mut [0])), None);
    assert_eq!(refusal(processor.store(page(600), b"y")), None);
    assert_eq!(space.read(page(3), &mut [0]), 0);

    space.fill(page(3), Fill::Bytes(&BYTES), Protection::None).unwrap();
    space.fill(page(5), Fill::Zeros, Protection::None).unwrap();
    let mut seen = [0];
    processor.load(page(3), &mut seen).unwrap();
    assert_eq!(seen, [9]);
    processor.load(page(5), &mut seen).unwrap();
    assert_eq!(seen, [0]);
    processor.store(page(5), b"z").unwrap();
    for (number, error) in [(3, Error::AlreadyMapped), (4, Error::AlreadyMapped), (700, Error::NotMapped)] {
        assert_eq!(space.fill(page(number), Fill::Bytes(&BYTES), Protection::None), Err(error), "page {number}");
    }
    assert_eq!(space.fill(page(9), Fill::Zeros, Protection::WriteProtected), Err(Error::WrongKind));
    // Watched again, what was filled stays, zeros too; protected, zeros stay as well.
    space.fill(page(6), Fill::Zeros, Protection::None).unwrap();
    watch(&space, pages(0, 600), VmaFlags::WATCH_MISSING).unwrap();
    space.protect(pages(0, 600), VmaFlags::READ).unwrap();
    space.protect(pages(0, 600), VmaFlags::READ | VmaFlags::WRITE).unwrap();
    assert_eq!(space.fault(page(6), Access::Write), Ok(()));
    space.discard(pages(3, 1)).unwrap();
    assert_eq!(space.fault(page(3), Access::Read), watched(Watched::Missing));
    host.memory().check(&[&space], &[]).unwrap();

    space.unwatch(pages(0, PAGES), WATCHER).unwrap();
    assert_eq!(space.vmas().view().iter().count(), 1);
    assert_eq!(space.fault(page(3), Access::Read), Ok(()));
}

#[test]
fn a_child_is_not_watched() {
    for mode in MODES {
        let (host, space, _processor) = machine(anonymous);
        space.set_fork_mode(mode);
        watch(&space, pages(0, PAGES), VmaFlags::WATCH_MISSING | VmaFlags::WATCH_WRITES).unwrap();
        space.fill(page(1), Fill::Bytes(&BYTES), Protection::WriteProtected).unwrap();
        let child = space.fork().unwrap();
        assert_eq!(child.write(page(1), b"child"), 5, "{mode:?}");
        assert_eq!(child.write(page(2), b"child"), 5, "{mode:?}");
        assert_eq!(space.fault(page(1), Access::Write), watched(Watched::WriteProtected), "{mode:?}");
        assert_eq!(space.fault(page(2), Access::Write), watched(Watched::Missing), "{mode:?}");
        space.protect_watched(pages(1, 1), Protection::None).unwrap();
        assert_eq!(space.write(page(1), b"parent"), 6);
        let mut seen = [0; 5];
        assert_eq!(child.read(page(1), &mut seen), 5);
        assert_eq!(&seen, b"child");
        host.memory().check(&[&space, &child], &[]).unwrap();
    }
}

#[test]
fn stores_to_protected_pages_are_watched_and_loads_are_not() {
    let (host, space, mut processor) = machine(anonymous);
    for number in 0..20 {
        processor.store(page(number), &[number as u8]).unwrap();
    }
    assert_eq!(space.protect_watched(pages(0, 20), Protection::WriteProtected), Err(Error::NotMapped));
    watch(&space, pages(0, PAGES), VmaFlags::WATCH_WRITES).unwrap();
    space.protect_watched(pages(0, 10), Protection::WriteProtected).unwrap();
    let protected = Some(Refusal::Fault(Fault::Watched { watcher: WATCHER, kind: Watched::WriteProtected }));
    for number in 0..20 {
        let mut seen = [0];
        processor.load(page(number), &mut seen).unwrap();
        assert_eq!(seen, [number as u8]);
        // The processor remembers no translation that lets it store.
        let expected = if number < 10 { protected } else { None };
        assert_eq!(refusal(processor.store(page(number), b"x")), expected, "page {number}");
    }
    // What mprotect gives back is not more than there was.
    space.protect(pages(0, 20), VmaFlags::READ).unwrap();
    space.protect(pages(0, 20), VmaFlags::READ | VmaFlags::WRITE).unwrap();
    assert_eq!(refusal(processor.store(page(2), b"x")), protected);
    space.protect_watched(pages(2, 1), Protection::None).unwrap();
    assert_eq!(refusal(processor.store(page(2), b"x")), None);
    host.memory().check(&[&space], &[]).unwrap();
    // Nobody watches: marks mean nothing, not even to who watches later.
    space.unwatch(pages(0, PAGES), WATCHER).unwrap();
    assert_eq!(refusal(processor.store(page(3), b"x")), None);
    watch(&space, pages(0, PAGES), VmaFlags::WATCH_WRITES).unwrap();
    assert_eq!(refusal(processor.store(page(4), b"x")), None);
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn pages_that_the_object_has_can_be_watched_too() {
    let mut object = None;
    let (host, space, _processor) = machine(|host| {
        let made = Object::anonymous(host.memory(), PAGES * PAGE_SIZE).unwrap();
        object = Some(made.clone());
        (RW | VmaFlags::SHARED, Backing::Object(made))
    });
    let object = object.unwrap();
    watch(&space, pages(0, PAGES), VmaFlags::WATCH_MISSING | VmaFlags::WATCH_UNMAPPED).unwrap();
    object.write_at(2 * PAGE_SIZE, b"there").unwrap();
    assert_eq!(space.fault(page(1), Access::Read), watched(Watched::Missing));
    assert_eq!(space.fault(page(2), Access::Read), watched(Watched::Unmapped));
    assert_eq!(space.show(page(1)), Err(Error::BadRange));
    space.show(page(2)).unwrap();
    assert_eq!(space.show(page(2)), Err(Error::AlreadyMapped));
    assert_eq!(space.fill(page(2), Fill::Bytes(&BYTES), Protection::None), Err(Error::AlreadyMapped));
    space.fill(page(1), Fill::Bytes(&BYTES), Protection::None).unwrap();
    let mut seen = [0; 5];
    assert_eq!(object.read_at(PAGE_SIZE, &mut seen), Ok(5));
    assert_eq!(seen, [9; 5]);
    assert_eq!(space.write(page(2), b"THERE"), 5);
    assert_eq!(object.read_at(2 * PAGE_SIZE, &mut seen), Ok(5));
    assert_eq!(&seen, b"THERE");
    host.memory().check(&[&space], &[&object]).unwrap();
}

#[test]
fn refused_is_what_does_not_suit_and_what_somebody_else_watches() {
    let (host, space, _processor) = machine(anonymous);
    watch(&space, pages(0, 4), VmaFlags::WATCH_MISSING).unwrap();
    let other = |range, suits: bool| space.watch(range, Watcher(8), VmaFlags::WATCH_MISSING, |_: &Vma| suits);
    assert_eq!(other(pages(3, 2), true), Err(Error::AlreadyMapped));
    assert_eq!(other(pages(4, 2), false), Err(Error::WrongKind));
    assert_eq!(other(pages(PAGES, 2), true), Err(Error::NotMapped));
    other(pages(4, 2), true).unwrap();
    // Two watchers' areas are two; the end of one is not that of the other.
    assert_eq!(space.vmas().view().iter().count(), 3);
    space.unwatch(pages(0, PAGES), WATCHER).unwrap();
    assert_eq!(space.fault(page(0), Access::Read), Ok(()));
    assert!(matches!(space.fault(page(4), Access::Read), Err(Fault::Watched { watcher: Watcher(8), .. })));
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn an_heir_watches_the_child() {
    const HEIR: Watcher = Watcher(8);
    for mode in MODES {
        let (host, space, _processor) = machine(anonymous);
        space.set_fork_mode(mode);
        watch(&space, pages(0, 8), VmaFlags::WATCH_MISSING | VmaFlags::WATCH_WRITES).unwrap();
        space.fill(page(1), Fill::Bytes(&BYTES), Protection::WriteProtected).unwrap();
        let child = space.fork_watched(&|watcher| if watcher == WATCHER { HEIR } else { Watcher::NOBODY }).unwrap();
        let inherited = |kind| Err(Fault::Watched { watcher: HEIR, kind });
        assert_eq!(child.fault(page(1), Access::Write), inherited(Watched::WriteProtected), "{mode:?}");
        assert_eq!(child.fault(page(2), Access::Read), inherited(Watched::Missing), "{mode:?}");
        assert_eq!(space.fault(page(2), Access::Read), watched(Watched::Missing), "{mode:?}");
        child.fill(page(2), Fill::Bytes(&BYTES), Protection::None).unwrap();
        assert_eq!(space.fault(page(2), Access::Read), watched(Watched::Missing), "{mode:?}");
        host.memory().check(&[&space, &child], &[]).unwrap();
    }
}

#[test]
fn it_is_watched_where_it_moves_to_if_that_is_wanted() {
    for (follows, result) in [(VmaFlags::empty(), Ok(())), (VmaFlags::WATCH_FOLLOWS, watched(Watched::Missing))] {
        let (host, space, _processor) = machine(anonymous);
        watch(&space, pages(0, 8), VmaFlags::WATCH_MISSING | follows).unwrap();
        let len = 8 * PAGE_SIZE;
        let to = Destination::Fixed(page(2 * PAGES));
        space.remap(RemapRequest { start: page(0), len, new_len: len, to, leave: Leave::Hole }).unwrap();
        assert_eq!(space.fault(page(2 * PAGES), Access::Read), result);
        host.memory().check(&[&space], &[]).unwrap();
    }
}

#[test]
fn poison_is_there_until_it_is_discarded() {
    let (host, space, mut processor) = machine(anonymous);
    watch(&space, pages(0, 8), VmaFlags::WATCH_MISSING).unwrap();
    space.fill(page(1), Fill::Poison, Protection::None).unwrap();
    assert_eq!(refusal(processor.load(page(1), &mut [0])), Some(Refusal::Fault(Fault::Poisoned)));
    for fill in [Fill::Poison, Fill::Zeros] {
        assert_eq!(space.fill(page(1), fill, Protection::None), Err(Error::AlreadyMapped));
    }
    let child = space.fork().unwrap();
    assert_eq!(child.fault(page(1), Access::Read), Err(Fault::Poisoned));
    space.fill(page(1), Fill::Bytes(&BYTES), Protection::None).unwrap();
    processor.load(page(1), &mut [0]).unwrap();
    child.discard(pages(1, 1)).unwrap();
    assert_eq!(child.fault(page(1), Access::Read), Ok(()));
    host.memory().check(&[&space, &child], &[]).unwrap();
}

#[test]
fn holes_are_protected_and_read_as_zeros() {
    let (host, space, mut processor) = machine(anonymous);
    // A whole table of zeros, and a page.
    processor.load(page(700), &mut [0]).unwrap();
    processor.store(page(3), b"x").unwrap();
    watch(&space, pages(0, PAGES), VmaFlags::WATCH_WRITES).unwrap();
    space.protect_watched(pages(0, PAGES), Protection::HolesToo).unwrap();
    for number in [0, 3, 700, PAGES - 1] {
        processor.load(page(number), &mut [0]).unwrap();
        assert_eq!(space.fault(page(number), Access::Write), watched(Watched::WriteProtected), "page {number}");
        space.protect_watched(pages(number, 1), Protection::None).unwrap();
        processor.store(page(number), b"y").unwrap();
    }
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn single_pages_move_to_where_they_are_missing() {
    let (host, space, mut processor) = machine(anonymous);
    for number in 0..4 {
        processor.store(page(number), &[number as u8 + 1]).unwrap();
    }
    processor.load(page(100), &mut [0]).unwrap();
    // The target is a VMA of its own, in another table.
    watch(&space, pages(600, 100), VmaFlags::WATCH_MISSING).unwrap();
    let shift = |from, to, absent| Shift { from: pages(from, 4), to: pages(to, 4), watcher: WATCHER, absent };
    let whole = shift(0, 600, Absent::Refuse);
    space.shift_page(&whole, 0).unwrap();
    let mut seen = [0];
    processor.load(page(600), &mut seen).unwrap();
    assert_eq!(seen, [1]);
    processor.load(page(0), &mut seen).unwrap();
    assert_eq!(seen, [0]);
    processor.store(page(600), b"z").unwrap();
    assert_eq!(space.shift_page(&whole, 0), Err(Error::AlreadyMapped));
    // Zeros that were read move as zeros, from the middle of a table of them.
    space.shift_page(&shift(100, 604, Absent::Refuse), 0).unwrap();
    assert_eq!(space.fault(page(604), Access::Read), Ok(()));
    processor.store(page(604), b"z").unwrap();
    processor.load(page(100), &mut seen).unwrap();
    assert_eq!(seen, [0]);
    // Nothing is no page.
    space.discard(pages(2, 1)).unwrap();
    assert_eq!(space.shift_page(&whole, 2), Err(Error::NotMapped));
    space.shift_page(&shift(0, 600, Absent::Skip), 2).unwrap();
    assert_eq!(space.fault(page(602), Access::Read), watched(Watched::Missing));
    // What a child has, too.
    let child = space.fork().unwrap();
    assert_eq!(space.shift_page(&whole, 1), Err(Error::Busy));
    host.memory().check(&[&space, &child], &[]).unwrap();
    drop(child);
    processor.store(page(1), b"q").unwrap();
    space.shift_page(&whole, 1).unwrap();
    processor.load(page(601), &mut seen).unwrap();
    assert_eq!(&seen, b"q");
    // Not watched; somebody else's; shared memory would not fit either.
    assert_eq!(space.shift_page(&shift(600, 0, Absent::Refuse), 0), Err(Error::WrongKind));
    let other = Shift { watcher: Watcher(8), ..whole };
    assert_eq!(space.shift_page(&other, 3), Err(Error::WrongKind));
    host.memory().check(&[&space], &[]).unwrap();
}
