//! `/proc/PID/mem`: the memory of a process, at its own addresses. What may be read or written does not depend on the protection of the
//! mappings (`FOLL_FORCE` of Linux's `fs/proc/base.c`): a store into private memory that is not writable makes a copy.

use alloc::sync::Weak;

use foldspace::addr::PAGE_SIZE;
use foldspace::{AddressSpace, VirtAddr};

use super::node::open_task;
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence};
use crate::fs::io::{Sink, Supply};
use crate::process::Pid;
use crate::sync::MutexGuard;
use crate::syscall::SysResult;

/// Bytes that are copied at a time.
const CHUNK: usize = 1024;

/// An open file, bound to the address space that it was opened on.
pub struct MemBody {
    space: Weak<AddressSpace>,
}

/// Where a transfer is, and whose position moves with it.
struct Cursor<'a> {
    address: u64,
    position: Option<MutexGuard<'a, u64>>,
    done: usize,
}

impl<'a> Cursor<'a> {
    fn new(file: &'a File, at: Option<u64>) -> Cursor<'a> {
        match at {
            Some(address) => Cursor { address, position: None, done: 0 },
            None => {
                let position = file.position.lock();
                Cursor { address: *position, position: Some(position), done: 0 }
            }
        }
    }

    /// How many bytes come next, of `left`: none across the end of a page.
    fn piece(&self, left: usize) -> usize {
        let to_boundary = (PAGE_SIZE - self.address % PAGE_SIZE) as usize;
        CHUNK.min(to_boundary).min(left)
    }

    fn advance(&mut self, bytes: usize) {
        self.done += bytes;
        self.address = self.address.wrapping_add(bytes as u64);
        if let Some(position) = &mut self.position {
            **position = self.address;
        }
    }

    fn end(self, error: Option<Errno>) -> SysResult {
        match error {
            Some(error) if self.done == 0 => Err(error),
            _ => Ok(self.done),
        }
    }
}

impl MemBody {
    /// Opens that of a thread. `ESRCH`, `EACCES`.
    pub fn open(pid: Pid) -> Result<MemBody, Errno> {
        let task = open_task(pid)?;
        let space = task.live_space().map_or(Weak::new(), |space| alloc::sync::Arc::downgrade(&space));
        Ok(MemBody { space })
    }
}

impl Body for MemBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut cursor = Cursor::new(file, at);
        let mut chunk = [0; CHUNK];
        while out.room() > 0 {
            let len = cursor.piece(out.room());
            let got = space.read_forced(VirtAddr(cursor.address), &mut chunk[..len]);
            let put = out.put(&chunk[..got]);
            cursor.advance(put);
            if put < got {
                return cursor.end(Some(Errno::EFAULT));
            }
            if got < len {
                return cursor.end(Some(Errno::EIO));
            }
        }
        cursor.end(None)
    }

    fn write(&self, file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut cursor = Cursor::new(file, at);
        let mut chunk = [0; CHUNK];
        while from.remaining() > 0 {
            let len = cursor.piece(from.remaining());
            let got = from.take(&mut chunk[..len]);
            let put = space.write_forced(VirtAddr(cursor.address), &chunk[..got]);
            cursor.advance(put);
            if put < got {
                return cursor.end(Some(Errno::EIO));
            }
            if got < len {
                return cursor.end(Some(Errno::EFAULT));
            }
        }
        cursor.end(None)
    }

    /// Any address will do, also those that are negative as positions (`mem_lseek`).
    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        let mut position = file.position.lock();
        *position = match whence {
            Whence::Set => offset as u64,
            Whence::Current => position.wrapping_add_signed(offset),
            _ => return Err(Errno::EINVAL),
        };
        Ok(*position)
    }

    fn has_position(&self) -> bool {
        true
    }
}
