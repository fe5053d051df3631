//! What operations cost in tables, which must not depend on what is mapped.

use std::sync::Arc;

use foldspace::space::{Access, ForkMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor};

use crate::model::PAGE;
use crate::sizes;

const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::MAY_READ).union(VmaFlags::MAY_WRITE);

/// A machine with a space that has stored to every page of each of `regions`.
pub fn filled(bytes: u64, regions: &[(u64, u64)]) -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(bytes).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut processor = host.processor(CacheSize::Bounded(64));
    processor.activate(&space);
    for &(start, pages) in regions {
        map(&space, start, pages * PAGE);
        for page in 0..pages {
            processor.store(VirtAddr(start + page * PAGE), &page.to_le_bytes()).unwrap();
        }
    }
    (host, space, processor)
}

/// Maps private memory there.
pub fn map(space: &AddressSpace, start: u64, len: u64) {
    let (placement, backing) = (Placement::Fixed(VirtAddr(start)), Backing::Anonymous);
    space.map(MapRequest { placement, len, flags: RW, backing, page_offset: 0 }).unwrap();
}

/// Tables in use, dead ones not counted.
fn tables(host: &Host) -> u64 {
    host.memory().reclaim();
    host.memory().stats().tables
}

#[test]
fn a_full_fork_takes_one_table_whatever_is_mapped() {
    let none: &[(u64, u64)] = &[];
    for regions in
        [none, &[(0x40_0000, 1)], &[(0x4000_0000, 4096), (0x1000_0000_0000, 4096), (0x7fff_0000_0000, 16384)]]
    {
        let (host, space, processor) = filled(256 << 20, regions);
        let untouched = Host::new(256 << 20).unwrap().memory().stats().data;
        space.set_fork_mode(ForkMode::Full);
        let (before, data) = (tables(&host), host.memory().stats().data);
        let child = space.fork().unwrap();
        assert_eq!(tables(&host), before + 1, "{regions:x?}");
        assert_eq!(host.memory().stats().data, data, "no page is copied");
        let grandchild = child.fork().unwrap();
        assert_eq!(tables(&host), before + 2);
        host.memory().check(&[&space, &child, &grandchild], &[]).unwrap();
        drop(child);
        drop(grandchild);
        assert_eq!(tables(&host), before, "exit frees all that fork took");
        drop(processor);
        drop(space);
        assert_eq!(host.memory().stats().data, untouched, "nothing resident is left of {regions:x?}");
    }
}

#[test]
fn the_first_store_after_a_fork_copies_one_table_a_level() {
    let (host, space, mut processor) = filled(128 << 20, &[(0x4000_0000, 4096)]);
    let before = tables(&host);
    let child = space.fork().unwrap();
    let data = host.memory().stats().data;
    processor.store(VirtAddr(0x4000_0000), b"x").unwrap();
    assert_eq!(tables(&host), before + 1 + 3, "the child's root, and three levels for the parent");
    assert_eq!(host.memory().stats().data, data + 1);
    processor.store(VirtAddr(0x4000_1000), b"x").unwrap();
    assert_eq!(tables(&host), before + 4, "the same table");
    assert_eq!(host.memory().stats().data, data + 2);
    processor.store(VirtAddr(0x4020_0000), b"x").unwrap();
    assert_eq!(tables(&host), before + 5, "another last level");
    // The child's path is its own since the parent left it.
    processor.activate(&child);
    processor.store(VirtAddr(0x4000_0000), b"y").unwrap();
    assert_eq!(tables(&host), before + 5, "a table that nobody else links is used as it is");
    assert_eq!(host.memory().stats().data, data + 3, "so is a page that nobody else maps");
    host.memory().check(&[&space, &child], &[]).unwrap();
}

#[test]
fn the_other_modes_copy_what_they_say() {
    // 8 last-level tables below one table of level 2 and one of level 3.
    for (mode, copied) in [(ForkMode::Leaf, 3), (ForkMode::Copy, 11)] {
        let (host, space, _processor) = filled(128 << 20, &[(0x4000_0000, 4096)]);
        space.set_fork_mode(mode);
        let before = tables(&host);
        let child = space.fork().unwrap();
        assert_eq!(tables(&host), before + copied, "{mode:?}");
        host.memory().check(&[&space, &child], &[]).unwrap();
    }
}

