//! Taking pages that an object has lost out of tables, shared ones too.

use core::sync::atomic::Ordering;

use super::range::parts;
use super::{Entry, Root, release_entry};
use crate::addr::{Index, Level, PageRange};
use crate::frame::{Frame, Garbage, Held, Memory, Slot};

/// What becomes of the copies that private mappings have made of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    Stay,
    Go,
}

/// A locked table, whoever shares it. For a change that all sharers make alike, since they have the same areas here: the pages behind those are
/// gone. Entries are only taken out, never put in.
///
/// # Invariants
///
/// The lock of `table` is held; one root, or a table that was locked on the way down from it and still is, leads to it.
struct Common<'m> {
    memory: &'m Memory,
    table: Frame,
    level: Level,
}

impl<'m> Common<'m> {
    fn lock(memory: &'m Memory, table: Frame, level: Level) -> Common<'m> {
        memory.record(table).lock();
        Common { memory, table, level }
    }

    fn entry(&self, index: Index) -> Entry {
        Entry::from_bits(self.memory.entries(self.table)[index.get()].load(Ordering::Relaxed))
    }

    fn take(&self, index: Index) -> Entry {
        let old = Entry::from_bits(self.memory.entries(self.table)[index.get()].swap(0, Ordering::AcqRel));
        self.memory.record(self.table).shift_counts(old.unit(self.level), 0);
        old
    }
}

impl Drop for Common<'_> {
    fn drop(&mut self) {
        self.memory.record(self.table).unlock();
    }
}

impl Root<'_> {
    /// Takes the pages of an object that are present in `range`, all of it one area that shows the object, out of the tables, and with
    /// [`Copies::Go`] the private copies. Their frames are held. Needs no memory: tables that are shared stay so, and lose them for all.
    ///
    /// Under the writers' lock of the address space, with the pages out of the object's cache: no fault puts one back.
    pub(crate) fn cut_range(&self, range: PageRange, copies: Copies, held: &mut Held) {
        // What is held is not dead, whatever is released.
        let mut garbage = Garbage::new();
        cut_below(&Common::lock(self.memory, self.frame, Level::L4), range, copies, held, &mut garbage);
    }
}

fn cut_below(table: &Common<'_>, range: PageRange, copies: Copies, held: &mut Held, garbage: &mut Garbage) {
    let (memory, level) = (table.memory, table.level);
    if memory.record(table.table).counts().is_empty() {
        return;
    }
    for part in parts(range, level) {
        let entry = table.entry(part.index);
        if !entry.is_present() || entry.is_reference() {
            continue;
        }
        match level.below() {
            Some(below) => {
                cut_below(&Common::lock(memory, entry.frame(), below), part.range, copies, held, garbage);
            }
            None if entry.is_object() || copies == Copies::Go => {
                held.hold(memory, entry.frame());
                let entry = table.take(part.index);
                let place = memory.place(Slot { table: table.table, index: part.index });
                release_entry(memory, entry, level, place, garbage);
            }
            None => {}
        }
    }
}
