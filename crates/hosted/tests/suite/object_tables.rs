//! Tables that objects own, linked by all who map a block of one whole.

use std::sync::Arc;

use foldspace::backing::{Identity, Source};
use foldspace::frame::Overcommit;
use foldspace::space::{Access, Destination, Fault, Leave, MapRequest, Placement, RemapRequest};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor, Refusal};

use crate::model::PAGE;

const MIB: u64 = 1 << 20;
const AT: u64 = 4 << 30;
const READ: VmaFlags = VmaFlags::READ.union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = READ.union(VmaFlags::WRITE);

/// Page `n` is full of `n`, as a byte.
struct Numbers;

impl Source for Numbers {
    fn fill(&self, index: u64, page: &mut [u8]) -> foldspace::Result<()> {
        page.fill(index as u8);
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { major: 8, minor: 1, inode: 7 }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/numbers");
    }
}

struct Machine {
    host: Host,
    object: Arc<Object>,
    processor: Processor,
}

impl Machine {
    fn new(bytes: u64) -> Machine {
        let host = Host::new(64 << 20).unwrap();
        let object = Object::new(host.memory(), Box::new(Numbers), bytes).unwrap();
        let processor = host.processor(CacheSize::Unbounded);
        Machine { host, object, processor }
    }

    fn map(&self, space: &AddressSpace, at: u64, len: u64, page_offset: u64, flags: VmaFlags) {
        let (placement, backing) = (Placement::Fixed(VirtAddr(at)), Backing::Object(self.object.clone()));
        space.map(MapRequest { placement, len, flags, backing, page_offset }).unwrap();
    }

    fn space(&self, at: u64, len: u64, page_offset: u64, flags: VmaFlags) -> Arc<AddressSpace> {
        let space = AddressSpace::new(self.host.memory(), Layouts::process()).unwrap();
        self.map(&space, at, len, page_offset, flags);
        space
    }

    fn load(&mut self, space: &Arc<AddressSpace>, addr: u64) -> Result<u8, Refusal> {
        self.processor.activate(space);
        let mut byte = [0];
        self.processor.load(VirtAddr(addr), &mut byte).map_err(|error| error.refusal)?;
        Ok(byte[0])
    }

    fn store(&mut self, space: &Arc<AddressSpace>, addr: u64, byte: u8) {
        self.processor.activate(space);
        self.processor.store(VirtAddr(addr), &[byte]).unwrap();
    }

    fn check(&self, spaces: &[&AddressSpace]) {
        self.host.memory().check(spaces, &[&self.object]).unwrap();
        assert!(self.host.stale(spaces).is_empty());
    }

    fn tables(&self) -> u64 {
        self.host.memory().reclaim();
        self.host.memory().stats().tables
    }
}

#[test]
fn a_second_mapper_finds_what_the_first_has_loaded() {
    let mut machine = Machine::new(4 * MIB);
    let first = machine.space(AT, 4 * MIB, 0, READ);
    for page in 0..1024 {
        assert_eq!(machine.load(&first, AT + page * PAGE), Ok(page as u8));
    }
    assert_eq!(first.usage().resident_file, 1024);
    let before = machine.tables();
    let second = machine.space(AT + 512 * MIB, 4 * MIB, 0, RW);
    // One fault a block.
    assert_eq!(machine.load(&second, AT + 512 * MIB), Ok(0));
    assert_eq!(machine.load(&second, AT + 514 * MIB), Ok(0));
    assert_eq!(second.usage().resident_file, 1024, "the rest came with the table");
    assert_eq!(machine.tables(), before + 3, "a root and two levels: no last-level table");
    assert_eq!(second.usage().tables, 3, "the object's tables are not the mapper's");
    machine.check(&[&first, &second]);
    let smaps = String::from_utf8(second.smaps().text(&second).unwrap()).unwrap();
    assert!(smaps.contains("Rss:                4096 kB") && smaps.contains("Pss:                2048 kB"), "{smaps}");
}

#[test]
fn a_store_copies_the_table_and_one_page() {
    let mut machine = Machine::new(2 * MIB);
    let a = machine.space(AT, 2 * MIB, 0, RW);
    let b = machine.space(AT, 2 * MIB, 0, RW);
    for page in [0, 1, 511] {
        assert_eq!(machine.load(&a, AT + page * PAGE), Ok(page as u8));
        assert_eq!(machine.load(&b, AT + page * PAGE), Ok(page as u8));
    }
    machine.store(&a, AT + PAGE, 200);
    machine.check(&[&a, &b]);
    assert_eq!((machine.load(&a, AT + PAGE), machine.load(&b, AT + PAGE)), (Ok(200), Ok(1)));
    assert_eq!(machine.load(&a, AT + 511 * PAGE), Ok(255));
    let child = a.fork().unwrap();
    machine.store(&child, AT + PAGE, 201);
    assert_eq!((machine.load(&a, AT + PAGE), machine.load(&child, AT + PAGE)), (Ok(200), Ok(201)));
    machine.check(&[&a, &b, &child]);
    drop(a);
    machine.processor.deactivate();
    machine.check(&[&b, &child]);
}

