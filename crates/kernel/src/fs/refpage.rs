//! The files that `refpage_create` makes: to be mapped, and nothing else.

use alloc::boxed::Box;
use alloc::sync::Arc;

use foldspace::backing::Reference;

use super::dentry::Dentry;
use super::file::{Body, File, Mappable, OpenFlags};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::superblock;
use crate::errno::Errno;
use crate::syscall::SysResult;

/// An open reference page.
struct RefPage(Arc<Reference>);

/// Makes a file of a reference page. Its mappings are private, so it need not be writable for them to be.
pub fn create(reference: Arc<Reference>) -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o400));
    let dentry = Dentry::nowhere(b"anon_inode:[refpage]".to_vec(), inode);
    File::new(dentry, OpenFlags::empty(), Box::new(RefPage(reference)))
}

impl Body for RefPage {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn mappable(&self, _file: &File) -> Result<Mappable, Errno> {
        Ok(Mappable::Pattern(self.0.clone()))
    }
}
