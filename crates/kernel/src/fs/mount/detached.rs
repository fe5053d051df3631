//! Mounts that are nowhere yet, by descriptors: what fsopen(2) is told, and what fsmount(2) and open_tree(2) give.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;

use super::{KNOWN, Mount, MountNamespace, OPTIONS, Submounts, new};
use crate::errno::Errno;
use crate::fs::dentry::{Dentry, Place};
use crate::fs::file::{Body, File, OpenFlags};
use crate::fs::inode::{Attributes, Inode, Kind};
use crate::fs::io::{Sink, Supply};
use crate::fs::superblock;
use crate::sync::Mutex;
use crate::syscall::SysResult;

/// A file system that is being made (fsopen(2)).
pub struct Making {
    kind: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    source: Vec<u8>,
    flags: u32,
    /// Once it is there, until it is mounted.
    root: Option<Arc<Dentry>>,
    /// No more is to be told.
    done: bool,
}

/// Mounts that are to be attached, the one that the others are on first; empty once they are.
pub struct Detached(Mutex<Vec<Mount>>);

struct MakingBody(Making);
struct DetachedBody(Detached);

impl Making {
    /// An open one of that kind. `ENODEV`.
    pub fn open(kind: &[u8]) -> Result<Arc<File>, Errno> {
        let kind = KNOWN.iter().copied().find(|known| known.as_bytes() == kind).ok_or(Errno::ENODEV)?;
        let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
        let dentry = Dentry::nowhere(b"anon_inode:[fscontext]".to_vec(), inode);
        let making = Making { kind, state: Mutex::default() };
        Ok(File::new(dentry, OpenFlags::READ_WRITE, Box::new(MakingBody(making))))
    }

    /// An option without a value. `EBUSY` too late, `EINVAL` for what is none.
    pub fn set_flag(&self, key: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.check_open()?;
        match key {
            b"ro" => state.flags |= raw::MS_RDONLY,
            b"rw" => state.flags &= !raw::MS_RDONLY,
            b"sync" | b"async" | b"dirsync" | b"lazytime" | b"nolazytime" | b"mand" | b"nomand" => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// An option with one. Sizes, modes and the like are not heeded, as those of mount(2) are not.
    pub fn set_text(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.check_open()?;
        match key {
            b"source" if !state.source.is_empty() => return Err(Errno::EINVAL),
            b"source" => state.source = value.to_vec(),
            b"size" | b"nr_blocks" | b"nr_inodes" | b"mode" | b"uid" | b"gid" | b"huge" | b"mpol"
                if self.kind == "tmpfs" => {}
            b"mode" if self.kind == "ramfs" => {}
            b"hidepid" | b"gid" | b"subset" if self.kind == "proc" => {}
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Makes it.
    pub fn create(&self) -> Result<(), Errno> {
        let mut state = self.state.lock();
        state.check_open()?;
        state.done = true;
        state.root = Some(new::root(self.kind, Place::Root)?);
        Ok(())
    }

    /// The mount of it, open. `EINVAL` before it is made, `EBUSY` the second time.
    pub fn mount(&self, flags: u32) -> Result<Arc<File>, Errno> {
        let (root, source, own) = {
            let mut state = self.state.lock();
            let absent = if state.done { Errno::EBUSY } else { Errno::EINVAL };
            (state.root.take().ok_or(absent)?, state.source.clone(), state.flags)
        };
        let source: &[u8] = if source.is_empty() { b"none" } else { &source };
        Ok(Detached::open(alloc::vec![Mount::new(source, self.kind, root, (flags | own) & OPTIONS, None)]))
    }
}

impl State {
    fn check_open(&self) -> Result<(), Errno> {
        if self.done { Err(Errno::EBUSY) } else { Ok(()) }
    }
}

impl Detached {
    fn open(mounts: Vec<Mount>) -> Arc<File> {
        let root = mounts.first().map(|mount| mount.root.clone());
        let root = root.unwrap_or_else(|| super::root().clone());
        File::new(root, OpenFlags::PATH, Box::new(DetachedBody(Detached(Mutex::new(mounts)))))
    }
}

impl MountNamespace {
    /// What is at `from`, mounted once more, nowhere yet.
    pub fn open_tree(&self, from: &Arc<Dentry>, below: Submounts) -> Result<Arc<File>, Errno> {
        Ok(Detached::open(self.clone_tree(from, below)?))
    }

    /// Puts what a descriptor has on `target`. `EINVAL` if that is somewhere already, or only one of the two is a directory.
    pub fn attach_detached(&self, detached: &Detached, target: &Arc<Dentry>) -> Result<(), Errno> {
        let mut mounts = detached.0.lock();
        let root = mounts.first().map(|mount| mount.root.clone()).ok_or(Errno::EINVAL)?;
        if root.inode.is_directory() != target.inode.is_directory() {
            return Err(Errno::EINVAL);
        }
        if target.is_below(&root) {
            return Err(Errno::ELOOP);
        }
        let taken = core::mem::take(&mut *mounts);
        drop(mounts);
        self.attach_tree(taken, target);
        Ok(())
    }
}

impl Body for MakingBody {
    /// There are no messages.
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::ENODATA)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn making(&self) -> Option<&Making> {
        Some(&self.0)
    }
}

impl Body for DetachedBody {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EBADF)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EBADF)
    }

    fn detached(&self) -> Option<&Detached> {
        Some(&self.0)
    }
}
