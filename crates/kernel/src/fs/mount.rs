//! What is mounted where.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::sync::Mutex;
use spin::Once;

use super::dentry::{Dentry, Place};
use super::device::DEVICES;
use super::inode::{Attributes, Inode, Kind};
use super::procfs;
use super::regular::Regular;
use super::superblock::{FsType, Superblock};
use super::tree;
use crate::arch::{self, PerCpu};
use crate::errno::Errno;

/// A mounted file system, as `/proc/mounts` lists it.
#[derive(Clone)]
pub struct Mount {
    /// What it was mounted from.
    pub source: Vec<u8>,
    /// Its kind by name.
    pub kind: &'static str,
    /// Its root.
    pub root: Arc<Dentry>,
    /// The directory that it covers; `None` for the first.
    covers: Option<Arc<Dentry>>,
}

static ROOT: Once<Arc<Dentry>> = Once::new();
static MOUNTS: Mutex<Vec<Mount>> = Mutex::new(Vec::new());

/// The root of everything: a file system in memory, made when first asked for.
pub fn root() -> &'static Arc<Dentry> {
    ROOT.call_once(|| {
        let root = Dentry::at(Place::Root, new_directory(&Superblock::new(FsType::Tmpfs), 0o755));
        let mount = Mount { source: b"rootfs".to_vec(), kind: "rootfs", root: root.clone(), covers: None };
        MOUNTS.lock().push(mount);
        root
    })
}

/// All mounts, in the order they were made.
pub fn all() -> Vec<Mount> {
    MOUNTS.lock().clone()
}

fn new_directory(superblock: &Arc<Superblock>, permissions: u32) -> Arc<Inode> {
    // A directory that is nobody's entry has its own `.` and is its own `..`.
    Inode::new(superblock, Kind::Directory, Attributes { links: 2, ..Attributes::new(permissions) })
}

/// The file systems that can be mounted: name, and whether no device is needed (none needs one).
pub const KNOWN: &[&str] = &["sysfs", "tmpfs", "proc", "devtmpfs", "ramfs"];

/// Mounts a new file system on a directory. `ENODEV` for an unknown kind, `EBUSY` if the same is there already.
pub fn mount(source: &[u8], target: &Arc<Dentry>, kind: &[u8]) -> Result<(), Errno> {
    let name = KNOWN.iter().copied().find(|name| name.as_bytes() == kind).ok_or(Errno::ENODEV)?;
    if !target.inode.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let shared = matches!(name, "proc" | "devtmpfs" | "sysfs");
    let already = |mount: &Mount| mount.kind == name && Arc::ptr_eq(&mount.root, target);
    if shared && MOUNTS.lock().iter().any(already) {
        return Err(Errno::EBUSY);
    }
    let inode = match name {
        "proc" => procfs::root_inode(),
        "sysfs" => new_directory(&Superblock::new(FsType::Sysfs), 0o555),
        "devtmpfs" => new_directory(&Superblock::new(FsType::Tmpfs), 0o755),
        _ => new_directory(&Superblock::new(FsType::Tmpfs), 0o1777),
    };
    // The new root stands where the covered directory stands, so `..` and paths need not know of mounts.
    let parent = target.parent();
    let place = if Arc::ptr_eq(&parent, target) {
        Place::Root
    } else {
        Place::In { parent, name: target.name(), removed: false }
    };
    let root = Dentry::at(place, inode);
    match name {
        "devtmpfs" => populate_devices(&root)?,
        "sysfs" => populate_system(&root)?,
        _ => {}
    }
    target.set_mounted(Some(root.clone()));
    MOUNTS.lock().push(Mount { source: source.to_vec(), kind: name, root, covers: Some(target.clone()) });
    Ok(())
}

/// Takes away what is mounted with its root at `target`. `EINVAL` if nothing is, `EBUSY` if something is mounted further down, or it is `/`.
pub fn unmount(target: &Arc<Dentry>) -> Result<(), Errno> {
    let mut mounts = MOUNTS.lock();
    let index = mounts.iter().rposition(|mount| Arc::ptr_eq(&mount.root, target)).ok_or(Errno::EINVAL)?;
    let Some(covered) = mounts[index].covers.clone() else { return Err(Errno::EBUSY) };
    if mounts.iter().any(|mount| mount.covers.as_ref().is_some_and(|covers| covers.is_below(target))) {
        return Err(Errno::EBUSY);
    }
    let gone = mounts.remove(index);
    drop(mounts);
    covered.set_mounted(None);
    gone.root.clear();
    Ok(())
}

fn populate_devices(root: &Arc<Dentry>) -> Result<(), Errno> {
    let superblock = &root.inode.superblock;
    for &(name, permissions, number) in DEVICES {
        tree::create(root, name.as_bytes(), || {
            Ok(Inode::new(superblock, Kind::Character(number), Attributes::new(permissions)))
        })?;
    }
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ];
    for (name, target) in links {
        tree::create(root, name.as_bytes(), || {
            let target = target.as_bytes().into();
            Ok(Inode::new(superblock, Kind::Symlink(target), Attributes::new(0o777)))
        })?;
    }
    Ok(())
}

/// What programs look for in `/sys`: which processors there are.
fn populate_system(root: &Arc<Dentry>) -> Result<(), Errno> {
    let superblock = &root.inode.superblock;
    let directory = |parent: &Arc<Dentry>, name: &str| {
        tree::create(parent, name.as_bytes(), || {
            Ok(Inode::new(superblock, Kind::Directory, Attributes { links: 1, ..Attributes::new(0o755) }))
        })
    };
    let mut cpu = root.clone();
    for name in ["devices", "system", "cpu"] {
        cpu = directory(&cpu, name)?;
    }
    static TEXTS: Once<(String, String)> = Once::new();
    let (list, last): &'static (String, String) = TEXTS.call_once(|| {
        let list = procfs::ProcessorList(arch::existing());
        (format!("{list}\n"), format!("{}\n", arch::MAX_PROCESSORS - 1))
    });
    let files: [(&str, &'static str); 5] =
        [("online", list), ("possible", list), ("present", list), ("offline", "\n"), ("kernel_max", last)];
    for (name, content) in files {
        tree::create(&cpu, name.as_bytes(), || {
            Regular::create(superblock, Attributes::new(0o444), content.as_bytes())
        })?;
    }
    for processor in PerCpu::all() {
        directory(&cpu, &format!("cpu{}", processor.number))?;
    }
    Ok(())
}

/// Makes `/dev`, `/proc` and `/sys`, as far as the archive did not, and mounts what belongs there.
pub fn mount_standard() -> Result<(), Errno> {
    for (name, kind) in [("dev", "devtmpfs"), ("proc", "proc"), ("sys", "sysfs")] {
        let directory = match root().child(name.as_bytes()) {
            Ok(directory) => directory,
            Err(_) => tree::create(root(), name.as_bytes(), || {
                Ok(Inode::new(&root().inode.superblock, Kind::Directory, Attributes::new(0o755)))
            })?,
        };
        // An archive may hold a link or a file of that name: then there is nowhere to mount.
        if directory.inode.is_directory() {
            mount(kind.as_bytes(), &directory, kind.as_bytes())?;
        }
    }
    Ok(())
}
