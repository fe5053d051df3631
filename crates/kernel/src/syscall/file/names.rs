//! Making, moving, removing and listing names.

use linux_raw_sys::general as raw;

use super::{Base, check_flags, content_file, owner, path};
use crate::errno::Errno;
use crate::fs::dentry::PATH_MAX;
use crate::fs::directory::Entry;
use crate::fs::file::Taken;
use crate::fs::inode::{Attributes, DeviceNumber, Inode, Kind, mode};
use crate::fs::path::{Last, LastLink, Parent};
use crate::fs::pipe::Pipe;
use crate::fs::procfs::{Jump, shown_in};
use crate::fs::regular::Regular;
use crate::fs::tree::{self, Name, RenameFlags};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// mkdirat(2)
pub fn mkdirat(task: &Task, dirfd: i32, path_address: u64, permissions: u32) -> SysResult {
    let base = Base::at(task, dirfd);
    let parent = base.parent(&path(path_address)?)?;
    let name = parent.last.name(Errno::EEXIST)?;
    let permissions = permissions & (0o777 | 0o1000) & !base.context.umask;
    let attributes = Attributes::new(permissions).owned_by(owner(task));
    let superblock = parent.directory.inode.superblock.clone();
    tree::create(&parent.directory, name, || Ok(Inode::new(&superblock, Kind::Directory, attributes)))?;
    Ok(0)
}

/// mknodat(2)
pub fn mknodat(task: &Task, dirfd: i32, path_address: u64, file_mode: u32, device: u64) -> SysResult {
    let base = Base::at(task, dirfd);
    let parent = base.parent(&path(path_address)?)?;
    let name = new_file_name(&parent)?;
    let attributes = Attributes::new(file_mode & mode::PERMISSIONS & !base.context.umask).owned_by(owner(task));
    let superblock = parent.directory.inode.superblock.clone();
    let type_bits = file_mode & mode::S_IFMT;
    match type_bits {
        0 | mode::S_IFREG | mode::S_IFIFO | mode::S_IFSOCK => {}
        mode::S_IFCHR | mode::S_IFBLK => super::require_root(task)?,
        mode::S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    }
    tree::create(&parent.directory, name, || {
        let kind = match type_bits {
            mode::S_IFIFO => Kind::Fifo(Pipe::new()),
            mode::S_IFSOCK => Kind::Socket,
            mode::S_IFCHR => Kind::Character(DeviceNumber::decode(device)),
            mode::S_IFBLK => Kind::Block(DeviceNumber::decode(device)),
            _ => return Regular::create(&superblock, attributes, &[]),
        };
        Ok(Inode::new(&superblock, kind, attributes))
    })?;
    Ok(0)
}

/// The name of something new that is no directory: a slash after it makes no sense.
fn new_file_name(parent: &Parent) -> Result<&[u8], Errno> {
    let name = parent.last.name(Errno::EEXIST)?;
    if parent.trailing_slash {
        // `filename_create`: what is there exists, what is not cannot be made.
        return Err(if parent.directory.lookup(name).is_ok() { Errno::EEXIST } else { Errno::ENOENT });
    }
    Ok(name)
}

