//! The right to change the slots of one table.

use super::release::for_each_of;
use super::{Entry, Supply};
use crate::addr::{ENTRIES, Index, Level};
use crate::error::Result;
use crate::frame::{Entries, Frame, Garbage, Home, Kind, LineageId, Memory, Record, Slot};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::glance;

/// A locked table that belongs to one address space alone: nothing else can change a slot.
///
/// # Invariants
///
/// The lock of `table` is held. When the lock was taken, every table on the path from the root of one address space down to `table`, itself
/// included, had one reference. (A fork may share the path while the lock is held. That does no harm: it clears the write bits above,
/// and what is stored here is what every sharer expects at this place, for they have the same VMAs here.)
pub(crate) struct Exclusive<'m> {
    memory: &'m Memory,
    table: Frame,
    level: Level,
}

impl<'m> Exclusive<'m> {
    /// Takes the lock of a table. Only for [`super::path`], which establishes the invariant, and for tables that nobody else knows yet.
    pub(super) fn lock(memory: &'m Memory, table: Frame, level: Level) -> Exclusive<'m> {
        memory.record(table).lock();
        Exclusive { memory, table, level }
    }

    pub(crate) fn memory(&self) -> &'m Memory {
        self.memory
    }

    pub(crate) fn table(&self) -> Frame {
        self.table
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    pub(crate) fn slot(&self, index: Index) -> Slot {
        Slot { table: self.table, index }
    }

    #[inline]
    pub(crate) fn entry(&self, index: Index) -> Entry {
        // Relaxed: stored under the lock that we hold. (What a processor notes in it meanwhile is kept by whoever changes it.)
        Entry::from_bits(glance(&self.memory.entries(self.table)[index.get()], Ordering::Relaxed))
    }

    /// Whether every slot is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.memory.record(self.table).counts().is_empty()
    }

    /// Stores an entry, in one store, and returns what was there. References and homes are the caller's to settle.
    ///
    /// Release: who finds the entry also finds the content of what it refers to.
    #[inline]
    pub(crate) fn put(&mut self, index: Index, entry: Entry) -> Entry {
        let old = entry.swap_into(&self.memory.entries(self.table)[index.get()]);
        let (removed, added) = (old.unit(self.level), entry.unit(self.level));
        if removed != added {
            self.memory.record(self.table).shift_counts(removed, added);
        }
        old
    }

    /// Moves entries, `count` at most, from `from` on to `to` on in `target` (`None`: in this table), with the homes of what they refer to. Ends
    /// before the first that refers to something of an object's, or whose new place is taken; returns how many come before it.
    pub(super) fn move_run(
        &mut self,
        target: Option<&mut Exclusive<'m>>,
        from: Index,
        to: Index,
        count: usize,
    ) -> usize {
        let memory = self.memory;
        let into = target.as_ref().map_or(self.table, |target| target.table);
        let slots = |table: Frame, first: Index| &memory.entries(table)[first.get()..first.get() + count];
        let ends = Ends { memory, from: self.slot(from), to: Slot { table: into, index: to } };
        let run = move_slots(memory.records(), slots(self.table, from), slots(into, to), &ends);
        if let Some(target) = target {
            let tracked = run.passed - run.empty - run.untracked;
            let units = tracked * Entry::PRIVATE.unit(self.level) + run.untracked * Entry::GUARD.unit(self.level);
            memory.record(self.table).shift_counts(units, 0);
            memory.record(target.table).shift_counts(0, units);
        }
        run.passed as usize
    }

    /// Sets and clears permissions of a present entry, keeping what the processor noted in it.
    pub(crate) fn change(&mut self, index: Index, set: u64, clear: u64) {
        let slot = &self.memory.entries(self.table)[index.get()];
        // Release, and with it all that came before is seen by who finds the new permissions; acquire: so are the marks of a processor that has stored
        // there.
        if clear != 0 {
            slot.fetch_and(!clear, Ordering::AcqRel);
        }
        if set != 0 {
            slot.fetch_or(set, Ordering::AcqRel);
        }
    }