#[test]
fn reads_of_untouched_memory_link_zero_tables() {
    let (host, space, mut processor) = filled(8 << 20, &[]);
    map(&space, 0x80_0000_0000, 400 << 30);
    let before = tables(&host);
    for gib in 0..400 {
        let mut seen = [1; 8];
        processor.load(VirtAddr(0x80_0000_0000 + (gib << 30) + gib * 8 * PAGE), &mut seen).unwrap();
        assert_eq!(seen, [0; 8]);
    }
    assert!(tables(&host) <= before + 1, "one table for 400 GiB of zeros: {} more", tables(&host) - before);
    assert!(processor.stats().faults <= 400, "one fault a GiB at most");
    host.memory().check(&[&space], &[]).unwrap();
    assert_eq!(space.usage().resident_anon, 0);
}

/// A line of five thousand generations, each of which forks, stores, and dies: what the last one has does not grow with the number of its ancestors.
#[test]
fn generations_leave_nothing_behind() {
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        let (host, mut space, mut processor) = filled(8 << 20, &[(0x4000_0000, 100), (0x80_0000_0000, 3)]);
        space.set_fork_mode(mode);
        let mut early = None;
        for generation in 0..5_000_u64 {
            let child = space.fork().unwrap();
            processor.activate(&child);
            space = child;
            let page = generation * 7 % 100;
            processor.store(VirtAddr(0x4000_0000 + page * PAGE), &generation.to_le_bytes()).unwrap();
            if generation == 10 {
                host.memory().reclaim();
                early = Some(host.memory().stats());
            }
        }
        host.memory().reclaim();
        let late = host.memory().stats();
        assert_eq!(
            Some((late.free, late.tables, late.data)),
            early.map(|early| (early.free, early.tables, early.data))
        );
        host.memory().check(&[&space], &[]).unwrap();
        for generation in 4_900..5_000_u64 {
            let mut seen = [0; 8];
            processor.load(VirtAddr(0x4000_0000 + generation * 7 % 100 * PAGE), &mut seen).unwrap();
            assert_eq!(u64::from_le_bytes(seen), generation);
        }
    }
}

/// Operations over many shared tables at once: each is copied, or let go of, and everyone keeps what is theirs.
#[test]
fn changes_of_many_shared_tables() {
    const TABLES: u64 = 100;
    let start = 0x4000_0000 - 20 * (512 * PAGE);
    let len = TABLES * 512 * PAGE;
    let range = foldspace::PageRange::from_len(VirtAddr(start + PAGE), len - 2 * PAGE).unwrap();
    type Change = fn(&AddressSpace, foldspace::PageRange) -> foldspace::Result<()>;
    let changes: [(&str, Change); 6] = [
        ("nothing", |_, _| Ok(())),
        ("protect", |space, range| space.protect(range, VmaFlags::READ)),
        ("unmap", |space, range| space.unmap(range)),
        ("discard", |space, range| space.discard(range)),
        ("clear", |space, _| {
            space.clear();
            Ok(())
        }),
        ("map over", |space, range| {
            map(space, range.start().get(), range.len());
            Ok(())
        }),
    ];
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        for (name, change) in changes {
            let (host, space, mut processor) = filled(16 << 20, &[]);
            map(&space, start, len);
            let at = |table: u64, page: u64| VirtAddr(start + (table * 512 + page) * PAGE);
            for table in 0..TABLES {
                processor.store(at(table, table), &table.to_le_bytes()).unwrap();
                processor.store(at(table, 511 - table), &table.to_le_bytes()).unwrap();
            }
            space.set_fork_mode(mode);
            let child = space.fork().unwrap();
            let grandchild = child.fork().unwrap();
            change(&child, range).unwrap();
            let check = |spaces: &[&AddressSpace]| {
                host.memory().check(spaces, &[]).unwrap_or_else(|violation| panic!("{name}, {mode:?}: {violation}"));
            };
            check(&[&space, &child, &grandchild]);
            let unchanged = |space: &Arc<AddressSpace>, processor: &mut Processor| {
                processor.activate(space);
                for table in 0..TABLES {
                    let mut seen = [0; 8];
                    processor.load(at(table, 511 - table), &mut seen).unwrap();
                    assert_eq!(u64::from_le_bytes(seen), table, "{name}, {mode:?}");
                }
            };
            unchanged(&space, &mut processor);
            unchanged(&grandchild, &mut processor);
            change(&space, range).unwrap();
            check(&[&space, &child, &grandchild]);
            drop(child);
            unchanged(&grandchild, &mut processor);
            change(&grandchild, range).unwrap();
            check(&[&space, &grandchild]);
            processor.deactivate();
            drop(space);
            drop(grandchild);
            host.memory().reclaim();
            assert_eq!(host.memory().stats(), Host::new(16 << 20).unwrap().memory().stats(), "{name}, {mode:?}");
        }
    }
}

