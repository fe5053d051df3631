//! Descriptors: `close`, `dup`, `fcntl`.

use linux_raw_sys::general as raw;

use super::{descriptor_limit, file, locks};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::Kind;
use crate::fs::{seal, secret};
use crate::process::Task;
use crate::syscall::SysResult;

/// close(2)
pub fn close(task: &Task, fd: i32) -> SysResult {
    let (file, owner) = {
        let mut files = task.files.lock();
        (files.remove(fd)?, files.lock_owner_if_any())
    };
    if let Some(owner) = owner {
        // Closing any descriptor of a file gives up the process's record locks on it (fcntl_locking(2)).
        file.inode().locks.release(owner);
    }
    drop(file);
    Ok(0)
}

/// The caller gets a table of its own first (`linux/close_range.h`).
const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
/// Nothing is closed but at exec.
const CLOSE_RANGE_CLOEXEC: u32 = 1 << 2;

/// close_range(2)
pub fn close_range(task: &Task, first: u32, last: u32, flags: u32) -> SysResult {
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        task.files.unshare();
    }
    let within = |fd: &i32| (first..=last).contains(&(*fd as u32));
    let numbers: alloc::vec::Vec<i32> = task.files.lock().numbers().filter(within).collect();
    for fd in numbers {
        if flags & CLOSE_RANGE_CLOEXEC != 0 {
            // Another thread may have closed it meanwhile: nothing is left to be done then.
            let _ = task.files.lock().set_at_exec(fd, AtExec::Close);
        } else {
            let _ = close(task, fd);
        }
    }
    Ok(0)
}

/// dup(2)
pub fn dup(task: &Task, fd: i32) -> SysResult {
    duplicate_from(task, fd, 0, AtExec::Keep)
}

fn duplicate_from(task: &Task, fd: i32, from: usize, at_exec: AtExec) -> SysResult {
    let limit = descriptor_limit(task);
    let mut files = task.files.lock();
    let file = files.get(fd)?;
    Ok(files.insert_from(from, limit, file, at_exec)? as usize)
}

/// dup2(2)
pub fn dup2(task: &Task, old: i32, new: i32) -> SysResult {
    if old == new {
        file(task, old)?;
        return Ok(new as usize);
    }
    replace(task, old, new, AtExec::Keep)
}

/// dup3(2)
pub fn dup3(task: &Task, old: i32, new: i32, flags: u32) -> SysResult {
    if flags & !raw::O_CLOEXEC != 0 || old == new {
        return Err(Errno::EINVAL);
    }
    replace(task, old, new, AtExec::from_flag(flags, raw::O_CLOEXEC))
}

fn replace(task: &Task, old: i32, new: i32, at_exec: AtExec) -> SysResult {
    if usize::try_from(new).map_or(true, |new| new >= descriptor_limit(task)) {
        return Err(Errno::EBADF);
    }
    let (replaced, owner) = {
        let mut files = task.files.lock();
        let file = files.get(old)?;
        (files.replace(new, file, at_exec)?, files.lock_owner_if_any())
    };
    if let (Some(replaced), Some(owner)) = (&replaced, owner) {
        replaced.inode().locks.release(owner);
    }
    drop(replaced);
    Ok(new as usize)
}

/// fcntl(2)
pub fn fcntl(task: &Task, fd: i32, command: u32, argument: u64) -> SysResult {
    let file = file(task, fd)?;
    let is_name = file.flags().contains(OpenFlags::PATH);
    let allowed_on_name =
        matches!(command, raw::F_DUPFD | raw::F_DUPFD_CLOEXEC | raw::F_GETFD | raw::F_SETFD | raw::F_GETFL);
    if is_name && !allowed_on_name {
        return Err(Errno::EBADF);
    }
    match command {
        raw::F_DUPFD | raw::F_DUPFD_CLOEXEC => {
            let from = argument as usize;
            if from >= descriptor_limit(task) {
                return Err(Errno::EINVAL);
            }
            let at_exec = if command == raw::F_DUPFD { AtExec::Keep } else { AtExec::Close };
            duplicate_from(task, fd, from, at_exec)
        }
        raw::F_GETFD => Ok(match task.files.lock().at_exec(fd)? {
            AtExec::Keep => 0,
            AtExec::Close => raw::FD_CLOEXEC as usize,
        }),
        raw::F_SETFD => {
            let at_exec = AtExec::from_flag(argument as u32, raw::FD_CLOEXEC);
            task.files.lock().set_at_exec(fd, at_exec)?;
            Ok(0)
        }
        raw::F_GETFL => Ok(file.flags().bits() as usize),
        raw::F_SETFL => {
            file.set_flags(OpenFlags::from_user(argument as u32));
            Ok(0)
        }
        raw::F_GETLK | raw::F_SETLK | raw::F_SETLKW => locks::record_lock(task, &file, command, argument),
        raw::F_GETPIPE_SZ | raw::F_SETPIPE_SZ => {
            let Kind::Fifo(pipe) = &file.inode().kind else { return Err(Errno::EBADF) };
            if command == raw::F_GETPIPE_SZ { Ok(pipe.capacity()) } else { pipe.set_capacity(argument as usize) }
        }
        // Signals on input are not sent; the receiver is nobody.
        raw::F_GETOWN => Ok(0),
        raw::F_SETOWN => Ok(0),
        raw::F_GET_SEALS | raw::F_ADD_SEALS if secret::is(&file) => Err(Errno::EINVAL),
        raw::F_GET_SEALS => match file.inode().regular() {
            Some(regular) => Ok(regular.seals().bits() as usize),
            None => Err(Errno::EINVAL),
        },
        raw::F_ADD_SEALS if !file.writable() => Err(Errno::EPERM),
        raw::F_ADD_SEALS => {
            seal::add(file.inode(), argument as u32)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
