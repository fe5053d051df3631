//! Names, seals and limits: what the random lives do not say plainly.

use std::sync::Arc;

use foldspace::backing::{Identity, Source};
use foldspace::frame::Overcommit;
use foldspace::space::{Access, Advice, Fault, MapRequest, Placement};
use foldspace::vma::{Backing, Name, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const AT: u64 = 0x4000_0000;
const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = MAY.union(VmaFlags::READ).union(VmaFlags::WRITE);

fn pages(from: u64, count: u64) -> PageRange {
    PageRange::from_len(VirtAddr(AT + from * PAGE), count * PAGE).unwrap()
}

fn map(space: &AddressSpace, from: u64, count: u64, flags: VmaFlags) -> Result<(), Error> {
    let placement = Placement::Fixed(pages(from, count).start());
    let backing = Backing::Anonymous;
    space.map(MapRequest { placement, len: count * PAGE, flags, backing, page_offset: 0 }).map(drop)
}

fn lines(space: &AddressSpace) -> usize {
    space.maps().text().iter().filter(|byte| **byte == b'\n').count()
}

/// However many areas have a name, and in however many relatives: there is one copy of it.
#[test]
fn a_name_is_one_copy() {
    let host = Host::new(16 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    for number in 0..1_000 {
        map(&space, 2 * number, 1, RW).unwrap();
    }
    let name = Name::new(b"one of a thousand").unwrap();
    assert_eq!(space.set_name(pages(0, 2_000), Some(name.clone())), Err(Error::NotMapped), "there are holes");
    let child = space.fork().unwrap();
    child.protect(pages(4, 1), VmaFlags::READ).unwrap();
    for space in [&space, &child] {
        let vmas = space.vmas();
        assert_eq!(vmas.view().iter().count(), 1_000);
        for vma in vmas.view().iter() {
            let theirs = vma.name.as_ref().expect("all of them are named");
            assert!(std::ptr::eq::<[u8]>(&**theirs, &*name), "a copy of its own at {:?}", vma.range);
        }
    }
    let named = String::from_utf8(space.maps().text()).unwrap();
    assert!(named.lines().all(|line| line.ends_with(" [anon:one of a thousand]")), "{named}");
}

/// What Linux leaves behind when something sealed is in the way of munmap: the first area is cut.
#[test]
fn a_refused_unmap_leaves_a_cut() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    map(&space, 0, 4, RW).unwrap();
    map(&space, 4, 4, MAY | VmaFlags::READ).unwrap();
    space.seal(pages(4, 4)).unwrap();
    assert_eq!(space.seal(pages(4, 5)), Err(Error::NotMapped));
    assert_eq!(lines(&space), 2);
    assert_eq!(space.unmap(pages(2, 4)), Err(Error::Sealed));
    assert_eq!(lines(&space), 3);
    assert_eq!(space.protect(pages(4, 1), VmaFlags::READ), Err(Error::Sealed), "even if nothing would change");
    assert_eq!(space.discard(pages(4, 1)), Err(Error::Sealed));
    assert_eq!(space.advise(pages(4, 1), Advice::DontFork), Err(Error::Sealed));
    assert_eq!(space.advise(pages(4, 1), Advice::DontDump), Ok(()));
    assert_eq!(map(&space, 1, 4, RW), Err(Error::Sealed));
}

/// Overcommit 2: no more than the limit, whoever asks for it; all of it comes back.
#[test]
fn no_more_is_promised_than_there_may_be() {
    let host = Host::new(8 << 20).unwrap();
    let memory = host.memory();
    let space = AddressSpace::new(memory, Layouts::process()).unwrap();
    memory.set_overcommit(Overcommit::Never);
    memory.set_overcommit_kbytes(400);
    assert_eq!((memory.commit_limit(), memory.overcommit_ratio()), (100, 0));
    map(&space, 0, 60, RW).unwrap();
    assert_eq!(map(&space, 60, 40, RW), Err(Error::CommitLimit));
    assert_eq!(map(&space, 60, 40, RW | VmaFlags::NO_RESERVE), Err(Error::CommitLimit), "it is ignored");
    map(&space, 60, 40, MAY | VmaFlags::READ).unwrap();
    assert_eq!(space.protect(pages(60, 40), VmaFlags::READ | VmaFlags::WRITE), Err(Error::CommitLimit));
    assert_eq!(Object::anonymous(memory, 40 * PAGE).map(drop), Err(Error::CommitLimit));
    assert_eq!(space.fork().map(drop), Err(Error::CommitLimit));
    space.advise(pages(10, 50), Advice::DontFork).unwrap();
    let child = space.fork().expect("ten pages are inherited");
    assert_eq!(memory.committed_pages(), 70);
    let object = Object::anonymous(memory, 20 * PAGE).unwrap();
    assert_eq!(memory.committed_pages(), 90);
    space.set_commit_reserve(20 * PAGE);
    assert_eq!(map(&space, 200, 1, RW), Err(Error::CommitLimit), "the last pages are not for everyone");
    map(&child, 200, 1, RW).unwrap();
    memory.check(&[&space, &child], &[&object]).unwrap();
    drop((child, object));
    space.unmap(pages(0, 100)).unwrap();
    assert_eq!(memory.committed_pages(), 0);
}

/// A file of a file system in memory, as Linux's tmpfs has them.
struct InMemory;

impl Source for InMemory {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity::default()
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/in-memory");
    }
    fn commits_pages(&self) -> bool {
        true
    }
    fn is_placed_by_tables(&self) -> bool {
        true
    }
}

