//! What frames hold, for the whole of a memory; and zeros that are shown as a file's.

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::{Identity, Reference, Source};
use foldspace::frame::Contents;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const AT: VirtAddr = VirtAddr(0x80_0000_0000);

fn map(space: &AddressSpace, page: u64, pages: u64, flags: VmaFlags, backing: Backing, page_offset: u64) -> VirtAddr {
    let placement = Placement::Fixed(VirtAddr(AT.get() + page * PAGE_SIZE));
    space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset }).unwrap()
}

#[test]
fn contents_are_counted_once_however_many_map_them() {
    let host = Host::new(8 << 20).unwrap();
    let memory = host.memory();
    let space = AddressSpace::new(memory, Layouts::process()).unwrap();
    let object = Object::anonymous(memory, 8 * PAGE_SIZE).unwrap();
    let private = map(&space, 0, 16, RW, Backing::Anonymous, 0);
    let shared = map(&space, 100, 8, RW | VmaFlags::SHARED, Backing::Object(object.clone()), 0);
    assert_eq!(memory.contents(), Contents::default());

    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    for page in 0..5 {
        processor.store(VirtAddr(private.get() + page * PAGE_SIZE), b"x").unwrap();
    }
    for page in 0..3 {
        processor.store(VirtAddr(shared.get() + page * PAGE_SIZE), b"x").unwrap();
    }
    // Zeros that are read take no frame.
    let mut byte = [0];
    processor.load(VirtAddr(private.get() + 9 * PAGE_SIZE), &mut byte).unwrap();
    object.write_at(6 * PAGE_SIZE, b"y").unwrap();
    let alone = Contents { anonymous: 5, objects: 4, objects_mapped: 3 };
    assert_eq!(memory.contents(), alone);

    let child = space.fork().unwrap();
    assert_eq!(memory.contents(), alone);
    processor.store(private, b"z").unwrap();
    assert_eq!(memory.contents(), Contents { anonymous: 6, ..alone });
    drop(processor);
    drop(child);
    space.unmap(PageRange::from_len(AT, 200 * PAGE_SIZE).unwrap()).unwrap();
    memory.reclaim();
    assert_eq!(memory.contents(), Contents { anonymous: 0, objects: 4, objects_mapped: 0 });
    memory.check(&[&space], &[&object]).unwrap();
    drop(object);
    memory.reclaim();
    assert_eq!(memory.contents(), Contents::default());
}

struct Zeros;

impl Source for Zeros {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { major: 0, minor: 6, inode: 5 }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/dev/zero");
    }
}

#[test]
fn zeros_of_a_file_are_shown_and_merged_as_the_files() {
    let host = Host::new(8 << 20).unwrap();
    let memory = host.memory();
    let space = AddressSpace::new(memory, Layouts::process()).unwrap();
    let (one, other) = (Reference::zeros_of(memory, Box::new(Zeros)), Reference::zeros_of(memory, Box::new(Zeros)));
    assert_eq!(one.file().unwrap().identity().inode, 5);
    let zeros = |reference: &std::sync::Arc<Reference>| Backing::Reference(reference.clone());
    map(&space, 0, 4, RW, zeros(&one), 1);
    // Goes on in the file, does not, is of another file.
    map(&space, 4, 1, RW, zeros(&one), 5);
    map(&space, 5, 1, RW, zeros(&one), 5);
    map(&space, 6, 1, RW, zeros(&other), 6);
    let text = String::from_utf8(space.maps().text()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("8000000000-8000005000 rw-p 00001000 00:06 5 "), "{text}");
    assert!(lines.iter().all(|line| line.ends_with(" /dev/zero")), "{text}");

    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    let mut bytes = [1; 8];
    processor.load(AT, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    processor.store(AT, b"!").unwrap();
    assert_eq!(space.usage().resident_anon, 1);
    drop(processor);
    space.unmap(PageRange::from_len(VirtAddr(AT.get() + PAGE_SIZE), PAGE_SIZE).unwrap()).unwrap();
    let text = String::from_utf8(space.maps().text()).unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("8000002000-8000005000 rw-p 00003000 00:06 5 "), "{text}");
    memory.check(&[&space], &[]).unwrap();
}