/// unlinkat(2); `unlink` and `rmdir` too.
pub fn unlinkat(task: &Task, dirfd: i32, path_address: u64, flags: u32) -> SysResult {
    check_flags(flags, raw::AT_REMOVEDIR)?;
    let parent = Base::at(task, dirfd).parent(&path(path_address)?)?;
    if flags & raw::AT_REMOVEDIR != 0 {
        let name = match &parent.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        tree::rmdir(&parent.directory, name)?;
    } else {
        let name = parent.last.name(Errno::EISDIR)?;
        if parent.trailing_slash {
            let child = parent.directory.lookup(name)?;
            return Err(if child.inode.is_directory() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        tree::unlink(&parent.directory, name)?;
    }
    Ok(0)
}

/// renameat2(2). Each side is a directory's descriptor and the address of a path.
pub fn rename(task: &Task, old: (i32, u64), new: (i32, u64), flags: u32) -> SysResult {
    let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if flags.contains(RenameFlags::NO_REPLACE | RenameFlags::EXCHANGE) {
        return Err(Errno::EINVAL);
    }
    let (old_path, new_path) = (path(old.1)?, path(new.1)?);
    let source = Base::at(task, old.0).parent(&old_path)?;
    let target = Base::at(task, new.0).parent(&new_path)?;
    let taken = if flags.contains(RenameFlags::NO_REPLACE) { Errno::EEXIST } else { Errno::EBUSY };
    let (old_name, new_name) = (source.last.name(Errno::EBUSY)?, target.last.name(taken)?);
    tree::rename(
        Name { directory: &source.directory, name: old_name, must_be_directory: source.trailing_slash },
        Name { directory: &target.directory, name: new_name, must_be_directory: target.trailing_slash },
        flags,
    )?;
    Ok(0)
}

/// linkat(2). Each side is a directory's descriptor and the address of a path.
pub fn link(task: &Task, old: (i32, u64), new: (i32, u64), flags: u32) -> SysResult {
    check_flags(flags, raw::AT_SYMLINK_FOLLOW | raw::AT_EMPTY_PATH)?;
    let last_link = if flags & raw::AT_SYMLINK_FOLLOW != 0 { LastLink::Follow } else { LastLink::Keep };
    let target = Base::at(task, old.0).resolve_with(&path(old.1)?, flags, last_link)?;
    let parent = Base::at(task, new.0).parent(&path(new.1)?)?;
    tree::link(&target, &parent.directory, new_file_name(&parent)?)?;
    Ok(0)
}

/// symlinkat(2)
pub fn symlink(task: &Task, target: u64, dirfd: i32, path_address: u64) -> SysResult {
    let target = path(target)?;
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    let parent = Base::at(task, dirfd).parent(&path(path_address)?)?;
    let attributes = Attributes::new(0o777).owned_by(owner(task));
    let superblock = parent.directory.inode.superblock.clone();
    tree::create(&parent.directory, new_file_name(&parent)?, || {
        Ok(Inode::new(&superblock, Kind::Symlink(target.into_boxed_slice()), attributes))
    })?;
    Ok(0)
}

/// readlinkat(2)
pub fn readlink(task: &Task, dirfd: i32, path_address: u64, address: u64, len: i32) -> SysResult {
    let len = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(Errno::EINVAL)?;
    let path = path(path_address)?;
    let base = Base::at(task, dirfd);
    let dentry = if path.is_empty() && dirfd != raw::AT_FDCWD {
        // Of a link opened with O_PATH | O_NOFOLLOW.
        let dentry = base.directory.clone()?;
        if !dentry.inode.is_symlink() {
            return Err(Errno::ENOENT);
        }
        dentry
    } else {
        base.resolve(&path, LastLink::Keep)?
    };
    let text = match &dentry.inode.kind {
        Kind::Symlink(target) => target.to_vec(),
        Kind::Proc(node) => match node.link(shown_in(&dentry.inode))? {
            Jump::Path(text) => text,
            Jump::Dentry { shown, .. } if shown.len() >= PATH_MAX => return Err(Errno::ENAMETOOLONG),
            Jump::Dentry { shown, .. } => shown,
        },
        _ => return Err(Errno::EINVAL),
    };
    let len = len.min(text.len());
    uaccess::write_bytes(address, &text[..len])?;
    Ok(len)
}

/// Bytes of `struct linux_dirent64` before the name.
const HEADER: usize = 19;

/// getdents64(2)
pub fn getdents64(task: &Task, fd: i32, address: u64, len: u32) -> SysResult {
    let file = content_file(task, fd)?;
    if !file.inode().is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if file.dentry.is_removed() {
        return Err(Errno::ENOENT);
    }
    let mut used = 0;
    let mut problem = None;
    file.body.entries(&file, &mut |entry| match put_entry(entry, address, used, len as usize) {
        Ok(bytes) => {
            used += bytes;
            Taken::Yes
        }
        Err(error) => {
            problem = Some(error);
            Taken::Full
        }
    })?;
    match problem {
        // Not even the first fits, or could be written.
        Some(error) if used == 0 => Err(error),
        _ => {
            file.touch_accessed();
            Ok(used)
        }
    }
}

/// Writes an entry at `used` bytes into the buffer; returns its length. `EINVAL` if it does not fit.
fn put_entry(entry: &Entry<'_>, address: u64, used: usize, len: usize) -> Result<usize, Errno> {
    let bytes = (HEADER + entry.name.len() + 1).next_multiple_of(8);
    if len - used < bytes {
        return Err(Errno::EINVAL);
    }
    let mut record = [0; HEADER + 256 + 8];
    record[..8].copy_from_slice(&entry.inode.to_le_bytes());
    record[8..16].copy_from_slice(&entry.next.to_le_bytes());
    record[16..18].copy_from_slice(&(bytes as u16).to_le_bytes());
    record[18] = entry.d_type();
    record[HEADER..HEADER + entry.name.len()].copy_from_slice(entry.name);
    uaccess::write_bytes(address + used as u64, &record[..bytes])?;
    Ok(bytes)
}
