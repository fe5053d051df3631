//! Taking subtrees apart: only nodes that nobody else shares are walked.

use core::sync::atomic::Ordering;

use super::Entry;
use crate::addr::{Index, Level};
use crate::frame::{Frame, Garbage, Memory, Slot};

/// Drops the reference that `entry`, taken out of `slot` in a table of `level`, held. Under the lock of the slot's table.
pub(crate) fn release_entry(memory: &Memory, entry: Entry, level: Level, slot: Slot, garbage: &mut Garbage) {
    if !entry.is_present() || entry.is_reference() {
        return;
    }
    let frame = entry.frame();
    match level.below() {
        None if entry.is_object() => {
            if memory.drop_home(frame, slot) == 0 {
                garbage.push_data(memory, frame);
            }
        }
        None => {
            if memory.record(frame).drop_ref() == 0 {
                garbage.push_data(memory, frame);
            }
        }
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
pub(super) fn release_table(memory: &Memory, table: Frame, level: Level, garbage: &mut Garbage) {
    for (index, slot) in Index::all().zip(memory.entries(table)) {
        let bits = slot.load(Ordering::Relaxed);
        if bits != 0 {
            slot.store(0, Ordering::Relaxed);
            release_entry(memory, Entry::from_bits(bits), level, Slot { table, index }, garbage);
        }
    }
    memory.leave_lineage(table);
    garbage.push_table(memory, table);
}
