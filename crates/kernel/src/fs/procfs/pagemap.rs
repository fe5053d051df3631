//! `/proc/PID/pagemap`: eight bytes for each page of the address space, at eight times its number.

use alloc::sync::{Arc, Weak};

use foldspace::addr::{PAGE_SIZE, USER_END};
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use super::node::open_task;
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_without_end};
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::process::Pid;
use crate::process::credentials::CAP_SYS_ADMIN;
use crate::sched;
use crate::syscall::SysResult;

/// Bytes of an entry.
const ENTRY: u64 = 8;
/// Entries that are made at a time.
const BATCH: u64 = 256;

/// An open pagemap, bound to the address space that it was opened on as maps files are.
pub struct PagemapBody {
    space: Weak<AddressSpace>,
    numbers: FrameNumbers,
}

impl PagemapBody {
    /// Opens that of a thread. Frame numbers are for those who have `CAP_SYS_ADMIN`. `ESRCH`, `EACCES`.
    pub fn open(pid: Pid) -> Result<PagemapBody, Errno> {
        let privileged = sched::with_current(|task| task.credentials().may(CAP_SYS_ADMIN));
        let numbers = if privileged { FrameNumbers::Shown } else { FrameNumbers::Hidden };
        Ok(PagemapBody { space: Arc::downgrade(&open_task(pid)?.space()), numbers })
    }

    fn copy(&self, space: &AddressSpace, offset: u64, out: &mut dyn Sink) -> SysResult {
        let end = USER_END.get() / PAGE_SIZE;
        let mut page = offset / ENTRY;
        let mut done = 0;
        while page < end && out.room() > 0 {
            // Never across the end of a table.
            let count = (BATCH - page % BATCH).min(end - page).min(out.room() as u64 / ENTRY);
            let Some(range) = PageRange::from_len(VirtAddr(page * PAGE_SIZE), count * PAGE_SIZE) else { break };
            let mut entries = [PagemapEntry::default(); BATCH as usize];
            let mut bytes = [0; (BATCH * ENTRY) as usize];
            match space.pagemap(range, self.numbers, &mut entries[..count as usize]) {
                Ok(()) => {}
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => break,
            }
            for (entry, bytes) in entries.iter().zip(bytes.chunks_exact_mut(ENTRY as usize)) {
                bytes.copy_from_slice(&entry.0.to_le_bytes());
            }
            let bytes = &bytes[..(count * ENTRY) as usize];
            let put = out.put(bytes);
            done += put;
            if put < bytes.len() {
                return done_or_fault(done);
            }
            page += count;
        }
        Ok(done)
    }
}

impl Body for PagemapBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        if !offset.is_multiple_of(ENTRY) || !(out.room() as u64).is_multiple_of(ENTRY) {
            return Err(Errno::EINVAL);
        }
        let done = self.copy(&space, offset, out)?;
        if at.is_none() {
            *position += done as u64;
        }
        Ok(done)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        seek_without_end(file, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }
}
