//! Inodes: what names refer to.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};

use crate::sync::Mutex;

use super::lock::LockTable;
use super::pipe::Pipe;
use super::procfs::Node;
use super::regular::Regular;
use super::superblock::{self, Superblock};
use crate::errno::Errno;
use crate::process::namespaces::Namespace;
use crate::time::{NANOS_PER_SECOND, realtime_ns};

/// Type bits of `st_mode` (`include/uapi/linux/stat.h`).
pub mod mode {
    /// Mask of the type bits.
    pub const S_IFMT: u32 = 0o170000;
    /// Socket.
    pub const S_IFSOCK: u32 = 0o140000;
    /// Symbolic link.
    pub const S_IFLNK: u32 = 0o120000;
    /// Regular file.
    pub const S_IFREG: u32 = 0o100000;
    /// Block device.
    pub const S_IFBLK: u32 = 0o060000;
    /// Directory.
    pub const S_IFDIR: u32 = 0o040000;
    /// Character device.
    pub const S_IFCHR: u32 = 0o020000;
    /// Fifo.
    pub const S_IFIFO: u32 = 0o010000;
    /// Permission bits, set-id and sticky bits included.
    pub const PERMISSIONS: u32 = 0o7777;
}

/// Major and minor number of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// From its two parts.
    pub const fn new(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    /// The kind of device.
    pub const fn major(self) -> u32 {
        self.major
    }

    /// Which one of its kind.
    pub const fn minor(self) -> u32 {
        self.minor
    }

    /// As `st_dev` and `st_rdev` show it (`new_encode_dev` of `include/linux/kdev_t.h`).
    pub const fn encode(self) -> u64 {
        ((self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12)) as u64
    }

    /// From what `mknod` gets.
    pub const fn decode(dev: u64) -> DeviceNumber {
        DeviceNumber { major: ((dev >> 8) & 0xfff) as u32, minor: ((dev & 0xff) | ((dev >> 12) & 0xfff00)) as u32 }
    }
}

/// A time since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// What is above them, below 10^9.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The present.
    pub fn now() -> Timestamp {
        let nanos = realtime_ns();
        Timestamp { seconds: (nanos / NANOS_PER_SECOND) as i64, nanoseconds: (nanos % NANOS_PER_SECOND) as u32 }
    }

    /// From whole seconds and nanoseconds below 10^9.
    pub const fn new(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }
}

/// What can be changed about an inode without touching its content.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Permission, set-id and sticky bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that refer to it.
    pub links: u32,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the content or of these attributes.
    pub changed: Timestamp,
}

impl Attributes {
    /// Those of a new inode of the superuser.
    pub fn new(permissions: u32) -> Attributes {
        let now = Timestamp::now();
        Attributes {
            permissions: permissions & mode::PERMISSIONS,
            uid: 0,
            gid: 0,
            links: 1,
            accessed: now,
            modified: now,
            changed: now,
        }
    }

    /// With these owners.
    #[must_use]
    pub fn owned_by(self, (uid, gid): (u32, u32)) -> Attributes {
        Attributes { uid, gid, ..self }
    }
}

/// What an inode is.
pub enum Kind {
    /// Bytes.
    Regular(Regular),
    /// Names; they hang off its (only) dentry.
    Directory,
    /// Another path.
    Symlink(Box<[u8]>),
    /// A pipe.
    Fifo(Arc<Pipe>),
    /// A character device.
    Character(DeviceNumber),
    /// A block device. There is no driver for any.
    Block(DeviceNumber),
    /// A name made by `mknod(S_IFSOCK)`.
    Socket,
    /// Something of `/proc`, made when looked at.
    Proc(Node),
    /// A namespace.
    Namespace(Namespace),
    /// No file at all: an eventfd, a pidfd.
    Anonymous,
}

/// What a name refers to.
pub struct Inode {
    /// Where it lives.
    pub superblock: Arc<Superblock>,
    /// Its number there.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, times.
    pub attributes: Mutex<Attributes>,
    /// Advisory locks on it.
    pub locks: LockTable,
    /// How many have it open for writing, or, below 0, how many execute it: never both (`i_writecount` of Linux).
    writers: AtomicI32,
}

