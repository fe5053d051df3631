//! Mounting, binding, moving, unmounting (mount(2), umount(2), pivot_root(2)), with the checks of Linux's `fs/namespace.c`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::{KNOWN, Manner, Mount, MountNamespace, OPTIONS, busy, new, note_flags, place_of};
use crate::errno::Errno;
use crate::fs::dentry::{Dentry, Place};
use crate::fs::inode::Kind;

/// Whether what is mounted below goes along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submounts {
    /// `MS_REC`, `MNT_DETACH`.
    Too,
    /// They stay, or are in the way.
    Not,
}

impl MountNamespace {
    /// Mounts a new file system on a directory. `ENODEV` for an unknown kind, `EBUSY` if the same is there already.
    pub fn mount(&self, source: &[u8], target: &Arc<Dentry>, kind: &[u8], flags: u32) -> Result<(), Errno> {
        let name = KNOWN.iter().copied().find(|name| name.as_bytes() == kind).ok_or(Errno::ENODEV)?;
        if !target.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let shared = matches!(name, "devtmpfs" | "sysfs");
        let already = |mount: &Mount| mount.kind == name && Arc::ptr_eq(&mount.root, target);
        if shared && self.state.lock().mounts.iter().any(already) {
            return Err(Errno::EBUSY);
        }
        let root = new::root(name, place_of(target))?;
        self.attach_tree(alloc::vec![Mount::new(source, name, root, flags & OPTIONS, None)], target);
        Ok(())
    }

    /// Shows what is at `from` at `target` as well (`do_loopback`).
    pub fn bind(&self, from: &Arc<Dentry>, target: &Arc<Dentry>, below: Submounts) -> Result<(), Errno> {
        // Before it is there itself: what is bound below itself does not go on for ever.
        let mounts = self.clone_tree(from, below)?;
        if from.inode.is_directory() != target.inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        self.attach_tree(mounts, target);
        Ok(())
    }

    /// Further mounts of what is at `from`, and below; the first is nowhere yet. `EINVAL` if `from` is in no mount of ours.
    pub(super) fn clone_tree(&self, from: &Arc<Dentry>, below: Submounts) -> Result<Vec<Mount>, Errno> {
        let through = self.seen_through(from).ok_or(Errno::EINVAL)?;
        let bindable = |mount: &Mount| !mount.propagation.lock().is_unbindable();
        if !bindable(&through) {
            return Err(Errno::EINVAL);
        }
        let mut inner = if below == Submounts::Too { self.below(from) } else { Vec::new() };
        inner.retain(bindable);
        let mut made = alloc::vec![through.further(from.bound_at(Place::Root), None)];
        for mount in inner {
            let Some(covers) = &mount.covers else { continue };
            // On the last that shows what it covers.
            let seen = made.iter().rev().find_map(|copy| copy.root.view_of(covers.origin()));
            let Some(on) = seen.map(|seen| seen.uncovered()) else { continue };
            let root = mount.root.bound_at(place_of(&on));
            on.set_mounted(Some(root.clone()));
            made.push(mount.further(root, Some(on)));
        }
        Ok(made)
    }

    /// Puts mounts, of which the first is nowhere yet, on `target`, and on its copies.
    pub(super) fn attach_tree(&self, mounts: Vec<Mount>, target: &Arc<Dentry>) {
        let Some(top) = mounts.first().map(|first| first.root.clone()) else { return };
        let through = self.group_at(target);
        if through.is_some() {
            mounts.iter().for_each(Mount::share);
        }
        self.attach_quietly(mounts, target);
        if let Some(through) = through {
            self.propagate_mount(through, target, &top);
        }
    }

    /// The same, on `target` only.
    pub(super) fn attach_quietly(&self, mut mounts: Vec<Mount>, target: &Arc<Dentry>) {
        let Some(first) = mounts.first_mut() else { return };
        first.root.set_place(place_of(target));
        first.covers = Some(target.clone());
        target.set_mounted(Some(first.root.clone()));
        self.state.lock().mounts.append(&mut mounts);
    }

