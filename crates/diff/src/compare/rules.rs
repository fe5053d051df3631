//! The known differences, each with its reason, as exact as it can be said.

use super::{Aspect, Tally, show_areas};
use crate::Look;
use crate::look::{Area, SIZES};
use crate::op::{Call, Op, Outcome};
use crate::window::PAGE;

/// The name of memory in which the heap lies.
const HEAP: &str = "[heap]";

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
    Ends,
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
    /// See [`RULES`].
    Unlocked,
    /// See [`RULES`].
    LockCount,
    /// See [`RULES`].
    Rounding,
    /// See [`RULES`].
    Pinned,
    /// See [`RULES`].
    Reclaimed,
}

/// Each rule: what it says, and why that is right.
pub const RULES: [(&str, &str); 14] = [
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
        "Where the first rules have joined lines, or would (gu), Linux sees two areas and Foldspace one: mremap and remap_file_pages of both, mprotect with \
         PROT_GROWSDOWN, a stack that grows, or a call that fails half way or populates locked memory up to the first page that fails, mlockall likewise; and what mremap with \
         MREMAP_DONTUNMAP of locked memory unlocks where its target touches it. If the result differs, the rest of the sequence is not compared.",
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
        "areas that a refused call has split",
        "Linux splits what a fixed mapping would replace, or munmap and mremap take away, before it finds that it must refuse (sealed memory, limits), and leaves \
         it so; Foldspace changes nothing, or merges what it has split with what changes next to it. Adjacent shared lines as in the first rule, only \
         where a refused call would have cut.",
    ),
    (
        "areas that a move or fork has unlocked",
        "mremap with MREMAP_DONTUNMAP takes the lock from the area that stays, fork from all of the child's, and Linux does not merge them with their \
         neighbours then. Adjacent shared lines as in the first rule, only where such an area, or what was moved of it, started or ended.",
    ),
    (
        "locked pages that Linux counts otherwise",
        "The same call leaves what it has unlocked in the count of locked pages (VmLck, dontunmap_complete in mm/mremap.c), and mlockall adds an area of 8 TiB or more, \
         such as what fills the addresses around the window, modulo 2^32 pages (nr_pages in mm/mlock.c). RLIMIT_MEMLOCK refuses or allows something else \
         then. Only ENOMEM and EAGAIN of either after such a call; the rest of the sequence is not compared.",
    ),
    (
        "Locked, rounded line by line",
        "Locked is a share of pages that several processes have, rounded down to a kilobyte in each line: joined lines of Linux may come to one less for \
         each. Only Locked of joined lines, less than one kilobyte a line.",
    ),
    (
        "pages that Linux has pinned",
        "process_vm_readv and process_vm_writev pin what they copy: a private page that is shared since a fork is copied for that (gup_must_unshare in \
         mm/internal.h), and a page that was written so is dirty itself, not only where it is mapped, so that MADV_FREE of it does nothing while it is shared; \
         so is one that mlock or MADV_POPULATE_WRITE found clean after MADV_FREE (FOLL_TOUCH in mm/gup.c). Foldspace copies where it is, and knows dirty \
         entries only. From the first such call of a sequence on, only Private_Dirty and Locked of private areas, after MADV_FREE only more Private_Dirty on Linux.",
    ),
    (
        "pages that Linux reclaimed meanwhile, or could not reclaim",
        "Linux may drop a page of a memfd that was never written at any time (`mm can drop undirtied hole pages behind our back`, shmem_recalc_inode in mm/shmem.c): \
         under pressure, or where DAMON pages out what is not used. And MADV_PAGEOUT leaves what it cannot take off the lists of pages, as what waits in a processor's \
         batch (folio_isolate_lru in mm/vmscan.c). A sequence in which mincore misses such a page on Linux only, or in which Linux alone has a private page after \
         MADV_FREE and MADV_PAGEOUT, is done again on both sides, three times at most, and what is compared is that; a difference that it shows each time is one.",
    ),
];

/// What a sequence has done so far, as far as rules ask.
#[derive(Clone, Default)]
pub struct History {
    /// It has used MADV_PAGEOUT.
    paged_out: bool,
    /// It has used fallocate or pread.
    made_pages: bool,
    /// It has used process_vm_readv or process_vm_writev.
    pinned: bool,
    /// It has used MADV_FREE.
    freed: bool,
    /// It has used what makes pages ready to be written, after MADV_FREE.
    dirtied: bool,
    /// Where a call that was refused would have cut.
    refused: Vec<u64>,
    /// Where areas that MREMAP_DONTUNMAP or fork has unlocked, and what was moved of them, started and ended.
    unlocked: Vec<u64>,
    /// Where heaps were put: they are empty there at first.
    heaps: Vec<u64>,
    /// MREMAP_DONTUNMAP has unlocked something, or mlockall has locked everything.
    twice: bool,
}

