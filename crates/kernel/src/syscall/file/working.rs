//! Where the caller is: current directory, root, umask.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Base, file, path, require_root};
use crate::errno::Errno;
use crate::fs::Dentry;
use crate::fs::dentry::PATH_MAX;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
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
