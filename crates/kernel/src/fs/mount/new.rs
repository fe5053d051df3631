//! File systems to be mounted, by their names: their roots, with what is in them from the start.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use spin::Once;

use crate::arch::{self, PerCpu};
use crate::errno::Errno;
use crate::fs::dentry::{Dentry, Place};
use crate::fs::device::DEVICES;
use crate::fs::inode::{Attributes, Inode, Kind};
use crate::fs::procfs;
use crate::fs::regular::Regular;
use crate::fs::superblock::{FsType, Superblock};
use crate::fs::tree;
use crate::fs::tty::devpts;
use crate::process::pid_namespace::PidNamespace;
use crate::sched;

/// The file systems that can be mounted. None needs a device.
pub const KNOWN: &[&str] = &["sysfs", "tmpfs", "proc", "devtmpfs", "devpts", "ramfs"];

/// A directory of a new file system that is nobody's entry: its own `.`, and its own `..`.
pub(super) fn directory(superblock: &Arc<Superblock>, permissions: u32) -> Arc<Inode> {
    Inode::new(superblock, Kind::Directory, Attributes { links: 2, ..Attributes::new(permissions) })
}

/// The root of a new file system of that kind, one of [`KNOWN`], at `place`.
pub(super) fn root(kind: &str, place: Place) -> Result<Arc<Dentry>, Errno> {
    let inode = match kind {
        "proc" => {
            let namespace = sched::try_with_current(|task| task.process.pid_namespace.clone());
            procfs::root_inode(&namespace.unwrap_or_else(|| PidNamespace::first().clone()))
        }
        "sysfs" => directory(&Superblock::new(FsType::Sysfs), 0o555),
        "devpts" => devpts::root_inode(),
        "devtmpfs" => directory(&Superblock::new(FsType::Tmpfs), 0o755),
        _ => directory(&Superblock::new(FsType::Tmpfs), 0o1777),
    };
    let root = Dentry::at(place, inode);
    match kind {
        "devtmpfs" => populate_devices(&root)?,
        "devpts" => devpts::populate(&root),
        "sysfs" => populate_system(&root)?,
        _ => {}
    }
    Ok(root)
}

fn populate_devices(root: &Arc<Dentry>) -> Result<(), Errno> {
    let superblock = &root.inode.superblock;
    for &(name, permissions, number) in DEVICES {
        tree::create(root, name.as_bytes(), || {
            Ok(Inode::new(superblock, Kind::Character(number), Attributes::new(permissions)))
        })?;
    }
    // Where the pseudo-terminals are mounted.
    tree::create(root, b"pts", || {
        Ok(Inode::new(superblock, Kind::Directory, Attributes { links: 1, ..Attributes::new(0o755) }))
    })?;
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
