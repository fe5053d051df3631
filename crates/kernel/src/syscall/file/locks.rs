//! Advisory locks: `flock`, and the record locks of `fcntl`.

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::content_file;
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::lock::{LockKind, OnConflict, Owner, RangeLock};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// flock(2)
pub fn flock(task: &Task, fd: i32, operation: u32) -> SysResult {
    let file = content_file(task, fd)?;
    let owner = Owner::Description(&raw const *file as usize);
    let kind = match operation & !raw::LOCK_NB {
        raw::LOCK_SH => LockKind::Shared,
        raw::LOCK_EX => LockKind::Exclusive,
        raw::LOCK_UN => {
            file.inode().locks.release(owner);
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    let on_conflict = if operation & raw::LOCK_NB != 0 { OnConflict::Fail } else { OnConflict::Wait };
    let lock = RangeLock { owner, kind, start: 0, end: u64::MAX, pid: task.tgid };
    file.inode().locks.acquire(lock, on_conflict)?;
    Ok(0)
}

/// `struct flock`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordLock {
    kind: i16,
    whence: i16,
    pad: u32,
    start: i64,
    len: i64,
    pid: i32,
    pad_end: u32,
}

const _: () = assert!(size_of::<RecordLock>() == size_of::<raw::flock>());

/// The bytes that a lock is about, `start..end`.
fn range(file: &File, lock: &RecordLock) -> Result<(u64, u64), Errno> {
    let base = match lock.whence as u32 {
        raw::SEEK_SET => 0,
        raw::SEEK_CUR => *file.position.lock() as i64,
        raw::SEEK_END => file.inode().regular().map_or(0, |regular| regular.object().len() as i64),
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(lock.start).ok_or(Errno::EOVERFLOW)?;
    let (start, end) = match lock.len {
        0 => (start, None),
        len if len > 0 => (start, Some(start.checked_add(len).ok_or(Errno::EOVERFLOW)?)),
        // A negative length is about the bytes before.
        len => (start.checked_add(len).ok_or(Errno::EINVAL)?, Some(start)),
    };
    let start = u64::try_from(start).map_err(|_| Errno::EINVAL)?;
    Ok((start, end.map_or(u64::MAX, |end| end as u64)))
}

/// `F_GETLK`, `F_SETLK` and `F_SETLKW`.
pub fn record_lock(task: &Task, file: &File, command: u32, address: u64) -> SysResult {
    let mut request: RecordLock = uaccess::read(address)?;
    let (start, end) = range(file, &request)?;
    let owner = task.files.lock().lock_owner();
    let kind = match request.kind as u32 {
        raw::F_RDLCK => LockKind::Shared,
        raw::F_WRLCK => LockKind::Exclusive,
        raw::F_UNLCK if command != raw::F_GETLK => {
            file.inode().locks.release_range(owner, start, end);
            return Ok(0);
        }
        _ => return Err(Errno::EINVAL),
    };
    let wanted = RangeLock { owner, kind, start, end, pid: task.tgid };
    if command == raw::F_GETLK {
        match file.inode().locks.conflict(&wanted) {
            None => request.kind = raw::F_UNLCK as i16,
            Some(held) => {
                request.kind = if held.kind == LockKind::Shared { raw::F_RDLCK as i16 } else { raw::F_WRLCK as i16 };
                request.whence = raw::SEEK_SET as i16;
                request.start = held.start as i64;
                request.len = if held.end == u64::MAX { 0 } else { (held.end - held.start) as i64 };
                request.pid = task.number_of(held.pid) as i32;
            }
        }
        uaccess::write(address, &request)?;
        return Ok(0);
    }
    let permitted = match kind {
        LockKind::Shared => file.readable(),
        LockKind::Exclusive => file.writable(),
    };
    if !permitted {
        return Err(Errno::EBADF);
    }
    let on_conflict = if command == raw::F_SETLKW { OnConflict::Wait } else { OnConflict::Fail };
    file.inode().locks.acquire(wanted, on_conflict)?;
    Ok(0)
}
