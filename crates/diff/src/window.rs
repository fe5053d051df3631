//! Where everything happens: a stretch of addresses that nothing else uses.
//!
//! ```text
//!    0 ............ BASE ........ MIDDLE ........ END .................... top
//!    (filler: shared, no access)  the window      (filler; the program somewhere in it)
//! ```
//!
//! The window lies below everything else that a process has, so that its lines come first in /proc/PID/smaps, and has a boundary of tables
//! of all levels but the root's in its middle. Outside, what a program does not use itself is filled: so a search for a free place, with no address
//! given, ends in the window too.

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// First address.
pub const BASE: u64 = MIDDLE - HALF;

/// A multiple of what a table of level 2 maps (1 GiB).
pub const MIDDLE: u64 = 1 << 30;

/// One past the last address.
pub const END: u64 = MIDDLE + HALF;

/// Bytes below, and above, the middle: two tables of level 1 each.
const HALF: u64 = 4 << 20;

/// An address far above the window where nothing is that a sequence could see.
pub const ELSEWHERE: u64 = 0x7000_0000_0000;

/// Pages of the window.
pub const PAGES: u64 = (END - BASE) / PAGE;

/// Most processes of one sequence.
pub const PROCESSES: usize = 4;

/// Files of one sequence.
pub const FILES: usize = 4;

/// Descriptor of file 0; the others follow.
pub const FIRST_FD: i32 = 100;

/// Whether all of `start..end` is in the window.
pub fn contains(start: u64, end: u64) -> bool {
    BASE <= start && start <= end && end <= END
}
