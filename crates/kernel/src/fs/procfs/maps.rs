//! `/proc/PID/maps`: one version of the address space from the first byte to the last, made line by line.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use foldspace::proc::Maps;
use foldspace::{AddressSpace, VirtAddr};
use spin::Mutex;

use super::node::open_task;
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_within};
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::process::Pid;
use crate::syscall::SysResult;

/// An open maps file. It is bound to the address space that it was opened on, and does not keep it alive: once it is gone (exec,
/// exit), reads give end of file.
pub struct MapsBody {
    space: Weak<AddressSpace>,
    reader: Mutex<Option<Reader>>,
}

/// Bytes of lines that are made at a time, but for the end of the last.
const BATCH: usize = 3800;

/// A reading in progress.
struct Reader {
    maps: Maps,
    /// Where the next line begins in the address space; `None` after the last.
    next: Option<VirtAddr>,
    /// The lines that are being given out.
    lines: Vec<u8>,
    /// Bytes of them already given.
    given: usize,
    /// Offset of the next byte in the file.
    offset: u64,
}

impl Reader {
    fn new(space: &AddressSpace) -> Reader {
        Reader { maps: space.maps(), next: Some(VirtAddr(0)), lines: Vec::with_capacity(160), given: 0, offset: 0 }
    }

    /// Back to the first byte of the same version.
    fn rewind(&mut self) {
        self.next = Some(VirtAddr(0));
        self.lines.clear();
        self.given = 0;
        self.offset = 0;
    }

    /// What is left of the lines made so far, or as many more as hold `wanted` bytes (or [`BATCH`]); empty at the end.
    fn rest(&mut self, wanted: usize) -> &[u8] {
        if self.given == self.lines.len() {
            self.lines.clear();
            self.given = 0;
            while self.lines.len() < wanted.min(BATCH) {
                let Some(from) = self.next else { break };
                self.next = self.maps.line(from, &mut self.lines);
            }
        }
        &self.lines[self.given..]
    }

    fn advance(&mut self, bytes: usize) {
        self.given += bytes;
        self.offset += bytes as u64;
    }

    /// Moves to an offset, from the start if it lies behind.
    fn seek(&mut self, offset: u64) {
        if offset < self.offset {
            self.rewind();
        }
        while self.offset < offset {
            let rest = self.rest(BATCH).len();
            if rest == 0 {
                return;
            }
            self.advance(rest.min((offset - self.offset) as usize));
        }
    }

    fn read(&mut self, out: &mut dyn Sink) -> SysResult {
        let mut done = 0;
        while out.room() > 0 {
            let room = out.room();
            let rest = self.rest(room);
            if rest.is_empty() {
                break;
            }
            let want = rest.len().min(room);
            let put = out.put(&rest[..want]);
            self.advance(put);
            done += put;
            if put < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }
}

impl MapsBody {
    /// Opens the maps of a thread. `ESRCH` if it is gone, `EACCES` if its memory is not for the caller to look at.
    pub fn open(pid: Pid) -> Result<MapsBody, Errno> {
        Ok(MapsBody { space: Arc::downgrade(&open_task(pid)?.space()), reader: Mutex::new(None) })
    }
}

impl Body for MapsBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let Some(space) = self.space.upgrade() else { return Ok(0) };
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        let mut reader = self.reader.lock();
        let reader = match &mut *reader {
            // A new reading sees what is there now.
            slot if offset == 0 => slot.insert(Reader::new(&space)),
            Some(reader) => reader,
            slot => slot.insert(Reader::new(&space)),
        };
        reader.seek(offset);
        if reader.offset != offset {
            return Ok(0);
        }
        let done = reader.read(out)?;
        if at.is_none() {
            *position += done as u64;
        }
        Ok(done)
    }

    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EINVAL)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        match whence {
            Whence::Set | Whence::Current => seek_within(&mut file.position.lock(), 0, offset, whence),
            _ => Err(Errno::EINVAL),
        }
    }

    fn has_position(&self) -> bool {
        true
    }
}
