//! The checker: walks everything and verifies the invariants of the design. For tests, and for whoever doubts.
//!
//! 1. A hardware-writable path from a root to a frame exists only if every node on it is exclusive to that root, or the frame belongs to a
//!    shared mapping and every table on the path is exclusive.
//! 2. The references of each node are the slots that refer to it, plus its pin.
//! 3. Every slot is found from its node's home, and nothing found there is stale.
//! 4. All sharers of a table have the same VMAs over its span, as far as they decide what may be installed; and what is installed is
//!    what the VMAs say: of an object nothing past its end, and no frame but the one in its cache.
//! 5. A table in a lineage is alive.
//! 6. Frames are conserved: what is not free is reached from an address space or an object. What is charged as committed is
//!    what the address spaces and objects sum up.

mod census;
mod views;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::addr::{ENTRIES, Index, Level};
use crate::backing::Object;
use crate::frame::{Counts, Frame, Kind, Memory, Slot};
use crate::space::AddressSpace;
use crate::table::Entry;
use census::each_object;

/// An invariant that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for Violation {}

type Verdict<T = ()> = Result<T, Violation>;

/// `Err` with a formatted [`Violation`] unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::check::Violation(alloc::format!($($why)+)));
        }
    };
}
use ensure;

/// Everything that is reached from the roots.
#[derive(Default)]
struct Reached {
    /// Tables, with their levels.
    tables: BTreeMap<Frame, Level>,
    /// Slots that refer to each frame or table. Reference frames are left out.
    slots: BTreeMap<Frame, BTreeSet<Slot>>,
}

impl Memory {
    /// Verifies all invariants. `spaces` are all address spaces on this memory but those of snapshots, which are found; nothing may run on them meanwhile. Objects are found through
    /// the mappings; those that nobody maps must be in `objects`, or their pages count as lost if `objects` is not empty.
    ///
    /// # Errors
    ///
    /// The first violation found.
    pub fn check(&self, spaces: &[&AddressSpace], objects: &[&Object]) -> Result<(), Violation> {
        let snapshots = self.snapshots_beside(spaces);
        let spaces: Vec<&AddressSpace> = spaces.iter().copied().chain(snapshots.iter().map(|space| &**space)).collect();
        self.check_all(&spaces, objects)
    }

    fn check_all(&self, spaces: &[&AddressSpace], objects: &[&Object]) -> Result<(), Violation> {
        let mut reached = Reached::default();
        for space in spaces {
            let root = space.root();
            ensure!(self.record(root).refs() == 1, "root {root:?} has {} references", self.record(root).refs());
            self.reach(root, Level::L4, &mut reached)?;
        }
        let mut of_objects = BTreeSet::new();
        each_object(spaces, objects, |object| {
            object.for_each_table(|table| {
                of_objects.insert(table);
            })
        });
        for table in &of_objects {
            self.reach(*table, Level::L1, &mut reached)?;
        }
        for (frame, slots) in &reached.slots {
            self.check_references(*frame, slots)?;
        }
        self.check_lineages(&reached)?;
        for space in spaces {
            self.check_permissions(space)?;
        }
        self.check_views(spaces)?;
        self.check_commit(spaces)?;
        self.check_census(&reached, spaces, objects)
    }

    fn entry(&self, table: Frame, index: Index) -> Entry {
        Entry::from_bits(self.entries(table)[index.get()].load(crate::sync::atomic::Ordering::SeqCst))
    }

