//! Paths from a root: looking one up without locks, and making one exclusive.

use core::sync::atomic::Ordering;

use super::{Entry, Exclusive, Supply};
use crate::addr::{ENTRIES, Index, Level, VirtAddr};
use crate::error::Result;
use crate::frame::{Frame, Garbage, Home, Memory};

/// The root table of an address space, and the way to everything below it.
#[derive(Clone, Copy)]
pub(crate) struct Root<'m> {
    pub(crate) memory: &'m Memory,
    pub(crate) frame: Frame,
}

/// What the entries on a path allow together: the processor's rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    pub(crate) write: bool,
    pub(crate) user: bool,
    pub(crate) execute: bool,
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
}

impl<'m> Root<'m> {
    #[inline]
    pub(crate) fn load(&self, table: Frame, index: Index) -> Entry {
        // Acquire: pairs with the store that linked what the entry refers to.
        Entry::from_bits(self.memory.entries(table)[index.get()].load(Ordering::Acquire))
    }

    /// Walks down to the leaf of `addr`, or to the first empty slot. Takes no lock; the caller is pinned, so that a table that is being
    /// dropped meanwhile stays readable.
    #[inline]
    pub(crate) fn look(&self, addr: VirtAddr) -> Leaf {
        let mut rights = Rights { write: true, user: true, execute: true };
        let mut shared = false;
        let mut table = self.frame;
        let mut level = Level::L4;
        loop {
            let entry = self.load(table, addr.index(level));
            rights.write &= entry.is_writable();
            rights.user &= entry.is_user();
            rights.execute &= entry.is_executable();
            match level.below() {
                Some(below) if entry.is_present() => {
                    // A slot that may be written below refers to a table of our own: no need to look at its record.
                    shared |=
                        !entry.is_writable() && (entry.is_reference() || self.memory.record(entry.frame()).refs() > 1);
                    (table, level) = (entry.frame(), below);
                }
                _ => return Leaf { entry, level, rights, shared },
            }
        }
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
            let (mut table, mut at) = (self.frame, Level::L4);
            while let (true, Some(below)) = (at > level, at.below()) {
                let index = addr.index(at);
                let entry = self.load(table, index);
                if !self.is_own(entry) {
                    let Some(mut parent) = self.lock_if_linked(table, at, addr) else { break };
                    parent.own_child(index, supply, garbage)?;
                    table = parent.entry(index).frame();
                } else {
                    table = entry.frame();
                }
                at = below;
            }
            if at == level
                && let Some(owned) = self.lock_if_linked(table, at, addr)
            {
                return Ok(owned);
            }
        }
    }

    /// Whether the table that `entry` links is ours alone and may be written.
    #[inline]
    fn is_own(&self, entry: Entry) -> bool {
        entry.is_present()
            && entry.is_writable()
            && !entry.is_reference()
            && self.memory.record(entry.frame()).refs() == 1
    }

    /// Locks `table` if the path to `addr` still leads to it, over tables of our own.
    #[inline]
    fn lock_if_linked(&self, table: Frame, level: Level, addr: VirtAddr) -> Option<Exclusive<'m>> {
        let locked = Exclusive::lock(self.memory, table, level);
        let (mut walk, mut at) = (self.frame, Level::L4);
        while at > level {
            let entry = self.load(walk, addr.index(at));
            if !self.is_own(entry) {
                return None;
            }
            (walk, at) = (entry.frame(), at.below()?);
        }
        (walk == table).then_some(locked)
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
        let halves = self.memory.entries(self.frame).iter().zip(self.memory.entries(new));
        for (index, (from, to)) in Index::all().zip(halves).take(ENTRIES / 2) {
            let entry = Entry::from_bits(from.load(Ordering::Relaxed));
            if !entry.is_present() {
                continue;
            }
            if !entry.is_reference() {
                from.fetch_and(!Entry::WRITE, Ordering::AcqRel);
                let record = self.memory.record(entry.frame());
                record.set_home(Home::Lineage(lineage, index));
                record.add_ref();
            }
            to.store(entry.without(Entry::WRITE).bits(), Ordering::Release);
        }
        self.memory.record(new).set_counts(self.memory.record(locked.table()).counts());
        Ok(())
    }
}
