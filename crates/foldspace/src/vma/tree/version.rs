//! Versions of an address space's tree, and the cell that holds the current one.
//!
//! ```text
//!   reader, pinned                 writer                                holder (fork, reader of maps)
//!   load root R                    prepare: new nodes, byte copies       hold: count R, unless it is 0
//!   read R ...                     publish:
//!   read R ...                       R counted once: freeze it (1 -> 0)    (0: try again, a new root comes)
//!   read R ...                         then contents move: R keeps what is gone
//!                                    R counted more: count all copies again
//!                                    store the new root
//!   unpin                            defer: destroy or release R
//! ```
//!
//! A cell gives up its count on a version, and thereby on everything in it, only through the epoch. So whatever a pinned
//! reader reaches from a root that he loaded from the cell stays: it is owned by this root, or moved to a later one of the same cell.

use core::marker::PhantomData;
use core::mem;
use core::ptr::{self, NonNull};

use crossbeam_epoch::Guard;

use super::edit::{self, Site};
use super::node::plan::Plan;
use super::node::{self, Header, NodeRef};
use super::splice;
use crate::addr::PageRange;
use crate::error::Result;
use crate::sync::watched::{AtomicBool, AtomicPtr, Ordering};
#[cfg(feature = "watch")]
use crate::sync::{Rank, watch};
use crate::vma::Vma;

// Nodes are read and dropped by whatever thread comes along.
const _: () = {
    const fn shared_between_threads<T: Send + Sync>() {}
    shared_between_threads::<Vma>();
};

/// An immutable tree of VMAs, held by count: `clone` is O(1), and so is what fork pays for any number of VMAs.
///
/// # Invariants
///
/// One count on the root is its own.
pub struct Version {
    root: Option<NonNull<Header>>,
}

// SAFETY: nodes are immutable but for atomics, and VMAs may be shared between threads (asserted above).
unsafe impl Send for Version {}
// SAFETY: as above.
unsafe impl Sync for Version {}

impl Version {
    /// A tree without VMAs.
    pub const fn empty() -> Version {
        Version { root: None }
    }

    /// Everything that can be asked of it. O(1).
    #[inline]
    pub fn view(&self) -> VersionRef<'_> {
        // SAFETY: our count keeps the tree for as long as `self` is borrowed.
        VersionRef { root: self.root.map(|root| unsafe { NodeRef::new(root) }) }
    }
}

impl Clone for Version {
    fn clone(&self) -> Version {
        if let Some(root) = self.root {
            // SAFETY: our own count stays during the call.
            unsafe { node::retain(root) };
        }
        Version { root: self.root }
    }
}

impl Drop for Version {
    fn drop(&mut self) {
        if let Some(root) = self.root {
            // SAFETY: 1. the count is ours; 2. pinned readers do not depend on it: a cell through which they came has a count of its own
            // until they are gone, and borrowers of `self` are gone.
            unsafe { node::release(root) };
        }
    }
}

/// A version that can be read for `'t`, without a count of its own: the thread is pinned, or somebody holds the version.
#[derive(Clone, Copy)]
pub struct VersionRef<'t> {
    pub(super) root: Option<NodeRef<'t>>,
}

/// The current version of an address space.
///
/// Readers take no lock. Writers are serialised by the caller, who has a writers' lock; a writer that comes in spite of another
/// spins until that one is done, so a thread must not prepare a second change of a cell while it has one prepared.
///
/// All guards must be of one and the same [`crossbeam_epoch::Collector`], as those of [`crate::platform::Platform::pin`] are.
///
/// # Invariants
///
/// One count on the current root is the cell's, or the root is frozen and a writer is about to replace it.
pub struct VersionCell {
    root: AtomicPtr<Header>,
    writing: AtomicBool,
    life: PhantomData<Version>,
}

impl VersionCell {
    /// A cell whose current version is `version`.
    pub fn new(version: Version) -> VersionCell {
        let root = version.root.map_or(ptr::null_mut(), NonNull::as_ptr);
        mem::forget(version);
        VersionCell { root: AtomicPtr::new(root), writing: AtomicBool::new(false), life: PhantomData }
    }

