//! The known differences, each with its reason, as exact as it can be said.

use super::{Aspect, Tally, show_areas};
use crate::look::{Area, SIZES};
use crate::op::{Call, Op};
use crate::window::PAGE;
use crate::{Look, Step};

/// A known difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// See [`RULES`].
    Merge,
    /// See [`RULES`].
    Zeros,
    /// See [`RULES`].
    FilePages,
    /// See [`RULES`].
    RemapOverLinuxBoundary,
    /// See [`RULES`].
    Guards,
    /// See [`RULES`].
    PagedOut,
    /// See [`RULES`].
    Account,
}

/// Each rule: what it says, and why that is right.
pub const RULES: [(&str, &str); 7] = [
    (
        "lines that Linux keeps apart",
        "Linux does not merge areas with different anon_vmas (after a fork, a move, or touched one by one), nor moved anonymous areas whose \
         old offsets do not continue each other; Foldspace has neither. Adjacent private lines of Linux with equal access, file, \
         offset, name and VmFlags are joined, their sizes added.",
    ),
    (
        "zeros that were read",
        "A read of untouched private memory links zeros: Linux for one page, which stays linked; Foldspace for as many as one link can show, and \
         a change of the range may drop the link. mincore says so. Only pages of private areas of no file, Anonymous being equal.",
    ),
    (
        "pages of files that are mapped in advance",
        "A read fault maps neighbouring pages of a file that are in memory, and how many is each kernel's own choice (Linux: \
         fault_around_bytes). Only Rss, Private_Dirty and Locked of areas of files, Anonymous being equal.",
    ),
    (
        "mremap over a line that only Linux has",
        "Where the first rule has joined lines, mremap of both sees two areas on Linux (EFAULT) and one here. The rest of the sequence is \
         not compared.",
    ),
    (
        "areas that may have guards",
        "VmFlags gu stays on an area of Linux's until it is gone, wherever its guards are or were, and keeps it apart from others; Foldspace shows \
         it where there are guards. Only Linux's gu where Foldspace has none, and the lines that it keeps apart.",
    ),
    (
        "pages that Linux paged out",
        "MADV_PAGEOUT lets Linux drop pages of files that were never written, as its lists of pages happen to be; Foldspace has no use for it. \
         From the first MADV_PAGEOUT of a sequence on, only mincore, Rss, Private_Dirty and Locked of areas of files.",
    ),
    (
        "memory that was never written and cannot be written any more",
        "Linux takes private memory that becomes read-only out of the account (VmFlags ac) if no page of it was ever written (it has no anon_vma); Foldspace \
         keeps it in. Only ac, of private areas without write access, and the lines that it keeps apart.",
    ),
];

impl Rule {
    /// Counts `times` uses.
    pub fn count(self, tally: &mut Tally, times: u64) {
        tally[self as usize] += times;
    }
}

/// Whether the difference in outcome is that of [`Rule::RemapOverLinuxBoundary`].
pub fn parts(op: &Op, our: &Step, their: &Step, before: Option<(&Look, &Look)>) -> bool {
    let Call::Remap { addr, old_len, .. } = op.call else { return false };
    let Some((ours, theirs)) = before else { return false };
    let end = addr.saturating_add(old_len);
    let starts = |look: &Look, at: u64| look.areas.iter().any(|area| area.start == at);
    let only_linux = theirs.areas.iter().any(|area| addr < area.start && area.start < end && !starts(ours, area.start));
    only_linux && their.outcome.value == -i64::from(libc::EFAULT) && our.outcome.value != their.outcome.value
}

/// Compares two looks; `paged_out` says that the sequence has used MADV_PAGEOUT.
pub fn same_look(ours: &Look, theirs: &Look, paged_out: bool, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    let areas = |ours: &[Area], theirs: &[Area]| {
        (Aspect::Areas, format!("Foldspace:\n{}Linux:\n{}", show_areas(ours), show_areas(theirs)))
    };
    let (our_areas, their_areas) = (unaccounted(&ours.areas), unaccounted(&theirs.areas));
    let mut rest = &their_areas[..];
    for our in &our_areas {
        let Some((first, mut others)) = rest.split_first() else { return Err(areas(&ours.areas, &theirs.areas)) };
        let mut joined = first.clone();
        while joined.end < our.end
            && let Some((next, more)) = others.split_first()
            && joins(&joined, next)
        {
            join(&mut joined, next);
            Rule::Merge.count(tally, 1);
            others = more;
        }
        if joined.flags != our.flags {
            let guarded = joined.flags.len();
            joined.flags.retain(|flag| flag != b"gu" || our.flags.contains(flag));
            Rule::Guards.count(tally, u64::from(joined.flags.len() < guarded));
        }
        if !same_area(our, &joined) {
            return Err(areas(&ours.areas, &theirs.areas));
        }
        if our.sizes != joined.sizes {
            same_sizes(our, &joined, paged_out, tally)?;
        }
        rest = others;
    }
    let accounted =
        |areas: &[Area]| areas.iter().filter(|area| loses_account(area) && area.flags.contains(b"ac")).count() as u64;
    Rule::Account.count(tally, accounted(&ours.areas).abs_diff(accounted(&theirs.areas)));
    if !rest.is_empty() {
        return Err(areas(&ours.areas, &theirs.areas));
    }
    same_core(ours, theirs, paged_out, tally)?;
    if ours.content != theirs.content {
        let text = format!(
            "hash {:016x} in Foldspace, {:016x} on Linux\n{}",
            ours.content,
            theirs.content,
            show_areas(&theirs.areas)
        );
        return Err((Aspect::Content, text));
    }
    Ok(())
}

