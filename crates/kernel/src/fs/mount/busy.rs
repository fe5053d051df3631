//! Who uses a mount: whether it can be taken away (`do_umount` of Linux's `fs/namespace.c`).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use foldspace::vma::Backing;

use super::MountNamespace;
use crate::errno::Errno;
use crate::fs::dentry::Dentry;
use crate::process::{Task, tree};
use crate::sched;

/// Whether any mount was ever marked by `MNT_EXPIRE`.
static MARKING: AtomicBool = AtomicBool::new(false);

/// Something was looked up at `dentry`: its mount is not idle.
pub fn looked_up(dentry: &Arc<Dentry>) {
    if !MARKING.load(Ordering::Relaxed) {
        return;
    }
    if let Some(mounts) = sched::try_with_current(|task| task.namespaces.lock().mnt.clone())
        && let Some(mount) = mounts.state.lock().mount_of(dentry)
    {
        mount.idle.store(false, Ordering::Relaxed);
    }
}

/// Whether somebody has something open at or below `root`, is there, has it as his root, or runs a program from there. O(open files of all tasks).
pub(super) fn is_used(root: &Arc<Dentry>) -> bool {
    let mut place = Vec::new();
    root.path(None, &mut place);
    tree::all().iter().any(|task| uses(task, root) || shows_files(task, root, &place))
}

fn uses(task: &Task, root: &Arc<Dentry>) -> bool {
    let inside = |dentry: &Arc<Dentry>| dentry.is_below(root);
    let (cwd, top) = {
        let context = task.fs.lock();
        (context.cwd.clone(), context.root.clone())
    };
    let program = task.process.exe.lock().clone();
    if inside(&cwd) || inside(&top) || program.is_some_and(|program| inside(program.dentry())) {
        return true;
    }
    task.files.peek(|files| files.numbers().any(|fd| files.get(fd).is_ok_and(|file| inside(&file.dentry))))
}

/// Whether a file from there is mapped: one of its file system, whose name is below `place`.
fn shows_files(task: &Task, root: &Arc<Dentry>, place: &[u8]) -> bool {
    let Some(space) = task.live_space() else { return false };
    let device = root.inode.superblock.device;
    let version = space.vmas();
    let mut path = Vec::new();
    version.view().iter().any(|vma| {
        let Backing::Object(object) = &vma.backing else { return false };
        let of = object.identity();
        if (of.major, of.minor) != (device.major, device.minor) {
            return false;
        }
        path.clear();
        object.path(&mut path);
        path.strip_prefix(place).is_some_and(|rest| rest.first() == Some(&b'/'))
    })
}

impl MountNamespace {
    /// Whether two dentries are seen through the same mount.
    pub fn are_in_one(&self, one: &Arc<Dentry>, other: &Arc<Dentry>) -> bool {
        let state = self.state.lock();
        state.mount_of(one).map(|mount| mount.id) == state.mount_of(other).map(|mount| mount.id)
    }

    /// `MNT_EXPIRE`: marks the mount with its root at `target` as idle, `EAGAIN`; success if it has been idle since it was marked.
    ///
    /// # Errors
    /// `EINVAL`: none is there. `EBUSY`: it is used.
    pub fn expire(&self, target: &Arc<Dentry>) -> Result<(), Errno> {
        let idle = {
            let state = self.state.lock();
            let index = state.at(target).ok_or(Errno::EINVAL)?;
            let below = |covers: &Arc<Dentry>| covers.is_below(target);
            if state.mounts.iter().any(|mount| mount.covers.as_ref().is_some_and(below)) {
                return Err(Errno::EBUSY);
            }
            state.mounts[index].idle.clone()
        };
        if is_used(target) {
            return Err(Errno::EBUSY);
        }
        MARKING.store(true, Ordering::Relaxed);
        if idle.swap(true, Ordering::Relaxed) { Ok(()) } else { Err(Errno::EAGAIN) }
    }
}
