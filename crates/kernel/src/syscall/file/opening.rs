//! `open` and its kin.

use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Base, descriptor_limit, owner, path};
use crate::errno::Errno;
use crate::fs::device;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::Kind;
use crate::fs::inode::mode::PERMISSIONS;
use crate::fs::open::{self, NewFile};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// open(2)
pub fn open(task: &Task, path: u64, flags: u32, mode: u32) -> SysResult {
    openat(task, raw::AT_FDCWD, path, flags, mode)
}

/// creat(2)
pub fn creat(task: &Task, path: u64, mode: u32) -> SysResult {
    openat(task, raw::AT_FDCWD, path, raw::O_CREAT | raw::O_WRONLY | raw::O_TRUNC, mode)
}

/// openat(2)
pub fn openat(task: &Task, dirfd: i32, path_address: u64, flags: u32, mode: u32) -> SysResult {
    let path = path(path_address)?;
    open_path(task, dirfd, path, flags, mode & PERMISSIONS)
}

fn open_path(task: &Task, dirfd: i32, path: Vec<u8>, bits: u32, permissions: u32) -> SysResult {
    // As on every 64-bit Linux (`force_o_largefile`).
    let mut flags = OpenFlags::from_user(bits) | OpenFlags::LARGE_FILE;
    if flags.contains(OpenFlags::PATH) {
        flags &= OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NO_FOLLOW | OpenFlags::CLOSE_ON_EXEC;
    }
    if flags.contains(OpenFlags::CREATE | OpenFlags::DIRECTORY) && !flags.contains(OpenFlags::TEMPORARY) {
        return Err(Errno::EINVAL);
    }
    let base = Base::at(task, dirfd);
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let start = base.start(&path)?;
    let new = NewFile { permissions, owner: owner(task) };
    let file = open::open(&base.context, &start, &path, flags, new)?;
    if let Kind::Character(_) = file.inode().kind
        && !flags.intersects(OpenFlags::NO_CTTY | OpenFlags::PATH)
    {
        device::opened(task, &file);
    }
    let at_exec = AtExec::from_flag(bits, raw::O_CLOEXEC);
    let limit = descriptor_limit(task);
    let fd = task.files.lock().insert_from(0, limit, file, at_exec)?;
    Ok(fd as usize)
}

/// `struct open_how`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

const _: () = assert!(size_of::<OpenHow>() == size_of::<raw::open_how>());

/// openat2(2), without restrictions on the lookup.
pub fn openat2(task: &Task, dirfd: i32, path_address: u64, how: u64, size: usize) -> SysResult {
    if size < size_of::<OpenHow>() {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let value: OpenHow = uaccess::read(how)?;
    for offset in size_of::<OpenHow>()..size {
        if uaccess::read::<u8>(how.checked_add(offset as u64).ok_or(Errno::EFAULT)?)? != 0 {
            return Err(Errno::E2BIG);
        }
    }
    let flags = u32::try_from(value.flags).map_err(|_| Errno::EINVAL)?;
    let known = OpenFlags::all().bits() | raw::O_DSYNC | raw::O_ACCMODE;
    let creates = flags & (raw::O_CREAT | raw::__O_TMPFILE) != 0;
    if flags & !known != 0 || value.mode & !u64::from(PERMISSIONS) != 0 || (value.mode != 0 && !creates) {
        return Err(Errno::EINVAL);
    }
    // What open ignores is refused here (`build_open_flags` of Linux's `fs/open.c`).
    let beside_path = raw::O_PATH | raw::O_DIRECTORY | raw::O_NOFOLLOW | raw::O_CLOEXEC;
    let nameless = flags & raw::__O_TMPFILE != 0;
    if flags & raw::O_PATH != 0 && flags & !beside_path != 0 || nameless && flags & raw::O_CREAT != 0 {
        return Err(Errno::EINVAL);
    }
    if value.resolve != 0 {
        // Of the restrictions none is enforced: saying so is better than ignoring them.
        return Err(Errno::EINVAL);
    }
    open_path(task, dirfd, path(path_address)?, flags, value.mode as u32)
}
