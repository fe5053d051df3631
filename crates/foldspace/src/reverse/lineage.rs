//! Lineages: lists of live tables that descend from one table by unsharing.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::frame::{Frame, LineageId, Memory, NONE};
use crate::sync::{Mutex, Rank};

/// Locks over the links of lineages: a lineage's is picked by its number.
const STRIPES: usize = 64;

/// All lineages. The tables of one are linked through their records; its number leads to the first.
///
/// # Invariants
///
/// `heads[id]` is the first table of a live lineage, under its stripe; a number is free if no table says that it is in that lineage.
pub(super) struct Lineages {
    stripes: [Mutex<()>; STRIPES],
    pub(super) heads: Mutex<Heads>,
}

#[derive(Default)]
pub(super) struct Heads {
    /// First table of each lineage; of a free number, the next free number.
    pub(super) first: Vec<u32>,
    pub(super) free: Option<u32>,
}

impl Lineages {
    pub(super) fn new() -> Lineages {
        Lineages {
            stripes: [const { Mutex::new(Rank::Lineage, ()) }; STRIPES],
            heads: Mutex::new(Rank::Heads, Heads::default()),
        }
    }

    fn stripe(&self, id: LineageId) -> &Mutex<()> {
        &self.stripes[id.0 as usize % STRIPES]
    }

    /// See [`Memory::join_lineage`]. O(1).
    pub(super) fn join(&self, memory: &Memory, table: Frame, copy: Frame) -> Result<LineageId> {
        let original = memory.record(table);
        let joining = memory.record(copy);
        let id = match original.lineage() {
            Some(id) => id,
            None => {
                let id = self.heads.lock().found(table)?;
                original.set_prev(NONE);
                original.set_next(NONE);
                original.set_lineage(Some(id));
                id
            }
        };
        let _links = self.stripe(id).lock();
        let next = original.next();
        joining.set_prev(table.0);
        joining.set_next(next);
        if next != NONE {
            memory.record(Frame(next)).set_prev(copy.0);
        }
        original.set_next(copy.0);
        joining.set_lineage(Some(id));
        Ok(id)
    }

    /// See [`Memory::leave_lineage`]. O(1).
    pub(super) fn leave(&self, memory: &Memory, table: Frame) {
        let record = memory.record(table);
        let Some(id) = record.lineage() else { return };
        let _links = self.stripe(id).lock();
        let (prev, next) = (record.prev(), record.next());
        if next != NONE {
            memory.record(Frame(next)).set_prev(prev);
        }
        if prev != NONE {
            memory.record(Frame(prev)).set_next(next);
        } else if next != NONE {
            self.heads.lock().first[id.0 as usize] = next;
        } else {
            self.heads.lock().end(id);
        }
        record.set_lineage(None);
    }

    /// Calls `visit` for each member, under the lineage's lock.
    pub(super) fn for_each(&self, memory: &Memory, id: LineageId, mut visit: impl FnMut(Frame)) {
        let _links = self.stripe(id).lock();
        let mut at = self.heads.lock().first[id.0 as usize];
        // A number that was given back leads elsewhere: whoever asks late finds nobody.
        while at != NONE && memory.record(Frame(at)).lineage() == Some(id) {
            visit(Frame(at));
            at = memory.record(Frame(at)).next();
        }
    }
}

impl Heads {
    fn found(&mut self, table: Frame) -> Result<LineageId> {
        if let Some(id) = self.free {
            self.free = self.next_free(id);
            self.first[id as usize] = table.0;
            return Ok(LineageId(id));
        }
        self.first.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.first.push(table.0);
        Ok(LineageId(self.first.len() as u32 - 1))
    }

    /// The free number after a free one.
    pub(super) fn next_free(&self, id: u32) -> Option<u32> {
        Some(self.first[id as usize]).filter(|next| *next != NONE)
    }

    fn end(&mut self, id: LineageId) {
        self.first[id.0 as usize] = self.free.unwrap_or(NONE);
        self.free = Some(id.0);
    }
}
