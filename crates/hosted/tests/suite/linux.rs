//! The host's Linux as the reference: the same changes of layout in this very process, at addresses that nothing else uses, and hosted; results and
//! `/proc/self/maps` must agree. Nothing is stored to there, so that no anon_vma keeps Linux from merging.

use std::ffi::c_void;
use std::fs;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// A stretch of the address space where neither the program nor its libraries are put: so many pages.
const BASE: u64 = 0x1234_5600_0000;
const PAGES: u64 = 64;

/// A change; pages count from [`BASE`].
#[derive(Clone, Copy, Debug)]
enum Change {
    Map(u64, u64, VmaFlags),
    MapFree(u64, u64, VmaFlags),
    Unmap(u64, u64),
    Protect(u64, u64, VmaFlags),
    Discard(u64, u64),
}

fn access() -> impl Strategy<Value = VmaFlags> {
    (0_u32..8).prop_map(|bits| VmaFlags::from_bits_truncate(bits) & (VmaFlags::READ | VmaFlags::WRITE | VmaFlags::EXEC))
}

fn change() -> impl Strategy<Value = Change> {
    let range = || (0..PAGES - 8, 1..9_u64);
    prop_oneof![
        4 => (range(), access()).prop_map(|((at, len), access)| Change::Map(at, len, access)),
        2 => (range(), access()).prop_map(|((at, len), access)| Change::MapFree(at, len, access)),
        2 => range().prop_map(|(at, len)| Change::Unmap(at, len)),
        4 => (range(), access()).prop_map(|((at, len), access)| Change::Protect(at, len, access)),
        1 => range().prop_map(|(at, len)| Change::Discard(at, len)),
    ]
}

fn range(at: u64, len: u64) -> PageRange {
    PageRange::from_len(VirtAddr(BASE + at * PAGE_SIZE), len * PAGE_SIZE).unwrap()
}

/// What the errors are to a program.
fn errno(error: Error, change: Change) -> Errno {
    match error {
        Error::AlreadyMapped => Errno::EXIST,
        Error::NotMapped | Error::OutOfMemory | Error::NoRoom | Error::TooManyVmas | Error::CommitLimit => Errno::NOMEM,
        Error::AccessDenied if matches!(change, Change::Discard(..)) => Errno::INVAL,
        Error::AccessDenied => Errno::ACCESS,
        Error::BadRange | Error::WrongKind => Errno::INVAL,
        Error::LockLimit => Errno::AGAIN,
        Error::Sealed => Errno::PERM,
        Error::Busy => Errno::BUSY,
        Error::Poisoned => Errno::IO,
    }
}

fn here(space: &AddressSpace, change: Change) -> Result<(), Errno> {
    const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
    let map = |placement, len: u64, access| {
        let (len, flags, backing) = (len * PAGE_SIZE, access | MAY, Backing::Anonymous);
        space.map(MapRequest { placement, len, flags, backing, page_offset: 0 }).map(drop)
    };
    let outcome = match change {
        Change::Map(at, len, access) => map(Placement::Fixed(range(at, len).start()), len, access),
        Change::MapFree(at, len, access) => map(Placement::FixedNoReplace(range(at, len).start()), len, access),
        Change::Unmap(at, len) => space.unmap(range(at, len)),
        Change::Protect(at, len, access) => space.protect(range(at, len), access),
        Change::Discard(at, len) => space.discard(range(at, len)),
    };
    outcome.map_err(|error| errno(error, change))
}

fn on_linux(change: Change) -> Result<(), Errno> {
    let pointer = |at: u64| (BASE + at * PAGE_SIZE) as *mut c_void;
    let bytes = |len: u64| (len * PAGE_SIZE) as usize;
    let bits = |access: VmaFlags, read, write, exec| {
        let bit = |flag, value| if access.contains(flag) { value } else { 0 };
        bit(VmaFlags::READ, read) | bit(VmaFlags::WRITE, write) | bit(VmaFlags::EXEC, exec)
    };
    let map = |at, len, access, how| {
        let (read, write, exec) = (ProtFlags::READ.bits(), ProtFlags::WRITE.bits(), ProtFlags::EXEC.bits());
        let access = ProtFlags::from_bits_retain(bits(access, read, write, exec));
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | how;
        // SAFETY: nothing of this program is in the pages from BASE on.
        unsafe { rustix::mm::mmap_anonymous(pointer(at), bytes(len), access, flags) }.map(drop)
    };
    // SAFETY: for all four, nothing of this program is in the pages from BASE on.
    match change {
        Change::Map(at, len, access) => map(at, len, access, MapFlags::FIXED),
        Change::MapFree(at, len, access) => map(at, len, access, MapFlags::FIXED_NOREPLACE),
        // SAFETY: as above.
        Change::Unmap(at, len) => unsafe { rustix::mm::munmap(pointer(at), bytes(len)) },
        Change::Protect(at, len, access) => {
            let (read, write, exec) = (MprotectFlags::READ, MprotectFlags::WRITE, MprotectFlags::EXEC);
            let access = MprotectFlags::from_bits_retain(bits(access, read.bits(), write.bits(), exec.bits()));
            // SAFETY: as above.
            unsafe { rustix::mm::mprotect(pointer(at), bytes(len), access) }
        }
        // SAFETY: as above.
        Change::Discard(at, len) => unsafe { rustix::mm::madvise(pointer(at), bytes(len), Advice::LinuxDontNeed) },
    }
}

/// The lines of the host's maps from [`BASE`] on.
fn linux_maps() -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let ours = |line: &&str| {
        let start = line.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        start.is_some_and(|start| (BASE..BASE + PAGES * PAGE_SIZE).contains(&start))
    };
    maps.lines().filter(ours).flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn changes_of_layout_are_those_of_the_hosts_linux() {
    let config = Config { cases: 200, rng_seed: RngSeed::Fixed(9), failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(change(), 1..60), |changes| {
        let host = Host::new(4 << 20).expect("an arena");
        let space = AddressSpace::new(host.memory(), Layouts::process()).expect("a root");
        on_linux(Change::Unmap(0, PAGES)).expect("a clean stretch");
        for change in changes {
            prop_assert_eq!(here(&space, change), on_linux(change), "{:?}", change);
            let maps = String::from_utf8(space.maps().text()).expect("text");
            prop_assert_eq!(maps, linux_maps(), "after {:?}", change);
            if let Err(violation) = host.memory().check(&[&space], &[]) {
                panic!("{violation}");
            }
        }
        Ok(())
    });
    on_linux(Change::Unmap(0, PAGES)).expect("nothing is left behind");
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
