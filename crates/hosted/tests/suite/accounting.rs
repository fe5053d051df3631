//! Names, seals and limits: what the random lives do not say plainly.

use foldspace::frame::Overcommit;
use foldspace::space::{Advice, MapRequest, Placement};
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
