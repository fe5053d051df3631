//! Changing the tables under a range of addresses, in two steps: first make exclusive what will be touched (which can run out of memory, and
//! changes nothing that anyone sees), then change it (which cannot fail).
//!
//! For callers that hold the writers' lock of the address space: no fork can share the tables again between the steps.

use super::path::{Holder, OwnEnd};
use super::{Entry, Exclusive, Root, Supply};
use crate::addr::{Index, Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::error::Result;
use crate::frame::{Frame, Garbage, Memory};
use crate::platform::Flush;
use crate::sync::atomic::Ordering;

/// Which tables under a range must be exclusive before it is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Touch {
    /// Those that the range covers in part only: what it covers whole is dropped as it is.
    Edges,
    /// As `Edges`, but reference tables that it covers in part are dropped, too: what is moved is easier to count without.
    EdgesOfOurs,
    /// All, since entries change everywhere. Reference tables that it covers whole are dropped instead: they can be linked again.
    All,
    /// As `All`, but not last-level tables: for fork in mode leaf.
    Upper,
    /// As `All`, but reference tables stay linked, since only entries of pages change.
    Pages,
    /// As `Edges`, and those with guards in the range: whatever else is in there goes, and they stay.
    EdgesAndGuards,
    /// Those with guards in the range.
    Guards,
    /// All down to the last level, made where there are none.
    Every,
}

/// A part of a range below one entry.
pub(super) struct Part {
    pub(super) index: Index,
    pub(super) range: PageRange,
    pub(super) whole: bool,
}

/// The entries of the table of `level` that holds `range` (which lies in one such table), with what of the range is below each.
pub(super) fn parts(range: PageRange, level: Level) -> impl Iterator<Item = Part> {
    let span = level.entry_span();
    let first = range.start().get() & !(span - 1);
    (0..).map(move |n| first + n * span).take_while(move |at| *at < range.end().get()).filter_map(move |at| {
        let start = VirtAddr(at.max(range.start().get()));
        let end = VirtAddr((at + span).min(range.end().get()));
        let range = PageRange::new(start, end)?;
        Some(Part { index: VirtAddr(at).index(level), range, whole: range.len() == span })
    })
}

impl Touch {
    /// Whether the table below `entry`, of which `part` is touched, must be exclusive.
    fn includes(self, memory: &Memory, entry: Entry, part: &Part, level: Level) -> bool {
        if !entry.is_present() {
            return self == Touch::Every;
        }
        match self {
            Touch::Edges => !part.whole,
            Touch::EdgesOfOurs => !part.whole && !entry.is_reference(),
            Touch::All => !(part.whole && entry.is_reference()),
            Touch::Upper => !entry.is_reference() && level > Level::L2,
            Touch::Pages => !entry.is_reference(),
            Touch::EdgesAndGuards => !part.whole || memory.has_guards(entry, level, part.range),
            Touch::Guards => memory.has_guards(entry, level, part.range),
            Touch::Every => true,
        }
    }
}

impl<'m> Root<'m> {
    /// Whether a private page is present in `range`. Takes no lock, so a fault may change the answer; the caller is pinned.
    #[inline]
    pub(crate) fn holds_private(&self, range: PageRange) -> bool {
        let leaf = self.look(range.start());
        let span = leaf.level.entry_span().max(Level::L1.table_span());
        if range.start().get() / span != (range.end().get() - 1) / span {
            return holds_private_below(self, self.frame, Level::L4, range);
        }
        if leaf.level != Level::L1 {
            return false;
        }
        let first = range.start().index(Level::L1).get();
        let slots = &self.memory.entries(leaf.table)[first..first + range.pages() as usize];
        // Relaxed: nothing that they refer to is looked at.
        slots.iter().any(|slot| Entry::from_bits(slot.load(Ordering::Relaxed)).is_private())
    }

    /// Makes every table that `touch` names below `range` exclusive, after setting aside the frames for all that must be copied.
    ///
    /// # Errors
    ///
    /// Out of memory; then nothing has been copied.
    #[inline]
    pub(crate) fn own_range(&self, range: PageRange, touch: Touch, garbage: &mut Garbage) -> Result<()> {
        if touch != Touch::Every && self.own_below(range).is_some() {
            return Ok(());
        }
        self.make_own_range(range, touch, garbage)
    }

    /// [`Root::own_range`] of the edges of a range that will be cleared, and where that begins, if one table of our own holds all of it.
    ///
    /// # Errors
    ///
    /// As [`Root::own_range`].
    #[inline]
    pub(crate) fn own_edges(&self, range: PageRange, garbage: &mut Garbage) -> Result<Option<OwnEnd>> {
        let end = self.own_below(range);
        if end.is_none() {
            self.make_own_range(range, Touch::Edges, garbage)?;
        }
        Ok(end)
    }

