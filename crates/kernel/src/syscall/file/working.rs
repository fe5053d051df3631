//! Where the caller is: current directory, root, umask, mounts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;

use super::{Base, check_flags, file, path, require_root};
use crate::errno::Errno;
use crate::fs::dentry::PATH_MAX;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::fs::{Dentry, mount};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// getcwd(2): the length with the NUL.
pub fn getcwd(task: &Task, address: u64, len: usize) -> SysResult {
    let context = task.fs.lock().clone();
    if context.cwd.is_removed() {
        return Err(Errno::ENOENT);
    }
    let mut text = Vec::new();
    if !context.cwd.is_below(&context.root) {
        text.extend_from_slice(b"(unreachable)");
    }
    context.cwd.path(Some(&context.root), &mut text);
    text.push(0);
    if text.len() > PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if text.len() > len {
        return Err(Errno::ERANGE);
    }
    uaccess::write_bytes(address, &text)?;
    Ok(text.len())
}

fn directory(task: &Task, path_address: u64) -> Result<Arc<Dentry>, Errno> {
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    if !dentry.inode.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    permission::check(&dentry.inode, Wanted::EXECUTE)?;
    Ok(dentry)
}

fn set_cwd(task: &Task, directory: Arc<Dentry>) {
    // The old one may be freed with its last reference: not under the lock.
    let old = core::mem::replace(&mut task.fs.lock().cwd, directory);
    drop(old);
}

/// chdir(2)
pub fn chdir(task: &Task, path_address: u64) -> SysResult {
    set_cwd(task, directory(task, path_address)?);
    Ok(0)
}

/// fchdir(2)
pub fn fchdir(task: &Task, fd: i32) -> SysResult {
    let dentry = file(task, fd)?.dentry.clone();
    if !dentry.inode.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    permission::check(&dentry.inode, Wanted::EXECUTE)?;
    set_cwd(task, dentry);
    Ok(0)
}

/// chroot(2)
pub fn chroot(task: &Task, path_address: u64) -> SysResult {
    let root = directory(task, path_address)?;
    require_root(task)?;
    let old = core::mem::replace(&mut task.fs.lock().root, root);
    drop(old);
    Ok(0)
}

/// umask(2)
pub fn umask(task: &Task, mask: u32) -> SysResult {
    Ok(core::mem::replace(&mut task.fs.lock().umask, mask & 0o777) as usize)
}

/// A string that may be missing.
fn optional_path(address: u64) -> Result<Vec<u8>, Errno> {
    if address == 0 { Ok(Vec::new()) } else { path(address) }
}

/// mount(2): new file systems; changes of what is mounted are accepted as far as they change nothing here.
pub fn mount(task: &Task, source: u64, target: u64, kind: u64, flags: u32) -> SysResult {
    require_root(task)?;
    let kind = optional_path(kind)?;
    let source = optional_path(source)?;
    let target = Base::current(task).resolve(&path(target)?, LastLink::Follow)?;
    if flags & (raw::MS_BIND | raw::MS_MOVE) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & (raw::MS_REMOUNT | raw::MS_PRIVATE | raw::MS_SLAVE | raw::MS_SHARED | raw::MS_UNBINDABLE) != 0 {
        return Ok(0);
    }
    if kind.is_empty() {
        return Err(Errno::EINVAL);
    }
    mount::mount(if source.is_empty() { b"none" } else { &source }, &target, &kind)?;
    Ok(0)
}

/// umount2(2)
pub fn umount(task: &Task, path_address: u64, flags: u32) -> SysResult {
    check_flags(flags, raw::MNT_FORCE | raw::MNT_DETACH | raw::MNT_EXPIRE | raw::UMOUNT_NOFOLLOW)?;
    require_root(task)?;
    let last_link = if flags & raw::UMOUNT_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    let target = Base::current(task).resolve(&path(path_address)?, last_link)?;
    mount::unmount(&target)?;
    Ok(0)
}
