//! What the reverse map costs where Linux's has grown: chains of forks, and many children of one parent; and where memory moves while it is shared.

use std::sync::Arc;

use foldspace::frame::Home;
use foldspace::space::{Destination, Leave, MapRequest, Placement, RemapRequest};
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

fn move_pages(space: &AddressSpace, from: VirtAddr, pages: u64, to: VirtAddr) {
    let (len, to) = (pages * PAGE, Destination::Fixed(to));
    space.remap(RemapRequest { start: from, len, new_len: len, to, leave: Leave::Hole }).unwrap();
}

fn places(host: &Host, frame: foldspace::Frame) -> Vec<(u64, VirtAddr)> {
    let mut found = Vec::new();
    host.memory().mappings(frame, |space, at| found.push((space.id().0, at))).unwrap();
    found.sort_unstable();
    found
}

/// A page that a parent has moved elsewhere while its child shares it is at two unrelated places: both are known, however many tables there are of others,
/// and when one of them has gone the other is all that is known.
#[test]
fn what_moved_while_it_was_shared_is_found_where_it_is_and_nowhere_else() {
    const OTHERS: u64 = 300;
    let host = Host::new(64 << 20).unwrap();
    let space = parent(&host, 40);
    let others: Vec<_> = (0..OTHERS).map(|_| parent(&host, 3)).collect();
    let child = space.fork().unwrap();
    let frames: Vec<_> = (0..8).map(|number| host.translate(&space, page(number)).unwrap().frame).collect();
    let away = page(5000);
    move_pages(&space, page(0), 8, away);
    let spaces: Vec<&AddressSpace> = others.iter().chain([&space, &child]).map(|space| &**space).collect();
    host.memory().check(&spaces, &[]).unwrap();
    for (frame, number) in frames.iter().zip(0..) {
        let at = VirtAddr(away.get() + number * PAGE);
        assert_eq!(host.memory().home(*frame), Home::Listed);
        // The child's table, what the parent has for what stayed, and the one that it moved to.
        assert_eq!(host.memory().visited_tables(*frame), 3);
        let mut expected = vec![(space.id().0, at), (child.id().0, page(number))];
        expected.sort_unstable();
        assert_eq!(places(&host, *frame), expected);
    }
    let stats = host.memory().reverse_stats();
    assert_eq!((stats.listed_frames, stats.listed_places), (8, 16));
    // A grandchild is one more table in each of the lineages, once it has copied them; lists count it, and do not grow.
    let grandchild = space.fork().unwrap();
    assert_eq!(grandchild.write(VirtAddr(away.get() + 7 * PAGE), &[3]), 1);
    assert_eq!(places(&host, frames[1]).len(), 3);
    assert_eq!(places(&host, frames[7]).len(), 2);
    assert_eq!(host.memory().reverse_stats(), stats);
    host.memory().check(&[&spaces[..], &[&*grandchild]].concat(), &[]).unwrap();
    // The child stores to some, and goes.
    assert_eq!(child.write(page(2), &[4]), 1);
    settle(&host);
    assert_ne!(host.memory().home(frames[2]), Home::Listed);
    assert_eq!(host.memory().reverse_stats().listed_frames, 7);
    drop(spaces);
    drop(child);
    settle(&host);
    let stats = host.memory().reverse_stats();
    assert_eq!((stats.listed_frames, stats.listed_places), (0, 0), "there is one place for each again");
    assert_eq!(host.memory().visited_tables(frames[1]), 2, "one table of the parent, one of the grandchild");
}

/// Lists are as long as there are places, however often memory moves; and memory that nobody shares has none.
#[test]
fn moving_to_and_fro_leaves_nothing_behind() {
    let host = Host::new(24 << 20).unwrap();
    let space = parent(&host, 40);
    move_pages(&space, page(30), 4, page(5000));
    assert_eq!(host.memory().reverse_stats().listed_frames, 0, "it is its own");
    let child = space.fork().unwrap();
    let mut at = page(0);
    let mut early = None;
    for round in 0..400 {
        let to = page(6000 + round % 7 * 700);
        move_pages(&space, at, 8, to);
        move_pages(&child, page(8 + round % 2), 1, page(40 + round));
        move_pages(&child, page(40 + round), 1, page(8 + round % 2));
        at = to;
        if round == 50 || round == 399 {
            settle(&host);
            let stats = host.memory().reverse_stats();
            assert_eq!((stats.listed_frames, stats.listed_places), (8, 16), "round {round}");
            let now = (stats, host.memory().stats().tables);
            assert_eq!(*early.get_or_insert(now), now, "round {round}");
        }
    }
    host.memory().check(&[&space, &child], &[]).unwrap();
    let frame = host.translate(&space, at).unwrap().frame;
    assert!(host.memory().visited_tables(frame) <= 3);
}

/// The same of whole tables.
#[test]
fn tables_that_moved_while_they_were_shared_are_found() {
    let host = Host::new(24 << 20).unwrap();
    let space = parent(&host, 1200);
    let start = VirtAddr(page(0).get() + 512 * PAGE);
    let child = space.fork().unwrap();
    let frame = host.translate(&space, start).unwrap().frame;
    let away = VirtAddr(page(0).get() + 4096 * PAGE);
    move_pages(&space, start, 512, away);
    assert!(host.memory().visited_tables(frame) == 1, "the table is shared still");
    let mut expected = vec![(space.id().0, away), (child.id().0, start)];
    expected.sort_unstable();
    assert_eq!(places(&host, frame), expected);
    assert_eq!(host.memory().reverse_stats().listed_frames, 1, "the table's");
    host.memory().check(&[&space, &child], &[]).unwrap();
    assert_eq!(child.write(start, &[7]), 1);
    settle(&host);
    assert_eq!(host.memory().reverse_stats().listed_frames, 0);
    assert_eq!(places(&host, frame), [(space.id().0, away)]);
    host.memory().check(&[&space, &child], &[]).unwrap();
}