    fn make_own_range(&self, range: PageRange, touch: Touch, garbage: &mut Garbage) -> Result<()> {
        let mut supply = Supply::reserve(self.memory, self.count_to_own(range, touch))?;
        self.own_range_with(range, touch, &mut supply, garbage)
    }

    /// Tables that [`Root::own_range`] must copy.
    pub(super) fn count_to_own(&self, range: PageRange, touch: Touch) -> u64 {
        self.count_shared(Some(self.frame), Level::L4, range, touch, false)
    }

    /// [`Root::own_range`] with frames that have been set aside.
    pub(super) fn own_range_with(
        &self,
        range: PageRange,
        touch: Touch,
        supply: &mut Supply<'m>,
        garbage: &mut Garbage,
    ) -> Result<()> {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let full_at = own_below(&mut self.lock(), range, touch, supply, garbage)?;
            rest = full_at.and_then(|at| PageRange::new(at, range.end()));
            if rest.is_some() {
                garbage.settle(self.memory, self.space, Flush::Range(range));
            }
        }
        Ok(())
    }

    /// Tables that [`Root::own_range`] must copy, or make. `None`: of a table that is yet to be made.
    fn count_shared(
        &self,
        table: Option<Frame>,
        level: Level,
        range: PageRange,
        touch: Touch,
        shared_above: bool,
    ) -> u64 {
        let Some(below) = level.below() else { return 0 };
        let mut count = 0;
        for part in parts(range, level) {
            let entry = table.map_or(Entry::NONE, |table| self.glance(table, part.index));
            if !touch.includes(self.memory, entry, &part, level) {
                continue;
            }
            let table = entry.is_present().then(|| entry.frame());
            let is_ours = |table: Frame| !entry.is_reference() && self.memory.record(table).is_alone();
            let shared = shared_above || !table.is_some_and(is_ours);
            count += shared as u64 + self.count_shared(table, below, part.range, touch, shared);
        }
        count
    }

    /// Takes everything out of `range`, whose edges are exclusive. Tables that become empty go too, unless `keep` says that something is
    /// still mapped in their span.
    pub(crate) fn clear_range(&self, range: PageRange, garbage: &mut Garbage, keep: &dyn Fn(PageRange) -> bool) {
        self.clear_all_but(range, garbage, &Spare { tables: keep, guards: false });
    }

    /// As [`Root::clear_range`], from where [`Root::own_edges`] said, in the same turn of the writers' lock.
    #[inline]
    pub(crate) fn clear_from(
        &self,
        known: Option<OwnEnd>,
        range: PageRange,
        garbage: &mut Garbage,
        keep: &dyn Fn(PageRange) -> bool,
    ) {
        let spare = Spare { tables: keep, guards: false };
        let Some(end) = known else { return self.clear_all_but(range, garbage, &spare) };
        if let Some(at) = self.clear_held(self.lock_end(end, range), range, garbage, &spare) {
            garbage.settle(self.memory, self.space, Flush::Range(range));
            if let Some(rest) = PageRange::new(at, range.end()) {
                self.clear_all_but(rest, garbage, &spare);
            }
        }
    }

    /// Takes the pages out of `range`, what was made exclusive of it by `touch`. No guards: they are looked for where they were then
    /// ([`Touch::EdgesAndGuards`]).
    pub(crate) fn clear_pages(&self, range: PageRange, garbage: &mut Garbage, touch: Touch) {
        self.clear_all_but(range, garbage, &Spare { tables: &|_| true, guards: touch == Touch::EdgesAndGuards });
    }

    /// As [`Root::clear_range`], where entries have been taken out already: tables that are empty since then go too.
    pub(crate) fn clear_emptied(&self, range: PageRange, garbage: &mut Garbage, keep: &dyn Fn(PageRange) -> bool) {
        let spare = Spare { tables: keep, guards: false };
        self.clear_with(range, garbage, |range, garbage| {
            clear_below(self.memory, &mut self.lock(), range, garbage, &spare)
        });
    }

    fn clear_all_but(&self, range: PageRange, garbage: &mut Garbage, spare: &Spare<'_>) {
        self.clear_with(range, garbage, |range, garbage| self.clear_some(range, garbage, spare));
    }

    #[inline]
    fn clear_with(
        &self,
        range: PageRange,
        garbage: &mut Garbage,
        clear_some: impl Fn(PageRange, &mut Garbage) -> Option<VirtAddr>,
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let full_at = clear_some(range, garbage);
            rest = full_at.and_then(|at| PageRange::new(at, range.end()));
            if rest.is_some() {
                garbage.settle(self.memory, self.space, Flush::Range(range));
            }
        }
    }

    /// As much of [`Root::clear_range`] as can be given up before a shootdown; where to go on, if that was not all.
    fn clear_some(&self, range: PageRange, garbage: &mut Garbage, spare: &Spare<'_>) -> Option<VirtAddr> {
        self.clear_held(self.lock_holder(range), range, garbage, spare)
    }

    #[inline(always)]
    fn clear_held(
        &self,
        holder: Holder<'m>,
        range: PageRange,
        garbage: &mut Garbage,
        spare: &Spare<'_>,
    ) -> Option<VirtAddr> {
        match holder {
            Holder::Nothing => return None,
            Holder::Several => {}
            Holder::Table(mut table) => {
                let full_at = clear_last(self.memory, &mut table, range, garbage, spare);
                if full_at.is_some() {
                    return full_at;
                }
                let start = VirtAddr(range.start().get() & !(Level::L1.table_span() - 1));
                if !table.is_empty() || PageRange::from_len(start, Level::L1.table_span()).is_some_and(spare.tables) {
                    return None;
                }
            }
        }
        clear_below(self.memory, &mut self.lock(), range, garbage, spare)
    }

    /// Calls `change` for each page present in `range`, zero and reference pages left out, and each that was lost, whose table is exclusive; what is
    /// below a shared table is passed over. An entry that it takes out it gives up to the garbage, which is settled in between when it is full.
    pub(crate) fn change_pages(
        &self,
        range: PageRange,
        garbage: &mut Garbage,
        change: &mut dyn FnMut(&mut Exclusive<'m>, Index, Entry, &mut Garbage),
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let full_at = change_pages_below(&mut self.lock(), range, garbage, change);
            rest = full_at.and_then(|at| PageRange::new(at, range.end()));
            if rest.is_some() {
                garbage.settle(self.memory, self.space, Flush::Range(range));
            }
        }
    }

    /// Calls `change` for each present leaf in `range`, all of whose tables are exclusive. Reference tables in it are dropped.
    pub(crate) fn change_leaves(
        &self,
        range: PageRange,
        garbage: &mut Garbage,
        mut change: impl FnMut(&mut Exclusive<'m>, Index, Entry),
    ) {
        match self.lock_holder(range) {
            Holder::Table(mut table) => change_last(&mut table, range, garbage, &mut change),
            Holder::Nothing => {}
            Holder::Several => change_below(&mut self.lock(), range, garbage, &mut change),
        }
    }
}

