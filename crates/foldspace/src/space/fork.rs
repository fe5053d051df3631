//! fork: the child links what the parent links.

use alloc::sync::Arc;

use crossbeam_epoch::Guard;

use super::lock::LOCK;
use super::registry::counted;
use super::{AddressSpace, ForkMode, Layout, new_root, retry_after_reclaim};
use crate::addr::VirtAddr;
use crate::error::Result;
use crate::frame::Garbage;
use crate::platform::Flush;
use crate::sync::atomic::Ordering;
use crate::table::Touch;
use crate::vma::{Vma, VmaFlags, Watcher};

/// What a child does not inherit as it is.
const NOT_INHERITED: VmaFlags = VmaFlags::DONT_FORK.union(VmaFlags::WIPE_ON_FORK).union(VmaFlags::WATCHED).union(LOCK);

impl AddressSpace {
    /// An address space with the same content. In mode [`ForkMode::Full`] O(1): one frame, the root's own entries, one shootdown; and one
    /// operation per VMA that is not to be inherited as it is. In the other modes O(tables).
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`]; [`crate::Error::CommitLimit`].
    pub fn fork(&self) -> Result<Arc<AddressSpace>> {
        self.fork_watched(&|_| Watcher::NOBODY)
    }

    /// As [`AddressSpace::fork`], and what a watcher watches is watched by its heir in the child, if that is somebody.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::fork`].
    pub fn fork_watched(&self, heir: &dyn Fn(Watcher) -> Watcher) -> Result<Arc<AddressSpace>> {
        retry_after_reclaim(&self.memory, |guard| self.fork_once(guard, heir))
    }

    fn fork_once(&self, guard: &Guard, heir: &dyn Fn(Watcher) -> Watcher) -> Result<Arc<AddressSpace>> {
        let layout = self.writer.lock();
        let mode = self.fork_mode();
        let child =
            counted(&self.memory, || self.share(guard, Layout { future_lock: VmaFlags::empty(), ..*layout }, mode))?;
        // Before anything of ours can change: who goes through all address spaces finds the child behind us.
        let joined = self.memory.registry.join(&child);
        drop(layout);
        joined?;
        child.copy_tables(mode, guard)?;
        child.strip_inherited(guard, heir)?;
        Ok(child)
    }

    /// A relative that shares everything below the root. The caller holds the writers' lock.
    pub(super) fn share(&self, guard: &Guard, layout: Layout, mode: ForkMode) -> Result<AddressSpace> {
        let charge = self.charge_fork(self.vmas.load(guard))?;
        let root = new_root(&self.memory)?;
        // A fork is one instant: until the shootdown, a processor may still store through a translation that it remembers, so nothing
        // of ours may be unshared before it, or the child would see a later store and not an earlier one. Faults wait.
        if let Some(everything) = AddressSpace::user_range() {
            self.in_change.begin(everything);
        }
        if let Err(error) = self.tables().share_into(root) {
            self.in_change.end();
            super::clear::empty_root(&self.memory, root);
            self.memory.free_table(root);
            return Err(error);
        }
        let child = AddressSpace::from_parts(&self.memory, root, self.vmas.hold(guard), layout, mode);
        // Relaxed: nobody else has the child yet.
        child.has_guards.store(self.may_have_guards(), Ordering::Relaxed);
        child.set_commit_reserve(self.commit_reserve.load(Ordering::Relaxed));
        charge.keep();
        // The parent's processors may remember that they could write.
        self.memory.platform().shootdown(self.id, Flush::All);
        self.in_change.end();
        Ok(child)
    }

    /// Copies at once what the mode does not leave to the first write.
    fn copy_tables(&self, mode: ForkMode, guard: &Guard) -> Result<()> {
        let touch = match mode {
            ForkMode::Full => return Ok(()),
            ForkMode::Leaf => Touch::Upper,
            ForkMode::Copy => Touch::All,
        };
        let Some(everything) = AddressSpace::user_range() else { return Ok(()) };
        let _layout = self.writer.lock();
        let mut garbage = Garbage::new();
        let copied = self.tables().own_range(everything, touch, &mut garbage);
        self.finish(&mut garbage, guard, everything);
        copied
    }

    /// Applies what must not be inherited as ordinary changes of the child. The tree's summaries tell at once if there is nothing.
    fn strip_inherited(&self, guard: &Guard, heir: &dyn Fn(Watcher) -> Watcher) -> Result<()> {
        let _layout = self.writer.lock();
        let mut from = VirtAddr(0);
        while let Some(vma) = self.vmas.load(guard).find_flag(NOT_INHERITED, from) {
            let vma = vma.clone();
            from = vma.end();
            if vma.flags.contains(VmaFlags::DONT_FORK) {
                self.replace(guard, vma.range, None)?;
                continue;
            }
            // As they are otherwise: Linux joins no VMAs at fork, so that both have the same lines in maps.
            let mut change = self.vmas.change(guard, vma.range);
            let watcher = if vma.tag.watcher() == Watcher::NOBODY { Watcher::NOBODY } else { heir(vma.tag.watcher()) };
            let ended = if watcher == Watcher::NOBODY { VmaFlags::WATCHING } else { VmaFlags::empty() };
            let tag = vma.tag.with_watcher(watcher);
            let bare = Vma { flags: vma.flags - LOCK - ended, tag, ..vma };
            let (range, wiped) = (bare.range, bare.flags.contains(VmaFlags::WIPE_ON_FORK));
            change.splice([bare])?;
            match wiped {
                // Replacing an area by itself empties it.
                true => self.apply(&mut change, guard, range)?,
                false => change.publish(),
            }
        }
        Ok(())
    }
}