impl History {
    /// Notes an operation, and what Linux said; `before` is what the process looked like on Linux.
    pub fn note(&mut self, call: &Call, outcome: &Outcome, before: Option<&Look>) {
        let advice = match *call {
            Call::Advise { advice, .. } | Call::AdviseOther { advice, .. } => Some(advice),
            _ => None,
        };
        self.paged_out |= advice == Some(libc::MADV_PAGEOUT);
        self.freed |= advice == Some(libc::MADV_FREE);
        let locks = matches!(call, Call::Lock { .. } | Call::Lock2 { .. } | Call::LockAll { .. });
        self.dirtied |= self.freed && (locks || advice == Some(libc::MADV_POPULATE_WRITE));
        self.pinned |= matches!(call, Call::Copy { .. });
        self.made_pages |= matches!(call, Call::Allocate { .. } | Call::ReadFile { .. });
        match *call {
            Call::Map { addr, len, flags, .. } if flags & libc::MAP_FIXED as u32 != 0 && outcome.value < 0 => {
                self.refused.extend([addr, page_end(addr, len)]);
            }
            Call::Unmap { addr, .. } if outcome.value < 0 => self.refused.push(addr),
            Call::Remap { addr, old_len, new_len, flags, target } => {
                let end = page_end(addr, old_len);
                let target = match u64::try_from(outcome.value) {
                    Ok(target) => target,
                    Err(_) => {
                        self.refused.extend([page_end(addr, new_len), target]);
                        target
                    }
                };
                // Ends go where lines go.
                for ends in [&mut self.refused, &mut self.unlocked] {
                    let inside = ends.iter().filter(|at| (addr..end).contains(at));
                    let moved: Vec<u64> = inside.map(|at| (at - addr).saturating_add(target)).collect();
                    ends.extend(moved);
                }
                // Of several areas the first may have moved before one is refused.
                if flags & libc::MREMAP_DONTUNMAP as u32 != 0 {
                    for line in locked_lines(before).filter(|line| line.start < end && addr < line.end) {
                        self.unlocked.extend([line.start, line.end, addr, end, target, page_end(target, old_len)]);
                        self.twice = true;
                    }
                }
            }
            Call::SetHeap { addr } => self.heaps.push(addr),
            Call::LockAll { flags } => self.twice |= flags & 1 != 0 && outcome.value == 0,
            Call::Fork { .. } => self.unlocked.extend(locked_lines(before).flat_map(|line| [line.start, line.end])),
            _ => {}
        }
    }

    /// Whether Linux may count other locked pages than there are, and one of these outcomes is a refusal.
    pub fn miscounts_locked(&self, outcomes: [&Outcome; 2]) -> bool {
        let refusals = [-i64::from(libc::ENOMEM), -i64::from(libc::EAGAIN)];
        self.twice && outcomes.iter().any(|outcome| refusals.contains(&outcome.value))
    }
}

/// The end of the last page of a range.
fn page_end(addr: u64, len: u64) -> u64 {
    addr.saturating_add(len).saturating_add(PAGE - 1) & !(PAGE - 1)
}

fn locked_lines(look: Option<&Look>) -> impl Iterator<Item = &Area> {
    look.into_iter().flat_map(|look| &look.areas).filter(|line| is_locked(line))
}

fn is_locked(area: &Area) -> bool {
    area.flags.contains(b"lo")
}

impl Rule {
    /// Counts `times` uses.
    pub fn count(self, tally: &mut Tally, times: u64) {
        tally[self as usize] += times;
    }
}

