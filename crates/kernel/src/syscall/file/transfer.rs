//! `read`, `write` and their kin; `lseek`.

use foldspace_linux::IoVec;
use linux_raw_sys::general as raw;
use smallvec::SmallVec;

use super::content_file;
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::file::Whence;
use crate::fs::io::{UserBuffer, UserVector};
use crate::fs::pipe::Unit;
use crate::fs::secret;
use crate::process::Task;
use crate::syscall::SysResult;
use crate::syscall::memory::in_space;

/// First address that no program can map: lengths and addresses are checked against it first, as Linux's `access_ok` does.
const USER_END: u64 = foldspace::addr::USER_END.get();

pub(super) fn buffer(address: u64, len: usize) -> Result<UserBuffer, Errno> {
    match address.checked_add(len as u64) {
        Some(end) if end <= USER_END => Ok(UserBuffer::new(address, len)),
        _ => Err(Errno::EFAULT),
    }
}

fn check_len(len: usize) -> Result<(), Errno> {
    if len as isize >= 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// read(2)
pub fn read(task: &Task, fd: i32, address: u64, len: usize) -> SysResult {
    let file = content_file(task, fd)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    file.read(None, &mut buffer(address, len)?)
}

/// write(2)
pub fn write(task: &Task, fd: i32, address: u64, len: usize) -> SysResult {
    let file = content_file(task, fd)?;
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    file.write(None, &mut buffer(address, len)?)
}

/// pread(2)
pub fn pread(task: &Task, fd: i32, address: u64, len: usize, offset: i64) -> SysResult {
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    check_len(len)?;
    content_file(task, fd)?.read(Some(offset), &mut buffer(address, len)?)
}

/// pwrite(2)
pub fn pwrite(task: &Task, fd: i32, address: u64, len: usize, offset: i64) -> SysResult {
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    check_len(len)?;
    content_file(task, fd)?.write(Some(offset), &mut buffer(address, len)?)
}

pub type Pieces = SmallVec<[UserBuffer; 8]>;

/// The caller's memory that an array of vectors describes.
pub fn pieces(address: u64, count: usize) -> Result<Pieces, Errno> {
    let vectors = in_space(|space| IoVec::import(space, address, count as u64))??;
    Ok(vectors.iter().map(|vector| UserBuffer::new(vector.base, vector.len as usize)).collect())
}

fn read_pieces(file: &File, at: Option<u64>, address: u64, count: usize) -> SysResult {
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    file.read(at, &mut UserVector::new(&mut pieces(address, count)?))
}

fn write_pieces(file: &File, at: Option<u64>, address: u64, count: usize) -> SysResult {
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    file.write(at, &mut UserVector::new(&mut pieces(address, count)?))
}

/// readv(2)
pub fn readv(task: &Task, fd: i32, address: u64, count: usize) -> SysResult {
    read_pieces(&*content_file(task, fd)?, None, address, count)
}

/// writev(2)
pub fn writev(task: &Task, fd: i32, address: u64, count: usize) -> SysResult {
    write_pieces(&*content_file(task, fd)?, None, address, count)
}

/// preadv(2)
pub fn preadv(task: &Task, fd: i32, address: u64, count: usize, offset: i64) -> SysResult {
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    read_pieces(&*content_file(task, fd)?, Some(offset), address, count)
}

/// pwritev(2)
pub fn pwritev(task: &Task, fd: i32, address: u64, count: usize, offset: i64) -> SysResult {
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    write_pieces(&*content_file(task, fd)?, Some(offset), address, count)
}

/// The offset of preadv2 and pwritev2: -1 is the position.
fn optional(offset: i64) -> Result<Option<u64>, Errno> {
    if offset == -1 { Ok(None) } else { u64::try_from(offset).map(Some).map_err(|_| Errno::EINVAL) }
}

fn check_rw_flags(flags: u32) -> Result<(), Errno> {
    // Hints, and durability that memory has anyway.
    let harmless = raw::RWF_HIPRI | raw::RWF_DSYNC | raw::RWF_SYNC;
    if flags & !harmless == 0 { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

/// preadv2(2)
pub fn preadv2(task: &Task, fd: i32, address: u64, count: usize, offset: i64, flags: u32) -> SysResult {
    check_rw_flags(flags)?;
    read_pieces(&*content_file(task, fd)?, optional(offset)?, address, count)
}

/// pwritev2(2)
pub fn pwritev2(task: &Task, fd: i32, address: u64, count: usize, offset: i64, flags: u32) -> SysResult {
    check_rw_flags(flags)?;
    write_pieces(&*content_file(task, fd)?, optional(offset)?, address, count)
}

/// vmsplice(2): between memory and a pipe. Pages are copied, never lent: what the program does to its memory afterwards does not show.
pub fn vmsplice(task: &Task, fd: i32, address: u64, count: usize, flags: u32) -> SysResult {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let file = content_file(task, fd)?;
    let pipe = file.inode().pipe().ok_or(Errno::EBADF)?;
    let non_blocking = flags & SPLICE_NONBLOCK != 0 || file.non_blocking();
    let mut pieces = pieces(address, count)?;
    if file.writable() {
        if pieces.first().is_some_and(|piece| secret::is_mapped_at(piece.address())) {
            return Err(Errno::EFAULT);
        }
        pipe.write(&mut UserVector::new(&mut pieces), Unit::Bytes, non_blocking)
    } else if file.readable() {
        pipe.read(&mut UserVector::new(&mut pieces), non_blocking)
    } else {
        Err(Errno::EBADF)
    }
}

/// All `SPLICE_F_*` (`linux/splice.h`).
pub(super) const SPLICE_FLAGS: u32 = 0xf;
/// `SPLICE_F_NONBLOCK`.
pub(super) const SPLICE_NONBLOCK: u32 = 2;

/// lseek(2)
pub fn lseek(task: &Task, fd: i32, offset: i64, whence: u32) -> SysResult {
    let file = content_file(task, fd)?;
    let whence = match whence {
        raw::SEEK_SET => Whence::Set,
        raw::SEEK_CUR => Whence::Current,
        raw::SEEK_END => Whence::End,
        raw::SEEK_DATA => Whence::Data,
        raw::SEEK_HOLE => Whence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    Ok(file.body.seek(&file, offset, whence)? as usize)
}