    /// Makes the table below `index` exclusive as well, and its slot writable: makes one where there is none, copies it if it is shared.
    ///
    /// # Errors
    ///
    /// Out of memory; nothing has changed.
    pub(crate) fn own_child(&mut self, index: Index, supply: &mut Supply<'m>, garbage: &mut Garbage) -> Result<()> {
        let Some(level) = self.level.below() else { return Ok(()) };
        let entry = self.entry(index);
        if !entry.is_present() {
            let table = self.begin_table(index, level, supply)?;
            self.put(index, Entry::table(table));
        } else if entry.is_reference() {
            let table = self.begin_table(index, level, supply)?;
            self.expand_reference(entry, table, level);
            self.put(index, Entry::table(table));
            garbage.stale = true;
        } else if self.memory.record(entry.frame()).is_shared() {
            self.unshare(index, entry.frame(), level, supply, garbage)?;
        } else if !entry.is_writable() {
            // The other sharers have gone: the table is ours as it is, and its own slots are write-protected where they must be.
            self.change(index, Entry::WRITE, 0);
        }
        Ok(())
    }

    /// Locks the table below `index`, which must be exclusive already.
    pub(crate) fn child(&self, index: Index) -> Option<Exclusive<'m>> {
        let entry = self.entry(index);
        let level = self.level.below()?;
        if !entry.is_present() || entry.is_reference() || self.memory.record(entry.frame()).is_shared() {
            return None;
        }
        Some(Exclusive::lock(self.memory, entry.frame(), level))
    }

    fn begin_table(&self, index: Index, level: Level, supply: &mut Supply<'m>) -> Result<Frame> {
        let table = supply.take()?;
        self.memory.record(table).begin(Kind::table(level), Home::Slot(self.slot(index)));
        Ok(table)
    }

    /// Fills a new table with what a reference table shows.
    fn expand_reference(&self, link: Entry, table: Frame, level: Level) {
        let from = self.memory.entries(link.frame());
        let forbidden = link.bits() & Entry::NO_EXECUTE;
        let mut units = 0;
        for (slot, reference) in self.memory.entries(table).iter().zip(from) {
            // Relaxed: reference tables do not change, and ours is published by the entry that will link it.
            let entry = Entry::from_bits(reference.load(Ordering::Relaxed)).with(forbidden);
            units += entry.unit(level);
            slot.store(entry.bits(), Ordering::Relaxed);
        }
        self.memory.record(table).shift_counts(0, units);
    }

    /// Copies a shared table into one of our own: the write side of copy-on-write.
    fn unshare(
        &mut self,
        index: Index,
        shared: Frame,
        level: Level,
        supply: &mut Supply<'m>,
        garbage: &mut Garbage,
    ) -> Result<()> {
        let memory = self.memory;
        let copy = self.begin_table(index, level, supply)?;
        let original = memory.record(shared);
        original.lock();
        let joined = match memory.join_to_copy(shared, copy) {
            Ok(joined) => joined,
            Err(error) => {
                original.unlock();
                memory.record(copy).mark(Kind::Idle, 0);
                memory.free_table(copy);
                return Err(error);
            }
        };
        let (from, to) = (memory.entries(shared), memory.entries(copy));
        // A link to a table of an object says for all below it what its area does not allow.
        let forbidden = self.entry(index).bits() & Entry::NO_EXECUTE;
        let copying = Copying { memory, records: memory.records(), table: shared, lineage: joined.lineage, forbidden };
        copying.all(original.counts().used(), from, to);
        drop(joined);
        memory.record(copy).set_counts(original.counts());
        original.unlock();
        let link = self.put(index, Entry::table(copy));
        garbage.give_up(memory, link, self.level, self.slot(index));
        Ok(())
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.memory.record(self.table).unlock();
    }
}

/// What the copying of a table needs to know.
struct Copying<'m> {
    memory: &'m Memory,
    records: &'m [Record],
    /// The one that is copied.
    table: Frame,
    /// Of both.
    lineage: LineageId,
    /// What all entries of the copy get.
    forbidden: u64,
}

