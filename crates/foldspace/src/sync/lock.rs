//! The spin locks of the manager and the order in which they are taken.

use super::{Inner, InnerGuard};

/// The locks, outermost first: who holds one may wait for those that come later, and for no other. (What is only tried waits for nobody.) A thread
/// never waits for two of one rank, but for tables of one level: mremap takes those of both its places, and it alone does, under the writers'
/// lock, in a path that is its own. No lock of any rank is held while another processor's step is waited for (a shootdown), but [`Rank::Cutting`],
/// [`Rank::Writers`], and [`Rank::Turn`], which whoever answers a shootdown does not need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(
    not(feature = "watch"),
    allow(dead_code, reason = "some are locks of other kinds, which only who watches asks about")
)]
pub enum Rank {
    /// One cut at a time for each object. Outermost: a cut goes through the address spaces and takes the writers' lock of each.
    Cutting,
    /// Changes of layout of one address space, one after the other.
    Writers,
    /// The cell of a tree's versions: held by whoever has a change of it planned. Taken by writers, who have taken turns before.
    Turn,
    /// A page table of level 4. Parents are locked before children, as every walk comes to them.
    Table4,
    /// A page table of level 3.
    Table3,
    /// A page table of level 2.
    Table2,
    /// A page table of level 1: what faults take, and mostly nothing else. Also one that an object owns, which is made and filled under the lock of the
    /// object's pages, as long as nobody else knows it.
    Table1,
    /// Pages of one object: asked under the lock of the table that they are installed in, so that none comes back that was cut.
    Pages,
    /// The list of homes: changed under the lock of the table, or of the object, whose entry it is about.
    Homes,
    /// The links of a lineage: joined by who copies a table under its lock, left by who drops one.
    Lineage,
    /// The numbers of lineages: one begins while a table is copied, and ends while its last member leaves.
    Heads,
    /// The row of address spaces.
    Row,
    /// The numbers of objects.
    Objects,
    /// The table of reference pages.
    References,
    /// A processor's cache of frames: frames are needed under any of the locks above. A second one is only tried.
    Frames,
    /// The buddy lists, which fill the caches.
    Buddy,
    /// Spare nodes of trees: only tried.
    Nodes,
}

/// A spin lock of some rank.
#[derive(Debug)]
pub struct Mutex<T> {
    inner: Inner<T>,
    #[cfg(feature = "watch")]
    rank: Rank,
}

#[cfg(not(feature = "watch"))]
pub(crate) type MutexGuard<'a, T> = InnerGuard<'a, T>;

/// The lock is held while it lives.
#[cfg(feature = "watch")]
pub struct MutexGuard<'a, T> {
    // Noted as released first.
    _held: super::watch::Held,
    inner: InnerGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A lock of `rank` around `value`.
    #[cfg_attr(not(feature = "watch"), expect(unused_variables, reason = "asked for by those who check the order"))]
    pub(crate) const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex {
            inner: Inner::new(value),
            #[cfg(feature = "watch")]
            rank,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// Spins until the lock is ours. Acquire, and release at the end: what the last holder did is seen.
    #[cfg(not(feature = "watch"))]
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock()
    }

    /// The lock, if nobody has it.
    #[cfg(not(feature = "watch"))]
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }

    #[cfg(feature = "watch")]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let wait = super::watch::wait(self.rank, core::ptr::from_ref(self).addr());
        let (inner, contended) = match self.inner.try_lock() {
            Some(inner) => (inner, false),
            None => (self.inner.lock(), true),
        };
        MutexGuard { _held: wait.over(contended), inner }
    }

    #[cfg(feature = "watch")]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { _held: super::watch::took(self.rank, core::ptr::from_ref(self).addr()), inner })
    }
}

#[cfg(feature = "watch")]
impl<T> core::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

#[cfg(feature = "watch")]
impl<T> core::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
