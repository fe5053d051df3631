//! File systems: what all inodes of one have in common.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::inode::DeviceNumber;
use crate::errno::Errno;
use crate::mm;
use crate::process::pid_namespace::PidNamespace;

/// A kind of file system, with the facts that `statfs` and `/proc/filesystems` tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsType {
    /// Files in memory: `/`, `/tmp`, `/dev`.
    Tmpfs,
    /// `/proc`.
    Proc,
    /// `/sys`: which processors there are.
    Sysfs,
    /// Pipes without a name.
    Pipefs,
    /// Sockets.
    Sockfs,
    /// Descriptors that are no file: eventfds, pidfds.
    AnonInode,
    /// Namespaces.
    Nsfs,
    /// Files for those who map them alone.
    Secretmem,
    /// `/dev/pts`.
    Devpts,
}

impl FsType {
    /// `f_type` of `statfs` (`include/uapi/linux/magic.h`).
    pub const fn magic(self) -> u32 {
        match self {
            FsType::Tmpfs => 0x0102_1994,
            FsType::Proc => 0x9fa0,
            FsType::Sysfs => 0x6265_6572,
            FsType::Pipefs => 0x5049_5045,
            FsType::Sockfs => 0x534f_434b,
            FsType::AnonInode => 0x0904_1934,
            FsType::Nsfs => 0x6e73_6673,
            FsType::Devpts => 0x1cd1,
            FsType::Secretmem => 0x5345_434d,
        }
    }
}

/// A file system instance.
pub struct Superblock {
    /// Its kind.
    pub kind: FsType,
    /// `st_dev` of its inodes.
    pub device: DeviceNumber,
    /// Of `/proc`: whose processes it shows.
    pub processes: Option<Arc<PidNamespace>>,
    next_inode: AtomicU64,
    inodes: AtomicU64,
}

impl Superblock {
    /// A new instance with a device number of its own (major 0, as Linux gives to file systems without a device).
    pub fn new(kind: FsType) -> Arc<Superblock> {
        Superblock::showing(kind, None)
    }

    /// The same, that shows the processes of a namespace.
    pub fn showing(kind: FsType, processes: Option<Arc<PidNamespace>>) -> Arc<Superblock> {
        static NEXT_MINOR: AtomicU32 = AtomicU32::new(2);
        let minor = NEXT_MINOR.fetch_add(1, Ordering::Relaxed);
        Arc::new(Superblock {
            kind,
            device: DeviceNumber::new(0, minor),
            processes,
            next_inode: AtomicU64::new(1),
            inodes: AtomicU64::new(0),
        })
    }

    /// Most inodes of a file system in memory: as many as half of all frames, Linux's default for tmpfs.
    pub fn inode_limit(&self) -> u64 {
        mm::memory().stats().total / 2
    }

    /// Inodes that exist.
    pub fn inodes(&self) -> u64 {
        self.inodes.load(Ordering::Relaxed)
    }

    /// Whether there may be one more: `ENOSPC`.
    pub fn check_inodes(&self) -> Result<(), Errno> {
        if self.kind == FsType::Tmpfs && self.inodes() >= self.inode_limit() { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Counts an inode that was made.
    pub(super) fn inode_made(&self) {
        self.inodes.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an inode that is gone.
    pub(super) fn inode_gone(&self) {
        self.inodes.fetch_sub(1, Ordering::Relaxed);
    }

    /// A number for a new inode.
    pub fn next_inode(&self) -> u64 {
        self.next_inode.fetch_add(1, Ordering::Relaxed)
    }
}

/// The instance that pipes without a name belong to.
pub fn pipefs() -> &'static Arc<Superblock> {
    static PIPEFS: spin::Once<Arc<Superblock>> = spin::Once::new();
    PIPEFS.call_once(|| Superblock::new(FsType::Pipefs))
}

/// The instance that sockets belong to.
pub fn sockets() -> &'static Arc<Superblock> {
    static SOCKFS: spin::Once<Arc<Superblock>> = spin::Once::new();
    SOCKFS.call_once(|| Superblock::new(FsType::Sockfs))
}

/// The instance that eventfds and pidfds belong to.
pub fn anon_inodes() -> &'static Arc<Superblock> {
    static ANON: spin::Once<Arc<Superblock>> = spin::Once::new();
    ANON.call_once(|| Superblock::new(FsType::AnonInode))
}

/// The instance that namespaces belong to.
pub fn namespaces() -> &'static Arc<Superblock> {
    static NSFS: spin::Once<Arc<Superblock>> = spin::Once::new();
    NSFS.call_once(|| Superblock::new(FsType::Nsfs))
}

/// The instance that memfds belong to.
pub fn shmem() -> &'static Arc<Superblock> {
    static SHMEM: spin::Once<Arc<Superblock>> = spin::Once::new();
    SHMEM.call_once(|| Superblock::new(FsType::Tmpfs))
}

/// The instance that secret memory belongs to.
pub fn secrets() -> &'static Arc<Superblock> {
    static SECRETS: spin::Once<Arc<Superblock>> = spin::Once::new();
    SECRETS.call_once(|| Superblock::new(FsType::Secretmem))
}
