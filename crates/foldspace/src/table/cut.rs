//! Taking pages that an object has lost out of tables, shared ones too.

use super::range::parts;
use super::{Common, Root, release_entry};
use crate::addr::{Level, PageRange};
use crate::frame::{Garbage, Held, Slot};

/// What becomes of the copies that private mappings have made of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    Stay,
    Go,
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

impl Common<'_> {
    /// Takes the pages in `range`, which counts from the start of the table, out of a table of the object that has lost them.
    pub(crate) fn cut(&self, range: PageRange, held: &mut Held) {
        cut_below(self, range, Copies::Stay, held, &mut Garbage::new());
    }
}

fn cut_below(table: &Common<'_>, range: PageRange, copies: Copies, held: &mut Held, garbage: &mut Garbage) {
    let (memory, level) = (table.memory, table.level);
    if memory.record(table.table).counts().is_empty() {
        return;
    }
    for part in parts(range, level) {
        let entry = table.entry(part.index);
        if entry.is_poison() && copies == Copies::Go {
            // A copy that was lost with its memory goes as the others do (`zap_nonpresent_ptes` in Linux's `mm/memory.c`).
            table.take(part.index);
        }
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
