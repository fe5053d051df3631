//! Guards beside the host's Linux, which has them since 6.13: the same random calls in this very process and hosted; results, and which pages are guarded
//! (as `/proc/self/pagemap` shows), must agree after each.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

/// Where neither the program nor its libraries are put, a last-level table ends in the middle: so many pages.
const BASE: u64 = 0x1234_6600_0000 - 32 * PAGE_SIZE;
const PAGES: u64 = 64;

const MADV_GUARD_INSTALL: i32 = 102;
const MADV_GUARD_REMOVE: i32 = 103;

/// What a range gets.
#[derive(Clone, Copy, Debug)]
enum Act {
    Install,
    Remove,
    /// Memory of one's own, or shared.
    Map(VmaFlags, bool),
    Unmap,
    Protect(VmaFlags),
    Discard,
    Free,
    Store,
}

fn access() -> impl Strategy<Value = VmaFlags> {
    const RW: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);
    prop_oneof![4 => Just(RW), 1 => Just(VmaFlags::READ), 1 => Just(VmaFlags::empty())]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Install),
        2 => Just(Act::Remove),
        3 => (access(), any::<bool>()).prop_map(|(access, shared)| Act::Map(access, shared)),
        1 => Just(Act::Unmap),
        2 => access().prop_map(Act::Protect),
        2 => Just(Act::Discard),
        1 => Just(Act::Free),
        2 => Just(Act::Store),
    ]
}

fn range(at: u64, len: u64) -> PageRange {
    PageRange::from_len(VirtAddr(BASE + at * PAGE_SIZE), len * PAGE_SIZE).unwrap()
}

fn here(space: &AddressSpace, range: PageRange, act: Act) -> Result<(), i32> {
    const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
    let outcome = match act {
        Act::Install => space.guard_install(range),
        Act::Remove => space.guard_remove(range),
        Act::Map(access, shared) => {
            let (mut flags, mut backing) = (access | MAY, Backing::Anonymous);
            if shared {
                flags |= VmaFlags::SHARED;
                backing = Backing::Object(Object::anonymous(space.memory(), range.len()).unwrap());
            }
            let (placement, len) = (Placement::Fixed(range.start()), range.len());
            space.map(MapRequest { placement, len, flags, backing, page_offset: 0 }).map(drop)
        }
        Act::Unmap => space.unmap(range),
        Act::Protect(access) => space.protect(range, access),
        Act::Discard => space.discard(range),
        Act::Free => space.free(range),
        Act::Store => {
            for page in 0..range.pages() {
                space.write(VirtAddr(range.start().get() + page * PAGE_SIZE), &[1]);
            }
            Ok(())
        }
    };
    outcome.map_err(|error| match error {
        Error::NotMapped => libc::ENOMEM,
        Error::WrongKind => libc::EINVAL,
        error => panic!("{error}"),
    })
}

fn on_linux(range: PageRange, act: Act) -> Result<(), i32> {
    let (start, len) = (range.start().get() as *mut libc::c_void, range.len() as usize);
    let prot = |access: VmaFlags| {
        let read = if access.contains(VmaFlags::READ) { libc::PROT_READ } else { 0 };
        read | if access.contains(VmaFlags::WRITE) { libc::PROT_WRITE } else { 0 }
    };
    // SAFETY: for all of them: nothing of this program is in the pages from BASE on.
    let advise = |advice| unsafe { libc::madvise(start, len, advice) };
    let outcome = match act {
        Act::Install => advise(MADV_GUARD_INSTALL),
        Act::Remove => advise(MADV_GUARD_REMOVE),
        Act::Map(access, shared) => {
            let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
            let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // SAFETY: as above.
            let mapped = unsafe { libc::mmap(start, len, prot(access), flags, -1, 0) };
            if mapped == libc::MAP_FAILED { -1 } else { 0 }
        }
        // SAFETY: as above.
        Act::Unmap => unsafe { libc::munmap(start, len) },
        // SAFETY: as above.
        Act::Protect(access) => unsafe { libc::mprotect(start, len, prot(access)) },
        Act::Discard => advise(libc::MADV_DONTNEED),
        Act::Free => advise(libc::MADV_FREE),
        Act::Store => {
            // By the kernel, so that a page that cannot be stored to is an error and no signal.
            let zeros = File::open("/dev/zero").expect("it is there");
            for page in 0..range.pages() {
                let at = (range.start().get() + page * PAGE_SIZE) as *mut libc::c_void;
                // SAFETY: as above.
                unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zeros), at, 1) };
            }
            0
        }
    };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error().raw_os_error().expect("an errno")) }
}

fn guarded_on_linux(pagemap: &File) -> Vec<u64> {
    let mut bytes = [0; 8 * PAGES as usize];
    pagemap.read_exact_at(&mut bytes, BASE / PAGE_SIZE * 8).expect("pagemap");
    let guard = |number: &u64| bytes[*number as usize * 8 + 7] & 1 << 2 != 0;
    (0..PAGES).filter(guard).collect()
}

#[test]
fn guards_are_where_the_hosts_linux_has_them() {
    let pagemap = File::open("/proc/self/pagemap").expect("this is Linux");
    let all = range(0, PAGES);
    on_linux(all, Act::Map(VmaFlags::READ, false)).expect("a free stretch");
    if on_linux(all, Act::Install) == Err(libc::EINVAL) {
        eprintln!("this Linux has no guards (it needs 6.15 for those of shared memory): not compared");
        return;
    }
    let config = Config { cases: 150, rng_seed: RngSeed::Fixed(10), failure_persistence: None, ..Config::default() };
    let (most, refused) = (Cell::new(0), Cell::new(0));
    let calls = vec(((0..PAGES - 8, 1..9_u64), act()), 1..60);
    let outcome = TestRunner::new(config).run(&calls, |calls| {
        let host = Host::new(4 << 20).expect("an arena");
        let space: Arc<AddressSpace> = AddressSpace::new(host.memory(), Layouts::process()).expect("a root");
        // Two kinds of memory, side by side.
        for (part, shared) in [(range(0, 40), false), (range(40, PAGES - 40), true)] {
            let map = Act::Map(VmaFlags::READ | VmaFlags::WRITE, shared);
            prop_assert_eq!((here(&space, part, map), on_linux(part, map)), (Ok(()), Ok(())));
        }
        for ((at, len), act) in calls {
            let range = range(at, len);
            let seen = here(&space, range, act);
            prop_assert_eq!(seen, on_linux(range, act), "{:?} of {:?}", act, range);
            let is_guarded = |number: &u64| space.is_guarded(VirtAddr(BASE + number * PAGE_SIZE));
            let guarded: Vec<u64> = (0..PAGES).filter(is_guarded).collect();
            most.set(guarded.len().max(most.get()));
            refused.set(refused.get() + u32::from(seen.is_err()));
            prop_assert_eq!(&guarded, &guarded_on_linux(&pagemap), "after {:?} of {:?}", act, range);
            if let Err(violation) = host.memory().check(&[&space], &[]) {
                panic!("{violation}");
            }
        }
        Ok(())
    });
    on_linux(all, Act::Unmap).expect("nothing is left behind");
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    println!("{} pages guarded at most, {} calls refused", most.get(), refused.get());
    assert!(most.get() > 30 && refused.get() > 100, "the calls hardly do anything");
}
