//! Paths from a root: looking one up without locks, and making one exclusive.

use super::{Entry, Exclusive, Supply, for_each_of};
use crate::addr::{ENTRIES, Index, Level, PageRange, VirtAddr};
use crate::error::Result;
use crate::frame::{Frame, Garbage, LineageId, Memory};
use crate::platform::{Flush, SpaceId};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::glance;

/// The root table of an address space, and the way to everything below it.
#[derive(Clone, Copy)]
pub(crate) struct Root<'m> {
    pub(crate) memory: &'m Memory,
    pub(crate) frame: Frame,
    pub(crate) space: SpaceId,
}

/// What the entries on a path allow together: the processor's rule. Kept as the bits that all of them have, and those that some has.
#[derive(Clone, Copy)]
pub(crate) struct Rights {
    all: u64,
    any: u64,
}

impl Rights {
    const UNLIMITED: Rights = Rights { all: !0, any: 0 };

    #[inline(always)]
    fn narrow(&mut self, entry: Entry) {
        self.all &= entry.bits();
        self.any |= entry.bits();
    }
    #[inline]
    pub(crate) fn write(self) -> bool {
        self.all & Entry::WRITE != 0
    }
    #[inline]
    pub(crate) fn user(self) -> bool {
        self.all & Entry::USER != 0
    }
    #[inline]
    pub(crate) fn execute(self) -> bool {
        self.any & Entry::NO_EXECUTE == 0
    }
}

impl Leaf {
    /// The table that holds the entry.
    pub(crate) fn table(&self) -> Frame {
        self.table
    }
}

/// Whether the table that `entry` links is ours alone. A slot that lets its table be written is the only one that links it: sharing a
/// table clears that bit in every slot first.
#[inline(always)]
fn is_own(entry: Entry) -> bool {
    entry.is_present() && entry.is_writable()
}

/// Where a look-up ended.
pub(crate) struct Leaf {
    /// The last entry looked at: a leaf, or an empty slot higher up.
    pub(crate) entry: Entry,
    /// The level of the table that holds it.
    pub(crate) level: Level,
    /// What the path allows, the leaf included.
    pub(crate) rights: Rights,
    /// Some table on the path has other parents too.
    pub(crate) shared: bool,
    /// The table that holds it.
    pub(super) table: Frame,
    /// Every table on the path is linked by a slot that lets it be written.
    own: bool,
}

/// The end of a path of our own.
pub(crate) struct OwnEnd {
    table: Frame,
    level: Level,
    /// In that table.
    entry: Entry,
}

impl OwnEnd {
    /// Whether all of `range`, at whose start the path ends, is below that entry, or in that table of the last level.
    #[inline(always)]
    fn holds(&self, range: PageRange) -> bool {
        let span = self.level.entry_span().max(Level::L1.table_span());
        // A span is a power of two.
        (range.start().get() ^ (range.end().get() - 1)) < span
    }
}

/// What holds a range.
pub(super) enum Holder<'m> {
    /// A last-level table.
    Table(Exclusive<'m>),
    /// An empty slot.
    Nothing,
    /// More than that, or something shared.
    Several,
}

impl<'m> Root<'m> {
    #[inline]
    pub(crate) fn load(&self, table: Frame, index: Index) -> Entry {
        Entry::load(&self.memory.entries(table)[index.get()])
    }

    /// [`Root::load`], of many in a row.
    #[inline]
    pub(super) fn glance(&self, table: Frame, index: Index) -> Entry {
        // Acquire: the table that it links is looked through.
        Entry::from_bits(glance(&self.memory.entries(table)[index.get()], Ordering::Acquire))
    }

    /// Walks down to the leaf of `addr`, or to the first empty slot. Takes no lock; the caller is pinned, so that a table that is being
    /// dropped meanwhile stays readable.
    #[inline]
    pub(crate) fn look(&self, addr: VirtAddr) -> Leaf {
        let mut leaf = Leaf {
            entry: self.load(self.frame, addr.index(Level::L4)),
            level: Level::L4,
            rights: Rights::UNLIMITED,
            shared: false,
            table: self.frame,
            own: true,
        };
        // Written out level by level, so that shifts are constants: this is the hottest walk there is.
        let _ = self.look_below(&mut leaf, addr, Level::L3)
            && self.look_below(&mut leaf, addr, Level::L2)
            && self.look_below(&mut leaf, addr, Level::L1);
        leaf.rights.narrow(leaf.entry);
        leaf
    }

