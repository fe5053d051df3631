//! Lineages: lists of live tables that descend from one table by unsharing.

use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::frame::{Frame, LineageId, Memory, NONE};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard, Rank};

/// Locks over the links of lineages: a lineage's is picked by its number.
const STRIPES: usize = 64;

struct Stripe {
    links: Mutex<()>,
    /// Tables of its lineages whose entries are being copied: what they refer to gets one reference more, entry by entry. Counted up under the lock.
    copying: AtomicU32,
}

/// A table that has joined a lineage, and whose entries are being copied to it until this is dropped. Meanwhile no other slot of what it copies is
/// listed for the first time, so that whoever begins a list knows how many slots there are.
pub(crate) struct Joined<'m> {
    pub(crate) lineage: LineageId,
    copying: &'m AtomicU32,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        // Release: pairs with who finds that nobody copies.
        self.copying.fetch_sub(1, Ordering::Release);
    }
}

/// All lineages. The tables of one are linked through their records; its number leads to the first.
///
/// # Invariants
///
/// `heads[id]` is the first table of a live lineage, under its stripe; a number is free if no table says that it is in that lineage.
pub(super) struct Lineages {
    stripes: [Stripe; STRIPES],
    pub(super) heads: Mutex<Heads>,
}

#[derive(Default)]
pub(super) struct Heads {
    /// First table of each lineage; of a free number, the next free number.
    pub(super) first: Vec<u32>,
    pub(super) free: Option<u32>,
    /// So many that begin are sure of a number.
    promised: usize,
}

impl Lineages {
    pub(super) fn new() -> Lineages {
        Lineages {
            stripes: [const { Stripe { links: Mutex::new(Rank::Lineage, ()), copying: AtomicU32::new(0) } }; STRIPES],
            heads: Mutex::new(Rank::Heads, Heads::default()),
        }
    }

    fn stripe(&self, id: LineageId) -> &Stripe {
        &self.stripes[id.0 as usize % STRIPES]
    }

    /// The lock of a lineage of which nobody copies a table, and nobody can while it is held; `None` if somebody does.
    pub(super) fn quiet(&self, id: LineageId) -> Option<MutexGuard<'_, ()>> {
        let stripe = self.stripe(id);
        let links = stripe.links.lock();
        // Acquire: what was copied until now has been counted.
        (stripe.copying.load(Ordering::Acquire) == 0).then_some(links)
    }

    /// The lineage of a locked `table`, which is founded if there is none.
    ///
    /// # Errors
    ///
    /// Out of memory, unless a number was promised.
    pub(super) fn of(&self, memory: &Memory, table: Frame, number: Number) -> Result<LineageId> {
        let record = memory.record(table);
        if let Some(id) = record.lineage() {
            return Ok(id);
        }
        let id = self.heads.lock().found(table, number)?;
        record.set_prev(NONE);
        record.set_next(NONE);
        record.set_lineage(Some(id));
        Ok(id)
    }

    /// Makes sure that so many can be founded, besides those that others were promised.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(super) fn promise(&self, count: usize) -> Result<()> {
        let mut heads = self.heads.lock();
        let promised = heads.promised + count;
        heads.first.try_reserve(promised).map_err(|_| Error::OutOfMemory)?;
        heads.promised = promised;
        Ok(())
    }

    /// They need not be kept any more.
    pub(super) fn end_promise(&self, count: usize) {
        self.heads.lock().promised -= count;
    }

    /// See [`Memory::join_lineage`]. O(1).
    pub(super) fn join(&self, memory: &Memory, table: Frame, copy: Frame) -> Result<LineageId> {
        let id = self.of(memory, table, Number::Any)?;
        let stripe = self.stripe(id);
        let _links = stripe.links.lock();
        link(memory, id, table, copy);
        Ok(id)
    }

    /// See [`Memory::join_to_copy`]. O(1).
    pub(super) fn join_to_copy(&self, memory: &Memory, table: Frame, copy: Frame) -> Result<Joined<'_>> {
        let id = self.of(memory, table, Number::Any)?;
        let stripe = self.stripe(id);
        let _links = stripe.links.lock();
        // Relaxed: under the lock.
        stripe.copying.fetch_add(1, Ordering::Relaxed);
        link(memory, id, table, copy);
        Ok(Joined { lineage: id, copying: &stripe.copying })
    }

    /// See [`Memory::leave_lineage`]. O(1).
    pub(super) fn leave(&self, memory: &Memory, table: Frame) {
        let record = memory.record(table);
        let Some(id) = record.lineage() else { return };
        let _links = self.stripe(id).links.lock();
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
        let _links = self.stripe(id).links.lock();
        let mut at = self.heads.lock().first[id.0 as usize];
        // A number that was given back leads elsewhere: whoever asks late finds nobody.
        while at != NONE && memory.record(Frame(at)).lineage() == Some(id) {
            visit(Frame(at));
            at = memory.record(Frame(at)).next();
        }
    }
}

/// Puts `copy` behind `table` in lineage `id`, under its lock.
#[inline]
fn link(memory: &Memory, id: LineageId, table: Frame, copy: Frame) {
    let (original, joining) = (memory.record(table), memory.record(copy));
    let next = original.next();
    joining.set_prev(table.0);
    joining.set_next(next);
    if next != NONE {
        memory.record(Frame(next)).set_prev(copy.0);
    }
    original.set_next(copy.0);
    joining.set_lineage(Some(id));
}

/// Where the number of a new lineage comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    /// It was set aside before.
    Promised,
    Any,
}

impl Heads {
    fn found(&mut self, table: Frame, number: Number) -> Result<LineageId> {
        if let Some(id) = self.free {
            self.free = self.next_free(id);
            self.first[id as usize] = table.0;
            return Ok(LineageId(id));
        }
        let others = if number == Number::Promised { 0 } else { self.promised };
        self.first.try_reserve(others + 1).map_err(|_| Error::OutOfMemory)?;
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