/// What nothing but memory keeps is promised page by page, as it comes, and given back as it goes.
#[test]
fn files_in_memory_are_charged_for_the_pages_they_have() {
    let host = Host::new(8 << 20).unwrap();
    let memory = host.memory();
    let space = AddressSpace::new(memory, Layouts::process()).unwrap();
    let file = Object::new(memory, Box::new(InMemory), 0).unwrap();
    let unreserved = Object::anonymous_unreserved(memory, 50 * PAGE).unwrap();
    file.set_len(50 * PAGE).unwrap();
    assert_eq!(memory.committed_pages(), 0, "a length promises nothing");
    file.write_at(0, &[1; 10 * PAGE as usize]).unwrap();
    unreserved.write_at(PAGE - 1, &[1; 2]).unwrap();
    assert_eq!(memory.committed_pages(), 12);
    let (placement, backing) = (Placement::Fixed(pages(0, 1).start()), Backing::Object(file.clone()));
    let flags = RW | VmaFlags::SHARED;
    space.map(MapRequest { placement, len: 50 * PAGE, flags, backing, page_offset: 0 }).unwrap();
    let store = |page: u64| space.write(pages(page, 1).start(), b"x");
    assert_eq!((store(3), store(20)), (1, 1));
    assert_eq!(memory.committed_pages(), 13, "one of them is new");
    file.punch_hole(0..2 * PAGE).unwrap();
    assert_eq!(memory.committed_pages(), 11);
    memory.set_overcommit(Overcommit::Never);
    memory.set_overcommit_kbytes(4 * 15);
    assert_eq!(file.ensure(30 * PAGE..50 * PAGE), Err(Error::CommitLimit));
    assert_eq!(memory.committed_pages(), 11, "what was made for nothing has gone");
    assert_eq!(file.write_at(30 * PAGE, &[1; 20 * PAGE as usize]), Ok(3 * PAGE as usize));
    assert_eq!(file.write_at(40 * PAGE, b"x"), Err(Error::CommitLimit));
    assert_eq!(store(40), 0);
    assert_eq!(space.fault(pages(40, 1).start(), Access::Write), Err(Fault::PastEnd), "SIGBUS");
    assert_eq!(store(30), 1, "what is there is there");
    file.set_len(PAGE * 21).unwrap();
    assert_eq!(memory.committed_pages(), 11);
    memory.check(&[&space], &[&file, &unreserved]).unwrap();
    drop((space, file, unreserved));
    memory.reclaim();
    assert_eq!(memory.committed_pages(), 0);
}

/// A file that has tables of its own is placed so that they fit (`thp_get_unmapped_area` on Linux), if nobody says where.
#[test]
fn files_are_placed_where_their_tables_fit() {
    const TABLE: u64 = 512 * PAGE;
    let host = Host::new(8 << 20).unwrap();
    let file = Object::new(host.memory(), Box::new(InMemory), 16 * TABLE).unwrap();
    let memfd = Object::anonymous_unreserved(host.memory(), 16 * TABLE).unwrap();
    let place = |space: &AddressSpace, object: &Arc<Object>, placement, first: u64, count: u64| {
        let backing = Backing::Object(object.clone());
        let request = MapRequest { placement, len: count * PAGE, flags: RW, backing, page_offset: first };
        let at = space.map(request).unwrap().get();
        (at.wrapping_sub(first * PAGE) % TABLE == 0, at)
    };
    // Whether it lies right, and whether right below what was mapped last: a few pages, so that nothing fits by itself.
    let beside = |object, first, count| {
        let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let last = place(&space, &memfd, Placement::Anywhere, 0, 3).1;
        let (fits, at) = place(&space, object, Placement::Anywhere, first, count);
        host.memory().check(&[&space], &[&file, &memfd]).unwrap();
        (fits, at + count * PAGE == last)
    };
    for (first, count) in [(0, 512), (0, 1_000), (5, 512 + 507), (5, 2_048), (511, 513), (512, 512), (512, 1_537)] {
        assert!(beside(&file, first, count).0, "{count} pages from {first} on");
    }
    // No table would be shown whole.
    for (first, count) in [(5, 512), (5, 512 + 506), (0, 511)] {
        assert!(beside(&file, first, count).1, "{count} pages from {first} on");
    }
    assert_eq!(beside(&memfd, 0, 2_048), (false, true), "not one of this kind");
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let hint = VirtAddr(AT + PAGE);
    assert_eq!(place(&space, &file, Placement::Hint(hint), 0, 1_024).1, hint.get(), "a hint is taken as it is");
}

/// What has no path when it is mapped can be named, as shared anonymous memory can; a file cannot.
#[test]
fn objects_without_a_path_can_be_named() {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let file = Object::new(host.memory(), Box::new(InMemory), 16 * PAGE).unwrap();
    for (from, flags) in [(0, RW | VmaFlags::UNLINKED), (8, RW)] {
        let (placement, backing) = (Placement::Fixed(pages(from, 1).start()), Backing::Object(file.clone()));
        space.map(MapRequest { placement, len: 4 * PAGE, flags, backing, page_offset: 0 }).unwrap();
    }
    assert_eq!(space.set_name(pages(1, 2), Name::new(b"part")), Ok(()));
    assert_eq!(space.set_name(pages(8, 2), Name::new(b"part")), Err(Error::WrongKind));
    let text = String::from_utf8(space.maps().text()).unwrap();
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
    assert_eq!(names, ["/in-memory", "[anon_shmem:part]", "/in-memory", "/in-memory"]);
}
