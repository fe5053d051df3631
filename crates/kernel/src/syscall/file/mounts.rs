//! What is mounted where: `mount`, `umount2`, `pivot_root`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;

use super::{Base, check_flags, path};
use crate::errno::Errno;
use crate::fs::Dentry;
use crate::fs::mount::{Manner, MountNamespace, Submounts};
use crate::fs::path::LastLink;
use crate::mm::uaccess;
use crate::process::credentials::CAP_SYS_ADMIN;
use crate::process::{self, Task};
use crate::syscall::SysResult;

/// What says whom a mount has to do with.
const PROPAGATION: u32 = raw::MS_SHARED | raw::MS_PRIVATE | raw::MS_SLAVE | raw::MS_UNBINDABLE;

/// A string that may be missing.
fn optional_text(address: u64) -> Result<Vec<u8>, Errno> {
    if address == 0 { Ok(Vec::new()) } else { path(address) }
}

/// Those of the caller.
pub(super) fn mounts(task: &Task) -> Arc<MountNamespace> {
    task.namespaces.lock().mnt.clone()
}

/// `EPERM` unless the caller may change them.
pub(super) fn require_admin(task: &Task) -> Result<(), Errno> {
    let owner = task.namespaces.lock().mnt.owner.clone();
    if task.credentials().may_in(&owner, CAP_SYS_ADMIN) { Ok(()) } else { Err(Errno::EPERM) }
}

fn resolve(task: &Task, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
    Base::current(task).resolve(path, LastLink::Follow)
}

/// mount(2), in the order of Linux's `path_mount`.
pub fn mount(task: &Task, [source, target, kind, flags, data]: [u64; 5]) -> SysResult {
    let mut flags = flags as u32;
    let kind = optional_text(kind)?;
    let source = optional_text(source)?;
    if data != 0 {
        uaccess::read::<u8>(data)?;
    }
    let target = resolve(task, &path(target)?)?;
    require_admin(task)?;
    // Before options could be told from old programs' numbers.
    if flags & 0xffff_0000 == 0xc0ed_0000 {
        flags &= 0xffff;
    }
    let mounts = mounts(task);
    let below = if flags & raw::MS_REC != 0 { Submounts::Too } else { Submounts::Not };
    if flags & raw::MS_REMOUNT != 0 {
        mounts.reconfigure(&target, flags)?;
    } else if flags & raw::MS_BIND != 0 {
        if source.is_empty() {
            return Err(Errno::EINVAL);
        }
        mounts.bind(&resolve(task, &source)?, &target, below)?;
    } else if flags & PROPAGATION != 0 {
        let kind = flags & !(raw::MS_REC | raw::MS_SILENT);
        let manner = match kind {
            raw::MS_SHARED => Manner::Shared,
            raw::MS_PRIVATE => Manner::Private,
            raw::MS_SLAVE => Manner::Slave,
            raw::MS_UNBINDABLE => Manner::Unbindable,
            _ => return Err(Errno::EINVAL),
        };
        mounts.set_propagation(&target, manner, below)?;
    } else if flags & raw::MS_MOVE != 0 {
        if source.is_empty() {
            return Err(Errno::EINVAL);
        }
        mounts.shift(&resolve(task, &source)?, &target)?;
    } else {
        if kind.is_empty() {
            return Err(Errno::EINVAL);
        }
        let source: &[u8] = if source.is_empty() { b"none" } else { &source };
        mounts.mount(source, &target, &kind, flags)?;
    }
    Ok(0)
}

/// umount2(2)
pub fn umount(task: &Task, path_address: u64, flags: u32) -> SysResult {
    check_flags(flags, raw::MNT_FORCE | raw::MNT_DETACH | raw::MNT_EXPIRE | raw::UMOUNT_NOFOLLOW)?;
    let last_link = if flags & raw::UMOUNT_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    let target = Base::current(task).resolve_unnoticed(&path(path_address)?, last_link)?;
    let mounts = mounts(task);
    require_admin(task)?;
    mounts.check_root(&target)?;
    if flags & raw::MNT_EXPIRE != 0 {
        // The first call marks it, and the second takes it away, if nobody was there in between.
        let own = task.fs.lock().root.clone();
        if flags & (raw::MNT_FORCE | raw::MNT_DETACH) != 0 || mounts.are_in_one(&own, &target) {
            return Err(Errno::EINVAL);
        }
        mounts.expire(&target)?;
    }
    let below = if flags & raw::MNT_DETACH != 0 { Submounts::Too } else { Submounts::Not };
    mounts.unmount(&target, below)?;
    Ok(0)
}

/// pivot_root(2). Whoever has the old root as his root or current directory has the new one then.
pub fn pivot_root(task: &Task, new: u64, old: u64) -> SysResult {
    require_admin(task)?;
    let new = resolve(task, &path(new)?)?;
    let old = resolve(task, &path(old)?)?;
    if ![&new, &old].into_iter().all(|directory| directory.inode.is_directory()) {
        return Err(Errno::ENOTDIR);
    }
    let mounts = mounts(task);
    let before = task.fs.lock().root.clone();
    mounts.pivot(&before, &new, &old)?;
    for task in process::tree::all() {
        if !Arc::ptr_eq(&task.namespaces.lock().mnt, &mounts) {
            continue;
        }
        let mut replaced = [None, None];
        {
            let mut context = task.fs.lock();
            if Arc::ptr_eq(&context.root, &before) {
                replaced[0] = Some(core::mem::replace(&mut context.root, new.clone()));
            }
            if Arc::ptr_eq(&context.cwd, &before) {
                replaced[1] = Some(core::mem::replace(&mut context.cwd, new.clone()));
            }
        }
        drop(replaced);
    }
    Ok(0)
}