impl Copying<'_> {
    /// Copies the `used` entries of a table.
    fn all(&self, used: u32, from: &Entries, to: &Entries) {
        if used as usize > ENTRIES / 8 {
            self.run(from, to, Index::truncate(0));
        } else {
            for_each_of(used, from, |index, _| {
                let one = index.get()..index.get() + 1;
                self.run(&from[one.clone()], &to[one], index);
            });
        }
    }

    /// Copies what is not empty of a run of slots, the first of which is at `first`. By itself, so that all that it needs is in registers.
    #[inline(never)]
    fn run(&self, from: &[AtomicU64], to: &[AtomicU64], first: Index) {
        let Copying { memory, records, table, lineage, forbidden } = *self;
        for (number, (from, to)) in from.iter().zip(to).enumerate() {
            // Relaxed, here and below: under the lock of the table; the copy is published by the entry that will link it.
            let entry = Entry::from_bits(glance(from, Ordering::Relaxed));
            if entry.is_empty() {
                continue;
            }
            if entry.is_writable() {
                // In the original too: its last owner will reuse it as it is. No shootdown is owed for that, since it could not be
                // reached for writing, being shared. Who finds it here had what it refers to before.
                from.fetch_and(!Entry::WRITE, Ordering::Relaxed);
            }
            let index = Index::truncate((first.get() + number) as u64);
            if entry.is_private() {
                if !records[entry.frame().0 as usize].share(lineage, index) {
                    memory.share_listed(entry.frame(), lineage, index);
                }
            } else if entry.is_object() {
                memory.relink_home(entry.frame(), table, lineage, index);
            }
            to.store(entry.without(Entry::WRITE).with(forbidden).bits(), Ordering::Relaxed);
        }
    }
}

/// Entries that moved, and those that there was nothing of.
struct Run {
    passed: u32,
    empty: u32,
    /// Reference pages, and guards.
    untracked: u32,
}

/// The first slot that entries leave, and the first that they come to.
struct Ends<'m> {
    memory: &'m Memory,
    from: Slot,
    to: Slot,
}

impl Ends<'_> {
    /// The slot after so many.
    fn after(first: Slot, passed: u32) -> Slot {
        Slot { index: Index::truncate(first.index.get() as u64 + passed as u64), ..first }
    }

    #[cold]
    fn move_shared(&self, frame: Frame, passed: u32) {
        self.memory.move_shared_home(frame, Ends::after(self.from, passed), Ends::after(self.to, passed));
    }
}

/// The loop of [`Exclusive::move_run`], by itself so that all that it needs is in registers.
#[inline(never)]
fn move_slots(records: &[Record], old: &[AtomicU64], new: &[AtomicU64], ends: &Ends<'_>) -> Run {
    let (mut passed, mut empty, mut untracked) = (0, 0, 0);
    for (old, new) in old.iter().zip(new) {
        // Relaxed: under the locks of both tables.
        let entry = Entry::from_bits(glance(old, Ordering::Relaxed));
        if entry.is_empty() {
            empty += 1;
        } else if entry.is_object() || new.load(Ordering::Relaxed) != 0 {
            break;
        } else {
            // What the processor notes in the entry until here moves with it.
            // Acquire: what a processor has stored there, to who frees or shares it later. Release: as every change of a slot.
            let entry = Entry::from_bits(old.swap(0, Ordering::AcqRel));
            if entry.is_tracked() {
                let record = &records[entry.frame().0 as usize];
                if record.is_alone() {
                    record.set_home(Home::Slot(Ends::after(ends.to, passed)));
                } else {
                    ends.move_shared(entry.frame(), passed);
                }
            } else {
                untracked += 1;
            }
            // Release: who finds the entry also finds what it refers to.
            new.store(entry.bits(), Ordering::Release);
        }
        passed += 1;
    }
    Run { passed, empty, untracked }
}
