//! What is known about files: `stat`, `statx`, `statfs`.

use linux_raw_sys::general as raw;
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::{Base, check_flags, file, last_link, path};
use crate::errno::Errno;
use crate::fs::Dentry;
use crate::fs::inode::{Attributes, DeviceNumber, Inode, Kind, Timestamp};
use crate::fs::path::LastLink;
use crate::fs::superblock::FsType;
use crate::mm::{self, uaccess};
use crate::process::Task;
use crate::sched;
use crate::syscall::SysResult;

/// What there is to know about a file.
struct Facts {
    attributes: Attributes,
    device: DeviceNumber,
    special: DeviceNumber,
    number: u64,
    mode: u32,
    size: u64,
    blocks: u64,
}

/// Best size of a transfer, bytes.
const BLOCK_SIZE: u32 = 4096;

impl Facts {
    fn of(dentry: &Dentry) -> Facts {
        let inode: &Inode = &dentry.inode;
        let attributes = *inode.attributes.lock();
        let (size, blocks) = match &inode.kind {
            Kind::Regular(regular) => (regular.object().len(), regular.blocks()),
            // As tmpfs counts: 20 bytes an entry, `.` and `..` among them.
            Kind::Directory => (20 * (2 + dentry.child_count() as u64), 0),
            Kind::Symlink(target) => (target.len() as u64, 0),
            Kind::Proc(node) => (node.size(), 0),
            _ => (0, 0),
        };
        Facts {
            attributes,
            device: inode.superblock.device,
            special: inode.device(),
            number: inode.number,
            mode: inode.type_bits() | attributes.permissions,
            size,
            blocks,
        }
    }
}

/// `struct stat`.
#[derive(IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct Stat {
    dev: u64,
    ino: u64,
    nlink: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    pad: u32,
    rdev: u64,
    size: i64,
    blksize: i64,
    blocks: i64,
    times: [[i64; 2]; 3],
    unused: [i64; 3],
}

const _: () = assert!(size_of::<Stat>() == size_of::<raw::stat>());

fn pair(time: Timestamp) -> [i64; 2] {
    [time.seconds, i64::from(time.nanoseconds)]
}

/// Owner and group as the caller is shown them.
fn shown_owner(attributes: &Attributes) -> (u32, u32) {
    sched::with_current(|task| task.shown_owner((attributes.uid, attributes.gid)))
}

fn put_stat(dentry: &Dentry, address: u64) -> SysResult {
    let facts = Facts::of(dentry);
    let shown = shown_owner(&facts.attributes);
    let stat = Stat {
        dev: facts.device.encode(),
        ino: facts.number,
        nlink: u64::from(facts.attributes.links),
        mode: facts.mode,
        uid: shown.0,
        gid: shown.1,
        pad: 0,
        rdev: facts.special.encode(),
        size: facts.size as i64,
        blksize: i64::from(BLOCK_SIZE),
        blocks: facts.blocks as i64,
        times: [pair(facts.attributes.accessed), pair(facts.attributes.modified), pair(facts.attributes.changed)],
        unused: [0; 3],
    };
    uaccess::write(address, &stat)?;
    Ok(0)
}

/// stat(2)
pub fn stat(task: &Task, path_address: u64, address: u64) -> SysResult {
    put_stat(&*Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?, address)
}

/// lstat(2)
pub fn lstat(task: &Task, path_address: u64, address: u64) -> SysResult {
    put_stat(&*Base::current(task).resolve(&path(path_address)?, LastLink::Keep)?, address)
}

/// fstat(2)
pub fn fstat(task: &Task, fd: i32, address: u64) -> SysResult {
    put_stat(&file(task, fd)?.dentry, address)
}

/// newfstatat(2)
pub fn newfstatat(task: &Task, dirfd: i32, path_address: u64, address: u64, flags: u32) -> SysResult {
    check_flags(flags, raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH | raw::AT_NO_AUTOMOUNT)?;
    if flags & raw::AT_EMPTY_PATH != 0 && path_is_empty(path_address)? && dirfd >= 0 {
        return fstat(task, dirfd, address);
    }
    put_stat(&*Base::at(task, dirfd).resolve_with(&path(path_address)?, flags, last_link(flags))?, address)
}

/// Whether a path is "" (or NULL, which Linux takes for that since 6.11).
fn path_is_empty(address: u64) -> Result<bool, Errno> {
    Ok(address == 0 || uaccess::read::<u8>(address)? == 0)
}

