//! Bytes of an object that are copied into an address space from page to page are those that a copy through a buffer brings.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_hosted::{Host, Layouts};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const AT: VirtAddr = VirtAddr(0x80_0000_0000);
const PAGES: u64 = 4;
/// It ends in the middle of its last page.
const LEN: u64 = 3 * PAGE_SIZE + 100;

fn at(offset: u64) -> VirtAddr {
    VirtAddr(AT.get() + offset)
}

fn content(offset: u64) -> u8 {
    (offset % 251) as u8
}

/// Memory of four pages, and an object of a little less.
fn made(
    host: &Host,
    flags: VmaFlags,
    backing: impl FnOnce(&Arc<Object>) -> Backing,
) -> (Arc<AddressSpace>, Arc<Object>) {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let object = Object::anonymous(host.memory(), LEN).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(content).collect();
    object.write_at(0, &bytes).unwrap();
    let (len, placement) = (PAGES * PAGE_SIZE, Placement::Fixed(AT));
    space.map(MapRequest { placement, len, flags, backing: backing(&object), page_offset: 0 }).unwrap();
    (space, object)
}

#[test]
fn every_piece_is_what_the_object_holds() {
    let host = Host::new(8 << 20).unwrap();
    let (space, object) = made(&host, RW, |_| Backing::Anonymous);
    for (to, offset, len) in
        [(0, 0, LEN), (5, 0, 4096), (0, 5, 4096), (4090, 4000, 200), (4095, 4097, 8191), (100, LEN - 1, 1), (7, 3, 0)]
    {
        let (done, len) = (space.write_from(at(to), &object, offset, len as usize).unwrap() as u64, len);
        assert_eq!(done, len, "{to} {offset} {len}");
        let mut seen = vec![0; len as usize];
        assert_eq!(space.read(at(to), &mut seen), seen.len());
        assert!(seen.iter().zip(offset..).all(|(byte, at)| *byte == content(at)), "{to} {offset} {len}");
    }
    host.memory().check(&[&space], &[&object]).unwrap();
}

#[test]
fn it_ends_where_the_object_or_the_memory_does() {
    let host = Host::new(8 << 20).unwrap();
    let (space, object) = made(&host, RW, |_| Backing::Anonymous);
    assert_eq!(space.write_from(AT, &object, LEN - 10, 4096), Ok(10));
    assert_eq!(space.write_from(AT, &object, LEN, 4096), Ok(0));
    assert_eq!(space.write_from(AT, &object, u64::MAX, 4096), Ok(0));
    let end = PAGES * PAGE_SIZE;
    assert_eq!(space.write_from(at(end - 5), &object, 0, 4096), Ok(5));
    assert_eq!(space.write_from(at(end), &object, 0, 1), Ok(0));
    assert_eq!(space.write_from(VirtAddr(u64::MAX), &object, 0, 1), Ok(0));
    let (read_only, object) = made(&host, VmaFlags::READ.union(VmaFlags::MAY_READ), |_| Backing::Anonymous);
    assert_eq!(read_only.write_from(AT, &object, 0, 4096), Ok(0));
}

#[test]
fn a_fork_keeps_what_it_had_and_an_object_may_be_read_into_itself() {
    let host = Host::new(8 << 20).unwrap();
    let (parent, object) = made(&host, RW, |_| Backing::Anonymous);
    parent.write(AT, b"before");
    let child = parent.fork().unwrap();
    assert_eq!(child.write_from(AT, &object, 0, 4096), Ok(4096));
    let mut seen = [0; 6];
    parent.read(AT, &mut seen);
    assert_eq!(&seen, b"before");

    let (shared, object) = made(&host, RW | VmaFlags::SHARED, |object| Backing::Object(object.clone()));
    assert_eq!(shared.write_from(at(1), &object, 0, 2000), Ok(2000));
    let mut seen = vec![0; 2000];
    shared.read(at(1), &mut seen);
    assert!(seen.iter().zip(0..).all(|(byte, at)| *byte == content(at)), "bytes that overlap come as they were");
}
