//! Files that stand for namespaces: what `/proc/PID/ns/*` leads to.

use alloc::sync::Arc;

use super::dentry::Dentry;
use super::file::{Body, File};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::superblock;
use crate::errno::Errno;
use crate::process::Task;
use crate::process::namespaces::Namespace;
use crate::syscall::SysResult;

/// The file of one.
pub fn dentry(namespace: Namespace) -> Arc<Dentry> {
    let (name, number) = (namespace.name(), namespace.number());
    let inode = Inode::numbered(superblock::namespaces(), number, Kind::Namespace(namespace), Attributes::new(0o444));
    Dentry::nowhere(name, inode)
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

    fn ioctl(&self, _task: &Task, _file: &File, request: u32, _argument: u64) -> SysResult {
        /// `NS_GET_NSTYPE` (`linux/nsfs.h`).
        const GET_TYPE: u32 = 0xb703;
        if request == GET_TYPE { Ok(self.0.flag() as usize) } else { Err(Errno::ENOTTY) }
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.0)
    }
}
