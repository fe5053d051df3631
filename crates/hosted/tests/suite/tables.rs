//! The tables as whoever draws them sees them.

use std::collections::BTreeMap;

use foldspace::addr::{Level, PAGE_SIZE};
use foldspace::proc::Target;
use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
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
