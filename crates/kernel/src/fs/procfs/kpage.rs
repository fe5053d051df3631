//! `/proc/kpagecount` and `/proc/kpageflags`: eight bytes for each frame, at eight times its number.

use foldspace::Frame;

use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_without_end};
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::mm;
use crate::syscall::SysResult;

/// Bytes of an entry.
const ENTRY: u64 = 8;
/// Entries that are made at a time.
const BATCH: usize = 64;

/// What is said of each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kpage {
    /// How often it is mapped.
    Count,
    /// What it is.
    Flags,
}

impl Kpage {
    fn of(self, frame: Frame) -> u64 {
        let memory = mm::memory();
        match self {
            // What others change all the time is mapped by nobody for long.
            Kpage::Count => memory.map_count(frame).unwrap_or(0),
            Kpage::Flags => memory.kpage_flags(frame).bits(),
        }
    }
}

/// An open one.
pub struct KpageBody(pub Kpage);

impl Body for KpageBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        let end = u64::from(mm::memory().frame_numbers()) * ENTRY;
        // Linux asks in this order (`kpagecount_read`).
        if offset >= end {
            return Ok(0);
        }
        if !offset.is_multiple_of(ENTRY) || !(out.room() as u64).is_multiple_of(ENTRY) {
            return Err(Errno::EINVAL);
        }
        let (mut done, mut frame) = (0, (offset / ENTRY) as u32);
        let mut left = (out.room() as u64).min(end - offset) / ENTRY;
        while left > 0 {
            let count = left.min(BATCH as u64);
            let mut bytes = [0; BATCH * ENTRY as usize];
            for (bytes, number) in bytes.chunks_exact_mut(ENTRY as usize).zip(frame..frame + count as u32) {
                bytes.copy_from_slice(&self.0.of(Frame(number)).to_le_bytes());
            }
            let bytes = &bytes[..(count * ENTRY) as usize];
            let put = out.put(bytes);
            done += put;
            if put < bytes.len() {
                return done_or_fault(done);
            }
            (frame, left) = (frame + count as u32, left - count);
        }
        if at.is_none() {
            *position += done as u64;
        }
        Ok(done)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EIO)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        seek_without_end(file, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }
}
