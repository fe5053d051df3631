//! Changing tables that several address spaces share, where all sharers want the same change.

use super::Entry;
use crate::addr::{Index, Level};
use crate::error::Result;
use crate::frame::{Frame, Home, Kind, Memory, Slot};
use crate::sync::atomic::Ordering;
use crate::sync::glance;

/// A locked table, whoever shares it. For changes that all sharers make alike, since they have the same areas here: pages that an object has lost
/// are taken out, and pages that it has are put into tables of its own.
///
/// # Invariants
///
/// The lock of `table` is held; one root, or a table that was locked on the way down from it and still is, leads to it, or it is an object's.
pub(crate) struct Common<'m> {
    pub(super) memory: &'m Memory,
    pub(super) table: Frame,
    pub(super) level: Level,
}

impl<'m> Common<'m> {
    pub(super) fn lock(memory: &'m Memory, table: Frame, level: Level) -> Common<'m> {
        memory.record(table).lock();
        Common { memory, table, level }
    }

    /// An idle frame of zeros becomes a table of an object, whose reference is the only one.
    pub(crate) fn begin(memory: &'m Memory, table: Frame) -> Common<'m> {
        memory.record(table).begin(Kind::Table1, Home::None);
        memory.record(table).pin();
        memory.record(table).lock_new();
        Common { memory, table, level: Level::L1 }
    }

    /// Locks a table that an object owns.
    pub(crate) fn of_object(memory: &'m Memory, table: Frame) -> Common<'m> {
        debug_assert!(memory.record(table).is_pinned(), "it is the object's");
        Common::lock(memory, table, Level::L1)
    }

    pub(super) fn entry(&self, index: Index) -> Entry {
        // Relaxed: stored under the lock that we hold.
        Entry::from_bits(glance(&self.memory.entries(self.table)[index.get()], Ordering::Relaxed))
    }

    pub(super) fn take(&self, index: Index) -> Entry {
        // Acquire: what a processor has noted there. Release: as every change of a slot.
        let old = Entry::from_bits(self.memory.entries(self.table)[index.get()].swap(0, Ordering::AcqRel));
        self.memory.record(self.table).shift_counts(old.unit(self.level), 0);
        old
    }

    /// Shows a page of the object whose table it is. Everybody may load from it and execute it here; links forbid what their areas do not allow.
    ///
    /// # Errors
    ///
    /// As [`Memory::add_home`].
    pub(crate) fn show(&self, index: Index, frame: Frame) -> Result<()> {
        if self.entry(index).is_present() {
            return Ok(());
        }
        self.memory.add_home(frame, Slot { table: self.table, index })?;
        let entry = Entry::new(frame, Entry::USER | Entry::OBJECT | Entry::ACCESSED);
        self.memory.record(self.table).shift_counts(0, entry.unit(Level::L1));
        // Release: who finds the entry also finds what the page holds.
        self.memory.entries(self.table)[index.get()].store(entry.bits(), Ordering::Release);
        Ok(())
    }
}

impl Drop for Common<'_> {
    fn drop(&mut self) {
        self.memory.record(self.table).unlock();
    }
}
