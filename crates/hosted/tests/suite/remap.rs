//! What moving memory costs, and what it must not do to others who share it.

use std::sync::Arc;

use foldspace::space::{Destination, Leave, RemapRequest};
use foldspace::{AddressSpace, Error, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Processor};

use crate::cost::{filled, map};
use crate::model::PAGE;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const FROM: u64 = 4 * GIB;

fn move_to(space: &AddressSpace, start: u64, len: u64, to: u64, leave: Leave) -> Result<VirtAddr, Error> {
    let to = Destination::Fixed(VirtAddr(to));
    space.remap(RemapRequest { start: VirtAddr(start), len, new_len: len, to, leave })
}

/// Tables and pages in use.
fn used(host: &Host) -> (u64, u64) {
    host.memory().reclaim();
    let stats = host.memory().stats();
    (stats.tables, stats.data)
}

/// Sees in `space` what [`filled`] stored page by page.
fn assert_filled(processor: &mut Processor, space: &Arc<AddressSpace>, start: u64, pages: u64) {
    processor.activate(space);
    for page in 0..pages {
        let mut seen = [0; 8];
        processor.load(VirtAddr(start + page * PAGE), &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), page, "page {page} at {start:#x}");
    }
}

#[test]
fn aligned_tables_move_as_they_are_also_while_they_are_shared() {
    let pages = 64 * MIB / PAGE;
    let (host, space, mut processor) = filled(256 << 20, &[(FROM, pages)]);
    let child = space.fork().unwrap();
    let before = used(&host);
    move_to(&space, FROM, 64 * MIB, FROM + 2 * GIB, Leave::Hole).unwrap();
    let after = used(&host);
    // The path that the child shared until now, and the new place's last table but one.
    assert!(after.0 <= before.0 + 3, "32 tables moved, {} were made", after.0 - before.0);
    assert_eq!(after.1, before.1, "no page was copied");
    host.memory().check(&[&space, &child], &[]).unwrap();
    assert_filled(&mut processor, &space, FROM + 2 * GIB, pages);
    assert_filled(&mut processor, &child, FROM, pages);
    processor.activate(&space);
    processor.store(VirtAddr(FROM + 2 * GIB), &7u64.to_le_bytes()).unwrap();
    assert_filled(&mut processor, &child, FROM, pages);
    host.memory().check(&[&space, &child], &[]).unwrap();
}

#[test]
fn a_gib_moves_by_one_slot() {
    let (host, space, mut processor) = filled(64 << 20, &[(FROM, 1), (FROM + GIB - PAGE, 1)]);
    map(&space, FROM, GIB);
    for page in [0, GIB / PAGE - 1] {
        processor.store(VirtAddr(FROM + page * PAGE), &page.to_le_bytes()).unwrap();
    }
    let before = used(&host);
    move_to(&space, FROM, GIB, FROM + 700 * GIB, Leave::Hole).unwrap();
    // The third level of the new place comes, that of the old one goes.
    assert_eq!(used(&host), before);
    host.memory().check(&[&space], &[]).unwrap();
    let mut seen = [0; 8];
    processor.load(VirtAddr(FROM + 701 * GIB - PAGE), &mut seen).unwrap();
    assert_eq!(u64::from_le_bytes(seen), GIB / PAGE - 1);
}

