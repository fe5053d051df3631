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
            if memory.drop_slot(frame, place) {
                garbage.push_data(memory, frame);
            }
        }
        // A table of the object's, which lives on without it.
        Some(_) if entry.is_object() => drop(memory.drop_home(frame, place)),
        Some(below) => {
            if memory.drop_slot(frame, place) {
                // A fault may hold its lock still: what it installs is dropped below, and it looks its path up again.
                memory.record(frame).lock();
                release_table(memory, frame, below, garbage);
            }
        }
    }
}

/// Empties a locked table without references and hands it to `garbage`. The lock goes with it.
pub(crate) fn release_table(memory: &Memory, table: Frame, level: Level, garbage: &mut Garbage) {
    let used = memory.record(table).counts().used();
    if used != 0 {
        let entries = memory.entries(table);
        // It is locked: the lineage that they are named by stays the same.
        let first = memory.place(Slot { table, index: Index::truncate(0) });
        for_each_of(used, entries, |index, entry| {
            // Relaxed: it is locked and dead. Who still reads there is pinned, and finds one or the other.
            entries[index.get()].store(0, Ordering::Relaxed);
            release_entry(memory, entry, level, first.at(index), garbage);
        });
    }
    memory.leave_lineage(table);
    memory.record(table).note_unlocked();
    garbage.push_table(memory, table);
}

/// Entries that are looked at together: tables are sparse more often than not.
const AT_ONCE: usize = 8;

/// Calls `visit` for each entry that is not empty, upwards.
#[inline(always)]
pub(crate) fn for_each_used(entries: &[AtomicU64], mut visit: impl FnMut(Index, Entry)) {
    for (group, slots) in entries.chunks_exact(AT_ONCE).enumerate() {
        // Relaxed, here and below: under the lock of the table, or as a look at what may change.
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

/// As [`for_each_used`] where there are `used` of them, in any order, and without looking further than the last: from both ends inwards, for that is
/// where the used entries of upper levels lie (a program and its heap, its mappings and its stack). The caller has the lock of the table.
#[inline(always)]
pub(crate) fn for_each_of(used: u32, entries: &[AtomicU64], mut visit: impl FnMut(Index, Entry)) {
    // So many that all is looked at anyway.
    if used as usize > entries.len() / AT_ONCE {
        return for_each_used(entries, visit);
    }
    let (mut left, mut low, mut high) = (used, 0, entries.len() / AT_ONCE);
    while left != 0 && low < high {
        left -= visit_group(entries, low, &mut visit).min(left);
        low += 1;
        if left != 0 && low < high {
            high -= 1;
            left -= visit_group(entries, high, &mut visit).min(left);
        }
    }
}

/// Visits the used ones among [`AT_ONCE`] entries, and says how many there were.
#[inline(always)]
fn visit_group(entries: &[AtomicU64], group: usize, visit: &mut impl FnMut(Index, Entry)) -> u32 {
    let first = group * AT_ONCE;
    let Some(slots) = entries.get(first..first + AT_ONCE) else { return 0 };
    // Relaxed, here and below: under the lock of the table.
    if slots.iter().fold(0, |any, slot| any | glance(slot, Ordering::Relaxed)) == 0 {
        return 0;
    }
    let mut used = 0;
    for (position, slot) in slots.iter().enumerate() {
        let bits = glance(slot, Ordering::Relaxed);
        if bits != 0 {
            used += 1;
            visit(Index::truncate((first + position) as u64), Entry::from_bits(bits));
        }
    }
    used
}