#[test]
fn children_link_what_their_parents_link() {
    let mut machine = Machine::new(8 * MIB);
    let parent = machine.space(AT, 8 * MIB, 0, RW);
    assert_eq!(machine.load(&parent, AT + 3 * PAGE), Ok(3));
    let child = parent.fork().unwrap();
    // The child's own upper tables copy the link.
    machine.map(&child, AT + (1 << 30), 2 * MIB, 0, RW);
    machine.store(&child, AT + (1 << 30), 9);
    assert_eq!(machine.load(&child, AT + 5 * PAGE), Ok(5));
    assert_eq!(machine.load(&parent, AT + 2 * MIB + 5 * PAGE), Ok(5));
    machine.check(&[&parent, &child]);
    machine.store(&parent, AT, 1);
    machine.store(&child, AT, 2);
    assert_eq!((machine.load(&parent, AT), machine.load(&child, AT)), (Ok(1), Ok(2)));
    machine.check(&[&parent, &child]);
}

#[test]
fn a_cut_reaches_everybody() {
    let mut machine = Machine::new(4 * MIB);
    let a = machine.space(AT, 4 * MIB, 0, READ);
    let b = machine.space(AT + MIB, 4 * MIB - MIB, 256, READ);
    for page in (0..1024).step_by(64) {
        assert_eq!(machine.load(&a, AT + page * PAGE), Ok(page as u8));
        if page >= 256 {
            assert_eq!(machine.load(&b, AT + page * PAGE), Ok(page as u8));
        }
    }
    machine.object.set_len(3 * MIB).unwrap();
    for space in [&a, &b] {
        assert_eq!(machine.load(space, AT + 3 * MIB), Err(Refusal::Fault(Fault::PastEnd)));
        assert_eq!(machine.load(space, AT + 3 * MIB - PAGE), Ok(255));
    }
    machine.object.punch_hole(2 * MIB..2 * MIB + 8 * PAGE).unwrap();
    assert_eq!((machine.load(&a, AT + 2 * MIB), machine.load(&b, AT + 2 * MIB + PAGE)), (Ok(0), Ok(0)));
    machine.check(&[&a, &b]);
    machine.object.set_len(4 * MIB).unwrap();
    assert_eq!(machine.load(&a, AT + 3 * MIB + 7 * PAGE), Ok(0), "what was cut off once is zeros");
    machine.check(&[&a, &b]);
}

#[test]
fn permissions_are_the_mappings_own() {
    let mut machine = Machine::new(2 * MIB);
    let code = machine.space(AT, 2 * MIB, 0, READ | VmaFlags::EXEC);
    let data = machine.space(AT, 2 * MIB, 0, READ);
    assert_eq!((machine.load(&code, AT), machine.load(&data, AT)), (Ok(0), Ok(0)));
    machine.processor.activate(&code);
    machine.processor.fetch(VirtAddr(AT), &mut [0]).unwrap();
    machine.processor.activate(&data);
    assert!(machine.processor.fetch(VirtAddr(AT), &mut [0]).is_err());
    let some = PageRange::from_len(VirtAddr(AT + 4 * PAGE), 2 * PAGE).unwrap();
    data.protect(some, VmaFlags::empty()).unwrap();
    assert!(machine.load(&data, AT + 4 * PAGE).is_err());
    assert_eq!(machine.load(&data, AT + 6 * PAGE), Ok(6));
    machine.processor.activate(&data);
    assert!(
        machine.processor.fetch(VirtAddr(AT + 6 * PAGE), &mut [0]).is_err(),
        "a copy forbids what the link forbade"
    );
    machine.check(&[&code, &data]);
    let whole = PageRange::from_len(VirtAddr(AT), 2 * MIB).unwrap();
    code.protect(whole, VmaFlags::READ | VmaFlags::WRITE).unwrap();
    machine.store(&code, AT, 77);
    assert_eq!((machine.load(&code, AT), machine.load(&data, AT)), (Ok(77), Ok(0)));
    machine.check(&[&code, &data]);
}

