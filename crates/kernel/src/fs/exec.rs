//! Opening a program.

use alloc::sync::Arc;

use foldspace::Object;

use super::dentry::Dentry;
use super::file::File;
use super::mount;
use super::path::{FsContext, LastLink, Lookup};
use super::permission::{self, Wanted};
use crate::errno::Errno;

/// A program file that may be executed; it cannot be written while this exists.
pub struct ExecFile {
    /// Its pages, to be mapped.
    pub object: Arc<Object>,
    dentry: Arc<Dentry>,
}

impl ExecFile {
    /// Reads up to the end; returns the bytes read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        Ok(self.object.read_at(offset, out)?)
    }

    /// Its name in the tree.
    pub fn dentry(&self) -> &Arc<Dentry> {
        &self.dentry
    }

    /// Permission bits, set-id bits included, owner and group.
    pub fn permissions(&self) -> (u32, u32, u32) {
        let attributes = self.dentry.inode.attributes.lock();
        (attributes.permissions, attributes.uid, attributes.gid)
    }
}

impl Drop for ExecFile {
    fn drop(&mut self) {
        self.dentry.inode.end_executing();
    }
}

/// Looks up a program from the current directory. `EACCES` for what is no regular file or has no execute bit.
pub fn open_exec(context: &FsContext, path: &[u8]) -> Result<ExecFile, Errno> {
    open_exec_at(context, &context.cwd, path, LastLink::Follow)
}

/// Looks up a program from a directory (`execveat`).
pub fn open_exec_at(
    context: &FsContext,
    base: &Arc<Dentry>,
    path: &[u8],
    last_link: LastLink,
) -> Result<ExecFile, Errno> {
    let dentry = Lookup::new(context).resolve(base, path, last_link)?;
    if dentry.inode.is_symlink() {
        return Err(Errno::ELOOP);
    }
    from_dentry(dentry)
}

/// The program that an open file is (`execveat` with `AT_EMPTY_PATH`).
pub fn open_exec_file(file: &File) -> Result<ExecFile, Errno> {
    from_dentry(file.dentry.clone())
}

fn from_dentry(dentry: Arc<Dentry>) -> Result<ExecFile, Errno> {
    let regular = dentry.inode.regular().ok_or(Errno::EACCES)?;
    mount::check_executable(&dentry)?;
    permission::check(&dentry.inode, Wanted::EXECUTE)?;
    dentry.inode.begin_executing()?;
    let object = regular.object().clone();
    Ok(ExecFile { object, dentry })
}
