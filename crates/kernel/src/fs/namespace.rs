//! Files that stand for namespaces: what `/proc/PID/ns/*` leads to.

use alloc::boxed::Box;
use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::dentry::Dentry;
use super::fdtable::AtExec;
use super::file::{Body, File, OpenFlags};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::superblock;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::namespaces::Namespace;
use crate::syscall::SysResult;

/// The file of one.
pub fn dentry(namespace: Namespace) -> Arc<Dentry> {
    let (name, number) = (namespace.name(), namespace.number());
    let inode = Inode::numbered(superblock::namespaces(), number, Kind::Namespace(namespace), Attributes::new(0o444));
    Dentry::nowhere(name, inode)
}

/// Requests (`linux/nsfs.h`).
const GET_OWNER: u32 = 0xb701;
const GET_PARENT: u32 = 0xb702;
const GET_OWNER_UID: u32 = 0xb704;
const GET_TYPE: u32 = 0xb703;

/// A descriptor for one.
fn open(task: &Task, namespace: Namespace) -> SysResult {
    let file = File::new(dentry(namespace.clone()), OpenFlags::empty(), Box::new(NamespaceBody(namespace)));
    let limit = task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    Ok(task.files.lock().insert_from(0, limit, file, AtExec::Close)? as usize)
}

/// A descriptor for the namespace of users that one belongs to; of users, for the one above. `EPERM`: that is not to be seen.
fn owner_of(task: &Task, namespace: &Namespace) -> SysResult {
    let own = task.credentials().user_namespace;
    let owner = namespace.owner().filter(|owner| owner.is_within(&own));
    open(task, Namespace::User(owner.ok_or(Errno::EPERM)?.clone()))
}

/// An open one: whoever has it keeps the namespace.
pub struct NamespaceBody(pub Namespace);

impl Body for NamespaceBody {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        match request {
            GET_TYPE => Ok(self.0.flag() as usize),
            GET_OWNER => owner_of(task, &self.0),
            GET_OWNER_UID => {
                let Namespace::User(user) = &self.0 else { return Err(Errno::EINVAL) };
                uaccess::write(argument, &task.credentials().shown_user(user.owner.0))?;
                Ok(0)
            }
            GET_PARENT if matches!(self.0, Namespace::User(_)) => owner_of(task, &self.0),
            GET_PARENT => {
                let Namespace::Pid(pid) = &self.0 else { return Err(Errno::EINVAL) };
                // What is above one's own is not to be seen (`pidns_get_parent`).
                let parent = pid.parent().filter(|parent| parent.is_within(&task.process.pid_namespace));
                open(task, Namespace::Pid(parent.ok_or(Errno::EPERM)?.clone()))
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.0)
    }
}