#[test]
fn a_linked_table_moves_and_is_unmapped_in_part() {
    let mut machine = Machine::new(4 * MIB);
    let space = machine.space(AT, 4 * MIB, 0, READ);
    let other = machine.space(AT, 4 * MIB, 0, READ);
    for at in [AT, AT + 2 * MIB + PAGE] {
        machine.load(&space, at).unwrap();
        machine.load(&other, at).unwrap();
    }
    let to = Destination::Fixed(VirtAddr(AT + (8 << 30)));
    let request = RemapRequest { start: VirtAddr(AT), len: 4 * MIB, new_len: 4 * MIB, to, leave: Leave::Hole };
    space.remap(request).unwrap();
    machine.check(&[&space, &other]);
    assert_eq!(machine.load(&space, AT + (8 << 30) + 2 * MIB + PAGE), Ok(1));
    let odd = RemapRequest {
        start: VirtAddr(AT + (8 << 30)),
        to: Destination::Fixed(VirtAddr(AT + (9 << 30) + 3 * PAGE)),
        ..request
    };
    space.remap(odd).unwrap();
    machine.check(&[&space, &other]);
    assert_eq!(machine.load(&space, AT + (9 << 30) + 2 * MIB + 4 * PAGE), Ok(1));
    other.unmap(PageRange::from_len(VirtAddr(AT + PAGE), 3 * MIB).unwrap()).unwrap();
    assert_eq!(machine.load(&other, AT), Ok(0));
    machine.check(&[&space, &other]);
    machine.processor.deactivate();
    drop((space, other));
    let Machine { host, object, processor } = machine;
    drop((object, processor));
    host.memory().reclaim();
    host.memory().check(&[], &[]).unwrap();
}

#[test]
fn shared_mappings_that_may_store_have_tables_of_their_own() {
    let mut machine = Machine::new(2 * MIB);
    let writer = machine.space(AT, 2 * MIB, 0, RW | VmaFlags::SHARED);
    let reader = machine.space(AT, 2 * MIB, 0, READ | VmaFlags::SHARED);
    assert_eq!(machine.load(&reader, AT + PAGE), Ok(1));
    machine.store(&writer, AT + PAGE, 99);
    assert_eq!(machine.load(&reader, AT + PAGE), Ok(99));
    reader.protect(PageRange::from_len(VirtAddr(AT), 2 * MIB).unwrap(), VmaFlags::READ | VmaFlags::WRITE).unwrap();
    machine.store(&reader, AT + PAGE, 100);
    assert_eq!(machine.load(&writer, AT + PAGE), Ok(100));
    assert_eq!(machine.object.read_at(PAGE, &mut [0]), Ok(1));
    machine.check(&[&writer, &reader]);
    assert_eq!(reader.fault(VirtAddr(AT), Access::Execute), Err(Fault::AccessDenied));
}

/// Memory with a name of its own, and all of it where nothing is promised that is not there, counts as committed for as long as it lives.
#[test]
fn shared_memory_counts_as_committed_while_it_lives() {
    let host = Host::new(64 << 20).unwrap();
    let memory = host.memory();
    let before = memory.committed_pages();
    let named = Object::reserved(memory, Box::new(Numbers), 5 * PAGE + 1).unwrap();
    assert!(!named.is_empty() && named.len() == 5 * PAGE + 1);
    assert_eq!(memory.committed_pages(), before + 6);
    let unreserved = Object::anonymous_unreserved(memory, 9 * PAGE).unwrap();
    assert_eq!(memory.committed_pages(), before + 6, "nothing is promised");
    memory.set_overcommit(Overcommit::Never);
    let strict = Object::anonymous_unreserved(memory, 9 * PAGE).unwrap();
    assert_eq!(memory.committed_pages(), before + 15, "but where all must be there");
    drop((named, unreserved, strict));
    assert_eq!(memory.committed_pages(), before);
}

/// Of an object that is mapped where tables cannot be shared, each page that is in memory has a list of its places.
#[test]
fn places_of_scattered_mappings_are_counted() {
    let mut machine = Machine::new(8 * PAGE);
    let before = machine.host.memory().reverse_stats();
    let first = machine.space(AT, 8 * PAGE, 0, RW | VmaFlags::SHARED);
    let second = machine.space(AT + 3 * PAGE, 8 * PAGE, 0, RW | VmaFlags::SHARED);
    assert_eq!(machine.load(&first, AT), Ok(0));
    assert_eq!(machine.load(&second, AT + 3 * PAGE), Ok(0));
    let after = machine.host.memory().reverse_stats();
    assert!(after.listed_frames > before.listed_frames, "{before:?}, {after:?}");
    assert!(after.listed_places >= before.listed_places + 2, "{before:?}, {after:?}");
    drop((first, second));
}
