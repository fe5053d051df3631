//! Fork with many areas, with names and without.

use crate::fork::fork_alone;
use foldspace_guest_measure::Region;
use foldspace_guest_measure::row::{Figures, Row, Settings};
use std::ffi::CStr;
use std::io;

/// As many as in the measurements of the patches that brought names to Linux.
const AREAS: usize = 64_000;
/// The longest that there is, 79 characters.
const NAME: &CStr = c"a name that is as long as a name of anonymous memory may be: seventy-nine chars";

/// Forks before those that count.
const UNCOUNTED: usize = 3;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for pages in [0, 1, 10] {
        for named in [false, true] {
            let name = if named { "named" } else { "unnamed" };
            let words = format!("fork, 64,000 VMAs, {name}, {pages} pages each");
            let work = move |settings: &Settings| fork_areas(settings, pages, named);
            let needs = (AREAS * pages * 4 / 1024 + 128) as u64;
            rows.push(Row::new(format!("fork_{name}_{pages}"), words, "call", work).needs_mib(needs));
        }
    }
    rows
}

fn fork_areas(settings: &Settings, pages: usize, named: bool) -> io::Result<Figures> {
    let mut region = Region::alternating_writable(AREAS, pages.max(1))?;
    if named {
        // In parts: one change of so many areas takes more memory at once than a kernel may have.
        for start in (0..region.pages()).step_by(512) {
            region.name(start..(start + 512).min(region.pages()), NAME)?;
        }
    }
    if pages > 0 {
        (0..region.pages()).for_each(|page| region.write(page, 1));
    }
    // The first processes of a boot enlarge the kernel's heap, which has nothing to do with names: they are not counted.
    fork_alone(settings, UNCOUNTED)?;
    fork_alone(settings, settings.effort.runs(9))
}