/// Whether the difference after `op` is that of [`Rule::Ends`]: it saw areas with other ends. `before` are the looks of both sides,
/// Foldspace's first, `after` those after it; `said` is what Linux answered.
pub fn parts(op: &Op, before: Option<(&Look, &Look)>, after: Option<(&Look, &Look)>, said: &Outcome) -> bool {
    let Some((ours, theirs)) = before else { return false };
    let starts = |look: &Look, at: u64| look.areas.iter().any(|area| area.start == at);
    // Some area starts or ends in `from..=to` on one side only.
    let other_ends = |from: u64, to: u64| {
        let only = |these: &Look, those: &Look| {
            these.areas.iter().any(|area| from < area.start && area.start <= to && !starts(those, area.start))
        };
        only(theirs, ours) || only(ours, theirs)
    };
    let last = |addr: u64, len: u64| addr.saturating_add(len.max(1) - 1);
    let lines =
        |addr: u64, len: u64| theirs.areas.iter().filter(move |area| area.start <= last(addr, len) && addr < area.end);
    match op.call {
        Call::Remap { addr, old_len: len, flags, .. } => {
            other_ends(addr, last(addr, len))
                || flags & libc::MREMAP_DONTUNMAP as u32 != 0
                    && u64::try_from(said.value).is_ok_and(|target| {
                        let ours_too =
                            |line: &Area| ours.areas.iter().any(|our| (our.start, our.end) == (line.start, line.end));
                        let touches = |line: &Area| target <= line.end && line.start <= page_end(target, len);
                        lines(addr, len).any(|line| is_locked(line) && (touches(line) || !ours_too(line)))
                    })
        }
        Call::RemapPages { addr, len, .. } => {
            let guarded = lines(addr, len).filter(|line| line.flags.contains(b"gu")).count();
            other_ends(addr, last(addr, len)) || guarded != 0 && guarded != lines(addr, len).count()
        }
        // From the start of the area on.
        Call::Protect { addr, prot, .. } if prot & libc::PROT_GROWSDOWN as u32 != 0 => {
            let holder = |look: &Look| look.areas.iter().find(|area| area.end > addr).map(|area| area.start);
            holder(ours) != holder(theirs)
        }
        Call::Protect { addr, len, .. } => {
            other_ends(addr, last(addr, len)) && (said.value < 0 || lines(addr, len).any(is_locked))
        }
        // A stack is held against RLIMIT_STACK with all of its area.
        Call::Load { addr, pages } | Call::Store { addr, pages, .. } => {
            let stack = |look: &Look, at: u64| {
                let above = look.areas.iter().find(|area| area.end > at);
                above.filter(|area| area.start > at && area.flags.contains(b"gd")).map(|area| area.end)
            };
            let mut at = (0..u64::from(pages)).map(|page| addr + page * PAGE);
            at.any(|at| stack(ours, at) != stack(theirs, at))
        }
        // Areas merge, or do not, before they are populated.
        Call::LockAll { .. } => [before, after].into_iter().flatten().any(|(ours, theirs)| {
            let ends = |look: &Look| look.areas.iter().map(|area| (area.start, area.end)).collect::<Vec<_>>();
            ends(ours) != ends(theirs)
        }),
        _ => false,
    }
}

