//! Populating: where it stops, and what is there then; and how it counts.

use std::sync::Arc;

use foldspace::backing::{Identity, Source};
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::space::{Access, Failures, Fault, MapRequest, Placement, PopulateError};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const R: VmaFlags = VmaFlags::READ.union(VmaFlags::MAY_READ);
const RW: VmaFlags = R.union(VmaFlags::WRITE).union(VmaFlags::MAY_WRITE);
const BASE: u64 = 0x4000_0000;

fn machine() -> (Host, Arc<AddressSpace>) {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    (host, space)
}

fn pages(at: u64, len: u64) -> PageRange {
    PageRange::from_len(VirtAddr(BASE + at * PAGE), len * PAGE).unwrap()
}

fn map(space: &AddressSpace, range: PageRange, flags: VmaFlags, backing: Backing) {
    let placement = Placement::Fixed(range.start());
    space.map(MapRequest { placement, len: range.len(), flags, backing, page_offset: 0 }).unwrap();
}

/// Which pages are present: a letter for each, `w` for those that are private or of an object, `z` for zeros, `-` for none.
fn present(space: &AddressSpace, range: PageRange) -> String {
    let mut entries = vec![PagemapEntry(0); range.pages() as usize];
    space.pagemap(range, FrameNumbers::Hidden, &mut entries).unwrap();
    let letter = |entry: &PagemapEntry| match entry.0 {
        0 => '-',
        PagemapEntry::PRESENT => 'z',
        entry if entry & PagemapEntry::PRESENT != 0 => 'w',
        _ => 'g',
    };
    entries.iter().map(letter).collect()
}