    /// As [`Root::look`], for who will store: rights are not asked for where the path is our own.
    #[inline]
    pub(crate) fn look_to_store(&self, addr: VirtAddr) -> Leaf {
        let Some(table) = self.linked(addr, Level::L1) else { return self.look(addr) };
        let entry = self.load(table, addr.index(Level::L1));
        Leaf { entry, level: Level::L1, rights: Rights::UNLIMITED, shared: false, table, own: true }
    }

    /// Sets bits in the entry that a look found, as a processor does that uses it (accessed, dirty): without a lock, if it still is that entry.
    #[inline]
    pub(crate) fn mark(&self, leaf: &Leaf, addr: VirtAddr, marks: u64) -> bool {
        let bits = leaf.entry.bits();
        if bits & marks == marks {
            return true;
        }
        let slot = &self.memory.entries(leaf.table)[addr.index(leaf.level).get()];
        // AcqRel: as a processor that marks it, whose stores are ordered on x86. Relaxed: then it is looked up again.
        slot.compare_exchange(bits, bits | marks, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Follows the entry that a walk has reached down to `level`; false if there is nothing to follow.
    #[inline(always)]
    fn look_below(&self, leaf: &mut Leaf, addr: VirtAddr, level: Level) -> bool {
        let entry = leaf.entry;
        if !entry.is_present() {
            return false;
        }
        leaf.rights.narrow(entry);
        // A slot that lets its table be written links it alone: no need to look at its record.
        if !entry.is_writable() {
            leaf.own = false;
            leaf.shared |= entry.is_reference() || self.memory.record(entry.frame()).is_shared();
        }
        leaf.table = entry.frame();
        leaf.entry = self.load(leaf.table, addr.index(level));
        leaf.level = level;
        true
    }

    /// Locks the table of `level` on the path to `addr`, after making the whole path exclusive: tables are made where there are none and
    /// copied where they are shared. Takes no lock above the table unless something there must change.
    ///
    /// # Errors
    ///
    /// Out of memory. The path may be exclusive part of the way down then, which changes nothing that anyone can see.
    pub(crate) fn own(
        &self,
        addr: VirtAddr,
        level: Level,
        supply: &mut Supply<'m>,
        garbage: &mut Garbage,
    ) -> Result<Exclusive<'m>> {
        loop {
            // Others may share the path again as often as it is made exclusive.
            if !garbage.has_room_for_a_path() {
                garbage.settle(self.memory, self.space, Flush::All);
            }
            let (mut table, mut at) = (self.frame, Level::L4);
            while let (true, Some(below)) = (at > level, at.below()) {
                let index = addr.index(at);
                let entry = self.load(table, index);
                if is_own(entry) {
                    table = entry.frame();
                } else {
                    let Some(mut parent) = self.lock_if_linked(table, addr, at) else { break };
                    parent.own_child(index, supply, garbage)?;
                    table = parent.entry(index).frame();
                }
                at = below;
            }
            if at == level {
                if let Some(owned) = self.lock_if_linked(table, addr, at) {
                    return Ok(owned);
                }
            }
        }
    }

    /// [`Root::own`] for the last-level table, after a look: mostly the path is our own already.
    #[inline]
    pub(crate) fn own_last(
        &self,
        addr: VirtAddr,
        leaf: &Leaf,
        supply: &mut Supply<'m>,
        garbage: &mut Garbage,
    ) -> Result<Exclusive<'m>> {
        if leaf.own && leaf.level == Level::L1 {
            if let Some(owned) = self.lock_if_linked(leaf.table, addr, Level::L1) {
                return Ok(owned);
            }
        }
        self.own(addr, Level::L1, supply, garbage)
    }

    /// The table of `level` to which a path of our own leads now.
    #[inline(always)]
    pub(super) fn linked(&self, addr: VirtAddr, level: Level) -> Option<Frame> {
        let mut table = self.frame;
        for above in [Level::L4, Level::L3, Level::L2] {
            if above > level {
                table = Some(self.load(table, addr.index(above))).filter(|entry| is_own(*entry))?.frame();
            }
        }
        Some(table)
    }

