//! How often a page is mapped: the pairs of an address space and an address that lead to it (Linux's `_mapcount`).
//!
//! No count is kept: it follows from the tree. A table is reached as often as the tables above it together, once for each of their slots that
//! links it; a root once. A page is mapped as often as the tables that have a slot to it are reached.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::addr::{Index, Level};
use crate::error::{Error, Result};
use crate::frame::{Frame, Home, LineageId, Memory, Slot};
use crate::table::{Entry, Path};

/// Map counts of one walk: what was found out about tables on the way is kept. Exact when nothing changes meanwhile.
pub(crate) struct Mapcounts<'m> {
    memory: &'m Memory,
    /// Paths from a root to each table that several parents link, or that was met from the side.
    paths: HashMap<Frame, u64>,
    family: Family,
}

/// The tables of a lineage, with the paths to each: neighbours in a table mostly ask for the same.
#[derive(Default)]
struct Family {
    lineage: Option<LineageId>,
    members: Vec<(Frame, u64)>,
    /// Paths to all of them.
    paths: u64,
}

impl<'m> Mapcounts<'m> {
    pub(crate) fn new(memory: &'m Memory) -> Mapcounts<'m> {
        Mapcounts { memory, paths: HashMap::new(), family: Family::default() }
    }

    /// Paths from any root to the last table of `path`. O(tables on the path), more only for those that several parents link.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn of_table(&mut self, path: &Path) -> Result<u64> {
        let mut paths = 1;
        for (table, level) in path.iter().zip([Level::L4, Level::L3, Level::L2, Level::L1]).skip(1) {
            // With one parent it is reached as often as that.
            if self.memory.record(*table).is_shared() {
                paths = self.paths_to(*table, level)?;
            }
        }
        Ok(paths)
    }

    /// How often the page is mapped that `entry` at `index` of a last-level `table`, to which `paths` lead, refers to.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn of_page(&mut self, entry: Entry, table: Frame, index: Index, paths: u64) -> Result<u64> {
        let frame = entry.frame();
        let record = self.memory.record(frame);
        let slots = record.refs().saturating_sub(record.is_pinned() as u32);
        if slots <= 1 {
            return Ok(paths);
        }
        match record.home() {
            Home::Lineage(id, at) if at == index && self.memory.record(table).lineage() == Some(id) => {
                self.gather(id)?;
                if self.family.members.len() == slots as usize {
                    return Ok(self.family.paths);
                }
                let maps_it = |member: Frame| {
                    // Acquire: what the entry refers to is looked at.
                    let bits = self.memory.entries(member)[index.get()].load(crate::sync::atomic::Ordering::Acquire);
                    let entry = Entry::from_bits(bits);
                    entry.is_present() && entry.frame() == frame
                };
                let mapping = self.family.members.iter().filter(|(member, _)| maps_it(*member));
                Ok(mapping.take(slots as usize).map(|(_, paths)| paths).sum())
            }
            _ => self.sum_of_slots(frame, Level::L1),
        }
    }

    /// Paths from any root to `table`.
    fn paths_to(&mut self, table: Frame, level: Level) -> Result<u64> {
        if level == Level::L4 {
            return Ok(1);
        }
        if let Some(known) = self.paths.get(&table) {
            return Ok(*known);
        }
        let paths = match level {
            Level::L1 => self.sum_of_slots(table, Level::L2),
            Level::L2 => self.sum_of_slots(table, Level::L3),
            Level::L3 | Level::L4 => self.sum_of_slots(table, Level::L4),
        }?;
        self.paths.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.paths.insert(table, paths);
        Ok(paths)
    }

    /// Paths to all tables that have a slot to `frame`, which are of `level`.
    fn sum_of_slots(&mut self, frame: Frame, level: Level) -> Result<u64> {
        let slots = self.slots(frame, level)?;
        slots.iter().try_fold(0, |sum, slot| Ok(sum + self.paths_to(slot.table, level)?))
    }

    /// The slots that refer to `frame` in tables of `level`.
    fn slots(&self, frame: Frame, level: Level) -> Result<Vec<Slot>> {
        // Looked up before anything is asked about them: that may need the same locks.
        let mut slots = Vec::new();
        slots.try_reserve_exact(self.memory.record(frame).refs() as usize).map_err(|_| Error::OutOfMemory)?;
        self.memory.slots(frame, |slot| {
            // What was linked since the count was read would need memory under a lock.
            if slots.len() < slots.capacity() && self.memory.record(slot.table).table_level() == Some(level) {
                slots.push(slot);
            }
        });
        Ok(slots)
    }

    /// Makes `family` that of lineage `id` of last-level tables.
    fn gather(&mut self, id: LineageId) -> Result<()> {
        if self.family.lineage == Some(id) {
            return Ok(());
        }
        self.family.lineage = None;
        let mut members = core::mem::take(&mut self.family.members);
        let mut count = 0;
        self.memory.lineage_members(id, |_| count += 1);
        members.clear();
        members.try_reserve(count).map_err(|_| Error::OutOfMemory)?;
        self.memory.lineage_members(id, |member| {
            if members.len() < members.capacity() {
                members.push((member, 0));
            }
        });
        let mut sum = 0;
        for (member, paths) in &mut members {
            *paths = self.paths_to(*member, Level::L1)?;
            sum += *paths;
        }
        self.family = Family { lineage: Some(id), members, paths: sum };
        Ok(())
    }
}
