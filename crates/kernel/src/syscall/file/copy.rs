//! Bytes from file to file: `sendfile`, `copy_file_range`, `splice`, `tee`.

use alloc::sync::Arc;

use super::content_file;
use super::transfer::{SPLICE_FLAGS, SPLICE_NONBLOCK};
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::file::OpenFlags;
use crate::fs::io::{CHUNK, KernelSink, KernelSupply, MAX_TRANSFER, PageBuffer};
use crate::fs::pipe::Unit;
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// One side of a copy: a file, and where in it; `None` for its position.
struct Side {
    file: Arc<File>,
    at: Option<u64>,
}

impl Side {
    /// `offset` is the address of an offset that is used and updated instead of the position, if it is not 0.
    fn new(file: Arc<File>, offset: u64) -> Result<Side, Errno> {
        let at = match offset {
            0 => None,
            address => Some(u64::try_from(uaccess::read::<i64>(address)?).map_err(|_| Errno::EINVAL)?),
        };
        Ok(Side { file, at })
    }

    fn advance(&mut self, bytes: usize) {
        if let Some(at) = &mut self.at {
            *at += bytes as u64;
        }
    }

    fn store(&self, offset: u64) -> Result<(), Errno> {
        match self.at {
            Some(at) => uaccess::write(offset, &at),
            None => Ok(()),
        }
    }
}

/// Copies up to `len` bytes through a buffer. What was read and could not be written is given back by moving the position.
fn copy(from: &mut Side, to: &mut Side, len: usize) -> SysResult {
    let len = len.min(MAX_TRANSFER);
    let mut buffer = PageBuffer::new()?;
    let buffer = buffer.bytes();
    let mut done = 0;
    while done < len {
        let want = (len - done).min(CHUNK);
        let got = match from.file.read(from.at, &mut KernelSink::new(&mut buffer[..want])) {
            Ok(0) => break,
            Ok(got) => got,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        let put = to.file.write(to.at, &mut KernelSupply(&buffer[..got]));
        let written = *put.as_ref().unwrap_or(&0);
        from.advance(written);
        to.advance(written);
        if from.at.is_none() && written < got {
            let mut position = from.file.position.lock();
            *position = position.saturating_sub((got - written) as u64);
        }
        done += written;
        match put {
            Err(error) if done == 0 => return Err(error),
            Ok(put) if put == got && got == want => {}
            _ => break,
        }
    }
    Ok(done)
}

/// sendfile(2)
pub fn sendfile(task: &Task, to: i32, from: i32, offset: u64, len: usize) -> SysResult {
    let from = content_file(task, from)?;
    if !from.readable() {
        return Err(Errno::EBADF);
    }
    let to = content_file(task, to)?;
    if !to.writable() {
        return Err(Errno::EBADF);
    }
    // What is read must be a file that can be given back; what is written may be anything but append-only.
    if !from.body.has_position() || from.inode().is_directory() || to.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    let mut from = Side::new(from, offset)?;
    let mut to = Side { file: to, at: None };
    let done = copy(&mut from, &mut to, len)?;
    from.store(offset)?;
    Ok(done)
}

/// copy_file_range(2). Each side is a descriptor and the address of an offset, 0 for none.
pub fn copy_file_range(task: &Task, from: (i32, u64), to: (i32, u64), len: usize, flags: u32) -> SysResult {
    let (source, target) = (content_file(task, from.0)?, content_file(task, to.0)?);
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    for file in [&source, &target] {
        if file.inode().is_directory() {
            return Err(Errno::EISDIR);
        }
        if file.inode().regular().is_none() {
            return Err(Errno::EINVAL);
        }
    }
    if !source.readable() || !target.writable() || target.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EBADF);
    }
    let mut source = Side::new(source, from.1)?;
    let mut target = Side::new(target, to.1)?;
    if source.file.inode().same(target.file.inode()) {
        let start = |side: &Side| side.at.unwrap_or_else(|| *side.file.position.lock());
        let (a, b) = (start(&source), start(&target));
        if a.abs_diff(b) < len as u64 {
            return Err(Errno::EINVAL);
        }
    }
    let done = copy(&mut source, &mut target, len)?;
    source.store(from.1)?;
    target.store(to.1)?;
    Ok(done)
}