/// A time in `struct statx`.
#[derive(IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct StatxTime {
    seconds: i64,
    nanoseconds: u32,
    pad: i32,
}

impl From<Timestamp> for StatxTime {
    fn from(time: Timestamp) -> StatxTime {
        StatxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, pad: 0 }
    }
}

/// `struct statx`.
#[derive(IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct Statx {
    mask: u32,
    blksize: u32,
    attributes: u64,
    nlink: u32,
    uid: u32,
    gid: u32,
    mode: u16,
    pad: u16,
    ino: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    accessed: StatxTime,
    born: StatxTime,
    changed: StatxTime,
    modified: StatxTime,
    rdev: [u32; 2],
    dev: [u32; 2],
    mount: u64,
    spare: [u64; 13],
}

const _: () = assert!(size_of::<Statx>() == size_of::<raw::statx>());

/// statx(2)
pub fn statx(task: &Task, dirfd: i32, path_address: u64, flags: u32, mask: u32, address: u64) -> SysResult {
    const KNOWN: u32 = raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH | raw::AT_NO_AUTOMOUNT | raw::AT_STATX_SYNC_TYPE;
    check_flags(flags, KNOWN)?;
    let both = raw::AT_STATX_SYNC_TYPE;
    if mask & raw::STATX__RESERVED != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let empty = flags & raw::AT_EMPTY_PATH != 0 && path_is_empty(path_address)?;
    let path = if empty { alloc::vec::Vec::new() } else { path(path_address)? };
    let dentry = Base::at(task, dirfd).resolve_with(&path, flags, last_link(flags))?;
    let facts = Facts::of(&dentry);
    let mut value = Statx::new_zeroed();
    value.mask = raw::STATX_BASIC_STATS;
    value.blksize = BLOCK_SIZE;
    value.nlink = facts.attributes.links;
    (value.uid, value.gid) = shown_owner(&facts.attributes);
    value.mode = facts.mode as u16;
    value.ino = facts.number;
    value.size = facts.size;
    value.blocks = facts.blocks;
    value.accessed = facts.attributes.accessed.into();
    value.changed = facts.attributes.changed.into();
    value.modified = facts.attributes.modified.into();
    value.rdev = [facts.special.major, facts.special.minor];
    value.dev = [facts.device.major, facts.device.minor];
    uaccess::write(address, &value)?;
    Ok(0)
}

/// `struct statfs`.
#[derive(IntoBytes, Immutable, FromZeros)]
#[repr(C)]
struct Statfs {
    kind: i64,
    block_size: i64,
    blocks: u64,
    free: u64,
    available: u64,
    files: u64,
    free_files: u64,
    id: [i32; 2],
    name_len: i64,
    fragment_size: i64,
    flags: i64,
    spare: [i64; 4],
}

const _: () = assert!(size_of::<Statfs>() == size_of::<raw::statfs>());

/// `ST_VALID | ST_RELATIME` of `include/linux/statfs.h`.
const MOUNT_FLAGS: i64 = 0x20 | 0x1000;

fn put_statfs(inode: &Inode, address: u64) -> SysResult {
    let kind = inode.superblock.kind;
    let mut value = Statfs::new_zeroed();
    value.kind = i64::from(kind.magic());
    value.block_size = i64::from(BLOCK_SIZE);
    value.fragment_size = i64::from(BLOCK_SIZE);
    value.name_len = 255;
    value.flags = MOUNT_FLAGS;
    if kind == FsType::Tmpfs {
        let stats = mm::memory().stats();
        // As tmpfs does by default: half of the memory.
        value.blocks = stats.total / 2;
        value.free = stats.free.min(value.blocks);
        value.available = value.free;
        value.files = inode.superblock.inode_limit();
        value.free_files = value.files.saturating_sub(inode.superblock.inodes());
    }
    value.id = [inode.superblock.device.encode() as i32, 0];
    uaccess::write(address, &value)?;
    Ok(0)
}

/// statfs(2)
pub fn statfs(task: &Task, path_address: u64, address: u64) -> SysResult {
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    put_statfs(&dentry.inode, address)
}

/// fstatfs(2)
pub fn fstatfs(task: &Task, fd: i32, address: u64) -> SysResult {
    put_statfs(file(task, fd)?.inode(), address)
}
