//! What is lost with the memory that held it: where that ends, and what is said of it.

use std::sync::Arc;

use foldspace::migrate::Lost;
use foldspace::space::{Access, Difference, Fault, MapRequest, PageState, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE)
}

fn range(number: u64, pages: u64) -> PageRange {
    PageRange::from_len(page(number), pages * PAGE).unwrap()
}

fn space(host: &Host, backing: Backing) -> Arc<AddressSpace> {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let request =
        MapRequest { placement: Placement::Fixed(page(0)), len: 8 * PAGE, flags: RW, backing, page_offset: 0 };
    space.map(request).unwrap();
    (0..8).for_each(|number| assert_eq!(space.write(page(number), &[number as u8 + 1]), 1));
    space
}

fn byte(space: &AddressSpace, number: u64) -> Result<u8, Fault> {
    space.fault(page(number), Access::Read)?;
    let mut byte = [0];
    assert_eq!(space.read(page(number), &mut byte), 1);
    Ok(byte[0])
}

/// As on Linux (`madvise_free_single_vma`): its owner has said that he does not want what is gone.
#[test]
fn memory_that_is_freed_lazily_is_as_new_where_it_was_lost() {
    let host = Host::new(8 << 20).unwrap();
    let space = space(&host, Backing::Anonymous);
    let child = space.fork().unwrap();
    assert_eq!(space.poison(page(2)), Ok(Lost::Private));
    space.free(range(0, 8)).unwrap();
    assert_eq!((byte(&space, 1), byte(&space, 2), byte(&space, 3)), (Ok(2), Ok(0), Ok(4)));
    assert_eq!((byte(&child, 2), byte(&child, 3)), (Err(Fault::Poisoned), Ok(4)));
    child.pageout(range(0, 8)).unwrap();
    assert_eq!(byte(&child, 2), Err(Fault::Poisoned), "paging out is no reason to forget");
    host.memory().check(&[&space, &child], &[]).unwrap();
}

/// A truncation takes copies of pages, and with them what says that one was lost.
#[test]
fn a_truncated_file_has_nothing_lost_past_its_end() {
    let host = Host::new(8 << 20).unwrap();
    let file = Object::anonymous(host.memory(), 8 * PAGE).unwrap();
    let space = space(&host, Backing::Object(file.clone()));
    let child = space.fork().unwrap();
    assert_eq!((space.poison(page(2)), space.poison(page(5))), (Ok(Lost::Private), Ok(Lost::Private)));
    file.set_len(4 * PAGE).unwrap();
    file.set_len(8 * PAGE).unwrap();
    for space in [&space, &child] {
        assert_eq!((byte(space, 2), byte(space, 5)), (Err(Fault::Poisoned), Ok(0)));
    }
    file.punch_hole(0..8 * PAGE).unwrap();
    assert_eq!(byte(&space, 2), Err(Fault::Poisoned), "a hole leaves copies, lost or not");
    host.memory().check(&[&space, &child], &[&file]).unwrap();
}

/// A hole that takes part of a page which was lost, or an end in it, leaves the frame alone: it is not to be written.
#[test]
fn nobody_writes_to_a_frame_that_has_failed() {
    let host = Host::new(8 << 20).unwrap();
    let file = Object::anonymous(host.memory(), 8 * PAGE).unwrap();
    file.write_at(0, &[7; 8 * PAGE as usize]).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (flags, backing) = (RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    let request = MapRequest { placement: Placement::Fixed(page(0)), len: 8 * PAGE, flags, backing, page_offset: 0 };
    space.map(request).unwrap();
    let mut shown = Vec::new();
    for number in [2, 5] {
        assert_eq!(byte(&space, number), Ok(7));
        shown.push(host.translate(&space, page(number)).unwrap());
        assert_eq!(space.poison(page(number)), Ok(Lost::Page { dirty: true }));
    }
    file.punch_hole(2 * PAGE + 100..3 * PAGE).unwrap();
    file.set_len(5 * PAGE + 100).unwrap();
    for shown in shown {
        let mut bytes = [0; 200];
        host.peek(shown, 50, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 200]);
    }
    assert_eq!(file.ensure(0..8 * PAGE), Err(Error::Poisoned));
    assert_eq!(byte(&space, 2), Err(Fault::Poisoned));
    host.memory().check(&[&space], &[&file]).unwrap();
}

#[test]
fn what_is_lost_is_told_of_snapshots_and_is_in_memory() {
    let host = Host::new(8 << 20).unwrap();
    let space = space(&host, Backing::Anonymous);
    let before = space.snapshot().unwrap();
    assert_eq!(space.write(page(3), &[9]), 1);
    assert_eq!(space.poison(page(3)), Ok(Lost::Private));
    let mut told = Vec::new();
    before.space().diff(&space, |difference| match difference {
        Difference::Pages { range, before, after } => told.push((range.start(), range.pages(), before, after)),
        other => panic!("{other:?}"),
    });
    assert_eq!(told, [(page(3), 1, PageState::Private, PageState::Lost)]);
    let mut resident = [0; 8];
    assert_eq!(space.mincore(range(0, 8), &mut resident), Ok(8));
    assert_eq!(resident, [1; 8]);
    let refused = foldspace_hosted::export::to_bytes(&space.snapshot().unwrap()).map(drop);
    assert!(matches!(refused, Err(foldspace_hosted::export::ExportError::Lost(at)) if at == page(3)), "{refused:?}");
    // Going back brings back what was there.
    space.restore(&before).unwrap();
    assert_eq!(byte(&space, 3), Ok(4));
    host.memory().check(&[&space, before.space()], &[]).unwrap();
}
