//! Who maps what, from the frames' side: what a listing of all frames says is what page tables and counts say.

use std::sync::Arc;

use foldspace::frame::{Frame, FrameUse};
use foldspace::migrate::Lost;
use foldspace::proc::KpageFlags;
use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE)
}

fn map(space: &AddressSpace, from: u64, pages: u64, flags: VmaFlags, backing: Backing) {
    let (placement, len) = (Placement::Fixed(page(from)), pages * PAGE);
    space.map(MapRequest { placement, len, flags, backing, page_offset: 0 }).unwrap();
}

/// One frame of a listing: what for, which page of its object, and the places, as numbers of spaces and addresses.
type Line = (FrameUse, Option<u64>, Vec<(usize, u64)>);

/// All frames that the manager has, one by one.
fn lines(host: &Host, spaces: &[&Arc<AddressSpace>]) -> Vec<(Frame, Line)> {
    let number = |space: &Arc<AddressSpace>| spaces.iter().position(|known| Arc::ptr_eq(known, space)).unwrap();
    let mut lines = Vec::new();
    host.memory()
        .frame_runs(|run| {
            for at in 0..run.frames {
                let places =
                    run.places.iter().map(|(space, start)| (number(space), start.get() + u64::from(at) * PAGE));
                let shown = run.page.as_ref().map(|(_, first)| first + u64::from(at));
                lines.push((Frame(run.first.0 + at), (run.used, shown, places.collect())));
            }
        })
        .unwrap();
    lines
}

#[test]
fn every_frame_is_listed_once_with_its_use_and_its_places() {
    let host = Host::new(8 << 20).unwrap();
    let memory = host.memory();
    let parent = AddressSpace::new(memory, Layouts::process()).unwrap();
    let file = Object::anonymous(memory, 8 * PAGE).unwrap();
    map(&parent, 0, 8, RW, Backing::Anonymous);
    map(&parent, 16, 8, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    (0..6).chain(16..20).for_each(|number| assert_eq!(parent.write(page(number), &[1]), 1));
    parent.fault(page(7), Access::Read).unwrap();
    let child = parent.fork().unwrap();
    assert_eq!(child.write(page(0), &[2]), 1);
    assert_eq!(child.poison(page(5)), Ok(Lost::Private));
    memory.reclaim();

    let spaces = [&parent, &child];
    let lines = lines(&host, &spaces);
    assert!(lines.windows(2).all(|pair| pair[0].0 < pair[1].0), "upwards, none twice");
    assert_eq!(lines.len() as u64, memory.stats().total);
    let of = |frame: Frame| lines.iter().find(|(listed, _)| *listed == frame).map(|(_, line)| line.clone()).unwrap();
    let at = |number: u64| page(number).get();
    let frame = |space: &AddressSpace, number: u64| space.frame_at(page(number)).unwrap();
    assert_eq!(of(frame(&parent, 0)), (FrameUse::Private, None, vec![(0, at(0))]), "copied by the child");
    assert_eq!(of(frame(&child, 0)), (FrameUse::Private, None, vec![(1, at(0))]));
    assert_eq!(of(frame(&parent, 3)), (FrameUse::Private, None, vec![(0, at(3)), (1, at(3))]), "shared since the fork");
    assert_eq!(of(frame(&parent, 18)), (FrameUse::Page, Some(2), vec![(0, at(18)), (1, at(18))]));
    assert_eq!(of(frame(&parent, 7)), (FrameUse::Reference, None, vec![]), "zeros are nobody's");

    // What the listing says of each frame is what can be asked of it alone.
    let mut failed = 0;
    for (frame, (used, _, places)) in &lines {
        assert_eq!((memory.frame_use(*frame), memory.map_count(*frame)), (*used, Ok(places.len() as u64)));
        let flags = memory.kpage_flags(*frame);
        assert_eq!(flags.contains(KpageFlags::MMAP), !places.is_empty(), "{frame:?}: {flags:?}");
        assert_eq!(flags.contains(KpageFlags::ANON), *used == FrameUse::Private);
        assert_eq!(flags.contains(KpageFlags::LRU), used.is_movable());
        assert_eq!(flags.contains(KpageFlags::PGTABLE), matches!(used, FrameUse::Table(_)));
        assert_eq!(flags.contains(KpageFlags::BUDDY), *used == FrameUse::Free);
        failed += usize::from(flags.contains(KpageFlags::HWPOISON));
    }
    assert_eq!(failed, 1);
    assert!(memory.kpage_flags(frame(&parent, 7)).contains(KpageFlags::ZERO_PAGE));
    assert!(memory.kpage_flags(frame(&parent, 16)).contains(KpageFlags::DIRTY));
    assert_eq!(memory.kpage_flags(Frame(u32::MAX)), KpageFlags::NOPAGE);
    memory.check(&[&parent, &child], &[&file]).unwrap();
}