    /// The current version, for reading while pinned. One load; nothing shared is written.
    #[inline]
    pub fn load<'t>(&'t self, _guard: &'t Guard) -> VersionRef<'t> {
        // Acquire: what the writer put into the nodes.
        let root = NonNull::new(self.root.load(Ordering::Acquire));
        // SAFETY: 1. it was published a moment ago, so the cell gives it up only after the guard is gone, or when it is dropped itself,
        // for which the borrow of `self` must end; 2. everything below it likewise (see the module).
        VersionRef { root: root.map(|root| unsafe { NodeRef::new(root) }) }
    }

    /// Whether `version`, loaded from this cell, is still the current one.
    #[inline]
    pub fn same(&self, version: VersionRef<'_>) -> bool {
        let root = version.root.map_or(ptr::null_mut(), NodeRef::as_ptr);
        // Relaxed: if it is the same, it was loaded before; if not, nothing of the new one is looked at.
        ptr::eq(self.root.load(Ordering::Relaxed), root)
    }

    /// The current version, counted: it stays as it is whatever happens to the cell. O(1).
    pub fn hold(&self, guard: &Guard) -> Version {
        loop {
            let Some(root) = self.load(guard).root.and_then(|root| NonNull::new(root.as_ptr())) else {
                return Version::empty();
            };
            // SAFETY: readable while pinned.
            if unsafe { node::try_retain(root) } {
                return Version { root: Some(root) };
            }
            // Frozen: the next root comes at once.
            crate::sync::hint::spin_loop();
        }
    }

    /// Begins a change of `range`.
    #[inline(always)]
    pub fn change<'t>(&'t self, guard: &'t Guard, range: PageRange) -> Change<'t> {
        let turn = Turn::take(self);
        let base = self.load(guard).root;
        let mut change = Change { plan: Plan::new(), site: Site::new(), base, range, guard, turn, planned: false };
        if let Some(root) = base {
            change.site.find(root, range);
        }
        change
    }

    /// [`Change::splice`] and [`Change::publish`] in one.
    ///
    /// # Errors
    ///
    /// As [`Change::splice`]; then nothing has changed.
    #[cfg(test)]
    pub fn splice<I>(&self, guard: &Guard, range: PageRange, replacement: I) -> Result<()>
    where
        I: IntoIterator<Item = Vma, IntoIter: ExactSizeIterator>,
    {
        let mut change = self.change(guard, range);
        change.splice(replacement)?;
        change.publish();
        Ok(())
    }

    /// Makes `version` the current one. O(1); what it replaces is released after the grace period.
    pub fn replace(&self, guard: &Guard, version: Version) {
        let turn = Turn::take(self);
        let new = version.root;
        mem::forget(version);
        // SAFETY: 1. the count of `version` becomes the cell's, and the cell's on the old root is given up; 2. it was not frozen,
        // since whose turn it is freezes.
        unsafe { turn.publish(new, guard, false) };
    }

    /// Empties it: [`Self::replace`] with an empty version.
    pub fn clear(&self, guard: &Guard) {
        self.replace(guard, Version::empty());
    }
}

impl Drop for VersionCell {
    fn drop(&mut self) {
        // The cell's count becomes the version's, whose drop gives it up.
        // INVARIANT: no writer is left, so the root is not frozen.
        // Relaxed: the cell is ours alone by now.
        drop(Version { root: NonNull::new(self.root.load(Ordering::Relaxed)) });
    }
}

/// The right to change a cell.
struct Turn<'t> {
    cell: &'t VersionCell,
    #[cfg(feature = "watch")]
    _held: watch::Held,
}

