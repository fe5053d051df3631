//! The checker itself: each kind of damage to a page table is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldspace::addr::{Level, PAGE_SIZE};
use foldspace::backing::Reference;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Frame, VirtAddr};
use foldspace_hosted::{Host, Layouts};

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const AT: VirtAddr = VirtAddr(0x4000_0000);
const READ_ONLY: VirtAddr = VirtAddr(0x4000_8000);
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const DIRTY: u64 = 1 << 6;
const NO_EXECUTE: u64 = 1 << 63;

/// A parent and a child that share tables, with a writable area and one that can only be read.
struct Family {
    host: Host,
    parent: Arc<AddressSpace>,
    child: Arc<AddressSpace>,
}

impl Family {
    fn new() -> Family {
        let host = Host::new(4 << 20).unwrap();
        let parent = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
        let rw = VmaFlags::READ | VmaFlags::WRITE | MAY;
        for (at, flags) in [(AT, rw), (READ_ONLY, rw), (VirtAddr(0x1_0000_0000), rw)] {
            let (placement, backing) = (Placement::Fixed(at), Backing::Anonymous);
            parent.map(MapRequest { placement, len: 4 * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
            assert_eq!(parent.write(at, &[1; 3 * PAGE_SIZE as usize]), 3 * PAGE_SIZE as usize);
        }
        let read_only = foldspace::PageRange::from_len(READ_ONLY, 4 * PAGE_SIZE).unwrap();
        parent.protect(read_only, VmaFlags::READ).unwrap();
        let child = parent.fork().unwrap();
        Family { host, parent, child }
    }

    /// The slot for `addr` in the table of `level` on the parent's path.
    fn slot(&self, addr: VirtAddr, level: Level) -> &AtomicU64 {
        let (mut table, mut at) = (self.parent.root(), Level::L4);
        loop {
            let page = self.host.memory().frame_ptr(table).cast::<u64>();
            // SAFETY: a table has 512 entries, only ever accessed atomically, and the memory outlives the borrow of `self`.
            let slot = unsafe { AtomicU64::from_ptr(page.add(addr.index(at).get())) };
            if at == level {
                return slot;
            }
            table = Frame((slot.load(Ordering::Relaxed) >> 12 & 0xffff_ffff) as u32);
            at = at.below().unwrap();
        }
    }

    fn check(&self) -> Result<(), String> {
        self.host.memory().check(&[&self.parent, &self.child], &[]).map_err(|violation| violation.0)
    }
}

/// Damages, the invariant in order before, and broken after.
fn is_noticed(prepare: impl Fn(&Family), damage: impl Fn(&Family)) {
    let family = Family::new();
    prepare(&family);
    family.check().expect("all is well at first");
    damage(&family);
    let violation = family.check().expect_err("the damage is noticed");
    println!("{violation}");
    // What is damaged cannot be taken apart.
    std::mem::forget(family);
}

fn unshare(family: &Family) {
    assert_eq!(family.parent.write(AT, b"x"), 1);
}

#[test]
fn a_shared_table_that_can_be_written() {
    for level in [Level::L4, Level::L3, Level::L2] {
        let prepare = |family: &Family| {
            // Parts the tables above, so that the one at the level in question is still shared and the path to it is not.
            if level < Level::L4 {
                let beside = if level == Level::L3 { VirtAddr(0x1_0000_0000) } else { VirtAddr(0x4020_0000) };
                let rw = VmaFlags::READ | VmaFlags::WRITE | MAY;
                let (placement, backing) = (Placement::Fixed(beside), Backing::Anonymous);
                family
                    .parent
                    .map(MapRequest { placement, len: PAGE_SIZE, flags: rw, backing, page_offset: 0 })
                    .unwrap();
                assert_eq!(family.parent.write(beside, b"x"), 1);
            }
        };
        is_noticed(prepare, |family| {
            family.slot(AT, level).fetch_or(WRITE, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_shared_page_that_can_be_written() {
    is_noticed(unshare, |family| {
        let second = VirtAddr(AT.get() + PAGE_SIZE);
        family.slot(second, Level::L1).fetch_or(WRITE, Ordering::Relaxed);
    });
}

#[test]
fn a_page_that_can_be_written_where_it_must_not() {
    let own = |family: &Family| {
        unshare(family);
        // A copy of its own, so that nothing but the VMA forbids writing.
        assert_eq!(family.parent.write_forced(READ_ONLY, b"x"), 1);
    };
    is_noticed(own, |family| {
        family.slot(READ_ONLY, Level::L1).fetch_or(WRITE, Ordering::Relaxed);
    });
}

#[test]
fn a_page_that_can_be_executed_where_it_must_not() {
    is_noticed(unshare, |family| {
        family.slot(AT, Level::L1).fetch_and(!NO_EXECUTE, Ordering::Relaxed);
    });
}

#[test]
fn a_page_that_can_be_accessed_where_nothing_must() {
    let forbid = |family: &Family| {
        let page = foldspace::PageRange::page_of(AT).unwrap();
        family.parent.protect(page, VmaFlags::empty()).unwrap();
    };
    is_noticed(forbid, |family| {
        family.slot(AT, Level::L1).fetch_or(USER, Ordering::Relaxed);
    });
}

#[test]
fn an_entry_that_is_lost() {
    for level in [Level::L1, Level::L2, Level::L3, Level::L4] {
        is_noticed(unshare, |family| family.slot(AT, level).store(0, Ordering::Relaxed));
    }
}

#[test]
fn an_entry_that_leads_elsewhere() {
    is_noticed(unshare, |family| {
        let second = VirtAddr(AT.get() + PAGE_SIZE);
        let other = family.slot(second, Level::L1).load(Ordering::Relaxed);
        family.slot(AT, Level::L1).store(other, Ordering::Relaxed);
    });
}

#[test]
fn an_entry_where_nothing_is_mapped() {
    is_noticed(unshare, |family| {
        let outside = VirtAddr(AT.get() + 5 * PAGE_SIZE);
        let other = family.slot(AT, Level::L1).swap(0, Ordering::Relaxed);
        family.slot(outside, Level::L1).store(other, Ordering::Relaxed);
    });
}

/// Where the parent maps two reference pages side by side, a table of each, and reads both.
const OF_ONE: VirtAddr = VirtAddr(0x8000_0000);
const OF_OTHER: VirtAddr = VirtAddr(0x8020_0000);

fn map_references(family: &Family) {
    let memory = family.host.memory();
    for (at, content) in [(OF_ONE, 1), (OF_OTHER, 2)] {
        let backing = Backing::Reference(Reference::new(memory, &[content]).unwrap());
        let (placement, flags) = (Placement::Fixed(at), VmaFlags::READ | VmaFlags::WRITE | MAY);
        family.parent.map(MapRequest { placement, len: 512 * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
        assert_eq!(family.parent.read(at, &mut [0]), 1);
    }
}

#[test]
fn a_reference_of_another_mapping() {
    // A table of the other's; a page.
    is_noticed(map_references, |family| {
        let other = family.slot(OF_OTHER, Level::L2).load(Ordering::Relaxed);
        family.slot(OF_ONE, Level::L2).store(other, Ordering::Relaxed);
    });
    let store = |family: &Family| {
        map_references(family);
        assert_eq!(family.parent.write(OF_ONE, b"x") + family.parent.write(OF_OTHER, b"x"), 2);
    };
    is_noticed(store, |family| {
        let other = family.slot(VirtAddr(OF_OTHER.get() + PAGE_SIZE), Level::L1).load(Ordering::Relaxed);
        family.slot(VirtAddr(OF_ONE.get() + PAGE_SIZE), Level::L1).store(other, Ordering::Relaxed);
    });
}

#[test]
fn a_reference_where_none_is_mapped() {
    is_noticed(map_references, |family| {
        let other = family.slot(OF_OTHER, Level::L2).load(Ordering::Relaxed);
        let outside = VirtAddr(OF_OTHER.get() + 512 * PAGE_SIZE);
        family.slot(OF_OTHER, Level::L2).store(0, Ordering::Relaxed);
        family.slot(outside, Level::L2).store(other, Ordering::Relaxed);
    });
}

#[test]
fn a_table_of_a_reference_that_somebody_wrote_to() {
    // Through the link: the slot looked at is in the reference's own table.
    for damage in [WRITE, DIRTY] {
        is_noticed(map_references, |family| {
            family.slot(OF_ONE, Level::L1).fetch_or(damage, Ordering::Relaxed);
        });
    }
}

fn put_guard(family: &Family) {
    family.parent.guard_install(foldspace::PageRange::page_of(AT).unwrap()).unwrap();
}

#[test]
fn a_guard_that_is_lost_or_out_of_place() {
    is_noticed(put_guard, |family| family.slot(AT, Level::L1).store(0, Ordering::Relaxed));
    is_noticed(put_guard, |family| {
        let outside = VirtAddr(AT.get() + 5 * PAGE_SIZE);
        let guard = family.slot(AT, Level::L1).swap(0, Ordering::Relaxed);
        family.slot(outside, Level::L1).store(guard, Ordering::Relaxed);
    });
    is_noticed(put_guard, |family| {
        let guard = family.slot(AT, Level::L1).load(Ordering::Relaxed);
        let next_table = VirtAddr(AT.get() + 512 * PAGE_SIZE);
        family.slot(next_table, Level::L2).store(guard, Ordering::Relaxed);
    });
    is_noticed(put_guard, |family| {
        // Something that is not present, and no guard either.
        family.slot(AT, Level::L1).store(1 << 12, Ordering::Relaxed);
    });
}

#[test]
fn an_address_space_that_is_left_out() {
    let family = Family::new();
    family.check().expect("all is well");
    family.host.memory().check(&[&family.parent], &[]).expect_err("the child's root is reached by nobody");
}
