//! Guard markers: entries that are not present and say that nothing may be. They are where the program put them, not where the VMAs end, so they
//! live in the tables: copied with them, moved with them, gone with them.

use super::path::Holder;
use super::range::parts;
use super::{Entry, Exclusive, Root};
use crate::addr::{Index, Level, PageRange, VirtAddr};
use crate::frame::{Garbage, Memory};
use crate::platform::Flush;
use crate::sync::atomic::Ordering;

impl Memory {
    /// Whether there are guards in `range`, which is below `entry` of a table of `level`. Time: the tables there; the slots of those that have
    /// references or guards.
    pub(crate) fn has_guards(&self, entry: Entry, level: Level, range: PageRange) -> bool {
        let (true, Some(below)) = (entry.is_present() && !entry.is_reference(), level.below()) else { return false };
        let table = entry.frame();
        if self.record(table).counts().other == 0 {
            return false;
        }
        parts(range, below).any(|part| {
            // Acquire: the table that it links is looked through.
            let entry = Entry::from_bits(self.entries(table)[part.index.get()].load(Ordering::Acquire));
            entry.is_guard() || self.has_guards(entry, below, part.range)
        })
    }
}

impl Root<'_> {
    /// Whether there is a guard at `addr`. The caller is pinned.
    pub(crate) fn is_guarded(&self, addr: VirtAddr) -> bool {
        self.marker(addr).is_guard()
    }

    /// The marker at `addr`, or an entry that is none. The caller is pinned.
    pub(crate) fn marker(&self, addr: VirtAddr) -> Entry {
        let mut entry = self.load(self.frame, addr.index(Level::L4));
        for level in [Level::L3, Level::L2, Level::L1] {
            if !entry.is_present() {
                return Entry::NONE;
            }
            entry = self.load(entry.frame(), addr.index(level));
        }
        entry
    }

    /// Puts guards everywhere in `range`, all of whose last-level tables exist and are exclusive. What was there is given up.
    pub(crate) fn put_guards(&self, range: PageRange, garbage: &mut Garbage) {
        self.in_each_table(range, garbage, &mut |table, index, garbage| {
            let old = table.put(index, Entry::GUARD);
            if old.is_present() {
                garbage.give_up(table.memory(), old, Level::L1, table.slot(index));
            }
        });
    }

    /// Takes the guards out of `range`; the tables that have some there are exclusive.
    pub(crate) fn take_guards(&self, range: PageRange, garbage: &mut Garbage) {
        self.in_each_table(range, garbage, &mut |table, index, _| {
            if table.entry(index).is_guard() {
                table.put(index, Entry::NONE);
            }
        });
    }

    /// Puts `entry`, which is a reference, where nothing is in `range`, all of whose last-level tables exist and are exclusive.
    pub(crate) fn fill_holes(&self, range: PageRange, entry: Entry, garbage: &mut Garbage) {
        self.in_each_table(range, garbage, &mut |table, index, _| {
            if table.entry(index).is_empty() {
                table.put(index, entry);
            }
        });
    }

    /// Calls `act` for each slot in `range` of last-level tables that are ours alone, one table at a time, with shootdowns in between where the
    /// garbage is full.
    fn in_each_table(
        &self,
        range: PageRange,
        garbage: &mut Garbage,
        act: &mut dyn FnMut(&mut Exclusive<'_>, Index, &mut Garbage),
    ) {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let next = VirtAddr((range.start().get() | (Level::L1.table_span() - 1)) + 1).min(range.end());
            let mut reached = next;
            if let Some(within) = PageRange::new(range.start(), next) {
                if let Holder::Table(mut table) = self.lock_holder(within) {
                    for part in parts(within, Level::L1) {
                        if garbage.is_full() {
                            reached = part.range.start();
                            break;
                        }
                        act(&mut table, part.index, garbage);
                    }
                }
            }
            if reached < next {
                garbage.settle(self.memory, self.space, Flush::Range(range));
            }
            rest = PageRange::new(reached, range.end());
        }
    }
}
