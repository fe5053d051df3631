//! Taking subtrees apart: only nodes that nobody else shares are walked.

use super::Entry;
use crate::addr::{Index, Level};
use crate::frame::{Frame, Garbage, Memory, Slot};
use crate::reverse::Place;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::glance;

/// Drops the reference that `entry`, taken out of a table of `level` at `place`, held. No processor uses it any more.
pub(crate) fn release_entry(memory: &Memory, entry: Entry, level: Level, place: Place, garbage: &mut Garbage) {
    if !entry.is_present() || entry.is_reference() {
        return;
    }
    let frame = entry.frame();
    match level.below() {
        None if entry.is_object() => {
            if entry.is_dirty() {
                memory.record(frame).set_dirty();
            }
            if memory.drop_home(frame, place) == 0 {
                garbage.push_data(memory, frame);
            }
        }
        None => {
            if memory.record(frame).drop_ref() == 0 {
                garbage.push_data(memory, frame);
            }
        }
        // A table of the object's, which lives on without it.
        Some(_) if entry.is_object() => drop(memory.drop_home(frame, place)),
        Some(below) => {
            let record = memory.record(frame);
            if record.drop_ref() == 0 {
                // A fault may hold its lock still: what it installs is dropped below, and it looks its path up again.
                record.lock();
                release_table(memory, frame, below, garbage);
            }
        }
    }
}

/// Empties a locked table without references and hands it to `garbage`. The lock goes with it.
pub(crate) fn release_table(memory: &Memory, table: Frame, level: Level, garbage: &mut Garbage) {
    if !memory.record(table).counts().is_empty() {
        let entries = memory.entries(table);
        for_each_used(entries, |index, entry| {
            entries[index.get()].store(0, Ordering::Relaxed);
            release_entry(memory, entry, level, memory.place(Slot { table, index }), garbage);
        });
    }
    memory.leave_lineage(table);
    memory.record(table).note_unlocked();
    garbage.push_table(memory, table);
}

/// Calls `visit` for each entry that is not empty. Tables are sparse more often than not, so empty entries are passed over eight at a time.
#[inline(always)]
pub(crate) fn for_each_used(entries: &[AtomicU64], mut visit: impl FnMut(Index, Entry)) {
    const AT_ONCE: usize = 8;
    for (group, slots) in entries.chunks_exact(AT_ONCE).enumerate() {
        if slots.iter().fold(0, |any, slot| any | glance(slot, Ordering::Relaxed)) == 0 {
            continue;
        }
        for (position, slot) in slots.iter().enumerate() {
            let bits = glance(slot, Ordering::Relaxed);
            if bits != 0 {
                visit(Index::truncate((group * AT_ONCE + position) as u64), Entry::from_bits(bits));
            }
        }
    }
}
