//! What stories of a few chosen calls leave: which pages are there, what may be written.

use crate::host::call;
use crate::pair::{As, PAGE, Pair};
use crate::scene;

/// Which pages there are then is compared: mlock cannot have those that may not be written to, or not be accessed at all.
#[test]
fn locked_memory_that_becomes_writable_is_there() {
    let mut pair = Pair::new(As::Root);
    for (lock_flags, prots) in [(0, &[3][..]), (0, &[2]), (0, &[5, 7]), (1, &[3]), (0, &[1, 3, 0])] {
        scene::set(&mut pair);
        // Private memory that is readable, inaccessible, executable; shared memory; a private file, and one beyond its end.
        pair.must(call(libc::SYS_mprotect, [scene::page(10), 12 * PAGE, 1, 0, 0, 0]));
        for (from, pages) in [(4, 2), (7, 1), (8, 1), (10, 4), (14, 2), (20, 1)] {
            let locked = pair.call(call(libc::SYS_mlock2, [scene::page(from), pages * PAGE, lock_flags, 0, 0, 0]));
            assert!(locked.is_some_and(|(on_linux, here)| on_linux == here), "page {from}: {locked:?}");
        }
        // Up to a hole, over it, and over what may not be written to.
        for (from, pages) in [(4, 2), (7, 5), (12, 3), (14, 10)] {
            for prot in prots {
                let done = pair.call(call(libc::SYS_mprotect, [scene::page(from), pages * PAGE, *prot, 0, 0, 0]));
                assert!(done.is_some_and(|(on_linux, here)| on_linux == here), "page {from}, {prot}: {done:?}");
            }
        }
        for (from, pages) in [(4, 2), (7, 3), (10, 13)] {
            let vector = scene::page(0) + from;
            let looked = pair.call(call(libc::SYS_mincore, [scene::page(from), pages * PAGE, vector, 0, 0, 0]));
            assert_eq!(looked, Some((0, 0)));
        }
        assert!(pair.same_bytes(0..1), "pages that are there, {lock_flags}, {prots:?}");
    }
}

/// What it maps is shared also if the file is sealed against writing, but not if it was opened for reading.
#[test]
fn remap_file_pages_of_what_may_not_be_written_to() {
    let mut pair = Pair::new(As::Root);
    let files = [pair.files.all, pair.files.read_only, pair.files.sealed];
    let results = files.map(|file| {
        scene::set(&mut pair);
        pair.must(call(libc::SYS_mmap, [scene::page(30), 4 * PAGE, 1, 0x11, file as u64, 0]));
        let remap = call(libc::SYS_remap_file_pages, [scene::page(31), PAGE, 0, 3, 0, 0]);
        let twice = [pair.call(remap), pair.call(remap)];
        let may_write = pair.call(call(libc::SYS_mprotect, [scene::page(31), PAGE, 3, 0, 0, 0]));
        let (there, here) = pair.windows();
        assert_eq!(there, here);
        [twice[0], twice[1], may_write].map(|both| both.filter(|(there, here)| there == here).map(|(there, _)| there))
    });
    let (invalid, denied) = (-i64::from(libc::EINVAL), -i64::from(libc::EACCES));
    assert_eq!(results, [[0, 0, 0], [invalid, invalid, denied], [0, 0, denied]].map(|file| file.map(Some)));
}

/// Memory that is to be locked from now on is there as soon as it is mapped, whatever else was asked for.
#[test]
fn remap_file_pages_of_what_is_locked_from_now_on() {
    let mut pair = Pair::new(As::Root);
    for (future, flags) in [(0, 0), (0, 0x10000), (2, 0), (2, 0x10000), (6, 0), (6, 0x10000)] {
        scene::set(&mut pair);
        pair.must(call(libc::SYS_mmap, [scene::page(30), 4 * PAGE, 3, 0x31, u64::MAX, 0]));
        if future != 0 {
            pair.must(call(libc::SYS_mlockall, [future, 0, 0, 0, 0, 0]));
        }
        pair.must(call(libc::SYS_remap_file_pages, [scene::page(32), PAGE, 0, 3, flags, 0]));
        pair.must(call(libc::SYS_mincore, [scene::page(30), 4 * PAGE, scene::page(0), 0, 0, 0]));
        assert!(pair.same_bytes(0..1), "pages that are there, {future}, {flags:#x}");
        pair.must(call(libc::SYS_munlockall, [0; 6]));
    }
}

/// What was mapped before its file was sealed cannot be mapped again so that it could be written.
#[test]
fn remap_file_pages_of_what_has_been_sealed_since() {
    let mut pair = Pair::new(As::Root);
    let file = pair.files.all as u64;
    for (place, prot) in [(30, 3), (40, 1)] {
        pair.must(call(libc::SYS_mmap, [scene::page(place), 4 * PAGE, prot, 0x11, file, 0]));
    }
    let (add_seals, future_write) = (1033, 0x10);
    assert_eq!(pair.host.call(call(libc::SYS_fcntl, [file, add_seals, future_write, 0, 0, 0])), Some(0));
    pair.hosted.object(pair.files.all).seal();
    let results = [30, 40, 40].map(|place| {
        let remapped = pair.call(call(libc::SYS_remap_file_pages, [scene::page(place) + PAGE, PAGE, 0, 3, 0, 0]));
        let may_write = pair.call(call(libc::SYS_mprotect, [scene::page(place) + PAGE, PAGE, 3, 0, 0, 0]));
        let (there, here) = pair.windows();
        assert_eq!(there, here);
        [remapped, may_write]
    });
    let same = |result: i64| Some((result, result));
    let (refused, denied) = (same(-i64::from(libc::EPERM)), same(-i64::from(libc::EACCES)));
    assert_eq!(results, [[refused, same(0)], [same(0), denied], [same(0), denied]]);
}
