//! Secret memory (memfd_secret(2)): a file that has a length and can be mapped, shared, and nothing else. Nobody reaches its pages but through a mapping: no
//! tracer, no `process_vm_readv`, nothing that would hold on to a page ([`VmaFlags::SECRET`]). Linux also takes such pages out of its own map of all memory; the
//! kernel here reaches all memory of programs through that map, theirs included, when a program asks it to.

use alloc::boxed::Box;
use alloc::sync::Arc;

use foldspace::VirtAddr;
use foldspace::vma::VmaFlags;

use super::dentry::Dentry;
use super::file::{Body, File, Mappable, OpenFlags};
use super::inode::Attributes;
use super::io::{Sink, Supply};
use super::regular::Regular;
use super::superblock;
use crate::errno::Errno;
use crate::sched;
use crate::syscall::SysResult;

/// A new one, without a length yet.
///
/// # Errors
/// `ENOMEM`.
pub fn create(owner: (u32, u32)) -> Result<Arc<File>, Errno> {
    const SHOWN: &[u8] = b"/secretmem (deleted)";
    let inode = Regular::create(superblock::secrets(), Attributes::new(0o600).owned_by(owner), &[])?;
    if let Some(regular) = inode.regular() {
        regular.set_label(SHOWN);
    }
    let dentry = Dentry::nowhere(SHOWN.to_vec(), inode);
    Ok(File::new(dentry, OpenFlags::READ_WRITE | OpenFlags::LARGE_FILE, Box::new(SecretBody)))
}

/// Whether an open file is one.
pub fn is(file: &File) -> bool {
    file.inode().regular().is_some_and(|regular| regular.object().is_secret())
}

/// Whether the current program has such memory at `address`.
pub fn is_mapped_at(address: u64) -> bool {
    let secret = sched::with_space(|space| {
        space.vmas().view().find(VirtAddr(address)).is_some_and(|vma| vma.flags.contains(VmaFlags::SECRET))
    });
    secret.unwrap_or(false)
}

struct SecretBody;

impl Body for SecretBody {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn mappable(&self, file: &File) -> Result<Mappable, Errno> {
        let regular = file.inode().regular().ok_or(Errno::ENODEV)?;
        Ok(Mappable::Object(regular.object().clone()))
    }
}
