//! Moving what is present from one range of addresses to another: whole tables by their slots where both ranges are aligned alike, else
//! entry by entry.
//!
//! ```text
//!   from   |..aaaa|bbbbbbbb|cccccccc|dd......|       the two tables in the middle move by their slots, of the outer ones
//!   to     |..aaaa|bbbbbbbb|cccccccc|dd......|       single entries move
//! ```
//!
//! A table that moves whole keeps its entries, and may go on being shared: what it shows does not depend on where it is linked. Single
//! entries leave a table that is ours alone for another one.
//!
//! For callers that hold the writers' lock, and keep faults out of both ranges.

use super::{Entry, Exclusive, Root, Supply, Touch};
use crate::addr::{Index, Level, PageRange, VirtAddr};
use crate::error::Result;
use crate::frame::Garbage;
use crate::platform::Flush;
use crate::reverse::Promise;

/// What remains to be moved, and where to.
#[derive(Clone, Copy)]
struct Route {
    from: PageRange,
    to: VirtAddr,
}

impl Route {
    /// The part from `at` on; `None` if nothing is left.
    fn after(self, at: VirtAddr) -> Option<Route> {
        let to = VirtAddr(self.to.get() + (at.get() - self.from.start().get()));
        Some(Route { from: PageRange::new(at, self.from.end())?, to })
    }

    /// Whether the first entry of a table of `level` moves whole.
    fn moves_whole(self, level: Level) -> bool {
        let span = level.entry_span();
        level < Level::L4 && (self.from.start().get() | self.to.get()) % span == 0 && self.from.len() >= span
    }
}

/// Neighbouring entries of one table of `level` that go into one table.
struct Step {
    route: Route,
    level: Level,
    entries: u64,
}

impl Step {
    fn new(route: Route, level: Level) -> Step {
        let left = |addr: VirtAddr| level.table_span() - (addr.get() & (level.table_span() - 1));
        let bytes = route.from.len().min(left(route.from.start())).min(left(route.to));
        Step { route, level, entries: bytes / level.entry_span() }
    }

    /// What comes after the first `entries`.
    fn rest(&self, entries: u64) -> Option<Route> {
        self.route.after(self.route.from.start().checked_add(entries * self.level.entry_span())?)
    }
}

/// The table of each level that was counted last, by its place, so that each is counted once.
#[derive(Default)]
struct Passed([Option<u64>; Level::L4 as usize]);

impl Passed {
    fn is_new(&mut self, addr: VirtAddr, level: Level) -> bool {
        let table = Some(addr.get() / level.table_span());
        core::mem::replace(&mut self.0[level as usize], table) != table
    }

    /// Tables of `level` and above on the path to `addr`, the root left out.
    fn new_tables(&mut self, addr: VirtAddr, level: Level) -> u64 {
        let levels = [Level::L1, Level::L2, Level::L3].into_iter().filter(|at| *at >= level);
        levels.filter(|at| self.is_new(addr, *at)).count() as u64
    }
}

impl<'m> Root<'m> {
    /// The next step. Passes over what is not present, and over links to reference tables that cannot move whole: what they show comes
    /// back by itself.
    fn next_step(&self, mut route: Route) -> Option<Step> {
        loop {
            let at = route.from.start();
            let (mut table, mut level) = (self.frame, Level::L4);
            let skipped = loop {
                let entry = self.load(table, at.index(level));
                if route.moves_whole(level) && (level == Level::L1 || !entry.is_empty()) {
                    return Some(Step::new(route, level));
                }
                if !entry.is_present() || entry.is_reference() || self.is_empty_table(entry, level) {
                    break level.entry_span();
                }
                let Some(below) = level.below() else { break level.entry_span() };
                (table, level) = (entry.frame(), below);
            };
            route = route.after(VirtAddr((at.get() & !(skipped - 1)).checked_add(skipped)?))?;
        }
    }

    /// Whether `entry` of a table of `level` links a last-level table with nothing in it.
    fn is_empty_table(&self, entry: Entry, level: Level) -> bool {
        level == Level::L2 && self.memory.record(entry.frame()).counts().is_empty()
    }

    fn steps(&self, from: PageRange, to: VirtAddr) -> impl Iterator<Item = Step> {
        let mut rest = Some(Route { from, to });
        core::iter::from_fn(move || {
            let step = self.next_step(rest?)?;
            rest = step.rest(step.entries);
            Some(step)
        })
    }

    /// Makes exclusive whatever a move of `moved` to the start of `to` changes, when `from`, of which it is the head, and `to` are to be
    /// cleared as well. Returns the frames for the tables that [`Root::relocate`] may have to make, and room for the homes of what is shared.
    ///
    /// # Errors
    ///
    /// Out of memory; then nothing has been copied.
    pub(crate) fn prepare_to_relocate(
        &self,
        moved: PageRange,
        from: PageRange,
        to: PageRange,
        garbage: &mut Garbage,
    ) -> Result<(Supply<'m>, Promise<'m>)> {
        let mut needed = self.count_to_own(from, Touch::EdgesOfOurs) + self.count_to_own(to, Touch::EdgesOfOurs);
        let (mut sources, mut targets, mut shared) = (Passed::default(), Passed::default(), 0);
        for step in self.steps(moved, to.start()) {
            shared += self.count_shared_above(&step, &mut sources);
            needed += targets.new_tables(step.route.to, step.level);
        }
        // Before anything is copied: what is shared now through a table above is shared by itself then.
        let (mut slots, mut tables) = (0, 0);
        for step in self.steps(moved, to.start()) {
            let shared = self.count_shared_in(&step);
            slots += shared;
            tables += (shared != 0) as usize;
        }
        let homes = self.memory.promise_homes(slots, tables, (needed + shared) as usize)?;
        let mut supply = Supply::reserve(self.memory, needed + shared)?;
        self.own_range_with(from, Touch::EdgesOfOurs, &mut supply, garbage)?;
        self.own_range_with(to, Touch::EdgesOfOurs, &mut supply, garbage)?;
        if shared > 0 {
            for step in self.steps(moved, to.start()) {
                drop(self.own(step.route.from.start(), step.level, &mut supply, garbage)?);
            }
        }
        Ok((supply, homes))
    }

