//! `/proc/PID/maps`, `smaps` and `smaps_rollup`: one version of the address space from the first byte to the last, made piece by piece.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use crate::sync::Mutex;
use foldspace::proc::{Maps, Smaps};
use foldspace::{AddressSpace, VirtAddr};
use foldspace_linux::PROCMAP_QUERY;

use super::node::open_task;
use crate::errno::Errno;
use crate::fs::file::{Body, File, Whence, seek_without_end};
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::fs::reserve;
use crate::process::{Pid, Task};
use crate::syscall::{SysResult, memory};

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
/// exit), reads give what is left of the text that was made, then end of file, or `ESRCH` for sums.
pub struct MapsBody {
    space: Weak<AddressSpace>,
    form: Form,
    reading: Mutex<Reading>,
}

/// Bytes of text that are made at a time, but for the end of the last piece.
const BATCH: usize = 3800;
/// What that end takes, unless a path is long.
const LAST: usize = 1300;

/// What makes the text of one VMA.
enum Pieces {
    Maps(Maps),
    Smaps(Smaps),
    Rollup,
}

/// A reading in progress: one version of the address space, whose text is made from its first byte on.
struct Reader {
    pieces: Pieces,
    /// Where the next piece begins in the address space; `None` after the last.
    next: Option<VirtAddr>,
    /// The text that is being given out.
    lines: Vec<u8>,
    /// Bytes of it already given.
    given: usize,
}

impl Reader {
    fn new(space: &AddressSpace, form: Form) -> Reader {
        let pieces = match form {
            Form::Maps => Pieces::Maps(space.maps()),
            Form::Smaps => Pieces::Smaps(space.smaps()),
            Form::Rollup => Pieces::Rollup,
        };
        Reader { pieces, next: Some(VirtAddr(0)), lines: Vec::new(), given: 0 }
    }

    /// What is left of the text made so far, or as many more pieces as hold `wanted` bytes (or [`BATCH`]); empty at the end.
    fn rest(&mut self, space: &AddressSpace, wanted: usize) -> Result<&[u8], Errno> {
        if self.given == self.lines.len() {
            self.lines.clear();
            self.given = 0;
            let wanted = wanted.min(BATCH);
            self.lines.try_reserve(wanted + LAST).map_err(|_| Errno::ENOMEM)?;
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

    /// Passes over so many bytes from the start; `false` if there are not so many.
    fn skip(&mut self, space: &AddressSpace, mut bytes: u64) -> Result<bool, Errno> {
        while bytes > 0 {
            let rest = self.rest(space, BATCH)?.len();
            if rest == 0 {
                return Ok(false);
            }
            let part = (rest as u64).min(bytes);
            self.given += part as usize;
            bytes -= part;
        }
        Ok(true)
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
            self.given += put;
            done += put;
            if put < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }
}

/// What an open file remembers between two reads.
#[derive(Default)]
struct Reading {
    /// Where the last read ended: who goes on there reads the same version.
    offset: u64,
    /// The rest of that version, as long as there is any: at its end it is given up, so that a file that was read and stays open keeps
    /// nothing alive.
    reader: Option<Reader>,
}

impl Reading {
    /// Reads at an offset. From the start, and everywhere else but where the last read ended, that is another reading, of what is there now:
    /// so does Linux (`seq_read_iter`, whose `traverse` makes the text from the start again).
    fn read(&mut self, space: &AddressSpace, form: Form, offset: u64, out: &mut dyn Sink) -> SysResult {
        reserve::check_heap()?;
        if offset == 0 || offset != self.offset {
            let mut reader = Reader::new(space, form);
            self.reader = reader.skip(space, offset)?.then_some(reader);
            self.offset = offset;
        }
        let Some(reader) = &mut self.reader else { return Ok(0) };
        let done = reader.read(space, out)?;
        self.offset += done as u64;
        if reader.next.is_none() && reader.given == reader.lines.len() {
            self.reader = None;
        }
        Ok(done)
    }

    /// What is left of the text that was made before the address space went: a line that was begun comes to its end, as on Linux.
    fn finish(&mut self, offset: u64, out: &mut dyn Sink) -> SysResult {
        let Some(reader) = self.reader.as_mut().filter(|_| offset == self.offset) else { return Ok(0) };
        let rest = &reader.lines[reader.given..];
        let want = rest.len().min(out.room());
        let done = out.put(&rest[..want]);
        reader.given += done;
        self.offset += done as u64;
        if done < want { done_or_fault(done) } else { Ok(done) }
    }
}

impl MapsBody {
    /// Opens the maps of a thread. `ESRCH` if it is gone, `EACCES` if its memory is not for the caller to look at.
    pub fn open(pid: Pid, form: Form) -> Result<MapsBody, Errno> {
        Ok(MapsBody { space: Arc::downgrade(&open_task(pid)?.space()), form, reading: Mutex::default() })
    }
}

impl Body for MapsBody {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let mut position = file.position.lock();
        let offset = at.unwrap_or(*position);
        let mut reading = self.reading.lock();
        let done = match self.space.upgrade() {
            Some(space) => reading.read(&space, self.form, offset, out)?,
            None => match reading.finish(offset, out)? {
                0 if self.form == Form::Rollup => return Err(Errno::ESRCH),
                done => done,
            },
        };
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

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        if self.form != Form::Maps || request != PROCMAP_QUERY {
            return Err(Errno::ENOTTY);
        }
        memory::procmap_query(task, argument, || self.space.upgrade().ok_or(Errno::ESRCH))
    }
}