/// What stays in a range that is cleared.
struct Spare<'a> {
    /// Whether a table of this span stays even if nothing is left in it.
    tables: &'a dyn Fn(PageRange) -> bool,
    /// Whether guards stay, and the tables that have some.
    guards: bool,
}

fn holds_private_below(root: &Root<'_>, table: Frame, level: Level, range: PageRange) -> bool {
    parts(range, level).any(|part| {
        let entry = root.glance(table, part.index);
        match level.below() {
            None => entry.is_private(),
            Some(below) => {
                entry.is_present()
                    && !entry.is_reference()
                    && holds_private_below(root, entry.frame(), below, part.range)
            }
        }
    })
}

/// `Some(address)`: no more can be given up before a shootdown; go on there afterwards.
fn own_below<'m>(
    table: &mut Exclusive<'m>,
    range: PageRange,
    touch: Touch,
    supply: &mut Supply<'m>,
    garbage: &mut Garbage,
) -> Result<Option<VirtAddr>> {
    let level = table.level();
    if level.below().is_none() {
        return Ok(None);
    }
    for part in parts(range, level) {
        if touch.includes(table.memory(), table.entry(part.index), &part, level) {
            if garbage.is_full() {
                return Ok(Some(part.range.start()));
            }
            table.own_child(part.index, supply, garbage)?;
            if let Some(mut child) = table.child(part.index) {
                if let Some(full_at) = own_below(&mut child, part.range, touch, supply, garbage)? {
                    return Ok(Some(full_at));
                }
            }
        }
    }
    Ok(None)
}