    /// The mount that `dentry` is seen through; of a namespace's file, which is in no tree, one of its own.
    fn seen_through(&self, dentry: &Arc<Dentry>) -> Option<Mount> {
        if matches!(dentry.inode.kind, Kind::Namespace(_)) {
            return Some(Mount::new(b"nsfs", "nsfs", dentry.clone(), 0, None));
        }
        self.state.lock().mount_of(dentry).cloned()
    }

    /// What is mounted below `dentry`, not on it.
    fn below(&self, dentry: &Arc<Dentry>) -> Vec<Mount> {
        let state = self.state.lock();
        let inside = |mount: &&Mount| mount.covers.as_ref().is_some_and(|covers| covers.is_below(dentry));
        state.mounts.iter().filter(inside).cloned().collect()
    }

    /// Puts the mount whose root is `from` on `target` (`do_move_mount`).
    pub fn shift(&self, from: &Arc<Dentry>, target: &Arc<Dentry>) -> Result<(), Errno> {
        if from.inode.is_directory() != target.inode.is_directory() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        let index = state.at(from).ok_or(Errno::EINVAL)?;
        let Some(covered) = state.mounts[index].covers.clone() else { return Err(Errno::EINVAL) };
        if state.mount_of(&covered).is_some_and(Mount::is_shared) {
            return Err(Errno::EINVAL);
        }
        if target.is_below(from) {
            return Err(Errno::ELOOP);
        }
        covered.set_mounted(None);
        from.set_place(place_of(target));
        target.set_mounted(Some(from.clone()));
        let mut moved = state.mounts.remove(index);
        let replaced = moved.covers.replace(target.clone());
        // Behind what it is on now, with what is on it behind that.
        state.mounts.push(moved);
        state.sort();
        drop(state);
        drop(replaced);
        if let Some(through) = self.group_at(target) {
            self.set_propagation(from, Manner::Shared, Submounts::Too)?;
            self.propagate_mount(through, target, from);
        }
        Ok(())
    }

