//! Invariant 6: frames are conserved, and so is what they are promised for.

use alloc::collections::BTreeSet;

use super::{Reached, Verdict, ensure};
use crate::backing::{Object, ReferenceTables};
use crate::frame::{Frame, Kind, Memory};
use crate::space::AddressSpace;
use crate::sync::atomic::Ordering;
use crate::vma::Backing;

impl Memory {
    pub(super) fn check_census(&self, reached: &Reached, spaces: &[&AddressSpace], objects: &[&Object]) -> Verdict {
        let cached = cached_pages(spaces, objects);
        let (mut idle, mut free, mut tables, mut of_references) = (0, 0, 0, 0);
        for (number, record) in self.records().iter().enumerate() {
            let frame = Frame(number as u32);
            match record.kind() {
                Kind::Idle | Kind::Isolated => idle += 1,
                Kind::Free => free += 1u64 << record.order(),
                Kind::Table1 | Kind::Table2 | Kind::Table3 | Kind::Table4 => {
                    tables += 1;
                    let known = reached.tables.contains_key(&frame) || (record.is_pinned() && objects.is_empty());
                    ensure!(known, "table {frame:?} is reached from no root and no object: lost");
                }
                Kind::Anon => ensure!(reached.slots.contains_key(&frame), "{frame:?} is mapped nowhere: lost"),
                Kind::Object => {
                    let known = cached.contains(&frame) || (record.is_pinned() && objects.is_empty());
                    let mapped = reached.slots.contains_key(&frame);
                    ensure!(known || mapped, "{frame:?} of an object is neither cached nor mapped: lost");
                    ensure!(record.is_pinned() || !cached.contains(&frame), "{frame:?} is cached and not pinned");
                }
                Kind::Reference => of_references += 1,
                Kind::Absent | Kind::FreeTail | Kind::Reserved | Kind::Poisoned => {}
            }
        }
        let stats = self.stats();
        ensure!(
            idle + free == stats.free + stats.deferred,
            "{free} frames are in free blocks and {idle} idle, {} free and {} deferred were expected",
            stats.free,
            stats.deferred
        );
        let references = self.check_reference_pages()?;
        ensure!(
            of_references == 4 * references,
            "{references} reference pages live, {of_references} frames are theirs"
        );
        // Each has three tables.
        let all = tables + 3 * references;
        ensure!(
            all == stats.tables,
            "{all} tables exist, those of {references} references included, {} are counted",
            stats.tables
        );
        Ok(())
    }

    /// That nobody has written to the tables of the reference pages that live; how many there are, the zero page included.
    fn check_reference_pages(&self) -> Verdict<u64> {
        let (mut references, mut damaged) = (0, None);
        let mut look = |reference: &ReferenceTables| {
            references += 1;
            for frame in reference.frames() {
                if self.record(frame).kind() != Kind::Reference {
                    damaged = Some(frame);
                }
            }
            reference.for_each_entry(|table, index, entry| {
                // Relaxed: the machine is at rest.
                if self.entries(table)[index].load(Ordering::Relaxed) != entry {
                    damaged = Some(table);
                }
            });
        };
        look(self.zero());
        self.references().for_each_own(&mut look);
        let dead = self.references().dead();
        ensure!(dead == 0, "{dead} reference pages are listed that nobody has any more");
        ensure!(damaged.is_none(), "{damaged:?} belongs to a reference page, and somebody has changed it");
        Ok(references)
    }
}

impl Memory {
    /// What is charged as committed is what the trees and the objects sum up.
    pub(super) fn check_commit(&self, spaces: &[&AddressSpace]) -> Verdict {
        let of_spaces: u64 = spaces.iter().map(|space| space.vmas().view().summary().totals.pages.accounted).sum();
        let (of_objects, charged) = (self.committed_by_objects(), self.committed_pages());
        ensure!(
            charged == of_spaces + of_objects,
            "{charged} pages are charged, address spaces have {of_spaces} and objects {of_objects}"
        );
        Ok(())
    }
}

/// The pages of all objects, mapped or given.
fn cached_pages(spaces: &[&AddressSpace], objects: &[&Object]) -> BTreeSet<Frame> {
    let mut cached = BTreeSet::new();
    each_object(spaces, objects, |object| {
        object.for_each_page(|_, frame| {
            cached.insert(frame);
        });
    });
    cached
}

/// Calls `visit` for all objects, mapped or given; for some of them several times.
pub(super) fn each_object(spaces: &[&AddressSpace], objects: &[&Object], mut visit: impl FnMut(&Object)) {
    objects.iter().for_each(|object| visit(object));
    for space in spaces {
        for vma in space.vmas().view().iter() {
            if let Backing::Object(object) = &vma.backing {
                visit(object);
            }
        }
    }
}
