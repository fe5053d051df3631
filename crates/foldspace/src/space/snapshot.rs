//! Snapshots: a fork without a process, and going back to it.
//!
//! ```text
//!     before              after a store                      restore
//!   A.root  S.root      A.root   S.root          walks both where A has tables of its own, and only there:
//!       \   /             |        |
//!        L3 (2)          L3'       L3               slots that lead to the same: nothing
//!        |               |  \     / |               a page of A's own: S's page in its place
//!        L2             L2'   L2    L2              a table that A has alone, of one lineage with S's: gone through
//!        |              |           |               anything else: S's subtree is linked in its place
//!        L1             L1'        L1
//!       a b            a  b'      a  b              afterwards L1' shows a, b again, and the next store copies a page and no table
//! ```
//!
//! A snapshot is an address space that nobody runs. So it is in the row of address spaces, where cuts of objects find it; the checker counts it;
//! it is charged for what it could need, as a child is. Nothing is left out of it, as fork leaves out what its flags say.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crossbeam_epoch::Guard;

use super::marks::Marks;
use super::registry::counted;
use super::types::Layout;
use super::{AddressSpace, Role, retry_after_reclaim};
use crate::error::{Error, Result};
use crate::frame::{Garbage, Memory};
use crate::platform::Flush;
use crate::sync::atomic::Ordering;

/// What an address space was at one instant: its VMAs, its private pages, and the addresses of its [`Layout`]. What shared mappings show belongs to
/// their objects and is not part of it.
///
/// The content never changes; a frame that holds some of it may. A store whose fault had its table before the snapshot shared it puts its copy of the
/// page, of the same content, into that table, and finds then that it must copy the table and the page once more. So a page that was being stored to at that
/// instant may be among those of a difference though it is the same.
///
/// It depends on nothing: the space that it was taken of may end first, and snapshots of one space, or of spaces that come from each other, may be
/// dropped in any order.
pub struct Snapshot {
    space: Arc<AddressSpace>,
}

impl Snapshot {
    /// What it holds, as an address space that is there to be read. Who changes it changes what [`AddressSpace::restore`] goes back to; no
    /// processor may run it.
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    /// A new address space with this content, as it is: unlike a fork's child it has also what fork leaves out. O(1).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CommitLimit`].
    pub fn spawn(&self) -> Result<Arc<AddressSpace>> {
        self.space.duplicate(Role::Live)
    }
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Snapshot").field(&self.space.id()).finish()
    }
}

impl AddressSpace {
    /// What this address space is now, kept. O(1): one frame, the root's own entries, one shootdown; whatever the mode of fork.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::CommitLimit`]. Then nothing has changed.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.duplicate(Role::Snapshot).map(|space| Snapshot { space })
    }

    /// Whether it is what a [`Snapshot`] holds.
    pub fn is_snapshot(&self) -> bool {
        self.role == Role::Snapshot
    }

    fn duplicate(&self, role: Role) -> Result<Arc<AddressSpace>> {
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            let copy = counted(&self.memory, || {
                let mut copy = self.share(guard, *layout, self.fork_mode())?;
                copy.role = role;
                Ok(copy)
            })?;
            // Before anything of ours can change: who goes through all address spaces finds the copy behind us.
            let joined = self.memory.registry.join(&copy);
            drop(layout);
            joined.map(|()| copy)
        })
    }

    /// Goes back to a snapshot of this address space, or of any that it comes from, or that comes from it: VMAs, private pages, and the layout's
    /// addresses are what they were; limits stay as they are now. The snapshot stays.
    ///
    /// Time: tables that this address space has of its own in places that have changed, and pages in them that have. Such tables are kept, so that
    /// the next stores to the same places copy pages only; one restore in eight gives those up that nobody has stored to since the one before. Who runs it meanwhile loads from each page what it was, or is; what he stores may be lost.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] if the two are not related, or this is a snapshot's own; [`Error::CommitLimit`], where the snapshot has more than there
    /// may be now. Then nothing has changed. It needs no memory.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        let from = &*snapshot.space;
        if !self.is_related_to(from) || self.is_snapshot() {
            return Err(Error::WrongKind);
        }
        // Before the writers' lock, as one thread holds one of those only.
        let then = from.layout();
        retry_after_reclaim(&self.memory, |guard| self.restore_once(guard, from, &then))
    }

    fn restore_once(&self, guard: &Guard, from: &AddressSpace, then: &Layout) -> Result<()> {
        let Some(everything) = AddressSpace::user_range() else { return Ok(()) };
        let _no_cut = self.memory.relinks.restore();
        let mut layout = self.writer.lock();
        let (now, version) = (self.vmas.load(guard).summary().totals.pages, from.vmas.hold(guard));
        let growth = version.view().summary().totals.pages.accounted.wrapping_sub(now.accounted) as i64;
        let charge = self.charge_growth(growth, || now.total)?;
        let old = *layout;
        *layout = restored_layout(&old, then);
        // A larger heap is known before it can be seen, a smaller one after.
        if then.brk >= old.brk {
            self.marks.set(Marks::from(&*layout));
        }
        self.in_change.begin(everything);
        self.vmas.replace(guard, version);
        if then.brk < old.brk {
            self.marks.set(Marks::from(&*layout));
        }
        let mut garbage = Garbage::new();
        self.tables().relink(&from.tables(), self.memory.relinks.alike(), &mut garbage);
        self.has_guards.store(from.may_have_guards(), Ordering::Relaxed);
        charge.keep();
        self.note_mapped(guard);
        // Faults go on only after the shootdown: what a thread stores after the first of them is not followed by stores that are lost.
        garbage.settle(&self.memory, self.id, Flush::All);
        self.in_change.end();
        garbage.retire(&self.memory, guard);
        Ok(())
    }

    /// Whether one of the two descends from the other, or both from a third: by fork, snapshot, or spawn.
    pub fn is_related_to(&self, other: &AddressSpace) -> bool {
        let lineage = |space: &AddressSpace| space.memory.record(space.root).lineage();
        Arc::ptr_eq(&self.memory, &other.memory)
            && (self.id == other.id || lineage(self).is_some() && lineage(self) == lineage(other))
    }
}

/// The addresses of `then` with the limits of `now`.
fn restored_layout(now: &Layout, then: &Layout) -> Layout {
    Layout {
        stack_limit: now.stack_limit,
        data_limit: now.data_limit,
        data_limit_hard: now.data_limit_hard,
        address_space_limit: now.address_space_limit,
        lock_limit: now.lock_limit,
        ..*then
    }
}

impl Memory {
    /// The address spaces of the snapshots that live, beside `known`.
    pub(crate) fn snapshots_beside(&self, known: &[&AddressSpace]) -> Vec<Arc<AddressSpace>> {
        let is_new =
            |space: &Arc<AddressSpace>| space.is_snapshot() && known.iter().all(|known| known.id() != space.id());
        self.spaces().filter(is_new).collect()
    }
}