    /// New options of the mount whose root is `target`; with `MS_BIND` or without, since each file system has one set of them here.
    pub fn reconfigure(&self, target: &Arc<Dentry>, flags: u32) -> Result<(), Errno> {
        let state = self.state.lock();
        let index = state.at(target).ok_or(Errno::EINVAL)?;
        note_flags(flags);
        state.mounts[index].flags.store(flags & OPTIONS, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is a mount with its root at `target`. `EINVAL`.
    pub fn check_root(&self, target: &Arc<Dentry>) -> Result<(), Errno> {
        self.state.lock().at(target).map(drop).ok_or(Errno::EINVAL)
    }

    /// Takes away what is mounted with its root at `target`. `EINVAL` if nothing is, `EBUSY` if it is `/`, or is not to go from under those who use it and
    /// something is mounted further down, or somebody does use it.
    pub fn unmount(&self, target: &Arc<Dentry>, below: Submounts) -> Result<(), Errno> {
        let covered = {
            let state = self.state.lock();
            let index = state.at(target).ok_or(Errno::EINVAL)?;
            state.mounts[index].covers.clone().ok_or(Errno::EBUSY)?
        };
        // Nobody's files are looked at with mounts locked. Who comes just now keeps what he has, as after `MNT_DETACH`.
        if below == Submounts::Not && busy::is_used(target) {
            return Err(Errno::EBUSY);
        }
        // What goes along goes from the copies of what it is on as well, the innermost first.
        let mut covered = alloc::vec![covered];
        if below == Submounts::Too {
            covered.extend(self.below(target).into_iter().filter_map(|mount| mount.covers));
        }
        let wherever: Vec<_> =
            covered.into_iter().filter_map(|covered| Some((self.group_at(&covered)?, covered))).collect();
        self.take_away(target, below)?;
        for (through, covered) in wherever.into_iter().rev() {
            self.propagate_unmount(through, &covered, below);
        }
        Ok(())
    }

    /// The same, whoever uses it, from this namespace only.
    pub(super) fn take_away(&self, target: &Arc<Dentry>, below: Submounts) -> Result<(), Errno> {
        let mut gone = Vec::new();
        {
            let mut state = self.state.lock();
            let index = state.at(target).ok_or(Errno::EINVAL)?;
            if state.mounts[index].covers.is_none() {
                return Err(Errno::EBUSY);
            }
            let inside = |mount: &Mount| mount.covers.as_ref().is_some_and(|covers| covers.is_below(target));
            if below == Submounts::Not && state.mounts.iter().any(inside) {
                return Err(Errno::EBUSY);
            }
            let id = state.mounts[index].id;
            let mut at = 0;
            while at < state.mounts.len() {
                match state.mounts[at].id == id || inside(&state.mounts[at]) {
                    true => gone.push(state.mounts.remove(at)),
                    false => at += 1,
                }
            }
        }
        for mount in gone.iter().rev() {
            if let Some(covers) = &mount.covers {
                covers.set_mounted(None);
            }
        }
        drop(gone);
        Ok(())
    }

    /// Puts the file system with the root `new` where that of `root` is, which a process has as its root, and that one on `old`, which is below `new`
    /// (`pivot_root`).
    ///
    /// # Errors
    ///
    /// In the order of Linux's `path_pivot_root`. `EINVAL`: copies would have to be turned round as well; `root` or `new` are not what is mounted, or one is
    /// not below the other. `EBUSY`: `new` or `old` are on the file system of `root`.
    pub fn pivot(&self, root: &Arc<Dentry>, new: &Arc<Dentry>, old: &Arc<Dentry>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        let shared = |dentry: &Arc<Dentry>| state.mount_of(dentry).is_some_and(Mount::is_shared);
        let covered_by = |dentry| state.at(dentry).and_then(|index| state.mounts[index].covers.clone());
        let above = [covered_by(root), covered_by(new)];
        if shared(old) || above.iter().flatten().any(shared) {
            return Err(Errno::EINVAL);
        }
        let same_mount = |dentry: &Arc<Dentry>| match (state.mount_of(dentry), state.mount_of(root)) {
            (Some(one), Some(other)) => core::ptr::eq(one, other),
            _ => false,
        };
        if same_mount(new) || same_mount(old) {
            return Err(Errno::EBUSY);
        }
        let (Some(index), Some(before)) = (state.at(new), state.at(root)) else { return Err(Errno::EINVAL) };
        let [place, Some(covered)] = above else { return Err(Errno::EINVAL) };
        if !old.is_below(new) || !new.is_below(root) {
            return Err(Errno::EINVAL);
        }
        covered.set_mounted(None);
        match &place {
            Some(covers) => {
                new.set_place(place_of(covers));
                covers.set_mounted(Some(new.clone()));
            }
            None => {
                new.set_place(Place::Root);
                state.root = new.clone();
            }
        }
        state.mounts[index].covers = place;
        // The same directory, if the old root is to be on the new one's.
        root.set_place(place_of(old));
        state.mounts[before].covers = Some(old.clone());
        old.set_mounted(Some(root.clone()));
        state.sort();
        Ok(())
    }
}

impl super::State {
    /// Puts what is covered before what covers it again.
    fn sort(&mut self) {
        let mut rest = core::mem::take(&mut self.mounts);
        while !rest.is_empty() {
            let stands = |mount: &Mount, done: &super::State| {
                mount.covers.as_ref().is_none_or(|covers| done.mount_of(covers).is_some())
            };
            let Some(next) = rest.iter().position(|mount| stands(mount, self)) else {
                self.mounts.append(&mut rest);
                return;
            };
            let mount = rest.remove(next);
            self.mounts.push(mount);
        }
    }
}
