//! What an operation took out of use: collected while it works, freed after the shootdown and the grace period.

use alloc::sync::Arc;

use crossbeam_epoch::Guard;

use super::record::{Kind, NONE};
use super::{Frame, Memory};

/// Chains of dead frames, linked through their records. Must be handed to [`Garbage::retire`]; forgetting it leaks the frames.
#[must_use = "frames in it are lost unless retired"]
pub(crate) struct Garbage {
    tables: Chain,
    data: Chain,
    /// A translation was taken away or replaced, so a shootdown is owed.
    pub(crate) stale: bool,
    /// It also covered addresses outside the range of the operation.
    pub(crate) stale_beyond: bool,
}

#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    len: u32,
}

impl Chain {
    const EMPTY: Chain = Chain { head: NONE, len: 0 };

    fn push(&mut self, memory: &Memory, frame: Frame) {
        let record = memory.record(frame);
        record.mark(Kind::Idle, 0);
        record.set_next(self.head);
        self.head = frame.0;
        self.len += 1;
    }
}

impl Garbage {
    pub(crate) const fn new() -> Garbage {
        Garbage { tables: Chain::EMPTY, data: Chain::EMPTY, stale: false, stale_beyond: false }
    }

    /// A dead table, all of whose entries are zero.
    pub(crate) fn push_table(&mut self, memory: &Memory, table: Frame) {
        self.tables.push(memory, table);
    }

    /// A data frame without references.
    pub(crate) fn push_data(&mut self, memory: &Memory, frame: Frame) {
        self.data.push(memory, frame);
    }

    /// Queues the frames to be freed once no processor that is pinned now can still look at them. Waits for nothing.
    #[inline]
    pub(crate) fn retire(self, memory: &Arc<Memory>, guard: &Guard) {
        if self.tables.len | self.data.len != 0 {
            self.defer(memory, guard);
        }
    }

    fn defer(self, memory: &Arc<Memory>, guard: &Guard) {
        let (tables, data) = (self.tables, self.data);
        let frames = tables.len as u64 + data.len as u64;
        memory.note_deferred(tables.len, frames);
        let owner = Arc::clone(memory);
        // Three words: a larger closure would need memory.
        guard.defer(move || {
            free_chain(&owner, tables, Frames::ZeroedTables);
            free_chain(&owner, data, Frames::Data);
            owner.note_undeferred(tables.len as u64 + data.len as u64);
        });
        if frames >= FLUSH_AT {
            guard.flush();
        }
    }
}

/// A retirement of this many frames is pushed to the common queue at once rather than when the processor's bag is full.
const FLUSH_AT: u64 = 64;

enum Frames {
    ZeroedTables,
    Data,
}

fn free_chain(memory: &Memory, chain: Chain, frames: Frames) {
    let mut at = chain.head;
    while at != NONE {
        let next = memory.record(Frame(at)).next();
        match frames {
            Frames::ZeroedTables => memory.free_zeroed(Frame(at)),
            Frames::Data => memory.free_frame(Frame(at)),
        }
        at = next;
    }
}
