//! Opening: from a dentry to an open file.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::dentry::Dentry;
use super::device;
use super::directory::DirectoryBody;
use super::file::{Body, File, NameOnly, OpenFlags};
use super::inode::{Attributes, Inode, Kind, Writing};
use super::namespace::NamespaceBody;
use super::path::{FsContext, Last, LastLink, Lookup, Parent};
use super::permission::{self, Wanted};
use super::regular::{Regular, RegularBody};
use super::{mount, pipe, procfs, tree};
use crate::errno::Errno;

/// What a new file gets.
#[derive(Clone, Copy, Debug)]
pub struct NewFile {
    /// Permission bits, before the umask.
    pub permissions: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

/// Opens `path`, relative to `base` (`open(2)`).
pub fn open(
    context: &FsContext,
    base: &Arc<Dentry>,
    path: &[u8],
    flags: OpenFlags,
    new: NewFile,
) -> Result<Arc<File>, Errno> {
    let last_link = if flags.contains(OpenFlags::NO_FOLLOW) { LastLink::Keep } else { LastLink::Follow };
    let mut lookup = Lookup::new(context);
    if flags.contains(OpenFlags::PATH) {
        let dentry = lookup.resolve(base, path, last_link)?;
        check_type(&dentry, flags)?;
        return Ok(File::new(dentry, flags, Box::new(NameOnly)));
    }
    if flags.contains(OpenFlags::TEMPORARY) {
        return open_temporary(&lookup.resolve(base, path, last_link)?, flags, new, context);
    }
    if !flags.contains(OpenFlags::CREATE) {
        let dentry = lookup.resolve(base, path, last_link)?;
        if dentry.inode.is_symlink() {
            return Err(Errno::ELOOP);
        }
        return open_dentry(&dentry, flags);
    }
    open_or_create(context, lookup, base, path, flags, new)
}

fn open_or_create(
    context: &FsContext,
    mut lookup: Lookup<'_>,
    base: &Arc<Dentry>,
    path: &[u8],
    flags: OpenFlags,
    new: NewFile,
) -> Result<Arc<File>, Errno> {
    let mut parent = lookup.parent(base, path)?;
    loop {
        let Parent { directory, last, trailing_slash } = &parent;
        let Last::Name(name) = last else {
            return Err(if flags.contains(OpenFlags::EXCLUSIVE) { Errno::EEXIST } else { Errno::EISDIR });
        };
        if *trailing_slash {
            return Err(Errno::EISDIR);
        }
        match directory.lookup(name) {
            Ok(_) if flags.contains(OpenFlags::EXCLUSIVE) => return Err(Errno::EEXIST),
            Ok(child) => {
                let child = child.uncovered();
                if !child.inode.is_symlink() {
                    if child.inode.is_directory() {
                        return Err(Errno::EISDIR);
                    }
                    return open_dentry(&child, flags);
                }
                if flags.contains(OpenFlags::NO_FOLLOW) {
                    return Err(Errno::ELOOP);
                }
                match lookup.parent_of_target(directory, &child)? {
                    Ok(next) => parent = next,
                    Err(dentry) => return open_dentry(&dentry, flags),
                }
            }
            Err(Errno::ENOENT) if flags.contains(OpenFlags::DIRECTORY) => return Err(Errno::EINVAL),
            Err(Errno::ENOENT) => {
                let superblock = directory.inode.superblock.clone();
                let attributes = Attributes::new(new.permissions & !context.umask).owned_by(new.owner);
                match tree::create(directory, name, || Regular::create(&superblock, attributes, &[])) {
                    // Somebody else was first: open theirs.
                    Err(Errno::EEXIST) if !flags.contains(OpenFlags::EXCLUSIVE) => {}
                    Err(error) => return Err(error),
                    // Who makes a file may open it, whatever its mode.
                    Ok(dentry) => return open_permitted(&dentry, flags - OpenFlags::TRUNCATE),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn open_temporary(
    directory: &Arc<Dentry>,
    flags: OpenFlags,
    new: NewFile,
    context: &FsContext,
) -> Result<Arc<File>, Errno> {
    if !flags.contains(OpenFlags::DIRECTORY) || !flags.writable() {
        return Err(Errno::EINVAL);
    }
    tree::check_can_hold(directory)?;
    let attributes = Attributes { links: 0, ..Attributes::new(new.permissions & !context.umask).owned_by(new.owner) };
    let inode = Regular::create(&directory.inode.superblock, attributes, &[])?;
    let mut name = alloc::vec![b'#'];
    name.extend_from_slice(alloc::format!("{}", inode.number).as_bytes());
    let writing = Some(inode.begin_writing()?);
    let dentry = Dentry::new(directory, &name, inode);
    dentry.set_removed();
    Ok(File::new(dentry, flags, Box::new(RegularBody { writing })))
}

fn check_type(dentry: &Dentry, flags: OpenFlags) -> Result<(), Errno> {
    let inode = &dentry.inode;
    if flags.contains(OpenFlags::DIRECTORY) && !inode.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    Ok(())
}

/// Opens what a dentry refers to, if the caller may read or write it as the flags say.
fn open_dentry(dentry: &Arc<Dentry>, flags: OpenFlags) -> Result<Arc<File>, Errno> {
    check_type(dentry, flags)?;
    let mut wanted = Wanted::empty();
    wanted.set(Wanted::READ, flags.readable());
    wanted.set(Wanted::WRITE, flags.writable() || flags.contains(OpenFlags::TRUNCATE));
    permission::check(&dentry.inode, wanted)?;
    if wanted.contains(Wanted::WRITE) && dentry.inode.regular().is_some() {
        mount::check_writable(dentry)?;
    }
    open_permitted(dentry, flags)
}

fn open_permitted(dentry: &Arc<Dentry>, flags: OpenFlags) -> Result<Arc<File>, Errno> {
    let inode = &dentry.inode;
    if inode.is_directory() && (flags.writable() || flags.contains(OpenFlags::TRUNCATE)) {
        return Err(Errno::EISDIR);
    }
    let body: Box<dyn Body> = match &inode.kind {
        // Whoever has a descriptor of it has it from who made it.
        Kind::Regular(regular) if regular.object().is_secret() => return Err(Errno::ENXIO),
        Kind::Regular(regular) => {
            let writing = begin_writing(inode, regular, flags)?;
            Box::new(RegularBody { writing })
        }
        Kind::Directory => Box::new(DirectoryBody),
        Kind::Symlink(_) => return Err(Errno::ELOOP),
        Kind::Fifo(pipe) => pipe::open(pipe, flags)?,
        Kind::Character(number) => {
            mount::check_devices(dentry)?;
            device::open(*number)?
        }
        Kind::Block(_) | Kind::Socket | Kind::Anonymous => return Err(Errno::ENXIO),
        Kind::Proc(node) => procfs::open(node, inode, flags)?,
        Kind::Namespace(namespace) => Box::new(NamespaceBody(namespace.clone())),
    };
    Ok(File::new(dentry.clone(), flags, body))
}

/// Counts a writer of a regular file, and empties the file, as the flags say.
fn begin_writing(inode: &Arc<Inode>, regular: &Regular, flags: OpenFlags) -> Result<Option<Writing>, Errno> {
    let empties = flags.contains(OpenFlags::TRUNCATE);
    if !flags.writable() && !empties {
        return Ok(None);
    }
    let writing = inode.begin_writing()?;
    if empties {
        regular.set_len(0)?;
        inode.touch_modified();
    }
    Ok(flags.writable().then_some(writing))
}
