//! Changes of the tree: making, removing and moving names.

use alloc::sync::Arc;

use crate::sync::Mutex;
use bitflags::bitflags;
use linux_raw_sys::general as raw;

use super::dentry::{Dentry, Place};
use super::inode::{Inode, Kind};
use super::permission::{check_make, check_remove};
use super::reserve;
use super::superblock::FsType;
use crate::errno::Errno;

/// Held by whoever changes names, so that a check (is it empty, is it there, does it lie below itself) stays true until it is acted on.
pub static CHANGE: Mutex<()> = Mutex::new(());

bitflags! {
    /// What `renameat2` is told.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RenameFlags: u32 {
        /// `EEXIST` if the new name is taken.
        const NO_REPLACE = raw::RENAME_NOREPLACE;
        /// The two names change places.
        const EXCHANGE = raw::RENAME_EXCHANGE;
    }
}

/// Whether names can be made in it, and why not.
pub fn check_can_hold(directory: &Dentry) -> Result<(), Errno> {
    match &directory.inode.kind {
        Kind::Directory if directory.is_removed() => Err(Errno::ENOENT),
        // Names come and go with what they are of.
        Kind::Directory if directory.inode.superblock.kind == FsType::Devpts => Err(Errno::EPERM),
        Kind::Directory => Ok(()),
        // In /proc a name that is not there cannot even be looked up in order to be made.
        Kind::Proc(_) => Err(Errno::ENOENT),
        _ => Err(Errno::ENOTDIR),
    }
}

/// Enters a new inode under a name. `EEXIST` if the name is taken.
pub fn create(
    directory: &Arc<Dentry>,
    name: &[u8],
    make: impl FnOnce() -> Result<Arc<Inode>, Errno>,
) -> Result<Arc<Dentry>, Errno> {
    let seen = directory;
    let directory = directory.origin();
    let _change = CHANGE.lock();
    if directory.child(name).is_ok() {
        return Err(Errno::EEXIST);
    }
    check_can_hold(directory)?;
    check_make(seen)?;
    reserve::check(Errno::ENOSPC)?;
    directory.inode.superblock.check_inodes()?;
    let inode = make()?;
    let dentry = Dentry::new(directory, name, inode);
    if let Some(regular) = dentry.inode.regular() {
        regular.set_name(&dentry);
    }
    directory.insert(dentry.clone());
    if dentry.inode.is_directory() {
        // `.` in itself, `..` in the parent.
        dentry.inode.add_links(1);
        directory.inode.add_links(1);
    }
    directory.inode.touch_modified();
    Ok(seen.see(dentry))
}

/// A further name for an inode (`link`).
pub fn link(target: &Arc<Dentry>, directory: &Arc<Dentry>, name: &[u8]) -> Result<(), Errno> {
    let seen = directory;
    let directory = directory.origin();
    let _change = CHANGE.lock();
    if directory.child(name).is_ok() {
        return Err(Errno::EEXIST);
    }
    check_can_hold(directory)?;
    check_make(seen)?;
    reserve::check(Errno::ENOSPC)?;
    if !same_mount(target, seen) {
        return Err(Errno::EXDEV);
    }
    if target.inode.is_directory() {
        return Err(Errno::EPERM);
    }
    let unnamed = target.inode.attributes.lock().links == 0;
    let dentry = Dentry::new(directory, name, target.inode.clone());
    if let Some(regular) = dentry.inode.regular().filter(|_| unnamed) {
        regular.set_name(&dentry);
    }
    directory.insert(dentry);
    target.inode.add_links(1);
    directory.inode.touch_modified();
    Ok(())
}

/// Removes a name that is no directory's.
pub fn unlink(directory: &Arc<Dentry>, name: &[u8]) -> Result<(), Errno> {
    let gone = {
        let _change = CHANGE.lock();
        let child = directory.child(name)?;
        if child.inode.is_directory() {
            return Err(Errno::EISDIR);
        }
        check_remove(directory, &child)?;
        let fixed = directory.inode.superblock.kind == FsType::Devpts;
        if fixed || !matches!(directory.inode.kind, Kind::Directory) {
            return Err(Errno::EPERM);
        }
        if child.mounted().is_some() {
            return Err(Errno::EBUSY);
        }
        detach(directory.origin(), name, child.origin());
        directory.inode.touch_modified();
        child
    };
    // The file's pages go with its last reference: not under the lock.
    drop(gone);
    Ok(())
}

/// Removes an empty directory.
pub fn rmdir(directory: &Arc<Dentry>, name: &[u8]) -> Result<(), Errno> {
    let _change = CHANGE.lock();
    let child = directory.child(name)?;
    if !child.inode.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    check_remove(directory, &child)?;
    if !matches!(directory.inode.kind, Kind::Directory) {
        return Err(Errno::EPERM);
    }
    if child.mounted().is_some() {
        return Err(Errno::EBUSY);
    }
    if child.child_count() > 0 {
        return Err(Errno::ENOTEMPTY);
    }
    detach(directory.origin(), name, child.origin());
    directory.inode.touch_modified();
    Ok(())
}

