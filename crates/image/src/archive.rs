//! cpio archives (newc and its elders): what is in them, in their order.

use alloc::collections::BTreeMap;

use cpio_reader::Entry as Header;

/// Tells links to one file from files: device and inode in the archive.
pub type FileId = (u32, u32, u32);

/// What ends an archive.
const TRAILER: &[u8] = b"TRAILER!!!";
/// Bytes of a header of newc, which its name follows.
const NEWC_HEADER: usize = 110;

/// One file, directory, link or device.
pub struct Entry<'a> {
    header: Header<'a>,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    /// What the archive says of it: mode, owner, times, numbers.
    pub fn header(&self) -> &Header<'a> {
        &self.header
    }

    /// Its bytes, or where a symbolic link leads. Of several links to one file each has them here.
    pub fn content(&self) -> &'a [u8] {
        self.content
    }

    /// The names of its path, from the root on; none if it is the root. `..` is a name like others, and none that a directory may have.
    pub fn components(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.header.name().as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
    }

    /// Which file it is, if others may be links to the same.
    pub fn link(&self) -> Option<FileId> {
        (self.header.nlink() > 1).then(|| id(&self.header))
    }
}

/// The entries of an archive up to its trailer, or to the first header that is none: see [`is_whole`]. They point into it.
pub fn entries(archive: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    // Of several links to one file only the last carries the content.
    let mut linked: BTreeMap<FileId, &[u8]> = BTreeMap::new();
    for header in cpio_reader::iter_files(archive).filter(|header| header.nlink() > 1 && !header.file().is_empty()) {
        linked.insert(id(&header), header.file());
    }
    cpio_reader::iter_files(archive).map(move |header| {
        let shared = linked.get(&id(&header)).filter(|_| header.nlink() > 1);
        Entry { content: shared.copied().unwrap_or(header.file()), header }
    })
}

/// Whether the entries of a newc archive end with its trailer, and not with damage.
pub fn is_whole(archive: &[u8]) -> bool {
    let start = archive.as_ptr() as usize;
    let end = |header: Header<'_>| (header.file().as_ptr() as usize + header.file().len()).wrapping_sub(start);
    let end = cpio_reader::iter_files(archive).last().map_or(0, end).next_multiple_of(4);
    let name = end.checked_add(NEWC_HEADER).and_then(|at| archive.get(at..));
    name.is_some_and(|name| name.starts_with(TRAILER))
}

fn id(header: &Header<'_>) -> FileId {
    (header.devmajor().unwrap_or(0), header.devminor().unwrap_or(0), header.ino())
}