/// Compares two looks of a sequence with that `history`.
pub fn same_look(ours: &Look, theirs: &Look, history: &History, tally: &mut Tally) -> Result<(), (Aspect, String)> {
    let areas = |ours: &[Area], theirs: &[Area]| {
        (Aspect::Areas, format!("Foldspace:\n{}Linux:\n{}", show_areas(ours), show_areas(theirs)))
    };
    let other_account = |at: u64| changes_account(&ours.areas, at) || changes_account(&theirs.areas, at);
    let (our_areas, their_areas) = (unaccounted(&ours.areas, other_account), unaccounted(&theirs.areas, other_account));
    let is_shared = |area: &Area| area.access[3] == b's';
    let was_refused = |next: &Area| is_shared(next) && history.refused.contains(&next.start);
    let was_unlocked = |next: &Area| is_shared(next) && history.unlocked.contains(&next.start);
    let mut rest = &their_areas[..];
    for our in &our_areas {
        let Some((first, mut others)) = rest.split_first() else { return Err(areas(&ours.areas, &theirs.areas)) };
        let (mut joined, mut lines) = (first.clone(), 1);
        while joined.end < our.end
            && let Some((next, more)) = others.split_first()
            && joins(&joined, next, was_refused(next) || was_unlocked(next))
        {
            let rule = match next {
                next if was_refused(next) => Rule::Refused,
                next if was_unlocked(next) => Rule::Unlocked,
                _ => Rule::Merge,
            };
            lines += 1;
            join(&mut joined, next);
            rule.count(tally, 1);
            others = more;
        }
        // An empty heap is in no line that ends or starts there, and in one that does neither.
        let cut_at = |at: u64| ours.areas.iter().chain(&theirs.areas).any(|area| area.start == at);
        let empty_heap = |at: &u64| our.start < *at && *at < our.end && cut_at(*at);
        if [&our.name, &joined.name].map(String::as_str).iter().all(|name| matches!(*name, "" | HEAP))
            && history.heaps.iter().any(empty_heap)
        {
            joined.name.clone_from(&our.name);
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
            same_sizes(our, &joined, lines, history, tally)?;
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

/// Whether [`Rule::Merge`] or [`Rule::Guards`], or another rule that holds where the second starts, makes one of two areas of Linux's.
fn joins(first: &Area, next: &Area, split: bool) -> bool {
    let guards = [first, next].iter().any(|area| area.flags.contains(b"gu"));
    first.end == next.start
        && first.access == next.access
        && (first.access[3] == b'p' || guards || split)
        && first.file == next.file
        && (first.file == 0 || first.offset + (first.end - first.start) == next.offset)
        && (first.name == next.name
            || first.file == 0 && [first, next].iter().all(|area| matches!(&*area.name, "" | HEAP)))
        && unguarded(first).eq(unguarded(next))
}

/// Its flags but for the one of guards.
fn unguarded(area: &Area) -> impl Iterator<Item = &[u8; 2]> {
    area.flags.iter().filter(|flag| *flag != b"gu")
}

fn join(first: &mut Area, next: &Area) {
    first.end = next.end;
    if next.name == HEAP {
        // Shown if any of it is.
        first.name.clone_from(&next.name);
    }
    if next.flags.len() > first.flags.len() {
        first.flags.clone_from(&next.flags);
    }
    first.sizes.iter_mut().zip(next.sizes).for_each(|(sum, size)| *sum += size);
}

/// Whether [`Rule::Account`] is for an area.
fn loses_account(area: &Area) -> bool {
    area.access[3] == b'p' && area.access[1] == b'-'
}

/// Whether an area that starts at `at` differs in what [`Rule::Account`] is for from the one below it.
fn changes_account(areas: &[Area], at: u64) -> bool {
    let accounted = |area: &Area| area.flags.contains(b"ac");
    areas
        .windows(2)
        .any(|pair| pair[1].start == at && pair.iter().all(loses_account) && accounted(&pair[0]) != accounted(&pair[1]))
}

/// The areas with what [`Rule::Account`] says taken out: neighbours that differ in nothing else, on either side, become one.
fn unaccounted(areas: &[Area], other_account: impl Fn(u64) -> bool) -> Vec<Area> {
    let mut found: Vec<Area> = Vec::with_capacity(areas.len());
    for area in areas {
        let mut area = area.clone();
        if loses_account(&area) {
            area.flags.retain(|flag| flag != b"ac");
        }
        match found.last_mut() {
            Some(last) if loses_account(&area) && joins(last, &area, false) && other_account(area.start) => {
                join(last, &area);
            }
            _ => found.push(area),
        }
    }
    found
}

fn same_area(our: &Area, their: &Area) -> bool {
    (our.start, our.end, our.access, our.offset, our.file)
        == (their.start, their.end, their.access, their.offset, their.file)
        && our.name == their.name
        && our.flags == their.flags
}

/// Compares the sizes of an area with those of Linux's, which has as many `lines` for it.
fn same_sizes(
    our: &Area,
    their: &Area,
    lines: u64,
    history: &History,
    tally: &mut Tally,
) -> Result<(), (Aspect, String)> {
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
        if *name == "Locked" && (their_size + 1..their_size + lines).contains(&our_size) {
            Rule::Rounding.count(tally, 1);
            continue;
        }
        let dirty_itself = history.dirtied && *name == "Private_Dirty" && our_size < their_size;
        if our.access[3] == b'p' && dirty_itself {
            Rule::Pinned.count(tally, 1);
            continue;
        }
        if history.pinned && our.access[3] == b'p' && matches!(*name, "Private_Dirty" | "Locked") {
            Rule::Pinned.count(tally, 1);
            continue;
        }
        let both = show_areas(&[our.clone(), their.clone()]);
        let kept = history.freed && history.paged_out && our.access[3] == b'p' && our_size < their_size;
        return Err((
            if kept { Aspect::Kept } else { Aspect::Size(name) },
            format!("{name}: {our_size} kB in Foldspace, {their_size} kB on Linux\n{both}"),
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
        let aspect = if area.file != 0 && *our { Aspect::Missing } else { Aspect::InCore };
        return Err((aspect, text));
    }
    Ok(())
}
