//! What the processes do.

use foldspace::vma::VmaFlags;

use super::Advice::{Cold, DontNeed, Free, Guard, Lock, Pageout, PopulateRead, PopulateWrite, Unlock};
use super::Kind::{Locked, Private, Shared};
use super::Step::{Advise, Exit, Fork, Load, Map, Protect, Store, Unmap};
use super::{ours, run};

#[test]
fn pages_of_a_process_alone() {
    run(&[
        (0, Map(0, 8, "rw", Private)),
        (0, Store(0, 3)),
        (0, Load(5, 1)),
        (0, Load(0, 1)),
        (0, Protect(2, 3, "r")),
        (0, Protect(6, 2, "-")),
        (0, Protect(0, 8, "rw")),
        (0, Map(10, 4, "r", Private)),
        (0, Load(11, 1)),
        (0, Map(16, 4, "rw", Private)),
        (0, Store(19, 1)),
        (0, Protect(16, 4, "-")),
        (0, Protect(17, 1, "rwx")),
        (0, Store(17, 1)),
        (0, Protect(17, 1, "-")),
        (0, Advise(0, 2, DontNeed)),
        (0, Unmap(1, 2)),
        (0, Map(20, 4, "rw", Locked)),
        (0, Map(25, 4, "r", Locked)),
        (0, Map(30, 1, "-", Locked)),
        (0, Protect(20, 1, "r")),
    ]);
}

#[test]
fn pages_of_relatives() {
    run(&[
        (0, Map(0, 12, "rw", Private)),
        (0, Store(0, 8)),
        (0, Fork(1)),
        (1, Store(0, 2)),
        (0, Store(1, 2)),
        (1, Fork(2)),
        (2, Fork(3)),
        (3, Store(3, 1)),
        (2, Protect(2, 4, "r")),
        (1, Advise(4, 1, DontNeed)),
        (0, Unmap(5, 1)),
        (2, Exit),
        (3, Store(8, 2)),
        (1, Store(6, 1)),
        (0, Exit),
        (3, Exit),
        (1, Store(7, 1)),
    ]);
}

#[test]
fn pages_that_are_not_needed() {
    run(&[
        (0, Map(0, 8, "rw", Private)),
        (0, Store(0, 4)),
        (0, Load(6, 1)),
        (0, Advise(0, 8, Free)),
        (0, Load(0, 1)),
        (0, Store(1, 1)),
        (0, Protect(2, 1, "r")),
        (0, Protect(2, 1, "rw")),
        (0, Fork(1)),
        (1, Store(0, 1)),
        (1, Advise(0, 4, Free)),
        (0, Store(3, 1)),
        (0, Advise(0, 4, Pageout)),
        (1, Advise(0, 4, Pageout)),
        (0, Store(0, 4)),
        (0, Advise(0, 4, Cold)),
        (0, Store(0, 2)),
        (1, Exit),
        (0, Advise(0, 4, Cold)),
        (0, Advise(0, 4, Pageout)),
        (0, Advise(0, 2, Free)),
        (0, Advise(0, 4, Pageout)),
        (0, Load(0, 4)),
    ]);
}

#[test]
fn pages_that_are_populated() {
    run(&[
        (0, Map(0, 8, "rw", Private)),
        (0, Advise(0, 2, PopulateRead)),
        (0, Advise(4, 2, PopulateWrite)),
        (0, Advise(0, 8, PopulateWrite)),
        (0, Advise(0, 4, Free)),
        (0, Advise(2, 2, PopulateWrite)),
        (0, Fork(1)),
        (1, Advise(0, 8, PopulateWrite)),
        (1, Advise(0, 8, PopulateRead)),
        (0, Map(10, 4, "rw", Shared)),
        (0, Advise(10, 2, PopulateWrite)),
        (0, Advise(10, 4, PopulateWrite)),
    ]);
}