/// `Some(address)`: no more can be given up before a shootdown; go on there afterwards.
fn clear_below(
    memory: &Memory,
    table: &mut Exclusive<'_>,
    range: PageRange,
    garbage: &mut Garbage,
    spare: &Spare<'_>,
) -> Option<VirtAddr> {
    let level = table.level();
    if level == Level::L1 {
        return clear_last(memory, table, range, garbage, spare);
    }
    for part in parts(range, level) {
        let entry = table.entry(part.index);
        if !entry.is_present() {
            continue;
        }
        if garbage.is_full() {
            return Some(part.range.start());
        }
        // What is beyond the range below this entry.
        let mut beyond = !part.whole;
        if beyond || spare.guards && memory.has_guards(entry, level, part.range) {
            if let Some(mut child) = table.child(part.index) {
                let full_at = clear_below(memory, &mut child, part.range, garbage, spare);
                if full_at.is_some() {
                    return full_at;
                }
                let span = VirtAddr(part.range.start().get() & !(level.entry_span() - 1));
                if !child.is_empty() || PageRange::from_len(span, level.entry_span()).is_some_and(spare.tables) {
                    continue;
                }
                if garbage.is_full() {
                    return Some(part.range.start());
                }
                // An empty table translates nothing, and each shootdown drops the upper-level entries that lead there.
                beyond = false;
            }
        }
        // Zeros that a fault has linked since the edges were made exclusive: the rest of their span can be linked again.
        garbage.stale_beyond |= beyond;
        // As it is now: a processor may have made it dirty since.
        let entry = table.put(part.index, Entry::NONE);
        garbage.give_up(memory, entry, level, table.slot(part.index));
    }
    None
}

/// [`clear_below`] in a last-level table, which may hold nothing but pages and guards: page by page.
#[inline]
fn clear_last(
    memory: &Memory,
    table: &mut Exclusive<'_>,
    range: PageRange,
    garbage: &mut Garbage,
    spare: &Spare<'_>,
) -> Option<VirtAddr> {
    let mut at = range.start();
    while at < range.end() {
        let index = at.index(Level::L1);
        let entry = table.entry(index);
        if entry.is_present() {
            if garbage.is_full() {
                return Some(at);
            }
            // As it is now: a processor may have made it dirty since.
            let entry = table.put(index, Entry::NONE);
            garbage.give_up(memory, entry, Level::L1, table.slot(index));
        } else if entry.is_marker() && !(spare.guards && entry.is_guard()) {
            table.put(index, Entry::NONE);
        }
        at = VirtAddr(at.get() + PAGE_SIZE);
    }
    None
}

fn change_below<'m>(
    table: &mut Exclusive<'m>,
    range: PageRange,
    garbage: &mut Garbage,
    change: &mut impl FnMut(&mut Exclusive<'m>, Index, Entry),
) {
    let level = table.level();
    if level == Level::L1 {
        return change_last(table, range, garbage, change);
    }
    for part in parts(range, level) {
        let entry = table.entry(part.index);
        if !entry.is_present() {
            continue;
        }
        if entry.is_reference() {
            garbage.stale = true;
            garbage.stale_beyond |= !part.whole;
            table.put(part.index, Entry::NONE);
        } else if let Some(mut child) = table.child(part.index) {
            change_below(&mut child, part.range, garbage, change);
        }
    }
}

/// [`change_below`] in a last-level table. For each caller by itself: a page costs little more than its change.
fn change_last<'m>(
    table: &mut Exclusive<'m>,
    range: PageRange,
    garbage: &mut Garbage,
    change: &mut impl FnMut(&mut Exclusive<'m>, Index, Entry),
) {
    let first = range.start().index(Level::L1).get() as u64;
    for page in first..first + range.pages() {
        let index = Index::truncate(page);
        let entry = table.entry(index);
        if entry.is_present() {
            garbage.stale = true;
            change(table, index, entry);
        }
    }
}

/// `Some(address)`: no more can be given up before a shootdown; go on there afterwards.
fn change_pages_below<'m>(
    table: &mut Exclusive<'m>,
    range: PageRange,
    garbage: &mut Garbage,
    change: &mut dyn FnMut(&mut Exclusive<'m>, Index, Entry, &mut Garbage),
) -> Option<VirtAddr> {
    let level = table.level();
    for part in parts(range, level) {
        let entry = table.entry(part.index);
        if !entry.is_tracked() && !entry.is_poison() {
            continue;
        }
        if level.below().is_none() {
            if garbage.is_full() {
                return Some(part.range.start());
            }
            change(table, part.index, entry, garbage);
        } else if let Some(mut child) = table.child(part.index) {
            if let Some(full_at) = change_pages_below(&mut child, part.range, garbage, change) {
                return Some(full_at);
            }
        }
    }
    None
}
