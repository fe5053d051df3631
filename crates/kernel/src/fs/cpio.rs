//! Fills the root from a cpio archive (newc) that stays in memory: files read from it page by page, when a page is first needed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use foldspace_image::archive::{self, Entry, FileId};

use super::dentry::Dentry;
use super::inode::{Attributes, DeviceNumber, Inode, Kind, Timestamp, mode};
use super::pipe::Pipe;
use super::regular::Regular;
use super::{mount, tree};
use crate::errno::Errno;

/// Unpacks the archive into the root and mounts `/dev` and `/proc`. What cannot be unpacked is logged and left out.
pub fn init_from_cpio(archive: &'static [u8]) {
    let mut linked: BTreeMap<FileId, Arc<Dentry>> = BTreeMap::new();
    let mut count = 0usize;
    for entry in archive::entries(archive) {
        if let Err(error) = unpack(&entry, &mut linked) {
            log::warn!("initrd: {}: {error:?}", entry.header().name());
        }
        count += 1;
    }
    if !archive::is_whole(archive) {
        log::warn!("initrd: damaged after {count} entries");
    }
    log::debug!("initrd: {count} entries");
    if let Err(error) = mount::mount_standard() {
        log::error!("cannot mount /dev and /proc: {error:?}");
    }
}

fn unpack(entry: &Entry<'static>, linked: &mut BTreeMap<FileId, Arc<Dentry>>) -> Result<(), Errno> {
    let mut components = entry.components().peekable();
    let mut directory = mount::root().clone();
    while let Some(name) = components.next() {
        if components.peek().is_none() {
            return unpack_one(entry, &directory, name, linked);
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
    mount::root().inode.attributes.lock().permissions = entry.header().mode().bits() & mode::PERMISSIONS;
    Ok(())
}

fn unpack_one(
    entry: &Entry<'static>,
    directory: &Arc<Dentry>,
    name: &[u8],
    linked: &mut BTreeMap<FileId, Arc<Dentry>>,
) -> Result<(), Errno> {
    let (header, content) = (entry.header(), entry.content());
    let bits = header.mode().bits();
    let superblock = &mount::root().inode.superblock;
    let time = Timestamp::new(header.mtime() as i64, 0);
    let attributes = Attributes {
        accessed: time,
        modified: time,
        changed: time,
        ..Attributes::new(bits).owned_by((header.uid(), header.gid()))
    };
    let number = DeviceNumber::new(header.rdevmajor().unwrap_or(0), header.rdevminor().unwrap_or(0));
    let link = entry.link().filter(|_| bits & mode::S_IFMT == mode::S_IFREG);
    if let Some(first) = link.and_then(|link| linked.get(&link)) {
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
    if let Some(link) = link {
        linked.insert(link, dentry);
    }
    Ok(())
}