/// splice(2): to or from a pipe, each side a descriptor and the address of an offset, 0 for none. Errors in Linux's order (`do_splice` of `fs/splice.c`).
pub fn splice(task: &Task, from: (i32, u64), to: (i32, u64), len: usize, flags: u32) -> SysResult {
    if len == 0 {
        return Ok(0);
    }
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let (source, target) = (content_file(task, from.0)?, content_file(task, to.0)?);
    if !source.readable() || !target.writable() {
        return Err(Errno::EBADF);
    }
    let (out_of, into) = (source.inode().pipe().cloned(), target.inode().pipe().cloned());
    match (&out_of, &into) {
        (None, None) => return Err(Errno::EINVAL),
        (Some(_), _) if from.1 != 0 => return Err(Errno::ESPIPE),
        (_, Some(_)) if to.1 != 0 => return Err(Errno::ESPIPE),
        (Some(a), Some(b)) if Arc::ptr_eq(a, b) => return Err(Errno::EINVAL),
        _ => {}
    }
    let seeks = |file: &Arc<File>, offset: u64| offset == 0 || file.body.has_position();
    if !seeks(&source, from.1) || !seeks(&target, to.1) || target.flags().contains(OpenFlags::APPEND) {
        return Err(Errno::EINVAL);
    }
    let (mut source, mut target) = (Side::new(source, from.1)?, Side::new(target, to.1)?);
    // Never more than is there, or than there is room for: nothing that was read has nowhere to go.
    let non_blocking = flags & SPLICE_NONBLOCK != 0;
    let mut buffer = PageBuffer::new()?;
    let bytes = buffer.bytes();
    let mut want = len.min(CHUNK);
    if let Some(pipe) = &into {
        want = want.min(pipe.wait_for_room(non_blocking || target.file.non_blocking())?);
    }
    let got = match &out_of {
        Some(pipe) => {
            let waits_not = non_blocking || source.file.non_blocking();
            pipe.read(&mut KernelSink::new(&mut bytes[..want]), waits_not)?
        }
        None => source.file.read(source.at, &mut KernelSink::new(&mut bytes[..want]))?,
    };
    if got == 0 {
        return Ok(0);
    }
    let put = match &into {
        Some(pipe) => pipe.write(&mut KernelSupply(&bytes[..got]), Unit::Bytes, non_blocking)?,
        None => target.file.write(target.at, &mut KernelSupply(&bytes[..got]))?,
    };
    source.advance(put);
    target.advance(put);
    source.store(from.1)?;
    target.store(to.1)?;
    Ok(put)
}

/// tee(2): what is in a pipe goes into another, too.
pub fn tee(task: &Task, from: i32, to: i32, len: usize, flags: u32) -> SysResult {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let (source, target) = (content_file(task, from)?, content_file(task, to)?);
    if !source.readable() || !target.writable() {
        return Err(Errno::EBADF);
    }
    let (Some(out_of), Some(into)) = (source.inode().pipe(), target.inode().pipe()) else { return Err(Errno::EINVAL) };
    if Arc::ptr_eq(out_of, into) {
        return Err(Errno::EINVAL);
    }
    let waits_not = flags & SPLICE_NONBLOCK != 0;
    let mut buffer = PageBuffer::new()?;
    let bytes = buffer.bytes();
    let got = out_of.peek(&mut bytes[..len.min(CHUNK)], waits_not || source.non_blocking())?;
    if got == 0 {
        return Ok(0);
    }
    let room = into.wait_for_room(waits_not || target.non_blocking())?;
    into.write(&mut KernelSupply(&bytes[..got.min(room)]), Unit::Bytes, waits_not)
}
