//! Mounting by descriptors: `fsopen`, `fsconfig`, `fsmount`, `open_tree`, `move_mount`, with the checks of Linux's `fs/fsopen.c` and `fs/namespace.c`.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::mounts::{mounts, require_admin};
use super::{Base, descriptor_limit, file, last_link};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::mount::Submounts;
use crate::fs::open::{self, NewFile};
use crate::fs::path::LastLink;
use crate::fs::{Dentry, File};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// Longest name of a file system or an option, and longest value.
const TEXT_MAX: usize = 256;

fn insert(task: &Task, file: Arc<File>, at_exec: AtExec) -> SysResult {
    let limit = descriptor_limit(task);
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
}

/// fsopen(2)
pub fn fsopen(task: &Task, name: u64, flags: u32) -> SysResult {
    const CLOEXEC: u32 = 1;
    require_admin(task)?;
    if flags & !CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let making = crate::fs::mount::Making::open(&uaccess::read_cstr(name, TEXT_MAX)?)?;
    insert(task, making, AtExec::from_flag(flags, CLOEXEC))
}

/// fsconfig(2)
pub fn fsconfig(task: &Task, [fd, command, key, value, aux]: [u64; 5]) -> SysResult {
    const SET_FLAG: u32 = 0;
    const SET_STRING: u32 = 1;
    const SET_BINARY: u32 = 2;
    const SET_FD: u32 = 5;
    const CREATE: u32 = 6;
    const RECONFIGURE: u32 = 7;
    const CREATE_EXCLUSIVE: u32 = 8;
    let (fd, command, aux) = (fd as i32, command as u32, aux as i32);
    if fd < 0 {
        return Err(Errno::EINVAL);
    }
    let shape = match command {
        SET_FLAG => key != 0 && value == 0 && aux == 0,
        SET_STRING => key != 0 && value != 0 && aux == 0,
        CREATE | CREATE_EXCLUSIVE | RECONFIGURE => key == 0 && value == 0 && aux == 0,
        SET_BINARY..=SET_FD => return Err(Errno::EINVAL),
        _ => return Err(Errno::EOPNOTSUPP),
    };
    if !shape {
        return Err(Errno::EINVAL);
    }
    let file = file(task, fd)?;
    let making = file.body.making().ok_or(Errno::EINVAL)?;
    match command {
        SET_FLAG => making.set_flag(&uaccess::read_cstr(key, TEXT_MAX)?)?,
        SET_STRING => {
            making.set_text(&uaccess::read_cstr(key, TEXT_MAX)?, &uaccess::read_cstr(value, TEXT_MAX)?)?;
        }
        // Nothing here was picked from what is mounted.
        RECONFIGURE => return Err(Errno::EBUSY),
        _ => making.create()?,
    }
    Ok(0)
}

/// fsmount(2)
pub fn fsmount(task: &Task, fd: i32, flags: u32, attributes: u32) -> SysResult {
    const CLOEXEC: u32 = 1;
    const NO_DIRECTORY_TIMES: u32 = 0x80;
    const TIMES: u32 = 0x70;
    const NO_TIMES: u32 = 0x10;
    const STRICT_TIMES: u32 = 0x20;
    // The first four are as mount's.
    const SAME: u32 = raw::MS_RDONLY | raw::MS_NOSUID | raw::MS_NODEV | raw::MS_NOEXEC;
    require_admin(task)?;
    if flags & !CLOEXEC != 0 || attributes & !(SAME | TIMES | NO_DIRECTORY_TIMES) != 0 {
        return Err(Errno::EINVAL);
    }
    let times = match attributes & TIMES {
        0 => 0,
        NO_TIMES => raw::MS_NOATIME,
        STRICT_TIMES => raw::MS_STRICTATIME,
        _ => return Err(Errno::EINVAL),
    };
    let directories = if attributes & NO_DIRECTORY_TIMES != 0 { raw::MS_NODIRATIME } else { 0 };
    let file = file(task, fd)?;
    let making = file.body.making().ok_or(Errno::EINVAL)?;
    let mounted = making.mount(attributes & SAME | times | directories)?;
    insert(task, mounted, AtExec::from_flag(flags, CLOEXEC))
}

/// open_tree(2)
pub fn open_tree(task: &Task, dirfd: i32, path: u64, flags: u32) -> SysResult {
    const CLONE: u32 = 1;
    const RECURSIVE: u32 = 0x8000;
    const NO_AUTOMOUNT: u32 = 0x800;
    let known = CLONE | RECURSIVE | NO_AUTOMOUNT | raw::O_CLOEXEC | raw::AT_SYMLINK_NOFOLLOW | raw::AT_EMPTY_PATH;
    if flags & !known != 0 || flags & (RECURSIVE | CLONE) == RECURSIVE {
        return Err(Errno::EINVAL);
    }
    if flags & CLONE != 0 {
        require_admin(task)?;
    }
    let (path, base) = (super::path(path)?, Base::at(task, dirfd));
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    let dentry = base.resolve_with(&path, flags, last_link(flags))?;
    if flags & CLONE != 0 {
        let below = if flags & RECURSIVE != 0 { Submounts::Too } else { Submounts::Not };
        return insert(task, mounts(task).open_tree(&dentry, below)?, at_exec);
    }
    let context = task.fs.lock().clone();
    let new = NewFile { permissions: 0, owner: (0, 0) };
    let file = match path.is_empty() {
        true => open::open(&context, &dentry, b".", OpenFlags::PATH, new)?,
        false => open::open(&context, &base.directory?, &path, OpenFlags::PATH, new)?,
    };
    insert(task, file, at_exec)
}

/// move_mount(2)
pub fn move_mount(task: &Task, [from_fd, from, to_fd, to, flags]: [u64; 5]) -> SysResult {
    const FROM_FOLLOWS: u32 = 1;
    const FROM_EMPTY: u32 = 4;
    const TO_FOLLOWS: u32 = 0x10;
    const TO_EMPTY: u32 = 0x40;
    const AUTOMOUNTS: u32 = 2 | 0x20;
    let flags = flags as u32;
    require_admin(task)?;
    if flags & !(FROM_FOLLOWS | FROM_EMPTY | TO_FOLLOWS | TO_EMPTY | AUTOMOUNTS) != 0 {
        return Err(Errno::EINVAL);
    }
    let (from, to) = (super::path(from)?, super::path(to)?);
    let target = resolve(task, to_fd as i32, &to, flags & TO_EMPTY, flags & TO_FOLLOWS)?;
    if from.is_empty() && flags & FROM_EMPTY != 0 {
        let file = file(task, from_fd as i32)?;
        if let Some(detached) = file.body.detached() {
            mounts(task).attach_detached(detached, &target)?;
            return Ok(0);
        }
    }
    let source = resolve(task, from_fd as i32, &from, flags & FROM_EMPTY, flags & FROM_FOLLOWS)?;
    mounts(task).shift(&source, &target)?;
    Ok(0)
}

fn resolve(task: &Task, fd: i32, path: &[u8], empty: u32, follows: u32) -> Result<Arc<Dentry>, Errno> {
    let flags = if empty != 0 { raw::AT_EMPTY_PATH } else { 0 };
    let last_link = if follows != 0 { LastLink::Follow } else { LastLink::Keep };
    Base::at(task, fd).resolve_with(path, flags, last_link)
}
