//! Fills the root from a cpio archive (newc) that stays in memory: files read from it page by page, when a page is first needed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use cpio_reader::Entry;

use super::dentry::Dentry;
use super::inode::{Attributes, DeviceNumber, Inode, Kind, Timestamp, mode};
use super::pipe::Pipe;
use super::regular::Regular;
use super::{mount, tree};
use crate::errno::Errno;

/// Tells links to one file from files: device and inode in the archive.
type FileId = (u32, u32, u32);

fn id(entry: &Entry<'_>) -> FileId {
    (entry.devmajor().unwrap_or(0), entry.devminor().unwrap_or(0), entry.ino())
}

/// Unpacks the archive into the root and mounts `/dev` and `/proc`. What cannot be unpacked is logged and left out.
pub fn init_from_cpio(archive: &'static [u8]) {
    // Of several links to one file only the last carries the content.
    let mut linked_content: BTreeMap<FileId, &'static [u8]> = BTreeMap::new();
    for entry in cpio_reader::iter_files(archive).filter(|entry| entry.nlink() > 1 && !entry.file().is_empty()) {
        linked_content.insert(id(&entry), entry.file());
    }
    let mut linked: BTreeMap<FileId, Arc<Dentry>> = BTreeMap::new();
    let mut count = 0usize;
    for entry in cpio_reader::iter_files(archive) {
        let content = linked_content.get(&id(&entry)).copied().filter(|_| entry.nlink() > 1).unwrap_or(entry.file());
        if let Err(error) = unpack(&entry, content, &mut linked) {
            log::warn!("initrd: {}: {error:?}", entry.name());
        }
        count += 1;
    }
    log::debug!("initrd: {count} entries");
    if let Err(error) = mount::mount_standard() {
        log::error!("cannot mount /dev and /proc: {error:?}");
    }
}

fn unpack(entry: &Entry<'_>, content: &'static [u8], linked: &mut BTreeMap<FileId, Arc<Dentry>>) -> Result<(), Errno> {
    let path = entry.name().as_bytes();
    let mut components = path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".").peekable();
    let mut directory = mount::root().clone();
    while let Some(name) = components.next() {
        if components.peek().is_none() {
            return unpack_one(entry, content, &directory, name, linked);
        }
        directory = match directory.child(name) {
            Ok(child) if child.inode.is_directory() => child,
            Ok(_) => return Err(Errno::ENOTDIR),
            // Archives made from a list of files may lack their directories.
            Err(_) => tree::create(&directory, name, || {
                Ok(Inode::new(&mount::root().inode.superblock, Kind::Directory, Attributes::new(0o755)))
            })?,
        };
    }
    // The root itself.
    mount::root().inode.attributes.lock().permissions = entry.mode().bits() & mode::PERMISSIONS;
    Ok(())
}

fn unpack_one(
    entry: &Entry<'_>,
    content: &'static [u8],
    directory: &Arc<Dentry>,
    name: &[u8],
    linked: &mut BTreeMap<FileId, Arc<Dentry>>,
) -> Result<(), Errno> {
    let bits = entry.mode().bits();
    let superblock = &mount::root().inode.superblock;
    let time = Timestamp::new(entry.mtime() as i64, 0);
    let attributes = Attributes {
        accessed: time,
        modified: time,
        changed: time,
        ..Attributes::new(bits).owned_by((entry.uid(), entry.gid()))
    };
    let number = DeviceNumber::new(entry.rdevmajor().unwrap_or(0), entry.rdevminor().unwrap_or(0));
    if let Some(first) = linked.get(&id(entry)).filter(|_| entry.nlink() > 1 && bits & mode::S_IFMT == mode::S_IFREG) {
        return tree::link(first, directory, name);
    }
    if bits & mode::S_IFMT == mode::S_IFDIR
        && let Ok(existing) = directory.child(name)
    {
        let mut old = existing.inode.attributes.lock();
        *old = Attributes { links: old.links, ..attributes };
        return Ok(());
    }
    let dentry = tree::create(directory, name, || {
        let kind = match bits & mode::S_IFMT {
            mode::S_IFREG => return Regular::create(superblock, attributes, content),
            mode::S_IFDIR => Kind::Directory,
            mode::S_IFLNK => Kind::Symlink(content.into()),
            mode::S_IFIFO => Kind::Fifo(Pipe::new()),
            mode::S_IFCHR => Kind::Character(number),
            mode::S_IFBLK => Kind::Block(number),
            mode::S_IFSOCK => Kind::Socket,
            _ => return Err(Errno::EINVAL),
        };
        Ok(Inode::new(superblock, kind, attributes))
    })?;
    if entry.nlink() > 1 && dentry.inode.regular().is_some() {
        linked.insert(id(entry), dentry);
    }
    Ok(())
}
