//! What smaps, pagemap and mincore say after the same steps on the host's Linux, in processes of their own, and hosted.
//!
//! Four differences are known, and allowed nowhere else:
//! - reading untouched memory links zeros as far as one link shows them, Linux maps one page of them;
//! - a child has its parent's tables, and so its accessed bits; Linux's fork clears them in the child (`__copy_present_ptes` in `mm/memory.c`);
//! - a child has its parent's pages of shared memory at once; Linux leaves them to the child's faults (`vma_needs_copy`);
//! - `gu` says where guards are; on Linux it stays with what was one area when there was a guard in it (`VM_MAYBE_GUARD`).

mod linux;
mod ours;
mod scripts;

/// Pages in the window that the steps work in.
const PAGES: u64 = 32;
/// Where it begins, in every process.
const BASE: u64 = 0x1234_5600_0000;
/// Processes at most.
const PROCESSES: usize = 4;

/// Advice of madvise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Advice {
    DontNeed,
    Free,
    Cold,
    Pageout,
    PopulateRead,
    PopulateWrite,
    /// MADV_GUARD_INSTALL.
    Guard,
    /// mlock.
    Lock,
    /// munlock.
    Unlock,
}

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Private,
    Shared,
    /// Private, with MAP_LOCKED: populated at once.
    Locked,
}

/// What may be done with it: the letters of maps.
type Access = &'static str;

/// What one process does; pages count from [`BASE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Map(u64, u64, Access, Kind),
    /// One byte of each page.
    Store(u64, u64),
    Load(u64, u64),
    Protect(u64, u64, Access),
    Unmap(u64, u64),
    Advise(u64, u64, Advice),
    /// Makes the process of this number.
    Fork(usize),
    Exit,
}

/// What can be seen of the pages of a process.
struct Seen {
    /// smaps, as far as it is about the window.
    smaps: String,
    /// Of each page of the window, mincore's answer; `None` where nothing is mapped.
    resident: Vec<Option<u8>>,
    /// Of each page of the window, the pagemap entry without the frame number.
    pagemap: Vec<u64>,
}

/// Bits of a pagemap entry that are compared: exclusive, guard, object, present.
const COMPARED: u64 = 1 << 56 | 1 << 58 | 1 << 61 | 1 << 63;
const PRESENT: u64 = 1 << 63;

/// Whether a process was forked, so that its accessed bits are its parent's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    First,
    Forked,
}

fn compare(ours: &Seen, linux: &Seen, origin: Origin, when: &str) {
    let context = || format!("{when}\nhere:\n{}\nLinux:\n{}", ours.smaps, linux.smaps);
    // Line by line, as text: but shared memory has an inode of its own everywhere.
    let shown = |line: &str| {
        let words = match line.split_once(':') {
            Some(("Referenced", _)) if origin == Origin::Forked => 1,
            Some((name, _)) if name.contains(' ') => 2,
            _ => usize::MAX,
        };
        line.split_inclusive(' ').take(words).collect::<String>()
    };
    let lines = |seen: &Seen| seen.smaps.lines().map(shown).collect::<Vec<_>>();
    let (here, there) = (lines(ours), lines(linux));
    let same = |here: &str, there: &str| here == there || here == there.replacen(" gu ", " ", 1);
    let different = here.iter().zip(&there).find(|(here, there)| !same(here, there));
    assert!(different.is_none() && here.len() == there.len(), "{different:?}: {}", context());
    for page in 0..PAGES as usize {
        let (here, there) = (ours.pagemap[page] & COMPARED, linux.pagemap[page] & COMPARED);
        // Zeros, linked with others that were read.
        let ahead = here == PRESENT && there == 0;
        assert!(here == there || ahead, "pagemap of page {page}: {here:#x}, Linux {there:#x}: {}", context());
        let (here, there) = (ours.resident[page], linux.resident[page]);
        let ahead = ahead && (here, there) == (Some(1), Some(0));
        assert!(here == there || ahead, "mincore of page {page}: {here:?}, Linux {there:?}: {}", context());
    }
}

/// Runs steps, each by the process of its number, on both, and compares every process after each.
fn run(steps: &[(usize, Step)]) {
    let (mut here, mut there) = (ours::Processes::new(), linux::Processes::new());
    for (number, (process, step)) in steps.iter().enumerate() {
        here.step(*process, *step);
        there.step(*process, *step);
        for process in here.living() {
            let origin = if process == 0 { Origin::First } else { Origin::Forked };
            let when = format!("process {process} after {:?}", &steps[..=number]);
            compare(&here.seen(process), &there.seen(process), origin, &when);
        }
    }
}