#[test]
fn pages_of_shared_memory() {
    run(&[
        (0, Map(0, 4, "rw", Shared)),
        (0, Store(0, 2)),
        (0, Advise(0, 4, Cold)),
        (0, Store(0, 1)),
        (0, Advise(0, 4, Pageout)),
        (0, Store(0, 3)),
        (0, Advise(1, 1, DontNeed)),
        (0, Protect(0, 4, "r")),
    ]);
}

#[test]
fn pages_of_shared_memory_of_relatives() {
    run(&[
        (0, Map(0, 4, "rw", Shared)),
        (0, Fork(1)),
        (0, Store(0, 2)),
        (1, Store(0, 3)),
        (0, Advise(0, 4, Pageout)),
        (1, Advise(1, 1, DontNeed)),
        (0, Store(1, 1)),
        (1, Exit),
        (0, Load(2, 1)),
        (0, Protect(0, 4, "r")),
        (0, Advise(0, 4, Cold)),
        (0, Advise(0, 4, Pageout)),
        (0, Load(0, 3)),
    ]);
}

#[test]
fn pages_that_are_locked() {
    run(&[
        (0, Map(0, 8, "rw", Private)),
        (0, Store(0, 2)),
        (0, Advise(1, 3, Lock)),
        (0, Fork(1)),
        (1, Store(1, 1)),
        (0, Store(2, 1)),
        (0, Map(10, 2, "r", Private)),
        (0, Advise(10, 2, Lock)),
        (0, Advise(2, 1, Unlock)),
        (1, Advise(1, 3, Lock)),
        (1, Exit),
        (0, Advise(0, 8, Unlock)),
    ]);
}

#[test]
fn pages_with_guards() {
    run(&[
        (0, Map(0, 8, "rw", Private)),
        (0, Store(0, 3)),
        (0, Advise(1, 1, Guard)),
        (0, Fork(1)),
        (1, Store(2, 1)),
        (1, Advise(2, 2, Guard)),
        (0, Advise(0, 3, DontNeed)),
        (0, Protect(0, 2, "r")),
        (1, Advise(0, 1, PopulateWrite)),
        (1, Advise(0, 8, Free)),
        (1, Advise(0, 8, Cold)),
        (1, Advise(0, 8, Pageout)),
        (0, Exit),
    ]);
}

/// What Linux 6.18 prints for an area with all of these (and, for the last, for MAP_DROPPABLE, which goes with few of them).
#[test]
fn flags_are_in_linuxs_order() {
    const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);
    const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
    let advised = VmaFlags::GROWS_DOWN
        | VmaFlags::DONT_FORK
        | VmaFlags::NO_RESERVE
        | VmaFlags::WIPE_ON_FORK
        | VmaFlags::DONT_DUMP
        | VmaFlags::MERGEABLE;
    let locked = VmaFlags::LOCKED | VmaFlags::LOCK_ON_FAULT | VmaFlags::SEALED;
    for (flags, shown) in [
        (VmaFlags::SEQUENTIAL | VmaFlags::HUGE_PAGE | advised, "rd wr mr mw me gd sr dc nr wf dd hg mg "),
        (
            VmaFlags::RANDOM | VmaFlags::NO_HUGE_PAGE | advised | locked,
            "rd wr mr mw me gd lo rr dc lf nr wf dd nh mg sl ",
        ),
        (
            VmaFlags::NO_RESERVE | VmaFlags::WIPE_ON_FORK | VmaFlags::DONT_DUMP | VmaFlags::DROPPABLE,
            "rd wr mr mw me nr wf dd dp ",
        ),
        (VmaFlags::ACCOUNT, "rd wr mr mw me ac "),
    ] {
        assert_eq!(ours::flags_shown(RW | MAY | flags), shown, "{flags:?}");
    }
    // A file that was opened for reading, and one for reading and writing.
    let read_only = VmaFlags::READ | VmaFlags::MAY_READ | VmaFlags::MAY_EXEC | VmaFlags::SHARED;
    assert_eq!(ours::flags_shown(read_only), "rd mr me ms ");
    assert_eq!(ours::flags_shown(read_only | VmaFlags::MAY_WRITE), "rd sh mr mw me ms ");
}
