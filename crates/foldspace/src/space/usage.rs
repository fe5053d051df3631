//! Sizes: derived by walking tables, never kept twice.

use core::sync::atomic::Ordering;

use super::{AddressSpace, Usage};
use crate::addr::{ENTRIES, Level, PAGE_SIZE, VirtAddr};
use crate::table::{Entry, Root, for_each_used};
use crate::vma::Backing;

impl AddressSpace {
    /// Sizes now. O(tables), plus O(pages) of object mappings. What is shared with others counts in full, as on Linux.
    pub fn usage(&self) -> Usage {
        let guard = self.memory.pin();
        let version = self.vmas.load(&guard);
        let pages = version.summary().totals.pages;
        let mut usage = Usage {
            mapped: pages.total,
            mapped_peak: self.mapped_peak.load(Ordering::Relaxed).max(pages.total),
            locked: pages.locked,
            data: pages.data,
            stack: pages.stack,
            executable: pages.exec,
            tables: 1,
            tables_exclusive: 1,
            ..Usage::default()
        };
        let root = self.tables();
        for_each_used(&self.memory.entries(self.root)[..ENTRIES / 2], |_, entry| {
            count(&root, entry, Level::L3, true, &mut usage);
        });
        for vma in version.iter() {
            if let Backing::Object(object) = &vma.backing {
                let mapped = count_object_pages(&root, vma.start(), vma.end());
                match object.is_anonymous() {
                    true => usage.resident_shared += mapped,
                    false => usage.resident_file += mapped,
                }
            }
        }
        let resident = usage.resident_anon + usage.resident_file + usage.resident_shared;
        usage.resident_peak = self.resident_peak.fetch_max(resident, Ordering::Relaxed).max(resident);
        usage
    }
}

/// Counts the table of `level` below `entry`.
fn count(root: &Root<'_>, entry: Entry, level: Level, exclusive: bool, usage: &mut Usage) {
    if !entry.is_present() || entry.is_reference() {
        return;
    }
    let table = entry.frame();
    let record = root.memory.record(table);
    let exclusive = exclusive && record.refs() == 1;
    usage.tables += 1;
    usage.tables_exclusive += exclusive as u64;
    match level.below() {
        None => usage.resident_anon += record.counts().anon as u64,
        Some(below) => {
            for_each_used(root.memory.entries(table), |_, entry| count(root, entry, below, exclusive, usage));
        }
    }
}

/// Present pages of objects in `start..end`; passes over what has no table.
fn count_object_pages(root: &Root<'_>, start: VirtAddr, end: VirtAddr) -> u64 {
    let (mut at, mut pages) = (start, 0);
    while at < end {
        let leaf = root.look(at);
        let span = leaf.level.entry_span().max(Level::L1.table_span());
        let Some(next) = (at.get() & !(span - 1)).checked_add(span) else { break };
        let next = VirtAddr(next).min(end);
        if leaf.level == Level::L1 {
            let first = at.index(Level::L1).get();
            let count = ((next.get() - at.page_floor().get()) / PAGE_SIZE) as usize;
            let slots = &root.memory.entries(leaf.table())[first..first + count];
            let is_object = |entry: Entry| entry.is_present() && entry.is_object();
            pages +=
                slots.iter().filter(|slot| is_object(Entry::from_bits(slot.load(Ordering::Relaxed)))).count() as u64;
        }
        at = next;
    }
    pages
}
