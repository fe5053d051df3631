//! The tables as whoever draws them sees them.

use std::collections::BTreeMap;

use foldspace::addr::{Level, PAGE_SIZE};
use foldspace::backing::Reference;
use foldspace::frame::Frame;
use foldspace::proc::{SlotView, Target};
use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);
const START: VirtAddr = VirtAddr(0x4000_0000);

#[test]
fn each_table_is_seen_once_with_the_slots_that_the_reverse_map_knows() {
    let host = Host::new(32 << 20).unwrap();
    let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (len, placement) = (1024 * PAGE_SIZE, Placement::Fixed(START));
    parent.map(MapRequest { placement, len, flags: RW, backing: Backing::Anonymous, page_offset: 0 }).unwrap();
    for page in 0..600 {
        parent.fault(VirtAddr(START.get() + page * PAGE_SIZE), Access::Write).unwrap();
    }
    let child = parent.fork().unwrap();
    child.fault(START, Access::Write).unwrap();

    let (mut tables, mut pages) = (BTreeMap::new(), BTreeMap::new());
    for space in [&parent, &child] {
        space.for_each_table(|table| {
            if tables.insert(table.frame, table.level).is_some() {
                return false;
            }
            table.for_each_slot(|slot| {
                let expected = if table.level == Level::L1 { Target::Page } else { Target::Table };
                assert_eq!(slot.target, expected);
                *pages.entry(slot.frame).or_insert(0) += 1;
                let mut known = false;
                host.memory().slots(slot.frame, |place| {
                    known |= place.table == table.frame && place.index.get() == slot.index.into()
                });
                assert!(known, "slot {} of {:?} is in the reverse map", slot.index, table.frame);
            });
            true
        });
    }
    // Two of the third, second and first level are the child's own now; the other table of the last level is shared, and drawn once.
    let at = |level| tables.values().filter(|seen| **seen == level).count();
    assert_eq!([Level::L4, Level::L3, Level::L2, Level::L1].map(at), [2, 2, 2, 3]);
    assert_eq!(tables.len() as u64, parent.usage().tables + child.usage().tables - 1);
    // The two tables that were one have all pages in common but that which the child wrote.
    assert_eq!(pages.iter().filter(|(frame, slots)| !tables.contains_key(frame) && **slots == 2).count(), 511);
}

/// Every kind of slot, as runs: unfolded they are the slots, and no two of them could be one.
#[test]
fn runs_are_the_slots_in_as_few_pieces_as_there_can_be() {
    let host = Host::new(32 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let file = Object::anonymous(host.memory(), 1024 * PAGE_SIZE).unwrap();
    let reference = Reference::new(host.memory(), &[7]).unwrap();
    let map = |block: u64, pages: u64, flags, backing| {
        let placement = Placement::Fixed(VirtAddr(START.get() + block * 512 * PAGE_SIZE));
        space.map(MapRequest { placement, len: pages * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap()
    };
    let anonymous = map(0, 512, RW, Backing::Anonymous);
    let whole = map(1, 512, RW - VmaFlags::WRITE, Backing::Object(file.clone()));
    let part = map(2, 8, RW | VmaFlags::SHARED, Backing::Object(file.clone()));
    let pattern = map(3, 512, RW, Backing::Reference(reference));
    let page = |start: VirtAddr, number: u64| VirtAddr(start.get() + number * PAGE_SIZE);
    (0..20).chain(40..60).for_each(|number| space.fault(page(anonymous, number), Access::Write).unwrap());
    space.guard_install(PageRange::from_len(page(anonymous, 100), 8 * PAGE_SIZE).unwrap()).unwrap();
    (0..4).for_each(|number| space.fault(page(part, number), Access::Write).unwrap());
    space.fault(page(whole, 3), Access::Read).unwrap();
    // The reference's own table, then a copy of it for the store.
    space.fault(page(pattern, 5), Access::Read).unwrap();
    space.fault(page(pattern, 1), Access::Write).unwrap();

    let (mut kinds, mut slots, mut pieces) = (BTreeMap::new(), 0, 0);
    space.for_each_table(|table| {
        let (mut one_by_one, mut unfolded) = (Vec::new(), Vec::new());
        table.for_each_slot(|slot| one_by_one.push(slot));
        let mut last: Option<SlotView> = None;
        table.for_each_run(|run| {
            let step = u32::from(!matches!(run.slot.target, Target::Reference | Target::Guard));
            let at = |number: u16| SlotView {
                index: run.slot.index + number,
                frame: Frame(run.slot.frame.0 + step * u32::from(number)),
                ..run.slot
            };
            let before = last.map(|last| SlotView { index: last.index + 1, frame: Frame(last.frame.0 + step), ..last });
            assert_ne!(before, Some(run.slot), "two runs that are one");
            unfolded.extend((0..run.count).map(at));
            last = unfolded.last().copied();
            pieces += 1;
        });
        assert_eq!(unfolded, one_by_one, "{:?} of {:?}", table.frame, table.level);
        one_by_one.iter().for_each(|slot| *kinds.entry(slot.target.word()).or_insert(0) += 1);
        slots += one_by_one.len();
        let of_object =
            one_by_one.first().is_some_and(|slot| slot.target == Target::ObjectPage) && table.is_of_object();
        assert_eq!(table.is_of_object(), of_object, "only what shows an object's pages is an object's");
        true
    });
    // The object's table shows the four pages that the other mapping made.
    let expected = [("guard", 8), ("object", 8), ("object-table", 1), ("page", 41), ("reference", 511), ("table", 5)];
    assert_eq!(kinds, BTreeMap::from(expected));
    assert!(pieces * 5 < slots, "{pieces} runs of {slots} slots");
}