    /// What is not empty.
    fn user_entries(&self, table: Frame, level: Level) -> impl Iterator<Item = (Index, Entry)> + '_ {
        let used = if level == Level::L4 { ENTRIES / 2 } else { ENTRIES };
        Index::all()
            .take(used)
            .map(move |index| (index, self.entry(table, index)))
            .filter(|(_, entry)| !entry.is_empty())
    }

    fn reach(&self, table: Frame, level: Level, reached: &mut Reached) -> Verdict {
        if let Some(seen) = reached.tables.insert(table, level) {
            ensure!(seen == level, "table {table:?} is linked at levels {seen:?} and {level:?}");
            return Ok(());
        }
        let record = self.record(table);
        ensure!(record.table_level() == Some(level), "{table:?} is linked as {level:?} but is {:?}", record.kind());
        ensure!(!record.is_locked(), "table {table:?} is locked at rest");
        let mut units = 0;
        for (index, entry) in self.user_entries(table, level) {
            units += entry.unit(level);
            if !entry.is_present() {
                let bits = entry.bits();
                ensure!(entry.is_marker() && level == Level::L1, "{table:?}[{index:?}] ({level:?}) holds {bits:#x}");
                continue;
            }
            if entry.is_reference() {
                // Of which reference, the VMAs say: see the views.
                let kind = self.record(entry.frame()).kind();
                ensure!(kind == Kind::Reference, "{table:?}[{index:?}] refers to {:?} as a reference", entry.frame());
                ensure!(!entry.is_writable(), "{table:?}[{index:?}] lets a reference be written");
                continue;
            }
            reached.slots.entry(entry.frame()).or_default().insert(Slot { table, index });
            if let Some(below) = level.below() {
                self.reach(entry.frame(), below, reached)?;
            }
        }
        ensure!(
            Counts::unpack(units) == record.counts(),
            "table {table:?} counts {:?}, holds {:?}",
            record.counts(),
            Counts::unpack(units)
        );
        Ok(())
    }

    /// Invariants 2 and 3.
    fn check_references(&self, frame: Frame, slots: &BTreeSet<Slot>) -> Verdict {
        let record = self.record(frame);
        let expected = slots.len() as u32 + record.pins();
        ensure!(
            record.refs() == expected,
            "{frame:?} ({:?}) has {} references, {expected} were found: {slots:?}",
            record.kind(),
            record.refs()
        );
        let mut found = BTreeSet::new();
        let mut twice = None;
        self.slots(frame, |slot| {
            if !found.insert(slot) {
                twice = Some(slot);
            }
        });
        ensure!(twice.is_none(), "{frame:?}: its home {:?} leads to {twice:?} twice", record.home());
        ensure!(found == *slots, "{frame:?}: its home {:?} leads to {found:?}, not to {slots:?}", record.home());
        let is_listed = record.home() == crate::frame::Home::Listed;
        if is_listed {
            self.check_list(frame, slots)?;
        }
        let says_so = record.is_listed() || record.kind() == Kind::Object || record.is_pinned();
        ensure!(!is_listed || says_so, "{frame:?}: who drops a slot is not told that it is listed");
        ensure!(
            is_listed || !record.is_listed(),
            "{frame:?}: its slots are said to be listed, its home is {:?}",
            record.home()
        );
        Ok(())
    }

    /// Invariant 3, of what is listed: each place has as many slots as are counted there.
    fn check_list(&self, frame: Frame, slots: &BTreeSet<Slot>) -> Verdict {
        let listed = self.listed_slots(frame);
        ensure!(listed == slots.len() as u32, "{frame:?}: {listed} slots are listed, {} exist", slots.len());
        let mut places = BTreeMap::new();
        for slot in slots {
            *places.entry(self.place(*slot)).or_insert(0) += 1;
        }
        let counted: BTreeMap<_, _> = self.listed_places(frame).into_iter().collect();
        ensure!(counted == places, "{frame:?}: {counted:?} are listed, {places:?} exist");
        Ok(())
    }

    /// Invariant 5.
    fn check_lineages(&self, reached: &Reached) -> Verdict {
        for table in reached.tables.keys() {
            let Some(id) = self.record(*table).lineage() else { continue };
            let (mut found, mut dead) = (false, None);
            self.lineage_members(id, |member| {
                found |= member == *table;
                if !reached.tables.contains_key(&member) {
                    dead = Some(member);
                }
            });
            ensure!(found, "table {table:?} is not in its lineage {id:?}");
            ensure!(dead.is_none(), "lineage {id:?} holds {dead:?}, which no root reaches");
        }
        Ok(())
    }
}

fn describe(space: &AddressSpace) -> String {
    format!("space {:?}", space.id())
}
