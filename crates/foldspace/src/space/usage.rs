//! Sizes: derived by walking tables, never kept twice.

use super::{AddressSpace, Usage};
use crate::addr::{ENTRIES, Level, PageRange, USER_END, VirtAddr};
use crate::sync::atomic::Ordering;
use crate::table::{Entry, Root, Stretch, for_each_used};
use crate::vma::{Backing, VersionRef};

impl AddressSpace {
    /// Sizes now. O(tables): entries are looked at only in last-level tables that show both files and shared memory. What is shared with
    /// others counts in full, as on Linux.
    pub fn usage(&self) -> Usage {
        let guard = self.memory.pin();
        let version = self.vmas.load(&guard);
        let pages = version.summary().totals.pages;
        let usage = Usage {
            mapped: pages.total,
            // Relaxed: numbers, no more.
            mapped_peak: self.mapped_peak.load(Ordering::Relaxed).max(pages.total),
            locked: pages.locked,
            data: pages.data,
            stack: pages.stack,
            executable: pages.exec,
            tables: 1,
            tables_exclusive: 1,
            ..Usage::default()
        };
        let mut walk = Walk { root: self.tables(), version, usage };
        for_each_used(&self.memory.entries(self.root)[..ENTRIES / 2], |index, entry| {
            let start = index.get() as u64 * Level::L4.entry_span();
            walk.count(entry, Level::L3, start, Ownership::Exclusive);
        });
        let mut usage = walk.usage;
        let resident = usage.resident_anon + usage.resident_file + usage.resident_shared;
        usage.resident_peak = self.resident_peak.fetch_max(resident, Ordering::Relaxed).max(resident);
        usage
    }
}

/// Whether another root reaches a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Exclusive,
    Shared,
}

/// Pages of objects, by kind.
#[derive(Clone, Copy, Default)]
struct ObjectPages {
    file: u64,
    shared: u64,
}

struct Walk<'m> {
    root: Root<'m>,
    version: VersionRef<'m>,
    usage: Usage,
}

impl Walk<'_> {
    /// Counts the table of `level` below `entry`, whose first page is at `start`.
    fn count(&mut self, entry: Entry, level: Level, start: u64, above: Ownership) {
        if !entry.is_present() || entry.is_reference() {
            return;
        }
        let (memory, table) = (self.root.memory, entry.frame());
        let record = memory.record(table);
        let ownership = if record.is_alone() { above } else { Ownership::Shared };
        // A table of an object is the object's, whoever links it.
        if !entry.is_object() {
            self.usage.tables += 1;
            self.usage.tables_exclusive += (ownership == Ownership::Exclusive) as u64;
        }
        match level.below() {
            None => {
                let counts = record.counts();
                self.usage.resident_anon += counts.anon as u64;
                if counts.object > 0 {
                    let pages = self.object_pages(start, counts.object as u64);
                    self.usage.resident_file += pages.file;
                    self.usage.resident_shared += pages.shared;
                }
            }
            Some(below) => for_each_used(memory.entries(table), |index, entry| {
                self.count(entry, below, start + index.get() as u64 * level.entry_span(), ownership);
            }),
        }
    }

    /// Whose the `count` pages of objects are that the last-level table at `start` shows.
    fn object_pages(&self, start: u64, count: u64) -> ObjectPages {
        let end = VirtAddr(start + Level::L1.table_span()).min(USER_END);
        let Some(span) = PageRange::new(VirtAddr(start), end) else { return ObjectPages::default() };
        let objects = || {
            self.version.range(span).filter_map(|vma| match &vma.backing {
                Backing::Object(object) => Some((vma.range, object.is_shared_memory())),
                Backing::Anonymous | Backing::Reference(_) => None,
            })
        };
        let Some((_, first)) = objects().next() else { return ObjectPages::default() };
        if objects().all(|(_, shared)| shared == first) {
            return if first { ObjectPages { file: 0, shared: count } } else { ObjectPages { file: count, shared: 0 } };
        }
        objects().fold(ObjectPages::default(), |mut sum, (range, shared)| {
            let pages = range.intersect(span).map_or(0, |part| self.present_object_pages(part));
            *(if shared { &mut sum.shared } else { &mut sum.file }) += pages;
            sum
        })
    }

    /// Pages of objects that the entries for `range` show.
    fn present_object_pages(&self, range: PageRange) -> u64 {
        let mut present = 0;
        self.root.for_each_stretch(range, |_, stretch| {
            if let Stretch::Pages(pages) = stretch {
                present += pages.iter().filter(|(_, entry)| entry.is_present() && entry.is_object()).count() as u64;
            }
        });
        present
    }
}
