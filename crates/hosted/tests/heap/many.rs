//! One call about very many VMAs: what it plans is bounded, and its parts come to what one piece would have come to.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Advice, LockMode, MapRequest, Placement};
use foldspace::vma::{Backing, Name, Vma, VmaFlags};
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::allocator::largest_allocation;

const START: u64 = 0x4000_0000;
/// More than the parts of a change, many times, and not a multiple of them.
const AREAS: u64 = 5_003;
/// What a kernel's heap has in one piece after a long life.
const AT_MOST: usize = 64 << 10;
const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const READ: VmaFlags = VmaFlags::READ.union(MAY);
const WRITE: VmaFlags = READ.union(VmaFlags::WRITE);

/// What is done to an address space.
type Act<'a> = &'a dyn Fn(&AddressSpace) -> Result<(), Error>;

fn pages(from: u64, until: u64) -> PageRange {
    PageRange::new(VirtAddr(START + from * PAGE_SIZE), VirtAddr(START + until * PAGE_SIZE)).unwrap()
}

fn all() -> PageRange {
    pages(0, AREAS)
}

/// Pages that differ from their neighbours in whether they may be written.
fn striped(host: &Host) -> Arc<AddressSpace> {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    for page in 0..AREAS {
        let flags = if page % 2 == 0 { READ } else { WRITE };
        let request = MapRequest {
            placement: Placement::Fixed(pages(page, page + 1).start()),
            len: PAGE_SIZE,
            flags,
            backing: Backing::Anonymous,
            page_offset: 0,
        };
        space.map(request).unwrap();
    }
    assert_eq!(areas(&space).len() as u64, AREAS);
    space
}

fn areas(space: &AddressSpace) -> Vec<Vma> {
    space.vmas().view().range(all()).cloned().collect()
}

#[test]
fn no_call_wants_much_in_one_piece() {
    let host = Host::new(256 << 20).unwrap();
    let name = || Name::new(b"striped");
    let calls: [(&str, Act<'_>); 7] = [
        ("name", &|space| space.set_name(all(), name())),
        ("protect", &|space| space.protect(all(), VmaFlags::READ)),
        ("advise", &|space| space.advise(all(), Advice::DontFork)),
        ("lock", &|space| space.lock(all(), LockMode::OnFault)),
        ("lock all", &|space| space.lock_all(Some(LockMode::OnFault), None)),
        ("seal", &|space| space.seal(all())),
        ("unmap", &|space| space.unmap(all())),
    ];
    for (call, act) in calls {
        let space = striped(&host);
        let (largest, outcome) = largest_allocation(|| act(&space));
        outcome.unwrap();
        assert!(largest <= AT_MOST, "{call} asked for {largest} bytes at once");
        host.memory().check(&[&space], &[]).unwrap();
    }
}

#[test]
fn parts_merge_where_they_meet() {
    let host = Host::new(256 << 20).unwrap();
    let space = striped(&host);
    space.protect(all(), VmaFlags::READ | VmaFlags::WRITE).unwrap();
    let merged = areas(&space);
    assert_eq!(merged.len(), 1, "{merged:?}");
    assert_eq!(merged[0].range, all());
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn every_area_is_named() {
    let host = Host::new(256 << 20).unwrap();
    let space = striped(&host);
    let name = Name::new(b"striped");
    // A hole in the first part is passed over, and said at the end.
    space.unmap(pages(3, 4)).unwrap();
    assert_eq!(space.set_name(all(), name.clone()), Err(Error::NotMapped));
    let named = areas(&space);
    assert_eq!(named.len() as u64, AREAS - 1);
    assert!(named.iter().all(|vma| vma.name == name));
}

#[test]
fn a_hole_ends_a_change_where_it_is() {
    let host = Host::new(256 << 20).unwrap();
    let space = striped(&host);
    let hole = 3_001;
    space.unmap(pages(hole, hole + 1)).unwrap();
    assert_eq!(space.protect(all(), VmaFlags::empty()), Err(Error::NotMapped));
    let after = areas(&space);
    assert_eq!(after[0].range.end(), pages(hole, hole + 1).start(), "what is below is one area without access");
    assert!(after[1..].iter().all(|vma| vma.flags.intersects(VmaFlags::READ)));
    assert_eq!(after.len() as u64, AREAS - hole);
}
