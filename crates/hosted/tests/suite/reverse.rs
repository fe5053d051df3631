//! What the reverse map costs where Linux's has grown: chains of forks, and many children of one parent.

use std::sync::Arc;

use foldspace::frame::Home;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use crate::model::PAGE;
use crate::threads::settle;

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

fn page(number: u64) -> VirtAddr {
    VirtAddr(0x4000_0000 + number * PAGE)
}

fn parent(host: &Host, pages: u64) -> Arc<AddressSpace> {
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let (placement, backing) = (Placement::Fixed(page(0)), Backing::Anonymous);
    space.map(MapRequest { placement, len: pages * PAGE, flags: RW, backing, page_offset: 0 }).unwrap();
    (0..pages).for_each(|number| assert_eq!(space.write(page(number), &[1]), 1));
    space
}

/// Tables that a look-up of the page at `at` visits.
fn visited(host: &Host, space: &AddressSpace, at: VirtAddr) -> u64 {
    let frame = host.translate(space, at).unwrap().frame;
    host.memory().visited_tables(frame)
}

/// A daemon that forks, and goes on as its child, for ever: each generation writes a little. On Linux each left an anon_vma to all that come after
/// it, and a look-up went through all of them, until 2015 (commit 7a3ef208e662).
#[test]
fn a_chain_of_forks_costs_what_one_costs() {
    const GENERATIONS: usize = 10_000;
    const PAGES: u64 = 700;
    let host = Host::new(24 << 20).unwrap();
    let mut space = parent(&host, PAGES);
    let mut early = None;
    for generation in 0..GENERATIONS {
        let child = space.fork().unwrap();
        for number in [generation as u64 % PAGES, (generation as u64 * 7) % PAGES] {
            assert_eq!(child.write(page(number), &[generation as u8]), 1);
        }
        space = child;
        if generation == 100 || generation == GENERATIONS - 1 {
            settle(&host);
            let stats = host.memory().reverse_stats();
            let most = (0..PAGES).map(|number| visited(&host, &space, page(number))).max().unwrap();
            assert_eq!(most, 1, "nobody else is left: each page is found in one table");
            let now = (stats.lineages, stats.listed_places, host.memory().stats().tables);
            // One for each table on the paths: two of the last level, and those above.
            assert!(stats.lineages <= 5, "{stats:?}");
            assert_eq!(*early.get_or_insert(now), now, "generation {generation}");
        }
    }
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn a_page_of_a_childs_own_is_found_in_one_table_of_a_thousand() {
    const CHILDREN: u64 = 1_000;
    let host = Host::new(64 << 20).unwrap();
    let parent = parent(&host, 32);
    let children: Vec<_> = (0..CHILDREN).map(|_| parent.fork().unwrap()).collect();
    for (number, child) in children.iter().enumerate() {
        assert_eq!(child.write(page(number as u64 % 8), &[2]), 1);
    }
    for (number, child) in children.iter().enumerate() {
        let own = page(number as u64 % 8);
        assert_eq!(visited(&host, child, own), 1);
        let frame = host.translate(child, own).unwrap().frame;
        assert!(matches!(host.memory().home(frame), Home::Slot(_)));
        let mut found = Vec::new();
        host.memory().mappings(frame, |space, at| found.push((space.id(), at))).unwrap();
        assert_eq!(found, [(child.id(), own)]);
    }
    // What all of them have still is found in each of their tables, and by all of their names.
    let shared = host.translate(&parent, page(20)).unwrap().frame;
    assert_eq!(host.memory().visited_tables(shared), CHILDREN + 1);
    let mut count = 0;
    host.memory()
        .mappings(shared, |_, at| {
            assert_eq!(at, page(20));
            count += 1;
        })
        .unwrap();
    assert_eq!(count, CHILDREN + 1);
}