impl Inode {
    /// A new inode with a new number.
    pub fn new(superblock: &Arc<Superblock>, kind: Kind, attributes: Attributes) -> Arc<Inode> {
        Inode::numbered(superblock, superblock.next_inode(), kind, attributes)
    }

    /// An inode whose number is given.
    pub fn numbered(superblock: &Arc<Superblock>, number: u64, kind: Kind, attributes: Attributes) -> Arc<Inode> {
        superblock.inode_made();
        Arc::new(Inode {
            superblock: superblock.clone(),
            number,
            kind,
            attributes: Mutex::new(attributes),
            locks: LockTable::new(),
            writers: AtomicI32::new(0),
        })
    }

    /// Type bits of `st_mode`.
    pub fn type_bits(&self) -> u32 {
        match &self.kind {
            Kind::Regular(_) | Kind::Namespace(_) => mode::S_IFREG,
            Kind::Directory => mode::S_IFDIR,
            Kind::Symlink(_) => mode::S_IFLNK,
            Kind::Fifo(_) => mode::S_IFIFO,
            Kind::Character(_) => mode::S_IFCHR,
            Kind::Block(_) => mode::S_IFBLK,
            Kind::Socket => mode::S_IFSOCK,
            Kind::Proc(node) => node.type_bits(),
            Kind::Anonymous => 0,
        }
    }

    /// Whether it can hold names.
    pub fn is_directory(&self) -> bool {
        self.type_bits() == mode::S_IFDIR
    }

    /// Whether looking it up goes on elsewhere.
    pub fn is_symlink(&self) -> bool {
        self.type_bits() == mode::S_IFLNK
    }

    /// The pipe that it is, if it is one.
    pub fn pipe(&self) -> Option<&Arc<Pipe>> {
        match &self.kind {
            Kind::Fifo(pipe) => Some(pipe),
            _ => None,
        }
    }

    /// The regular file that it is, if it is one.
    pub fn regular(&self) -> Option<&Regular> {
        match &self.kind {
            Kind::Regular(regular) => Some(regular),
            _ => None,
        }
    }

    /// Whether it was made by `memfd_create`.
    pub fn is_memfd(&self) -> bool {
        Arc::ptr_eq(&self.superblock, superblock::shmem())
    }

    /// Which device it stands for, 0:0 for none.
    pub fn device(&self) -> DeviceNumber {
        match self.kind {
            Kind::Character(number) | Kind::Block(number) => number,
            _ => DeviceNumber::default(),
        }
    }

    /// Whether two references are to the same inode.
    pub fn same(&self, other: &Inode) -> bool {
        core::ptr::eq(self, other) || (self.superblock.device == other.superblock.device && self.number == other.number)
    }

    /// Begins writing, until what is returned is dropped. `ETXTBSY` while it is executed.
    pub fn begin_writing(self: &Arc<Inode>) -> Result<Writing, Errno> {
        self.change_writers(|writers| (writers >= 0).then_some(writers + 1))?;
        Ok(Writing(self.clone()))
    }

    /// Begins executing. `ETXTBSY` while it is open for writing.
    pub fn begin_executing(&self) -> Result<(), Errno> {
        self.change_writers(|writers| (writers <= 0).then_some(writers - 1))
    }

    /// Ends what [`Inode::begin_executing`] began.
    pub fn end_executing(&self) {
        self.writers.fetch_add(1, Ordering::AcqRel);
    }

    fn change_writers(&self, change: impl Fn(i32) -> Option<i32>) -> Result<(), Errno> {
        let changed = self.writers.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        changed.map(drop).map_err(|_| Errno::ETXTBSY)
    }

    /// Notes a change of the content.
    pub fn touch_modified(&self) {
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        attributes.modified = now;
        attributes.changed = now;
    }

    /// Notes a change of the attributes.
    pub fn touch_changed(&self) {
        let now = Timestamp::now();
        self.attributes.lock().changed = now;
    }

    /// Adds to, or takes from, the number of names.
    pub fn add_links(&self, change: i32) {
        let now = Timestamp::now();
        let mut attributes = self.attributes.lock();
        attributes.links = attributes.links.saturating_add_signed(change);
        attributes.changed = now;
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.superblock.inode_gone();
    }
}

/// Somebody may write the inode: nobody executes it.
pub struct Writing(Arc<Inode>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::AcqRel);
    }
}