impl<'t> Turn<'t> {
    #[inline]
    fn take(cell: &'t VersionCell) -> Turn<'t> {
        #[cfg(feature = "watch")]
        let wait = watch::wait(Rank::Turn, core::ptr::from_ref(cell).addr());
        // Acquire, and release at the end: the last writer's root is the one that this writer changes.
        while cell.writing.swap(true, Ordering::Acquire) {
            crate::sync::hint::spin_loop();
        }
        Turn {
            cell,
            #[cfg(feature = "watch")]
            _held: wait.over(false),
        }
    }

    /// Stores a new root, and retires the old one: destroys it after the grace period if it is frozen, releases it otherwise.
    ///
    /// # Safety
    ///
    /// A count of `new`, and the cell's of the old root, are given up to this function.
    #[inline]
    unsafe fn publish(&self, new: Option<NonNull<Header>>, guard: &Guard, frozen: bool) {
        let new = new.map_or(ptr::null_mut(), NonNull::as_ptr);
        // Relaxed: it is our turn, and nobody else stores it.
        let old = self.cell.root.load(Ordering::Relaxed);
        // Release: the nodes are written before they can be found.
        self.cell.root.store(new, Ordering::Release);
        let Some(old) = NonNull::new(old) else { return };
        let old = Retired(old);
        // SAFETY: 1. nodes and what they own may be dropped by any thread; 2. nothing in the closure is borrowed; 3. when it runs,
        // nobody who could have loaded the old root from this cell is pinned any more, and its count is the closure's.
        unsafe {
            if frozen {
                guard.defer_unchecked(move || node::destroy(old.get()));
            } else {
                guard.defer_unchecked(move || node::release(old.get()));
            }
        }
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.writing.store(false, Ordering::Release);
    }
}

/// A root on its way to the epoch.
struct Retired(NonNull<Header>);

impl Retired {
    fn get(self) -> NonNull<Header> {
        self.0
    }
}

/// A change of a range: planned, then published. Dropped before, it leaves everything as it was.
///
/// # Invariants
///
/// `site` is that of `range` in `base`, from which `plan` is made: the cell's root, which nobody else can replace before `turn` is given up.
#[must_use = "nothing has changed until it is published"]
pub struct Change<'t> {
    plan: Plan<'t>,
    site: Site<'t>,
    base: Option<NodeRef<'t>>,
    range: PageRange,
    guard: &'t Guard,
    turn: Turn<'t>,
    /// There is a plan that is not published yet.
    planned: bool,
}

impl<'t> Change<'t> {
    /// The version that is to be changed.
    #[inline]
    pub fn base(&self) -> VersionRef<'t> {
        VersionRef { root: self.base }
    }

    /// The first VMA that has a page in the range.
    #[inline]
    pub fn first_touched(&self) -> Option<&'t Vma> {
        self.site.first_touched()
    }

    /// Plans `vma`, which covers the range, in the place of whatever is there: as one with the neighbours that it may merge with. Or
    /// nothing in its place. VMAs across an end of the range are cut. Everything that can fail happens here.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`].
    #[inline]
    pub fn put(&mut self, mut vma: Option<Vma>) -> Result<()> {
        if !edit::plan(&mut self.plan, &self.site, self.range, &mut vma)? {
            return self.put_wide(vma);
        }
        self.planned = true;
        Ok(())
    }

    #[cold]
    fn put_wide(&mut self, vma: Option<Vma>) -> Result<()> {
        let Some(vma) = vma else { return self.splice([]) };
        let vma = self.base().joined(vma);
        self.range = vma.range;
        self.splice([vma])
    }

    /// Plans `replacement` as it is in the place of whatever is in the range. VMAs across an end of it are cut.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::BadRange`] if `replacement` is not sorted, overlaps, or leaves the range.
    pub fn splice<I>(&mut self, replacement: I) -> Result<()>
    where
        I: IntoIterator<Item = Vma, IntoIter: ExactSizeIterator>,
    {
        self.plan = Plan::new();
        splice::plan(&mut self.plan, self.base, self.range, &mut replacement.into_iter())?;
        self.planned = true;
        Ok(())
    }

    /// The tree as it will be.
    #[inline]
    pub fn view(&self) -> VersionRef<'_> {
        VersionRef { root: self.plan.root() }
    }

    /// Makes what was planned visible, in one store. Cannot fail. What it removes is dropped after the grace period.
    #[inline]
    pub fn publish(&mut self) {
        if !mem::take(&mut self.planned) {
            return;
        }
        // SAFETY: 1. the plan's base is the cell's root, pinned, and the cell has a count on it; 2. if it gets frozen, `publish` has it
        // destroyed once; 3. otherwise its count goes to `publish`; 4. all that once, for a plan is made once.
        unsafe {
            let (new, frozen) = self.plan.take_over(self.base);
            self.turn.publish(new, self.guard, frozen);
        }
    }
}