/// Takes a child out and counts its links down; for a directory also the links that it and its parent have by it.
fn detach(directory: &Arc<Dentry>, name: &[u8], child: &Arc<Dentry>) {
    directory.remove(name);
    child.set_removed();
    if let Some(regular) = child.inode.regular() {
        regular.name_removed(child);
    }
    if child.inode.is_directory() {
        child.inode.add_links(-2);
        directory.inode.add_links(-1);
    } else {
        child.inode.add_links(-1);
    }
}

/// Whether both are of one file system, seen through one mount.
fn same_mount(a: &Dentry, b: &Dentry) -> bool {
    let root = |dentry: &Dentry| dentry.mount_root().map(|root| Arc::as_ptr(&root));
    Arc::ptr_eq(&a.inode.superblock, &b.inode.superblock) && root(a) == root(b)
}

/// One side of a rename.
pub struct Name<'a> {
    /// The directory.
    pub directory: &'a Arc<Dentry>,
    /// The name in it.
    pub name: &'a [u8],
    /// Whether the path ended in a slash: then it must be a directory.
    pub must_be_directory: bool,
}

impl Name<'_> {
    fn itself(&self) -> Name<'_> {
        Name { directory: self.directory.origin(), ..*self }
    }
}

/// Moves a name (`rename(2)`).
pub fn rename(old: Name<'_>, new: Name<'_>, flags: RenameFlags) -> Result<(), Errno> {
    if !same_mount(old.directory, new.directory) {
        return Err(Errno::EXDEV);
    }
    let replaced = {
        let _change = CHANGE.lock();
        let source = old.directory.child(old.name)?;
        let target = new.directory.child(new.name).ok();
        check_rename(&old, &new, &source, target.as_ref(), flags)?;
        // From here on it is about the names themselves, through whatever mount they are seen.
        let (old, new) = (old.itself(), new.itself());
        let (source, target) = (source.origin().clone(), target.map(|target| target.origin().clone()));
        if let Some(target) = &target {
            if target.inode.same(&source.inode) {
                return Ok(());
            }
            if flags.contains(RenameFlags::EXCHANGE) {
                exchange(&old, &new, &source, target);
                return Ok(());
            }
            detach(new.directory, new.name, target);
        }
        old.directory.remove(old.name);
        enter(&source, &new);
        if source.inode.is_directory() {
            old.directory.inode.add_links(-1);
            new.directory.inode.add_links(1);
        }
        source.inode.touch_changed();
        old.directory.inode.touch_modified();
        new.directory.inode.touch_modified();
        target
    };
    drop(replaced);
    Ok(())
}

/// The refusals of `rename(2)`, in Linux's order (`do_renameat2`, `vfs_rename`).
fn check_rename(
    old: &Name<'_>,
    new: &Name<'_>,
    source: &Arc<Dentry>,
    target: Option<&Arc<Dentry>>,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
        return Err(Errno::EEXIST);
    }
    if exchange && target.is_none() {
        return Err(Errno::ENOENT);
    }
    if !source.inode.is_directory() && (old.must_be_directory || (!exchange && new.must_be_directory)) {
        return Err(Errno::ENOTDIR);
    }
    if new.directory.is_below(source) {
        return Err(Errno::EINVAL);
    }
    if let Some(target) = target
        && old.directory.is_below(target)
    {
        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    if !matches!(old.directory.inode.kind, Kind::Directory) {
        return Err(Errno::EPERM);
    }
    check_can_hold(new.directory)?;
    check_remove(old.directory, source)?;
    match target {
        Some(target) => check_remove(new.directory, target)?,
        None => check_make(new.directory)?,
    }
    if let Some(target) = target.filter(|target| !exchange && !target.inode.same(&source.inode)) {
        match (source.inode.is_directory(), target.inode.is_directory()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if target.child_count() > 0 => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
    }
    if source.mounted().is_some() || target.is_some_and(|target| target.mounted().is_some()) {
        return Err(Errno::EBUSY);
    }
    Ok(())
}

fn exchange(old: &Name<'_>, new: &Name<'_>, source: &Arc<Dentry>, target: &Arc<Dentry>) {
    old.directory.remove(old.name);
    new.directory.remove(new.name);
    // In this order, as a listing on Linux shows.
    enter(target, old);
    enter(source, new);
    let moved_down = i32::from(source.inode.is_directory()) - i32::from(target.inode.is_directory());
    if moved_down != 0 {
        old.directory.inode.add_links(-moved_down);
        new.directory.inode.add_links(moved_down);
    }
    for inode in [&old.directory.inode, &new.directory.inode] {
        inode.touch_modified();
    }
    source.inode.touch_changed();
    target.inode.touch_changed();
}

fn enter(dentry: &Arc<Dentry>, name: &Name<'_>) {
    dentry.set_place(Place::In { parent: name.directory.clone(), name: name.name.into(), removed: false });
    name.directory.insert(dentry.clone());
}