/// A walk page by page over this would not end today.
#[test]
fn what_proc_says_costs_tables_not_addresses() {
    let (host, space, mut processor) = filled(32 << 20, &[]);
    const TIB: u64 = 1 << 40;
    map(&space, TIB, 100 * TIB);
    for tib in 1..6 {
        processor.store(VirtAddr(tib * 20 * TIB), b"x").unwrap();
        processor.load(VirtAddr(tib * 20 * TIB + (300 << 30)), &mut [0]).unwrap();
    }
    let text = space.smaps().text(&space).unwrap();
    let [(_, fields)] = &sizes::parse(std::str::from_utf8(&text).unwrap())[..] else { panic!("one area") };
    assert_eq!((fields["Size"], fields["Rss"], fields["Private_Dirty"]), (100 << 30, 5 * 4, 5 * 4));
    let mut rollup = Vec::new();
    space.smaps_rollup(&mut rollup).unwrap();
    assert_eq!(space.usage().resident_anon, 5);
    let everything = PageRange::from_len(VirtAddr(TIB), 100 * TIB).unwrap();
    space.cold(everything).unwrap();
    space.free(everything).unwrap();
    space.pageout(everything).unwrap();
    assert_eq!(space.usage().resident_anon, 0);
    // Zeros are linked a GiB at a time and more.
    space.populate(everything, Access::Read, &mut || false).unwrap();
    host.memory().check(&[&space], &[]).unwrap();
}

/// However the pages of a family are shared, the shares of all add up to what there is.
#[test]
fn proportional_sizes_add_up_to_the_memory_there_is() {
    const PAGES: u64 = 600;
    const CHILDREN: u64 = 100;
    let start = 0x4000_0000;
    let (host, space, mut processor) = filled(64 << 20, &[(start, PAGES)]);
    let empty = Host::new(64 << 20).unwrap().memory().stats().data;
    let mut family = vec![space];
    for child in 0..CHILDREN {
        let parent = &family[(child * child) as usize % family.len()];
        let space = parent.fork().unwrap();
        processor.activate(&space);
        for page in 0..child % 7 {
            processor.store(VirtAddr(start + (child * 31 + page * 97) % PAGES * PAGE), b"x").unwrap();
        }
        family.push(space);
    }
    let fields = |space: &Arc<AddressSpace>| {
        let text = space.smaps().text(space).unwrap();
        sizes::parse(std::str::from_utf8(&text).unwrap())[0].1.clone()
    };
    let (mut shares, mut private) = (0, 0);
    for space in &family {
        let fields = fields(space);
        assert_eq!(fields["Rss"], PAGES * 4);
        shares += fields["Pss"];
        private += fields["Private_Dirty"] / 4;
    }
    let pages = host.memory().stats().data - empty;
    // Each is rounded down to a kB.
    assert!((pages * 4 - family.len() as u64..=pages * 4).contains(&shares), "{shares} kB of {pages} pages");
    assert!(private <= pages && private > CHILDREN, "{private} of {pages} pages are mapped once");
    let refs: Vec<&AddressSpace> = family.iter().map(|space| &**space).collect();
    sizes::verify(&host, &refs, |_, _| false);
}