#[test]
fn pages_that_a_child_shares_move_without_being_copied() {
    let pages = 3 * MIB / PAGE;
    let (host, space, mut processor) = filled(64 << 20, &[(FROM, pages)]);
    let child = space.fork().unwrap();
    let grandchild = child.fork().unwrap();
    let before = used(&host);
    let at = FROM + GIB + 17 * PAGE;
    move_to(&space, FROM, 3 * MIB, at, Leave::Hole).unwrap();
    assert_eq!(used(&host).1, before.1, "no page was copied");
    let all = [&*space, &*child, &*grandchild];
    host.memory().check(&all, &[]).unwrap();
    // Unsharing what still shares them elsewhere keeps every slot to be found.
    processor.activate(&child);
    processor.store(VirtAddr(FROM + 5 * PAGE), &5u64.to_le_bytes()).unwrap();
    processor.activate(&grandchild);
    processor.store(VirtAddr(FROM + 5 * PAGE), &5u64.to_le_bytes()).unwrap();
    host.memory().check(&all, &[]).unwrap();
    move_to(&space, at, 3 * MIB, FROM, Leave::Hole).unwrap();
    host.memory().check(&all, &[]).unwrap();
    for space in [&space, &child, &grandchild] {
        assert_filled(&mut processor, space, FROM, pages);
    }
    processor.deactivate();
    drop((child, grandchild));
    processor.activate(&space);
    processor.store(VirtAddr(FROM), &0u64.to_le_bytes()).unwrap();
    host.memory().check(&[&space], &[]).unwrap();
    assert_filled(&mut processor, &space, FROM, pages);
}

#[test]
fn an_area_that_stays_is_empty() {
    let (host, space, mut processor) = filled(64 << 20, &[(FROM, 4)]);
    move_to(&space, FROM, 4 * PAGE, FROM + GIB, Leave::Area).unwrap();
    assert_filled(&mut processor, &space, FROM + GIB, 4);
    let mut seen = [1; 8];
    processor.load(VirtAddr(FROM + PAGE), &mut seen).unwrap();
    assert_eq!(seen, [0; 8]);
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn places_that_overlap_are_refused() {
    let (_, space, _) = filled(64 << 20, &[(FROM, 4)]);
    assert_eq!(move_to(&space, FROM, 4 * PAGE, FROM + 3 * PAGE, Leave::Hole), Err(Error::BadRange));
    assert_eq!(move_to(&space, FROM, 4 * PAGE, FROM - 3 * PAGE, Leave::Hole), Err(Error::BadRange));
    assert_eq!(move_to(&space, FROM - PAGE, 4 * PAGE, FROM + GIB, Leave::Hole), Err(Error::NotMapped));
}

#[test]
fn a_move_is_seen_by_processors_with_the_stalest_caches() {
    let (host, space, _) = filled(64 << 20, &[(FROM, 8)]);
    let mut others: Vec<Processor> = (0..3).map(|_| host.processor(CacheSize::Unbounded)).collect();
    for processor in &mut others {
        assert_filled(processor, &space, FROM, 8);
    }
    move_to(&space, FROM, 8 * PAGE, FROM + 3 * PAGE + GIB, Leave::Hole).unwrap();
    for processor in &mut others {
        assert!(processor.load(VirtAddr(FROM), &mut [0]).is_err(), "the old place is gone");
        assert_filled(processor, &space, FROM + 3 * PAGE + GIB, 8);
    }
}

/// What has moved when memory runs out stays moved, and what is tried again is the rest: the first area is not looked for where it no longer is.
#[test]
fn several_areas_of_which_the_first_have_moved_when_memory_runs_out() {
    const AREA: u64 = 4 * PAGE;
    const TO: u64 = 40 * GIB;
    // Each in tables of its own, here and there.
    let areas = [0, GIB, 2 * GIB];
    let mut refused = 0;
    for frames in 0.. {
        let (host, space, mut processor) = filled(64 << 20, &areas.map(|area| (FROM + area, AREA / PAGE)));
        host.memory().fail_after(Some(frames));
        let moved = move_to(&space, FROM, 2 * GIB + AREA, TO, Leave::Hole);
        host.memory().fail_after(None);
        host.memory().check(&[&space], &[]).unwrap();
        let there = areas.iter().filter(|&&area| space.vmas().view().find(VirtAddr(TO + area)).is_some()).count();
        for (number, area) in areas.iter().enumerate() {
            let base = if number < there { TO } else { FROM };
            assert_filled(&mut processor, &space, base + area, AREA / PAGE);
        }
        let Err(error) = moved else {
            assert_eq!(there, areas.len());
            break;
        };
        assert_eq!(error, Error::OutOfMemory, "{there} have moved");
        refused += u64::from(there > 0);
    }
    assert!(refused > 0, "memory never ran out between two areas");
}
