//! The file system of pseudo-terminals: a name for each slave, as long as its master is open. Every instance shows all of them.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use super::pty;
use crate::errno::Errno;
use crate::fs::dentry::Dentry;
use crate::fs::inode::{Attributes, DeviceNumber, Inode, Kind};
use crate::fs::superblock::{FsType, Superblock};
use crate::fs::tree;
use crate::sync::Mutex;

/// What makes pairs, by its number.
pub const MULTIPLEXER: DeviceNumber = DeviceNumber::new(5, 2);

/// What is shown.
struct Shown {
    /// The roots of all instances.
    roots: Vec<Weak<Dentry>>,
    /// Those pairs that there are.
    slaves: Vec<(u32, Arc<Inode>)>,
}

static SHOWN: Mutex<Shown> = Mutex::new(Shown { roots: Vec::new(), slaves: Vec::new() });

/// The one instance that all others are like.
fn superblock() -> &'static Arc<Superblock> {
    static DEVPTS: spin::Once<Arc<Superblock>> = spin::Once::new();
    DEVPTS.call_once(|| Superblock::new(FsType::Devpts))
}

/// The root's inode of a further instance.
pub fn root_inode() -> Arc<Inode> {
    Inode::new(superblock(), Kind::Directory, Attributes { links: 2, ..Attributes::new(0o755) })
}

/// Shows in a new root what there is.
pub fn populate(root: &Arc<Dentry>) {
    let multiplexer = Inode::new(superblock(), Kind::Character(MULTIPLEXER), Attributes::new(0));
    root.insert(Dentry::new(root, b"ptmx", multiplexer));
    let mut shown = SHOWN.lock();
    for (index, inode) in &shown.slaves {
        root.insert(Dentry::new(root, name(*index).as_bytes(), inode.clone()));
    }
    shown.roots.retain(|root| root.strong_count() > 0);
    shown.roots.push(Arc::downgrade(root));
}

fn name(index: u32) -> alloc::string::String {
    format!("{index}")
}

/// Shows a new slave.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn enter(index: u32, owner: (u32, u32)) -> Result<(), Errno> {
    let number = DeviceNumber::new(pty::MAJOR, index);
    let inode = Inode::new(superblock(), Kind::Character(number), Attributes::new(0o600).owned_by(owner));
    let _change = tree::CHANGE.lock();
    let mut shown = SHOWN.lock();
    shown.slaves.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    shown.slaves.push((index, inode.clone()));
    for root in shown.roots.iter().filter_map(Weak::upgrade) {
        root.insert(Dentry::new(&root, name(index).as_bytes(), inode.clone()));
    }
    Ok(())
}

/// Shows it no more.
pub(super) fn remove(index: u32) {
    let _change = tree::CHANGE.lock();
    let mut shown = SHOWN.lock();
    shown.slaves.retain(|(shown, _)| *shown != index);
    for root in shown.roots.iter().filter_map(Weak::upgrade) {
        if let Some(gone) = root.remove(name(index).as_bytes()) {
            gone.set_removed();
        }
    }
}

/// The name of a slave in the first instance that there is.
pub(super) fn find(index: u32) -> Option<Arc<Dentry>> {
    let root = SHOWN.lock().roots.iter().find_map(Weak::upgrade)?;
    root.lookup(name(index).as_bytes()).ok()
}