/// Whether [`Rule::Merge`] or [`Rule::Guards`] makes one of two areas of Linux's.
fn joins(first: &Area, next: &Area) -> bool {
    let guards = [first, next].iter().any(|area| area.flags.contains(b"gu"));
    first.end == next.start
        && first.access == next.access
        && (first.access[3] == b'p' || guards)
        && first.file == next.file
        && (first.file == 0 || first.offset + (first.end - first.start) == next.offset)
        && first.name == next.name
        && unguarded(first).eq(unguarded(next))
}

/// Its flags but for the one of guards.
fn unguarded(area: &Area) -> impl Iterator<Item = &[u8; 2]> {
    area.flags.iter().filter(|flag| *flag != b"gu")
}

fn join(first: &mut Area, next: &Area) {
    first.end = next.end;
    if next.flags.len() > first.flags.len() {
        first.flags.clone_from(&next.flags);
    }
    first.sizes.iter_mut().zip(next.sizes).for_each(|(sum, size)| *sum += size);
}

/// Whether [`Rule::Account`] is for an area.
fn loses_account(area: &Area) -> bool {
    area.access[3] == b'p' && area.access[1] == b'-'
}

/// The areas with what [`Rule::Account`] says taken out.
fn unaccounted(areas: &[Area]) -> Vec<Area> {
    let mut found: Vec<Area> = Vec::with_capacity(areas.len());
    let mut kept_apart = false;
    for area in areas {
        let mut area = area.clone();
        let accounted = area.flags.contains(b"ac");
        if loses_account(&area) {
            area.flags.retain(|flag| flag != b"ac");
            // Two areas that differ in nothing else.
            if let Some(last) = found.last_mut()
                && kept_apart != accounted
                && joins(last, &area)
            {
                join(last, &area);
                kept_apart = accounted;
                continue;
            }
        }
        kept_apart = accounted;
        found.push(area);
    }
    found
}

fn same_area(our: &Area, their: &Area) -> bool {
    (our.start, our.end, our.access, our.offset, our.file)
        == (their.start, their.end, their.access, their.offset, their.file)
        && our.name == their.name
        && our.flags == their.flags
}

fn same_sizes(our: &Area, their: &Area, paged_out: bool, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    let anonymous = SIZES.iter().position(|name| *name == "Anonymous").unwrap_or_default();
    let of_file = our.file != 0 && our.sizes[anonymous] == their.sizes[anonymous];
    for ((name, our_size), their_size) in SIZES.iter().zip(our.sizes).zip(their.sizes) {
        if our_size == their_size {
            continue;
        }
        if of_file && matches!(*name, "Rss" | "Private_Dirty" | "Locked") {
            let rule = if paged_out { Rule::PagedOut } else { Rule::FilePages };
            rule.count(tally, 1);
            continue;
        }
        let lines = show_areas(&[our.clone(), their.clone()]);
        return Err((
            Aspect::Size(name),
            format!("{name}: {our_size} kB in Foldspace, {their_size} kB on Linux\n{lines}"),
        ));
    }
    Ok(())
}

fn same_core(ours: &Look, theirs: &Look, paged_out: bool, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    if ours.in_core == theirs.in_core {
        return Ok(());
    }
    let pages =
        ours.areas.iter().flat_map(|area| (area.start..area.end).step_by(PAGE as usize).map(move |page| (area, page)));
    for ((area, page), (our, their)) in pages.zip(ours.in_core.iter().zip(&theirs.in_core)) {
        if our == their {
            continue;
        }
        if area.access[3] == b'p' && area.file == 0 {
            Rule::Zeros.count(tally, 1);
            continue;
        }
        if area.file != 0 && paged_out {
            Rule::PagedOut.count(tally, 1);
            continue;
        }
        let text = format!("page {page:x}: {our} in Foldspace, {their} on Linux\n{}", show_areas(&theirs.areas));
        return Err((Aspect::InCore, text));
    }
    Ok(())
}