    /// Entries of a step that refer to what others have, too, when the tables on its path are ours alone. Where these are so already, that is so in tables
    /// of a lineage only.
    fn count_shared_in(&self, step: &Step) -> usize {
        let at = step.route.from.start();
        let (mut table, mut copied) = (self.frame, false);
        for above in [Level::L4, Level::L3, Level::L2].into_iter().filter(|above| *above > step.level) {
            table = self.load(table, at.index(above)).frame();
            copied |= self.memory.record(table).is_shared();
        }
        if !copied && self.memory.record(table).lineage().is_none() {
            return 0;
        }
        let first = at.index(step.level).get();
        let slots = &self.memory.entries(table)[first..first + step.entries as usize];
        let private = |entry: &Entry| entry.is_tracked() && !entry.is_object();
        slots
            .iter()
            .map(Entry::load)
            .filter(|entry| private(entry) && (copied || self.memory.record(entry.frame()).is_shared()))
            .count()
    }

    /// Tables on the path to the entries of a step that others share, `passed` left out.
    fn count_shared_above(&self, step: &Step, passed: &mut Passed) -> u64 {
        let at = step.route.from.start();
        let (mut table, mut shared, mut count) = (self.frame, false, 0);
        for (above, level) in [(Level::L4, Level::L3), (Level::L3, Level::L2), (Level::L2, Level::L1)] {
            if level < step.level {
                break;
            }
            let entry = self.load(table, at.index(above));
            shared |= self.memory.record(entry.frame()).is_shared();
            count += (passed.is_new(at, level) && shared) as u64;
            table = entry.frame();
        }
        count
    }

    /// Moves everything present in `from` to `to`, where nothing is present. Afterwards `from` may still hold empty tables, and links that
    /// could not move whole.
    ///
    /// # Errors
    ///
    /// None, if `supply` has what [`Root::prepare_to_relocate`] asked for and nothing was shared since.
    pub(crate) fn relocate(
        &self,
        from: PageRange,
        to: VirtAddr,
        supply: &mut Supply<'m>,
        garbage: &mut Garbage,
    ) -> Result<()> {
        let mut rest = Some(Route { from, to });
        while let Some(step) = rest.and_then(|route| self.next_step(route)) {
            garbage.stale = true;
            // Made first, locked later: of two tables side by side neither is above the other, and only the one writer locks two.
            let target = match self.linked(step.route.to, step.level) {
                Some(table) => table,
                None => self.own(step.route.to, step.level, supply, garbage)?.table(),
            };
            let mut source = self.own(step.route.from.start(), step.level, supply, garbage)?;
            let mut target = (target != source.table()).then(|| Exclusive::lock(self.memory, target, step.level));
            let moved = step.carry_out(&mut source, &mut target, garbage);
            drop((source, target));
            rest = step.rest(moved);
            if moved < step.entries {
                garbage.settle(self.memory, self.space, Flush::All);
            }
        }
        Ok(())
    }
}

impl Step {
    /// Moves entries until the garbage is full; returns how many. `target` is `None` if they stay in their table.
    fn carry_out<'m>(
        &self,
        source: &mut Exclusive<'m>,
        target: &mut Option<Exclusive<'m>>,
        garbage: &mut Garbage,
    ) -> u64 {
        let first = |addr: VirtAddr| addr.index(self.level).get() as u64;
        let (from, to) = (first(self.route.from.start()), first(self.route.to));
        let mut moved = 0;
        loop {
            let (old, new) = (Index::truncate(from + moved), Index::truncate(to + moved));
            moved += source.move_run(target.as_mut(), old, new, (self.entries - moved) as usize) as u64;
            if moved == self.entries || !garbage.has_room_for_a_path() {
                return moved;
            }
            carry_one(source, target, Index::truncate(from + moved), Index::truncate(to + moved), garbage);
            moved += 1;
        }
    }
}

/// Moves an entry that [`Exclusive::move_run`] has stopped at: one of an object's, or one whose new place is taken.
#[cold]
fn carry_one<'m>(
    source: &mut Exclusive<'m>,
    target: &mut Option<Exclusive<'m>>,
    old: Index,
    new: Index,
    garbage: &mut Garbage,
) {
    let (memory, level) = (source.memory(), source.level());
    let table = target.as_mut().unwrap_or(source);
    let place = table.slot(new);
    let there = table.entry(new);
    if !there.is_empty() {
        // A fault that waits to look again may have made an empty table there.
        table.put(new, Entry::NONE);
        garbage.give_up(memory, there, level, place);
    }
    // What the processor notes in the entry until here moves with it.
    let entry = source.put(old, Entry::NONE);
    if entry.is_tracked() && !entry.is_object() {
        memory.move_shared_home(entry.frame(), source.slot(old), place);
    } else if entry.is_tracked() && memory.move_home(entry.frame(), memory.place(source.slot(old)), place).is_err() {
        // The object still has it: the next access maps it again.
        return garbage.give_up(memory, entry, level, source.slot(old));
    }
    target.as_mut().unwrap_or(source).put(new, entry);
}