#[test]
fn it_stops_where_something_is_in_the_way() {
    let (host, space) = machine();
    let mut go_on = || false;
    map(&space, pages(0, 4), RW, Backing::Anonymous);
    map(&space, pages(4, 2), R, Backing::Anonymous);
    map(&space, pages(6, 2), VmaFlags::empty(), Backing::Anonymous);
    let object = Object::anonymous(host.memory(), PAGE + 1).unwrap();
    map(&space, pages(10, 4), RW | VmaFlags::SHARED, Backing::Object(object));
    assert_eq!(space.populate(pages(2, 6), Access::Write, &mut go_on), Err(PopulateError::AccessDenied));
    assert_eq!(present(&space, pages(0, 8)), "--ww----");
    assert_eq!(space.populate(pages(3, 5), Access::Read, &mut go_on), Err(PopulateError::AccessDenied));
    assert_eq!(present(&space, pages(3, 5)), "wzz--");
    assert_eq!(space.populate(pages(8, 3), Access::Read, &mut go_on), Err(PopulateError::NotMapped));
    let past_end = Err(PopulateError::Faulted(Fault::PastEnd));
    assert_eq!(space.populate(pages(10, 4), Access::Write, &mut go_on), past_end);
    assert_eq!(present(&space, pages(8, 6)), "--ww--");
    space.guard_install(pages(1, 1)).unwrap();
    let guarded = Err(PopulateError::Faulted(Fault::NotMapped));
    assert_eq!(space.populate(pages(0, 3), Access::Write, &mut go_on), guarded);
    assert_eq!(present(&space, pages(0, 3)), "wgw");
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn it_stops_when_it_is_asked_to() {
    let (_host, space) = machine();
    map(&space, pages(0, 8), RW, Backing::Anonymous);
    let mut asked = 0;
    let mut after_three = || {
        asked += 1;
        asked > 3
    };
    assert_eq!(space.populate(pages(0, 8), Access::Write, &mut after_three), Err(PopulateError::Interrupted));
    assert_eq!(present(&space, pages(0, 8)), "www-----");
    let mapped = space.populate_mapped(pages(0, 8), Failures::Skip, &mut || true);
    assert_eq!(mapped, Err(PopulateError::Interrupted), "also where failures are passed over");
}

#[test]
fn what_is_mapped_is_populated_as_it_will_be_used() {
    let (host, space) = machine();
    let mut go_on = || false;
    let object = || Backing::Object(Object::anonymous(host.memory(), 2 * PAGE).unwrap());
    map(&space, pages(0, 2), RW, Backing::Anonymous);
    map(&space, pages(2, 2), R, Backing::Anonymous);
    map(&space, pages(5, 2), RW | VmaFlags::LOCKED | VmaFlags::LOCK_ON_FAULT, Backing::Anonymous);
    map(&space, pages(7, 1), VmaFlags::empty(), Backing::Anonymous);
    map(&space, pages(8, 2), RW | VmaFlags::SHARED, object());
    map(&space, pages(10, 2), R, object());
    map(&space, pages(12, 4), RW, object());
    map(&space, pages(16, 1), RW, Backing::Anonymous);
    assert_eq!(
        space.populate_mapped(pages(0, 17), Failures::Stop, &mut go_on),
        Err(PopulateError::AccessDenied),
        "nothing may be done with page 7"
    );
    assert_eq!(present(&space, pages(0, 17)), "wwzz-------------");
    assert_eq!(space.populate_mapped(pages(1, 16), Failures::Skip, &mut go_on), Ok(()));
    assert_eq!(present(&space, pages(0, 17)), "wwzz----wwwwww--w", "the object has two pages");
    let shared = space.usage();
    assert_eq!((shared.resident_anon, shared.resident_shared), (2 + 2 + 1, 2 + 2));
    // Nothing more is to be done, and nothing is.
    assert_eq!(space.populate_mapped(pages(0, 4), Failures::Stop, &mut go_on), Ok(()));
    assert_eq!(space.usage().resident_anon, 5);
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn memory_may_run_out() {
    let (host, space) = machine();
    let all = host.memory().stats().free;
    map(&space, pages(0, 2 * all), RW, Backing::Anonymous);
    let mut go_on = || false;
    assert_eq!(space.populate(pages(0, 2 * all), Access::Write, &mut go_on), Err(PopulateError::OutOfMemory));
    let resident = space.usage().resident_anon;
    assert!(resident + 64 > all && host.memory().stats().free < 8, "{resident} of {all} frames");
    assert_eq!(space.populate_mapped(pages(0, 2 * all), Failures::Skip, &mut go_on), Ok(()), "as far as it goes");
    host.memory().check(&[&space], &[]).unwrap();
    // What is given up is there for the next.
    space.discard(pages(0, resident / 2)).unwrap();
    assert_eq!(space.populate(pages(resident + 100, resident / 4), Access::Write, &mut go_on), Ok(()));
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn a_pagemap_has_an_entry_for_each_page() {
    let (_host, space) = machine();
    let mut entries = [PagemapEntry(7); 3];
    assert_eq!(space.pagemap(pages(0, 2), FrameNumbers::Shown, &mut entries), Err(Error::BadRange));
    assert_eq!(space.pagemap(pages(0, 3), FrameNumbers::Shown, &mut entries), Ok(()));
    assert_eq!(entries, [PagemapEntry(0); 3], "nothing is mapped");
}

/// A file of zeros.
struct Zeros;

impl Source for Zeros {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity::default()
    }
    fn path(&self, _out: &mut Vec<u8>) {}
}

#[test]
fn files_and_shared_memory_in_one_table_are_told_apart() {
    let (host, space) = machine();
    let file = Object::new(host.memory(), Box::new(Zeros), 8 * PAGE).unwrap();
    let shared = Object::anonymous(host.memory(), 8 * PAGE).unwrap();
    let mut go_on = || false;
    let resident = |space: &AddressSpace| {
        let usage = space.usage();
        (usage.resident_anon, usage.resident_file, usage.resident_shared)
    };
    map(&space, pages(0, 4), RW, Backing::Object(file.clone()));
    space.populate(pages(0, 4), Access::Read, &mut go_on).unwrap();
    assert_eq!(resident(&space), (0, 4, 0));
    map(&space, pages(4, 3), RW | VmaFlags::SHARED, Backing::Object(shared.clone()));
    space.populate(pages(4, 3), Access::Write, &mut go_on).unwrap();
    assert_eq!(resident(&space), (0, 4, 3));
    space.populate(pages(1, 1), Access::Write, &mut go_on).unwrap();
    assert_eq!(resident(&space), (1, 3, 3), "a private copy is no page of the file any more");
    // In tables of their own.
    map(&space, pages(1024, 8), RW | VmaFlags::SHARED, Backing::Object(shared));
    map(&space, pages(2048, 8), R | VmaFlags::SHARED, Backing::Object(file));
    space.populate(pages(1024, 8), Access::Read, &mut go_on).unwrap();
    space.populate(pages(2048, 8), Access::Read, &mut go_on).unwrap();
    assert_eq!(resident(&space), (1, 3 + 8, 3 + 8));
    space.unmap(pages(0, 4)).unwrap();
    assert_eq!(resident(&space), (0, 8, 3 + 8));
    let mut text = Vec::new();
    // The code is where the layout says.
    space.statm(&mut text);
    assert_eq!(text, b"19 19 19 256 0 0 0\n");
}
