//! Extended attributes: no file has any, and none can be given.

use super::{Base, file, path};
use crate::errno::Errno;
use crate::fs::dentry::NAME_MAX;
use crate::fs::path::LastLink;
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// What a call names: a path, or an open file.
#[derive(Clone, Copy)]
pub enum Subject {
    /// By path.
    Path(u64, LastLink),
    /// By descriptor.
    Descriptor(i32),
}

fn check(task: &Task, subject: Subject) -> Result<(), Errno> {
    match subject {
        Subject::Path(address, last_link) => Base::current(task).resolve(&path(address)?, last_link).map(drop),
        Subject::Descriptor(fd) => file(task, fd).map(drop),
    }
}

/// The name of an attribute: `ERANGE` if it is empty or too long.
fn check_name(address: u64) -> Result<(), Errno> {
    match uaccess::read_cstr(address, NAME_MAX + 1) {
        Ok(name) if name.is_empty() => Err(Errno::ERANGE),
        Err(Errno::ENAMETOOLONG) => Err(Errno::ERANGE),
        other => other.map(drop),
    }
}

/// getxattr(2): `ENODATA`.
pub fn get(task: &Task, subject: Subject, name: u64) -> SysResult {
    check_name(name)?;
    check(task, subject)?;
    Err(Errno::ENODATA)
}

/// listxattr(2): an empty list.
pub fn list(task: &Task, subject: Subject) -> SysResult {
    check(task, subject)?;
    Ok(0)
}

/// setxattr(2): `EOPNOTSUPP`, as of a file system without them.
pub fn set(task: &Task, subject: Subject, name: u64) -> SysResult {
    check_name(name)?;
    check(task, subject)?;
    Err(Errno::EOPNOTSUPP)
}

/// removexattr(2): `ENODATA`.
pub fn remove(task: &Task, subject: Subject, name: u64) -> SysResult {
    get(task, subject, name)
}
