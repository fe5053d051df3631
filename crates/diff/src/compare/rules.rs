//! The known differences, each with its reason, as exact as it can be said.

use super::{Aspect, Tally, show_areas};
use crate::Look;
use crate::look::{Area, SIZES};
use crate::op::{Call, Op, Outcome};
use crate::window::PAGE;

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
    /// See [`RULES`].
    Made,
    /// See [`RULES`].
    Refused,
}

/// Each rule: what it says, and why that is right.
pub const RULES: [(&str, &str); 9] = [
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
        "calls that go by the ends of lines that only Linux has",
        "Where the first rule has joined lines, mremap (and remap_file_pages, and mprotect with PROT_GROWSDOWN) of both sees two areas on Linux and one here. If \
         the result differs, the rest of the sequence is not compared.",
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
    (
        "pages of files without content",
        "A page that only fallocate, or a read of a hole, has made is a page of the file in Foldspace; Linux does not say in mincore that it is \
         there before something was stored or read through it. Only from the first fallocate or pread of a sequence on, only areas of files, only Foldspace's yes.",
    ),
    (
        "areas that a refused mmap has split",
        "Linux splits what a fixed mapping would replace before it finds that it must refuse (sealed memory, limits), and leaves it so; Foldspace \
         changes nothing. Adjacent shared lines as in the first rule, only where a refused mmap would have started or ended.",
    ),
];

/// What a sequence has done so far, as far as rules ask.
#[derive(Clone, Default)]
pub struct History {
    /// It has used MADV_PAGEOUT.
    paged_out: bool,
    /// It has used fallocate or pread.
    made_pages: bool,
    /// Where fixed mappings that were refused would have started and ended.
    refused: Vec<u64>,
}

impl History {
    /// Notes an operation, and what Linux said.
    pub fn note(&mut self, call: &Call, outcome: &Outcome) {
        self.paged_out |= matches!(call, Call::Advise { advice: libc::MADV_PAGEOUT, .. });
        self.made_pages |= matches!(call, Call::Allocate { .. } | Call::ReadFile { .. });
        if let Call::Map { addr, len, flags, .. } = *call
            && flags & libc::MAP_FIXED as u32 != 0
            && outcome.value < 0
        {
            self.refused.extend([addr, addr.saturating_add(len).saturating_add(PAGE - 1) & !(PAGE - 1)]);
        }
    }
}

impl Rule {
    /// Counts `times` uses.
    pub fn count(self, tally: &mut Tally, times: u64) {
        tally[self as usize] += times;
    }
}

/// Whether the difference after `op` is that of [`Rule::RemapOverLinuxBoundary`]: it saw areas with other ends.
pub fn parts(op: &Op, before: Option<(&Look, &Look)>) -> bool {
    let Some((ours, theirs)) = before else { return false };
    let starts = |look: &Look, at: u64| look.areas.iter().any(|area| area.start == at);
    // Some area starts or ends in `from..=to` on one side only.
    let other_ends = |from: u64, to: u64| {
        let only = |these: &Look, those: &Look| {
            these.areas.iter().any(|area| from < area.start && area.start <= to && !starts(those, area.start))
        };
        only(theirs, ours) || only(ours, theirs)
    };
    match op.call {
        Call::Remap { addr, old_len: len, .. } | Call::RemapPages { addr, len, .. } => {
            other_ends(addr, addr.saturating_add(len.max(1) - 1))
        }
        // From the start of the area on.
        Call::Protect { addr, prot, .. } if prot & libc::PROT_GROWSDOWN as u32 != 0 => {
            let holder = |look: &Look| look.areas.iter().find(|area| area.end > addr).map(|area| area.start);
            holder(ours) != holder(theirs)
        }
        _ => false,
    }
}

