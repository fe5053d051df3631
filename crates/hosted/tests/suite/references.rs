//! Reference pages: what a mapping of one shows, and what it costs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use foldspace::addr::PAGE_SIZE;
use foldspace::backing::Reference;
use foldspace::space::{Destination, ForkMode, Leave, MapRequest, Placement, RemapRequest};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Memory, Object, PageRange, VirtAddr};
use foldspace_hosted::{CacheSize, Host, Layouts, Processor};

use crate::threads::{rounds, settle};

const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(MAY);
const GIB: u64 = 1 << 30;
const AT: VirtAddr = VirtAddr(0x80_0000_0000);

fn machine() -> (Host, Arc<AddressSpace>, Processor) {
    let host = Host::new(8 << 20).unwrap();
    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
    let mut processor = host.processor(CacheSize::Unbounded);
    processor.activate(&space);
    (host, space, processor)
}

fn pattern(memory: &Arc<Memory>, content: &[u8]) -> Arc<Reference> {
    Reference::new(memory, content).unwrap()
}

fn map_at(space: &AddressSpace, at: VirtAddr, len: u64, reference: &Arc<Reference>) {
    let (placement, backing) = (Placement::Fixed(at), Backing::Reference(reference.clone()));
    space.map(MapRequest { placement, len, flags: RW, backing, page_offset: 0 }).unwrap();
}

fn page(number: u64) -> VirtAddr {
    VirtAddr(AT.get() + number * PAGE_SIZE)
}

fn pages(from: u64, count: u64) -> PageRange {
    PageRange::from_len(page(from), count * PAGE_SIZE).unwrap()
}

