//! Open directories: listings.

use alloc::sync::Arc;

use super::dentry::Dentry;
use super::file::{Body, File, Taken, Whence, seek_without_end};
use super::inode::{Inode, mode};
use super::io::{Sink, Supply};
use crate::errno::Errno;
use crate::syscall::SysResult;

/// An entry of a listing.
pub struct Entry<'a> {
    /// Inode number.
    pub inode: u64,
    /// Where the listing goes on after this entry.
    pub next: u64,
    /// Type bits of `st_mode`.
    pub type_bits: u32,
    /// Name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// `d_type` (`DT_*`): the type bits of the mode, shifted (`S_DT` of `include/linux/fs_types.h`).
    pub fn d_type(&self) -> u8 {
        ((self.type_bits & mode::S_IFMT) >> 12) as u8
    }
}

/// An open directory in memory. Positions: 0 is `.`, 1 is `..`, and 2 + (`OLDEST` - age) is the newest entry not newer than that age.
pub struct DirectoryBody;

/// Above all ages of entries; low enough that positions fit the signed offset of `lseek`.
const OLDEST: u64 = 1 << 40;

impl Body for DirectoryBody {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EISDIR)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EBADF)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        seek_without_end(file, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }

    fn entries(&self, file: &File, take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> Result<(), Errno> {
        let mut position = file.position.lock();
        if !take_dots(&file.dentry, &mut position, take) {
            return Ok(());
        }
        while let Some((age, child)) = file.dentry.newest_before((OLDEST + 3).saturating_sub(*position)) {
            let next = 3 + OLDEST - age;
            // What is mounted there is what a later stat will see.
            let inode = child.uncovered().inode.clone();
            if !take_one(&child.name(), &inode, next, take) {
                break;
            }
            *position = next;
        }
        Ok(())
    }
}

/// Gives `.` and `..` if the position (0, 1) asks for them. Whether there is room for more.
pub fn take_dots(dentry: &Arc<Dentry>, position: &mut u64, take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> bool {
    if *position == 0 {
        if !take_one(b".", &dentry.inode, 1, take) {
            return false;
        }
        *position = 1;
    }
    if *position == 1 {
        if !take_one(b"..", &dentry.parent().inode, 2, take) {
            return false;
        }
        *position = 2;
    }
    true
}

fn take_one(name: &[u8], inode: &Inode, next: u64, take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> bool {
    take(&Entry { inode: inode.number, next, type_bits: inode.type_bits(), name }) == Taken::Yes
}