/// Compares two looks of a sequence with that `history`.
pub fn same_look(ours: &Look, theirs: &Look, history: &History, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    let areas = |ours: &[Area], theirs: &[Area]| {
        (Aspect::Areas, format!("Foldspace:\n{}Linux:\n{}", show_areas(ours), show_areas(theirs)))
    };
    let (our_areas, their_areas) = (unaccounted(&ours.areas), unaccounted(&theirs.areas));
    let was_refused = |first: &Area, next: &Area| first.access[3] == b's' && history.refused.contains(&next.start);
    let mut rest = &their_areas[..];
    for our in &our_areas {
        let Some((first, mut others)) = rest.split_first() else { return Err(areas(&ours.areas, &theirs.areas)) };
        let mut joined = first.clone();
        while joined.end < our.end
            && let Some((next, more)) = others.split_first()
            && joins(&joined, next, was_refused(&joined, next))
        {
            let rule = if was_refused(&joined, next) { Rule::Refused } else { Rule::Merge };
            join(&mut joined, next);
            rule.count(tally, 1);
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
            same_sizes(our, &joined, history, tally)?;
        }
        rest = others;
    }
    let accounted =
        |areas: &[Area]| areas.iter().filter(|area| loses_account(area) && area.flags.contains(b"ac")).count() as u64;
    Rule::Account.count(tally, accounted(&ours.areas).abs_diff(accounted(&theirs.areas)));
    if !rest.is_empty() {
        return Err(areas(&ours.areas, &theirs.areas));
    }
    same_core(ours, theirs, history, tally)?;
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

/// Whether [`Rule::Merge`] or [`Rule::Guards`], or [`Rule::Refused`] where one was, makes one of two areas of Linux's.
fn joins(first: &Area, next: &Area, refused: bool) -> bool {
    let guards = [first, next].iter().any(|area| area.flags.contains(b"gu"));
    first.end == next.start
        && first.access == next.access
        && (first.access[3] == b'p' || guards || refused)
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

/// The areas with what [`Rule::Account`] says taken out: neighbours that differ in nothing else become one.
fn unaccounted(areas: &[Area]) -> Vec<Area> {
    let mut found: Vec<Area> = Vec::with_capacity(areas.len());
    // Whether the area before is accounted.
    let mut before = false;
    for area in areas {
        let mut area = area.clone();
        let accounted = area.flags.contains(b"ac");
        if loses_account(&area) {
            area.flags.retain(|flag| flag != b"ac");
        }
        match found.last_mut() {
            Some(last) if before != accounted && loses_account(&area) && joins(last, &area, false) => join(last, &area),
            _ => found.push(area),
        }
        before = accounted;
    }
    found
}

fn same_area(our: &Area, their: &Area) -> bool {
    (our.start, our.end, our.access, our.offset, our.file)
        == (their.start, their.end, their.access, their.offset, their.file)
        && our.name == their.name
        && our.flags == their.flags
}

fn same_sizes(our: &Area, their: &Area, history: &History, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    let anonymous = SIZES.iter().position(|name| *name == "Anonymous").unwrap_or_default();
    let of_file = our.file != 0 && our.sizes[anonymous] == their.sizes[anonymous];
    for ((name, our_size), their_size) in SIZES.iter().zip(our.sizes).zip(their.sizes) {
        if our_size == their_size {
            continue;
        }
        if of_file && matches!(*name, "Rss" | "Private_Dirty" | "Locked") {
            let rule = if history.paged_out { Rule::PagedOut } else { Rule::FilePages };
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

fn same_core(ours: &Look, theirs: &Look, history: &History, tally: &mut Tally) -> Result<(), (Aspect, String)> {
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
        if area.file != 0 && history.paged_out {
            Rule::PagedOut.count(tally, 1);
            continue;
        }
        if area.file != 0 && *our && history.made_pages {
            Rule::Made.count(tally, 1);
            continue;
        }
        let text = format!("page {page:x}: {our} in Foldspace, {their} on Linux\n{}", show_areas(&theirs.areas));
        return Err((Aspect::InCore, text));
    }
    Ok(())
}
