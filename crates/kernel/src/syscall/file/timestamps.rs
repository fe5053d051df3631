//! Times of files: `utimensat` and its elders.

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::attributes::require_owner;
use super::{Base, check_flags, file, last_link, path};
use crate::errno::Errno;
use crate::fs::Inode;
use crate::fs::inode::Timestamp;
use crate::fs::mount;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// Seconds and a fraction: `struct timespec`, `struct timeval`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Pair {
    seconds: i64,
    fraction: i64,
}

/// What becomes of a time.
#[derive(Clone, Copy)]
enum Change {
    Now,
    Keep,
    To(Timestamp),
}

fn set_times(task: &Task, inode: &Inode, changes: [Change; 2]) -> SysResult {
    // Both to the present: who may write the file may do that too.
    let to_now = matches!(changes, [Change::Now, Change::Now]);
    let may_write = to_now && permission::check(inode, Wanted::WRITE).is_ok();
    if !may_write {
        require_owner(task, inode).map_err(|error| if to_now { Errno::EACCES } else { error })?;
    }
    let now = Timestamp::now();
    let apply = |change, old| match change {
        Change::Now => now,
        Change::Keep => old,
        Change::To(time) => time,
    };
    let mut attributes = inode.attributes.lock();
    attributes.accessed = apply(changes[0], attributes.accessed);
    attributes.modified = apply(changes[1], attributes.modified);
    attributes.changed = now;
    Ok(0)
}

/// utimensat(2)
pub fn utimensat(task: &Task, dirfd: i32, path_address: u64, times: u64, flags: u32) -> SysResult {
    let changes = if times == 0 {
        [Change::Now; 2]
    } else {
        let pairs: [Pair; 2] = uaccess::read(times)?;
        let [accessed, modified] = pairs.map(|pair| match pair.fraction {
            fraction if fraction == i64::from(raw::UTIME_NOW) => Ok(Change::Now),
            fraction if fraction == i64::from(raw::UTIME_OMIT) => Ok(Change::Keep),
            fraction @ 0..1_000_000_000 => Ok(Change::To(Timestamp::new(pair.seconds, fraction as u32))),
            _ => Err(Errno::EINVAL),
        });
        [accessed?, modified?]
    };
    if matches!(changes, [Change::Keep, Change::Keep]) {
        return Ok(0);
    }
    check_flags(flags, raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH)?;
    if path_address == 0 && dirfd != raw::AT_FDCWD {
        // futimens(3).
        return set_times(task, file(task, dirfd)?.inode(), changes);
    }
    let dentry = Base::at(task, dirfd).resolve_with(&path(path_address)?, flags, last_link(flags))?;
    mount::check_writable(&dentry)?;
    set_times(task, &dentry.inode, changes)
}

/// utime(2): whole seconds.
pub fn utime(task: &Task, path_address: u64, times: u64) -> SysResult {
    let changes = if times == 0 {
        [Change::Now; 2]
    } else {
        uaccess::read::<[i64; 2]>(times)?.map(|seconds| Change::To(Timestamp::new(seconds, 0)))
    };
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    mount::check_writable(&dentry)?;
    set_times(task, &dentry.inode, changes)
}

/// futimesat(2), and utimes(2): microseconds.
pub fn futimesat(task: &Task, dirfd: i32, path_address: u64, times: u64) -> SysResult {
    let changes = if times == 0 {
        [Change::Now; 2]
    } else {
        let pairs: [Pair; 2] = uaccess::read(times)?;
        let [accessed, modified] = pairs.map(|pair| match pair.fraction {
            fraction @ 0..1_000_000 => Ok(Change::To(Timestamp::new(pair.seconds, fraction as u32 * 1000))),
            _ => Err(Errno::EINVAL),
        });
        [accessed?, modified?]
    };
    if path_address == 0 && dirfd != raw::AT_FDCWD {
        return set_times(task, file(task, dirfd)?.inode(), changes);
    }
    let dentry = Base::at(task, dirfd).resolve(&path(path_address)?, LastLink::Follow)?;
    mount::check_writable(&dentry)?;
    set_times(task, &dentry.inode, changes)
}
