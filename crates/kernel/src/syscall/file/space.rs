//! Length and storage: `truncate`, `fallocate`, `fsync`.

use foldspace::addr::PAGE_SIZE;
use linux_raw_sys::general as raw;

use super::{Base, content_file, path};
use crate::errno::Errno;
use crate::fs::Inode;
use crate::fs::inode::Kind;
use crate::fs::mount;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::fs::regular::End;
use crate::mm::uaccess;
use crate::process::{Task, limits};
use crate::syscall::SysResult;

fn set_len(inode: &Inode, len: u64) -> SysResult {
    let Some(regular) = inode.regular() else {
        return Err(if inode.is_directory() { Errno::EISDIR } else { Errno::EINVAL });
    };
    if len > regular.object().len() {
        limits::check_file_size(len)?;
    }
    regular.set_len(len)?;
    inode.touch_modified();
    Ok(0)
}

/// truncate(2)
pub fn truncate(task: &Task, path_address: u64, len: i64) -> SysResult {
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    mount::check_writable(&dentry)?;
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

/// fallocate(2): space, holes, and zeros. Errors in Linux's order (`vfs_fallocate` of `fs/open.c`, then `shmem_fallocate`).
pub fn fallocate(task: &Task, fd: i32, mode: u32, offset: i64, len: i64) -> SysResult {
    const KEEP_SIZE: u32 = raw::FALLOC_FL_KEEP_SIZE;
    const PUNCH: u32 = raw::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    const ZEROES: u32 = raw::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;
    let file = content_file(task, fd)?;
    if offset < 0 || len <= 0 {
        return Err(Errno::EINVAL);
    }
    if !file.writable() {
        // Modes that no file system knows come first.
        return Err(if is_known_mode(mode) { Errno::EBADF } else { Errno::EOPNOTSUPP });
    }
    if !is_known_mode(mode) {
        return Err(Errno::EOPNOTSUPP);
    }
    let inode = file.inode();
    let regular = match &inode.kind {
        Kind::Regular(regular) => regular,
        Kind::Fifo(_) => return Err(Errno::ESPIPE),
        _ if inode.is_directory() => return Err(Errno::EISDIR),
        _ => return Err(Errno::ENODEV),
    };
    let end = offset.checked_add(len).ok_or(Errno::EFBIG)? as u64;
    let offset = offset as u64;
    if regular.object().is_secret() {
        return Err(Errno::EOPNOTSUPP);
    }
    if mode & KEEP_SIZE == 0 && end > regular.object().len() {
        limits::check_file_size(end)?;
    }
    match mode {
        PUNCH => regular.punch_hole(offset, end)?,
        0 | KEEP_SIZE => regular.allocate(offset, end, if mode == 0 { End::Moves } else { End::Stays })?,
        // Files in memory do not offer it on Linux; other files, which those here stand for too, do.
        _ if mode | KEEP_SIZE == ZEROES && !inode.is_memfd() => {
            regular.allocate(offset, end, if mode & KEEP_SIZE == 0 { End::Moves } else { End::Stays })?;
            regular.zero(offset, end)?;
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    inode.touch_modified();
    Ok(0)
}

/// Whether some file system knows such a mode (`vfs_fallocate`).
fn is_known_mode(mode: u32) -> bool {
    const KEEP_SIZE: u32 = raw::FALLOC_FL_KEEP_SIZE;
    let keeps_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 | raw::FALLOC_FL_UNSHARE_RANGE | raw::FALLOC_FL_ZERO_RANGE => true,
        raw::FALLOC_FL_PUNCH_HOLE => keeps_size,
        raw::FALLOC_FL_COLLAPSE_RANGE | raw::FALLOC_FL_INSERT_RANGE | raw::FALLOC_FL_WRITE_ZEROES => !keeps_size,
        _ => false,
    }
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

/// cachestat(2): how many pages of a range are in memory. Files in memory are never written back, so none is dirty to Linux, and none was evicted.
pub fn cachestat(task: &Task, fd: i32, range: u64, to: u64, flags: u32) -> SysResult {
    let file = content_file(task, fd)?;
    let [offset, len]: [u64; 2] = uaccess::read(range)?;
    let credentials = task.credentials();
    let owner = file.inode().attributes.lock().uid;
    let may = file.writable()
        || credentials.is_privileged()
        || credentials.fsuid == owner
        || permission::check(file.inode(), Wanted::WRITE).is_ok();
    if !may {
        return Err(Errno::EPERM);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let first = offset / PAGE_SIZE;
    let end = match len {
        0 => u64::MAX,
        _ => (offset.wrapping_add(len).wrapping_sub(1) / PAGE_SIZE).saturating_add(1),
    };
    let resident = file.inode().regular().map_or(0, |regular| regular.object().resident_in(first..end));
    uaccess::write(to, &[resident, 0, 0, 0, 0])?;
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
        Kind::Regular(ref regular) if regular.object().is_secret() => Err(Errno::EINVAL),
        Kind::Regular(_) | Kind::Directory => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// syncfs(2)
pub fn syncfs(task: &Task, fd: i32) -> SysResult {
    content_file(task, fd)?;
    Ok(0)
}
