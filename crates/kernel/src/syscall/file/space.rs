//! Length and storage: `truncate`, `fallocate`, `fsync`.

use linux_raw_sys::general as raw;

use super::{Base, content_file, path};
use crate::errno::Errno;
use crate::fs::Inode;
use crate::fs::inode::Kind;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::process::Task;
use crate::syscall::SysResult;

fn set_len(inode: &Inode, len: u64) -> SysResult {
    let Some(regular) = inode.regular() else {
        return Err(if inode.is_directory() { Errno::EISDIR } else { Errno::EINVAL });
    };
    regular.set_len(len)?;
    inode.touch_modified();
    Ok(0)
}

/// truncate(2)
pub fn truncate(task: &Task, path_address: u64, len: i64) -> SysResult {
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    let may_write = dentry.inode.regular().map_or(Ok(()), |_| permission::check(&dentry.inode, Wanted::WRITE));
    may_write?;
    let _writing = dentry.inode.begin_writing()?;
    set_len(&dentry.inode, len)
}

/// ftruncate(2)
pub fn ftruncate(task: &Task, fd: i32, len: i64) -> SysResult {
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let file = content_file(task, fd)?;
    if !file.writable() || file.inode().regular().is_none() {
        return Err(Errno::EINVAL);
    }
    set_len(file.inode(), len)
}

/// fallocate(2). Pages are given when they are first written: what is promised here is the length, and zeros.
pub fn fallocate(task: &Task, fd: i32, mode: u32, offset: i64, len: i64) -> SysResult {
    let file = content_file(task, fd)?;
    if offset < 0 || len <= 0 {
        return Err(Errno::EINVAL);
    }
    const KEEP_SIZE: u32 = raw::FALLOC_FL_KEEP_SIZE;
    const PUNCH: u32 = raw::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    let zeroes = match mode & !KEEP_SIZE {
        0 => false,
        _ if mode == PUNCH => true,
        raw::FALLOC_FL_ZERO_RANGE => true,
        raw::FALLOC_FL_PUNCH_HOLE => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    let regular = match &file.inode().kind {
        Kind::Regular(regular) => regular,
        Kind::Fifo(_) => return Err(Errno::ESPIPE),
        _ => return Err(Errno::ENODEV),
    };
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)? as u64;
    if mode & KEEP_SIZE == 0 && end > regular.object().len() {
        regular.set_len(end)?;
    }
    if zeroes {
        regular.zero(offset as u64, end)?;
    }
    file.inode().touch_modified();
    Ok(0)
}

/// posix_fadvise(2): all is in memory already.
pub fn fadvise(task: &Task, fd: i32, len: i64, advice: u32) -> SysResult {
    let file = content_file(task, fd)?;
    if matches!(file.inode().kind, Kind::Fifo(_)) {
        return Err(Errno::ESPIPE);
    }
    if len < 0 || advice > raw::POSIX_FADV_NOREUSE {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// readahead(2): all is in memory already.
pub fn readahead(task: &Task, fd: i32) -> SysResult {
    let file = content_file(task, fd)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    if file.inode().regular().is_none() {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

/// fsync(2): memory is as durable as it gets. `EINVAL` for what has no storage.
pub fn fsync(task: &Task, fd: i32) -> SysResult {
    let file = content_file(task, fd)?;
    match file.inode().kind {
        Kind::Regular(_) | Kind::Directory => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// syncfs(2)
pub fn syncfs(task: &Task, fd: i32) -> SysResult {
    content_file(task, fd)?;
    Ok(0)
}