    /// Locks `table` if the path to `addr` still leads to it, over tables of our own.
    #[inline(always)]
    fn lock_if_linked(&self, table: Frame, addr: VirtAddr, level: Level) -> Option<Exclusive<'m>> {
        let locked = Exclusive::lock(self.memory, table, level);
        (self.linked(addr, level) == Some(table)).then_some(locked)
    }

    /// Follows the path of our own to `addr` down to the last-level table, or to the first slot that leads no further. Under the writers' lock it
    /// stays as it is without any other: faults only add tables of our own below its end.
    #[inline(always)]
    fn own_end(&self, addr: VirtAddr) -> OwnEnd {
        let mut end =
            OwnEnd { table: self.frame, level: Level::L4, entry: self.load(self.frame, addr.index(Level::L4)) };
        // Written out level by level, as in `look`.
        for level in [Level::L3, Level::L2, Level::L1] {
            if !is_own(end.entry) {
                break;
            }
            let table = end.entry.frame();
            end = OwnEnd { table, level, entry: self.load(table, addr.index(level)) };
        }
        end
    }

    /// The end of our own path to `range`, if all of it is below slots of tables that are our own already, down to the last level or to an empty
    /// slot. Under the writers' lock.
    #[inline]
    pub(super) fn own_below(&self, range: PageRange) -> Option<OwnEnd> {
        let end = self.own_end(range.start());
        ((end.level == Level::L1 || end.entry.is_empty()) && end.holds(range)).then_some(end)
    }

    /// Locks what holds all of `range`, if that is one slot, or some in one last-level table, on a path of our own. Under the writers' lock.
    #[inline]
    pub(super) fn lock_holder(&self, range: PageRange) -> Holder<'m> {
        let end = self.own_end(range.start());
        if end.holds(range) { self.lock_end(end, range) } else { Holder::Several }
    }

    /// Locks the end of a path of our own, which holds all of `range`, in the turn of the writers' lock in which it was found.
    #[inline]
    pub(super) fn lock_end(&self, end: OwnEnd, range: PageRange) -> Holder<'m> {
        let table = Exclusive::lock(self.memory, end.table, end.level);
        if end.level == Level::L1 {
            return Holder::Table(table);
        }
        // A fault may have put a table there since.
        if table.entry(range.start().index(end.level)).is_empty() { Holder::Nothing } else { Holder::Several }
    }

    /// Locks the root, which is always ours.
    pub(crate) fn lock(&self) -> Exclusive<'m> {
        Exclusive::lock(self.memory, self.frame, Level::L4)
    }

    /// Fills a new root with the subtrees of this one: each gets one more parent, and is write-protected in both. O(1): the root's own
    /// entries. `self` needs a shootdown of everything afterwards.
    ///
    /// # Errors
    ///
    /// Out of memory; nothing has changed.
    pub(crate) fn share_into(&self, new: Frame) -> Result<()> {
        let locked = self.lock();
        let lineage = self.memory.join_lineage(self.frame, new)?;
        let (from, to) = (self.memory.entries(self.frame), self.memory.entries(new));
        let counts = self.memory.record(locked.table()).counts();
        for_each_of(counts.used(), &from[..ENTRIES / 2], |index, entry| {
            self.share_entry(entry, &from[index.get()], &to[index.get()], lineage, index);
        });
        self.memory.record(new).set_counts(counts);
        Ok(())
    }

    /// By itself, so that those who look for entries need few registers: there are two or three.
    #[inline(never)]
    fn share_entry(&self, entry: Entry, from: &AtomicU64, to: &AtomicU64, lineage: LineageId, index: Index) {
        if !entry.is_reference() {
            // Release: who finds it protected sees that a fork is in progress (`InChange`). Acquire: as for every change of permissions.
            from.fetch_and(!Entry::WRITE, Ordering::AcqRel);
            self.memory.share_home(entry.frame(), lineage, index);
        }
        // Release: who finds the entry finds what it refers to.
        to.store(entry.without(Entry::WRITE).bits(), Ordering::Release);
    }
}