fn word(processor: &mut Processor, at: VirtAddr) -> u64 {
    let mut bytes = [0; 8];
    processor.load(at, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn maps(space: &AddressSpace) -> String {
    String::from_utf8(space.maps().text()).unwrap()
}

const WORD: u64 = 0x0123_4567_89ab_cdef;

#[test]
fn every_page_of_a_gib_is_read_for_one_fault_and_little_memory() {
    let (host, space, mut processor) = machine();
    let before = host.memory().stats();
    map_at(&space, AT, GIB, &pattern(host.memory(), &WORD.to_le_bytes()));
    for number in 0..GIB / PAGE_SIZE {
        assert_eq!(word(&mut processor, VirtAddr(page(number).get() + number % 512 * 8)), WORD);
    }
    let after = host.memory().stats();
    let tables = (after.tables - before.tables) * PAGE_SIZE;
    println!("{} fault, {tables} bytes of tables, {} page", processor.stats().faults, after.data - before.data);
    assert_eq!(processor.stats().faults, 1);
    assert!(tables < 32 << 10, "{tables} bytes of tables");
    assert_eq!(after.data - before.data, 1, "the reference page itself");
    assert_eq!(space.usage().resident_anon, 0);

    // The first store copies the page, and makes one path of tables.
    processor.store(page(700), b"!").unwrap();
    let stored = host.memory().stats();
    assert_eq!((stored.data - after.data, space.usage().resident_anon), (1, 1));
    assert_eq!(stored.tables - after.tables, 2, "of level 2 and 1");
    assert_eq!(word(&mut processor, page(700)), WORD & !0xff | u64::from(b'!'));
    assert_eq!(word(&mut processor, VirtAddr(page(700).get() + 8)), WORD);
    assert_eq!(word(&mut processor, page(701)), WORD);
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn references_are_linked_as_high_as_the_edges_allow() {
    let (host, space, mut processor) = machine();
    // A page short of a GiB at both ends: 510 tables of level 1 linked whole, and two at the edges page by page.
    map_at(&space, page(1), GIB - 2 * PAGE_SIZE, &pattern(host.memory(), &[7]));
    for number in (1..GIB / PAGE_SIZE - 1).step_by(512).chain([511, 512, 1023, GIB / PAGE_SIZE - 2]) {
        assert_eq!(word(&mut processor, page(number)), u64::from_le_bytes([7; 8]));
    }
    for outside in [0, GIB / PAGE_SIZE - 1] {
        processor.load(page(outside), &mut [0]).unwrap_err();
    }
    host.memory().check(&[&space], &[]).unwrap();
    // One level higher where nothing is in the way.
    let before = host.memory().stats().tables;
    map_at(&space, VirtAddr(AT.get() + 512 * GIB), 512 * GIB, &pattern(host.memory(), &[7]));
    assert_eq!(word(&mut processor, VirtAddr(AT.get() + 900 * GIB)), u64::from_le_bytes([7; 8]));
    assert_eq!(host.memory().stats().tables, before, "512 GiB are linked in the root");
}

#[test]
fn content_of_every_length_is_repeated() {
    let (host, space, mut processor) = machine();
    for shift in 0..=12 {
        let content: Vec<u8> = (0..1_u32 << shift).map(|at| (at * 7 + shift + 1) as u8).collect();
        map_at(&space, AT, 3 * PAGE_SIZE, &pattern(host.memory(), &content));
        let mut seen = vec![0; 3 * PAGE_SIZE as usize];
        processor.load(AT, &mut seen).unwrap();
        assert!(seen.iter().zip(content.iter().cycle()).all(|(seen, expected)| seen == expected), "2^{shift} bytes");
    }
    for wrong in [0, 3, 4095, 8192] {
        assert_eq!(Reference::new(host.memory(), &vec![1; wrong]).err(), Some(Error::BadRange), "{wrong} bytes");
    }
}

/// A store leaves the rest of its page as the reference shows it, however that is made.
#[test]
fn what_is_not_stored_to_stays_as_the_reference_shows_it() {
    let (host, space, mut processor) = machine();
    let mut one_differs = [0xab; PAGE_SIZE as usize];
    one_differs[PAGE_SIZE as usize - 1] = 0xac;
    for (number, content) in [&[0xab][..], &[0; 8], &[0xab; 4096], &[0xab, 0xcd], &one_differs].into_iter().enumerate()
    {
        let at = page(number as u64 * 2);
        map_at(&space, at, PAGE_SIZE, &pattern(host.memory(), content));
        let mut expected: Vec<u8> = content.iter().copied().cycle().take(PAGE_SIZE as usize).collect();
        expected[1000..1003].copy_from_slice(&[1, 2, 3]);
        processor.store(VirtAddr(at.get() + 1000), &[1, 2, 3]).unwrap();
        let mut bytes = vec![0; PAGE_SIZE as usize];
        processor.load(at, &mut bytes).unwrap();
        assert!(bytes == expected, "content {number}");
    }
}

#[test]
fn a_reference_mapping_behaves_as_private_memory() {
    for mode in [ForkMode::Full, ForkMode::Leaf, ForkMode::Copy] {
        let (host, space, mut processor) = machine();
        let fresh = u64::from_le_bytes([5; 8]);
        map_at(&space, AT, 2048 * PAGE_SIZE, &pattern(host.memory(), &[5]));
        for number in [0, 511, 512, 2047] {
            processor.store(page(number), &number.to_le_bytes()).unwrap();
        }
        // Permissions come and go, copies and content stay.
        space.protect(pages(0, 1000), VmaFlags::empty()).unwrap();
        processor.load(page(0), &mut [0]).unwrap_err();
        space.protect(pages(0, 1000), VmaFlags::READ).unwrap();
        assert_eq!(word(&mut processor, page(511)), 511);
        assert_eq!(word(&mut processor, page(510)), fresh);
        processor.store(page(510), b"x").unwrap_err();
        assert_eq!(space.write_forced(page(510), b"xxxxxxxx"), 8);
        assert_eq!(word(&mut processor, page(510)), u64::from_le_bytes(*b"xxxxxxxx"));
        space.protect(pages(0, 1000), VmaFlags::READ | VmaFlags::WRITE).unwrap();
        assert_eq!(word(&mut processor, page(509)), fresh);

        // A child has the same, and stores of either are its own.
        space.set_fork_mode(mode);
        let child = space.fork().unwrap();
        processor.store(page(512), &1_u64.to_le_bytes()).unwrap();
        processor.store(page(513), &2_u64.to_le_bytes()).unwrap();
        let mut other = host.processor(CacheSize::Unbounded);
        other.activate(&child);
        assert_eq!(word(&mut other, page(512)), 512);
        assert_eq!(word(&mut other, page(513)), fresh);
        other.store(page(514), &3_u64.to_le_bytes()).unwrap();
        assert_eq!(word(&mut processor, page(514)), fresh);
        assert_eq!((space.usage().resident_anon, child.usage().resident_anon), (6, 6), "{mode:?}");

        // Discarded, it is as it was at first.
        space.discard(pages(500, 20)).unwrap();
        for number in 500..520 {
            assert_eq!(word(&mut processor, page(number)), fresh);
        }
        assert_eq!(word(&mut other, page(512)), 512);
        assert_eq!(space.usage().resident_anon, 2);
        host.memory().check(&[&space, &child], &[]).unwrap();
    }
}

#[test]
fn permissions_hold_for_what_is_linked() {
    let (host, space, mut processor) = machine();
    map_at(&space, AT, 2048 * PAGE_SIZE, &pattern(host.memory(), &[5]));
    // A table linked whole, and a page of one that is ours.
    let both = [page(600), page(1)];
    processor.store(page(0), b"x").unwrap();
    let everything = pages(0, 2048);
    for access in
        [VmaFlags::READ, VmaFlags::empty(), VmaFlags::READ | VmaFlags::EXEC, VmaFlags::READ, VmaFlags::empty()]
    {
        space.protect(everything, access).unwrap();
        for at in both {
            assert_eq!(processor.load(at, &mut [0]).is_ok(), access.contains(VmaFlags::READ), "{access:?}");
            assert_eq!(processor.fetch(at, &mut [0]).is_ok(), access.contains(VmaFlags::EXEC), "{access:?}");
            processor.store(at, b"x").unwrap_err();
        }
        host.memory().check(&[&space], &[]).unwrap();
        assert_eq!(host.stale(&[&space]), []);
    }
}

#[test]
fn a_reference_mapping_moves() {
    for (from, to) in [(0, 4096), (0, 4096 + 1), (3, 4096 + 512)] {
        let (host, space, mut processor) = machine();
        map_at(&space, page(from), 2048 * PAGE_SIZE, &pattern(host.memory(), &WORD.to_le_bytes()));
        for number in [1024, 1536] {
            assert_eq!(word(&mut processor, page(number)), WORD);
        }
        processor.store(page(from + 700), &1_u64.to_le_bytes()).unwrap();
        let len = 2048 * PAGE_SIZE;
        let request = RemapRequest {
            start: page(from),
            len,
            new_len: len + PAGE_SIZE,
            to: Destination::Fixed(page(to)),
            leave: Leave::Hole,
        };
        assert_eq!(space.remap(request), Ok(page(to)));
        for number in [0, 699, 701, 1024, 2047, 2048] {
            assert_eq!(word(&mut processor, page(to + number)), WORD, "{from} to {to}");
        }
        assert_eq!(word(&mut processor, page(to + 700)), 1);
        assert_eq!(space.usage().resident_anon, 1);
        host.memory().check(&[&space], &[]).unwrap();
    }
}

#[test]
fn equal_content_is_one_reference_and_merges() {
    let (host, space, _processor) = machine();
    let memory = host.memory();
    let (ones, same, twos) = (pattern(memory, &[1]), pattern(memory, &[1; 64]), pattern(memory, &[2]));
    assert!(Arc::ptr_eq(&ones, &same) && !Arc::ptr_eq(&ones, &twos));
    for (at, reference) in [(0, &ones), (4, &same), (8, &twos), (12, &ones)] {
        map_at(&space, page(at), 4 * PAGE_SIZE, reference);
    }
    let (placement, backing) = (Placement::Fixed(page(16)), Backing::Anonymous);
    space.map(MapRequest { placement, len: 4 * PAGE_SIZE, flags: RW, backing, page_offset: 0 }).unwrap();
    let expected = "\
        8000000000-8000008000 rw-p 00000000 00:00 0 \n\
        8000008000-800000c000 rw-p 00000000 00:00 0 \n\
        800000c000-8000010000 rw-p 00000000 00:00 0 \n\
        8000010000-8000014000 rw-p 00000000 00:00 0 \n";
    assert_eq!(maps(&space), expected);
    // Put in the middle of ones, where twos were, it closes the gap.
    map_at(&space, page(8), 4 * PAGE_SIZE, &ones);
    assert_eq!(
        maps(&space),
        "8000000000-8000010000 rw-p 00000000 00:00 0 \n8000010000-8000014000 rw-p 00000000 00:00 0 \n"
    );
}

#[test]
fn the_frames_go_with_the_last_mapping() {
    let (host, space, mut processor) = machine();
    host.memory().reclaim();
    let before = host.memory().stats();
    let reference = pattern(host.memory(), &WORD.to_le_bytes());
    let after = host.memory().stats();
    assert_eq!((after.data - before.data, after.tables - before.tables), (1, 3), "charged once");
    map_at(&space, AT, GIB, &reference);
    drop(reference);
    let child = space.fork().unwrap();
    assert_eq!(word(&mut processor, page(1)), WORD);
    let reader = space.maps();
    space.unmap(pages(0, GIB / PAGE_SIZE)).unwrap();
    host.memory().reclaim();
    processor.activate(&child);
    assert_eq!(word(&mut processor, page(2)), WORD, "the child has it still");
    processor.deactivate();
    drop(child);
    host.memory().reclaim();
    assert_eq!(host.memory().stats().data, before.data + 1, "a reader of maps has it still");
    drop(reader);
    host.memory().reclaim();
    let left = host.memory().stats();
    assert_eq!((left.data, left.free), (before.data, before.free), "nobody has it: {left:?}");
    host.memory().check(&[&space], &[]).unwrap();
    // Made anew afterwards, it is another, with the same content.
    map_at(&space, AT, GIB, &pattern(host.memory(), &WORD.to_le_bytes()));
    processor.activate(&space);
    assert_eq!(word(&mut processor, page(3)), WORD);
}

#[test]
fn zeros_are_the_page_of_anonymous_memory() {
    let (host, space, mut processor) = machine();
    let before = host.memory().stats();
    map_at(&space, AT, GIB, &pattern(host.memory(), &[0; 16]));
    assert_eq!(host.memory().stats(), before, "no frame of its own");
    assert_eq!(word(&mut processor, page(77)), 0);
    processor.store(page(78), b"x").unwrap();
    assert_eq!(space.usage().resident_anon, 1);
    host.memory().check(&[&space], &[]).unwrap();
}

#[test]
fn a_page_becomes_a_reference_as_it_is_at_that_moment() {
    let (host, space, mut processor) = machine();
    let map = |at, flags, backing| {
        let placement = Placement::Fixed(at);
        space.map(MapRequest { placement, len: 2 * PAGE_SIZE, flags, backing, page_offset: 0 }).unwrap();
    };
    let object = Object::anonymous(host.memory(), PAGE_SIZE).unwrap();
    map(page(0), RW, Backing::Anonymous);
    map(page(2), RW | VmaFlags::SHARED, Backing::Object(object.clone()));
    map(page(4), MAY, Backing::Anonymous);
    processor.store(page(0), b"private").unwrap();
    object.write_at(0, b"shared!").unwrap();
    for (source, content) in [(0, b"private"), (2, b"shared!")] {
        map_at(&space, page(10), PAGE_SIZE, &space.reference_at(page(source)).unwrap());
        processor.store(page(source), b"changed").unwrap();
        space.unmap(pages(source, 1)).unwrap();
        let mut seen = [0; 7];
        processor.load(page(10), &mut seen).unwrap();
        assert_eq!(&seen, content);
    }
    let of_reference = space.reference_at(page(10)).unwrap();
    let mut shown = [0; PAGE_SIZE as usize];
    of_reference.read(&mut shown);
    assert_eq!((&shown[..7], shown[7]), (&b"shared!"[..], 0));
    assert_eq!(space.reference_at(VirtAddr(page(10).get() + 8)).err(), Some(Error::BadRange));
    for unreadable in [0, 3, 4, 99] {
        assert_eq!(space.reference_at(page(unreadable)).err(), Some(Error::NotMapped), "page {unreadable}");
    }
}

#[test]
fn a_reference_that_finds_no_memory_leaves_nothing_behind() {
    let host = Host::new(4 << 20).unwrap();
    let before = host.memory().stats();
    for frames in 0..4 {
        host.memory().fail_after(Some(frames));
        assert_eq!(Reference::new(host.memory(), &[9]).err(), Some(Error::OutOfMemory), "with {frames} frames");
        host.memory().fail_after(None);
        assert_eq!(host.memory().stats(), before, "with {frames} frames");
    }
    host.memory().fail_after(Some(4));
    let reference = Reference::new(host.memory(), &[9]).unwrap();
    host.memory().fail_after(None);
    drop(reference);
    settle(&host);
    assert_eq!(host.memory().stats(), before);
}

/// Threads map, read, store to and unmap the same few references, which live and die all the time; each sees the content that it asked for.
#[test]
fn references_that_come_and_go_show_their_content() {
    let host = Host::new(32 << 20).unwrap();
    let fresh = host.memory().stats();
    let mut seen_by = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|number| {
                let host = &host;
                scope.spawn(move || {
                    let space = AddressSpace::new(host.memory(), Layouts::process()).unwrap();
                    let mut processor = host.processor(CacheSize::Unbounded);
                    processor.activate(&space);
                    let mut found = BTreeSet::new();
                    for round in 0..rounds(4_000) {
                        let byte = ((round * 7 + number) % 3 + 1) as u8;
                        let Ok(reference) = Reference::new(host.memory(), &[byte]) else { continue };
                        // More than ours and the mapping's: somebody else had made it.
                        found.insert(Arc::strong_count(&reference) > 1);
                        map_at(&space, AT, 512 * PAGE_SIZE, &reference);
                        drop(reference);
                        let fresh = u64::from_le_bytes([byte; 8]);
                        assert_eq!(word(&mut processor, page(round % 512)), fresh, "round {round}");
                        if processor.store(page(round % 7), b"x").is_ok() {
                            assert_eq!(word(&mut processor, VirtAddr(page(round % 7).get() + 8)), fresh);
                        }
                        space.unmap(pages(0, 512)).unwrap();
                    }
                    found
                })
            })
            .collect();
        seen_by.extend(threads.into_iter().map(|thread| thread.join().unwrap()));
    });
    assert!(seen_by.iter().any(|found| found.len() == 2), "some were shared, some were new");
    settle(&host);
    host.memory().check(&[], &[]).unwrap();
    assert_eq!(host.memory().stats(), fresh);
}
