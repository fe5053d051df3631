//! `/proc/PID/maps`, `smaps` and `smaps_rollup`: one version of the address space from the first byte to the last, made piece by piece.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use foldspace::proc::{Maps, Smaps};
use foldspace::{AddressSpace, VirtAddr};
use spin::Mutex;

use super::node::open_task;
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_without_end};
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::process::Pid;
use crate::syscall::SysResult;

/// Which of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A line for each VMA.
    Maps,
    /// The same with sizes below each line.
    Smaps,
    /// Sums of the sizes.
    Rollup,
}

/// An open maps file. It is bound to the address space that it was opened on, and does not keep it alive: once it is gone (exec,
/// exit), reads give end of file, or `ESRCH` for sums.
pub struct MapsBody {
    space: Weak<AddressSpace>,
    form: Form,
    reader: Mutex<Option<Reader>>,
}

/// Bytes of text that are made at a time, but for the end of the last piece.
const BATCH: usize = 3800;

/// What makes the text of one VMA.
enum Pieces {
    Maps(Maps),
    Smaps(Smaps),
    Rollup,
}

/// A reading in progress.
struct Reader {
    pieces: Pieces,
    /// Where the next piece begins in the address space; `None` after the last.
    next: Option<VirtAddr>,
    /// The text that is being given out.
    lines: Vec<u8>,
    /// Bytes of it already given.
    given: usize,
    /// Offset of the next byte in the file.
    offset: u64,
}

impl Reader {
    fn new(space: &AddressSpace, form: Form) -> Reader {
        let pieces = match form {
            Form::Maps => Pieces::Maps(space.maps()),
            Form::Smaps => Pieces::Smaps(space.smaps()),
            Form::Rollup => Pieces::Rollup,
        };
        Reader { pieces, next: Some(VirtAddr(0)), lines: Vec::with_capacity(160), given: 0, offset: 0 }
    }

    /// Back to the first byte of the same version.
    fn rewind(&mut self) {
        self.next = Some(VirtAddr(0));
        self.lines.clear();
        self.given = 0;
        self.offset = 0;
    }

    /// What is left of the text made so far, or as many more pieces as hold `wanted` bytes (or [`BATCH`]); empty at the end.
    fn rest(&mut self, space: &AddressSpace, wanted: usize) -> Result<&[u8], Errno> {
        if self.given == self.lines.len() {
            self.lines.clear();
            self.given = 0;
            let wanted = wanted.min(BATCH);
            while self.lines.len() < wanted {
                let Some(from) = self.next else { break };
                self.next = match &self.pieces {
                    Pieces::Maps(maps) => maps.lines(from, wanted, &mut self.lines),
                    Pieces::Smaps(smaps) => smaps.entry(space, from, &mut self.lines)?,
                    Pieces::Rollup => {
                        space.smaps_rollup(&mut self.lines)?;
                        None
                    }
                };
            }
        }
        Ok(&self.lines[self.given..])
    }

    fn advance(&mut self, bytes: usize) {
        self.given += bytes;
        self.offset += bytes as u64;
    }

    /// Moves to an offset, from the start if it lies behind.
    fn seek(&mut self, space: &AddressSpace, offset: u64) -> Result<(), Errno> {
        if offset < self.offset {
            self.rewind();
        }
        while self.offset < offset {
            let rest = self.rest(space, BATCH)?.len();
            if rest == 0 {
                break;
            }
            self.advance(rest.min((offset - self.offset) as usize));
        }
        Ok(())
    }

    fn read(&mut self, space: &AddressSpace, out: &mut dyn Sink) -> SysResult {
        let mut done = 0;
        while out.room() > 0 {
            let room = out.room();
            let rest = match self.rest(space, room) {
                Ok(rest) => rest,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
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
    pub fn open(pid: Pid, form: Form) -> Result<MapsBody, Errno> {
        Ok(MapsBody { space: Arc::downgrade(&open_task(pid)?.space()), form, reader: Mutex::new(None) })
    }
}

impl Body for MapsBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let Some(space) = self.space.upgrade() else {
            return if self.form == Form::Rollup { Err(Errno::ESRCH) } else { Ok(0) };
        };
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        let mut reader = self.reader.lock();
        let reader = match &mut *reader {
            // A new reading sees what is there now.
            slot if offset == 0 => slot.insert(Reader::new(&space, self.form)),
            Some(reader) => reader,
            slot => slot.insert(Reader::new(&space, self.form)),
        };
        reader.seek(&space, offset)?;
        if reader.offset != offset {
            return Ok(0);
        }
        let done = reader.read(&space, out)?;
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
