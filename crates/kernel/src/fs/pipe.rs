//! Pipes and fifos.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::{Mutex, MutexGuard};

use super::dentry::Dentry;
use super::file::{Body, File, Happened, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{CHUNK, Sink, Supply, done_or_fault, new_page};
use super::{poll, reserve, superblock};
use crate::errno::Errno;
use crate::process::signal::Signal;
use crate::process::{self, Task};
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// Bytes that a new pipe holds.
pub const DEFAULT_CAPACITY: usize = 65_536;
/// Most that F_SETPIPE_SZ gives (`/proc/sys/fs/pipe-max-size`).
pub const MAX_CAPACITY: usize = 1_048_576;
/// A page of bytes on their way; `start..end` are still to be read.
struct Block {
    bytes: Box<[u8; CHUNK]>,
    start: usize,
    end: usize,
    unit: Unit,
}

/// How what is written at once is read (`O_DIRECT` in pipe(2)).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// As bytes in a row.
    Bytes,
    /// As packets of a page at most, one for each read; what that has no room for is lost.
    Packets,
}

impl Block {
    /// Adds up to `want` bytes, which there must be room for; returns how many could be read.
    fn take(&mut self, from: &mut dyn Supply, want: usize) -> usize {
        let took = from.take(&mut self.bytes[self.end..self.end + want]);
        self.end += took;
        took
    }
}

struct State {
    blocks: VecDeque<Block>,
    /// An empty block kept for the next write, so that a pipe in steady use does not allocate.
    spare: Option<Block>,
    /// Bytes to be read.
    len: usize,
    capacity: usize,
    readers: usize,
    writers: usize,
    /// Opens for reading and for writing so far: what `open` of a fifo waits for.
    reader_opens: u64,
    writer_opens: u64,
}

impl State {
    /// Whether all blocks are in use, however little is in them: then writers wait (`pipe_full`).
    fn is_full(&self) -> bool {
        self.blocks.len() >= self.capacity / CHUNK
    }

    /// Moves bytes in as `pipe_write` of `fs/pipe.c` does, whose way with partly filled blocks can be told from outside: what is above whole
    /// blocks goes behind the last bytes if all of it fits there, the rest into blocks of its own. So what fits a block is never torn. Returns how many bytes,
    /// and whether a bad address ended it; `None` if there is no room at all.
    fn fill(&mut self, from: &mut dyn Supply, unit: Unit) -> Result<Option<(usize, bool)>, Errno> {
        let mut done = 0;
        let tail = from.remaining() % CHUNK;
        if tail > 0
            && let Some(last) = self.blocks.back_mut()
            && last.unit == Unit::Bytes
            && last.end + tail <= CHUNK
        {
            let took = last.take(from, tail);
            self.len += took;
            done += took;
            if took < tail {
                return Ok(Some((done, true)));
            }
        }
        while from.remaining() > 0 && !self.is_full() {
            let mut block = match self.spare.take() {
                Some(block) => Block { unit, ..block },
                None => match reserve::check(Errno::ENOMEM).and_then(|()| new_page()) {
                    Ok(bytes) => Block { bytes, start: 0, end: 0, unit },
                    Err(_) if done > 0 => return Ok(Some((done, false))),
                    Err(error) => return Err(error),
                },
            };
            let want = from.remaining().min(CHUNK);
            let took = block.take(from, want);
            self.len += took;
            done += took;
            if took > 0 {
                self.blocks.push_back(block);
            } else {
                self.spare = Some(block);
            }
            if took < want {
                return Ok(Some((done, true)));
            }
        }
        Ok((done > 0).then_some((done, false)))
    }

    /// Moves bytes out; returns how many, and whether a bad address ended it.
    fn drain(&mut self, out: &mut dyn Sink) -> (usize, bool) {
        let mut done = 0;
        while out.room() > 0 {
            let Some(block) = self.blocks.front_mut() else { break };
            let want = out.room().min(block.end - block.start);
            let put = out.put(&block.bytes[block.start..block.start + want]);
            let ends = block.unit == Unit::Packets;
            let gone = if ends { block.end - block.start } else { put };
            block.start += gone;
            self.len -= gone;
            done += put;
            if block.start == block.end
                && let Some(mut empty) = self.blocks.pop_front()
            {
                (empty.start, empty.end) = (0, 0);
                self.spare = Some(empty);
            }
            if put < want {
                return (done, true);
            }
            if ends {
                break;
            }
        }
        (done, false)
    }
}

/// A pipe: what is written at one end is read at the other.
pub struct Pipe {
    state: Mutex<State>,
    /// Readers wait here for bytes (and openers for writing, for a reader).
    readable: WaitQueue,
    /// Writers wait here for room (and openers for reading, for a writer).
    writable: WaitQueue,
    /// How often readers were told of bytes or an end.
    inputs: AtomicU64,
    /// How often writers were told of room or an end.
    outputs: AtomicU64,
}

impl Pipe {
    /// An empty one that nobody has open.
    pub fn new() -> Arc<Pipe> {
        Arc::new(Pipe {
            state: Mutex::new(State {
                blocks: VecDeque::new(),
                spare: None,
                len: 0,
                capacity: DEFAULT_CAPACITY,
                readers: 0,
                writers: 0,
                reader_opens: 0,
                writer_opens: 0,
            }),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            inputs: AtomicU64::new(0),
            outputs: AtomicU64::new(0),
        })
    }

    /// Bytes to be read.
    pub fn len(&self) -> usize {
        self.state.lock().len
    }

    /// Bytes that it holds.
    pub fn capacity(&self) -> usize {
        self.state.lock().capacity
    }

    /// Changes that: rounded up to a power of two of pages. `EPERM` above [`MAX_CAPACITY`], `EBUSY` below what is in it.
    pub fn set_capacity(&self, bytes: usize) -> Result<usize, Errno> {
        if bytes > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        let rounded = bytes.max(CHUNK).next_power_of_two();
        if rounded > MAX_CAPACITY {
            return Err(Errno::EPERM);
        }
        let mut state = self.state.lock();
        if rounded / CHUNK < state.blocks.len() {
            return Err(Errno::EBUSY);
        }
        state.capacity = rounded;
        drop(state);
        self.announce_output();
        Ok(rounded)
    }

    fn announce_input(&self) {
        self.inputs.fetch_add(1, Ordering::Relaxed);
        self.readable.wake_all();
        poll::notify();
    }

    fn announce_output(&self) {
        self.outputs.fetch_add(1, Ordering::Relaxed);
        self.announce_room();
    }

    /// There is more room, and there was some before: those who want to know of each change are not told, as on Linux.
    fn announce_room(&self) {
        self.writable.wake_all();
        poll::notify();
    }

    /// Waits until there is room, or says how much there is: at least a byte. `EAGAIN`, `EPIPE` with its signal.
    pub fn wait_for_room(&self, non_blocking: bool) -> SysResult {
        let attempt = || {
            let state = self.state.lock();
            if state.readers == 0 {
                return Some(Err(Errno::EPIPE));
            }
            let room = state.capacity.saturating_sub(state.blocks.len() * CHUNK);
            (room > 0).then_some(Ok(room))
        };
        let room = match attempt() {
            Some(room) => room,
            None if non_blocking => Err(Errno::EAGAIN),
            None => self.writable.wait_until(attempt)?,
        };
        if room == Err(Errno::EPIPE) {
            process::send_signal(sched::with_current(|task| task.tgid), Signal::PIPE.number());
        }
        room
    }

    /// Copies what is to be read next without taking it; 0 at the end. `EAGAIN`.
    pub fn peek(&self, out: &mut [u8], non_blocking: bool) -> SysResult {
        let mut attempt = || {
            let state = self.state.lock();
            let mut done = 0;
            for block in &state.blocks {
                let bytes = &block.bytes[block.start..block.end];
                let len = bytes.len().min(out.len() - done);
                out[done..done + len].copy_from_slice(&bytes[..len]);
                done += len;
            }
            (done > 0 || state.writers == 0).then_some(done)
        };
        match attempt() {
            Some(done) => Ok(done),
            None if non_blocking => Err(Errno::EAGAIN),
            None => Ok(self.readable.wait_until(attempt)?),
        }
    }

    /// Reads, as from a descriptor that does or does not wait.
    pub fn read(&self, out: &mut dyn Sink, non_blocking: bool) -> SysResult {
        if out.room() == 0 {
            return Ok(0);
        }
        let was_full = Cell::new(false);
        let attempt = |state: &mut MutexGuard<'_, State>, out: &mut dyn Sink| -> Option<SysResult> {
            was_full.set(state.is_full());
            if state.len > 0 {
                let (done, faulted) = state.drain(out);
                return Some(if faulted { done_or_fault(done) } else { Ok(done) });
            }
            (state.writers == 0).then_some(Ok(0))
        };
        let first = attempt(&mut self.state.lock(), out);
        let result = match first {
            Some(result) => result,
            None if non_blocking => return Err(Errno::EAGAIN),
            None => self.readable.wait_until(|| attempt(&mut self.state.lock(), out))?,
        };
        match result {
            Ok(done) if done > 0 && was_full.get() => self.announce_output(),
            Ok(done) if done > 0 => self.announce_room(),
            _ => {}
        }
        result
    }

    /// Writes, likewise.
    pub fn write(&self, from: &mut dyn Supply, unit: Unit, non_blocking: bool) -> SysResult {
        if from.remaining() == 0 {
            return Ok(0);
        }
        let mut total = 0;
        loop {
            let attempt = |from: &mut dyn Supply| -> Option<Result<(usize, bool), Errno>> {
                let mut state = self.state.lock();
                if state.readers == 0 {
                    return Some(Err(Errno::EPIPE));
                }
                state.fill(from, unit).transpose()
            };
            let outcome = match attempt(from) {
                Some(outcome) => outcome,
                None if non_blocking => return if total > 0 { Ok(total) } else { Err(Errno::EAGAIN) },
                None => match self.writable.wait_until(|| attempt(from)) {
                    Ok(outcome) => outcome,
                    Err(_) if total > 0 => return Ok(total),
                    Err(interrupted) => return Err(interrupted.into()),
                },
            };
            match outcome {
                Ok((done, faulted)) => {
                    total += done;
                    if done > 0 {
                        self.announce_input();
                    }
                    if faulted {
                        return done_or_fault(total);
                    }
                    if from.remaining() == 0 {
                        return Ok(total);
                    }
                }
                Err(Errno::EPIPE) => {
                    process::send_signal(sched::with_current(|task| task.tgid), Signal::PIPE.number());
                    return if total > 0 { Ok(total) } else { Err(Errno::EPIPE) };
                }
                Err(error) => return if total > 0 { Ok(total) } else { Err(error) },
            }
        }
    }
}

/// An open end (or, for a fifo opened for both, both ends) of a pipe.
struct End {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
}

impl End {
    fn new(pipe: &Arc<Pipe>, flags: OpenFlags) -> End {
        End::counted(pipe, flags).0
    }

    /// Opens an end; returns how often the pipe had been opened for reading and for writing by then.
    fn counted(pipe: &Arc<Pipe>, flags: OpenFlags) -> (End, u64, u64) {
        let end = End { pipe: pipe.clone(), reads: flags.readable(), writes: flags.writable() };
        let mut state = pipe.state.lock();
        if end.reads {
            state.readers += 1;
            state.reader_opens += 1;
        }
        if end.writes {
            state.writers += 1;
            state.writer_opens += 1;
        }
        let opens = (state.reader_opens, state.writer_opens);
        drop(state);
        (end, opens.0, opens.1)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.pipe.state.lock();
        state.readers -= usize::from(self.reads);
        state.writers -= usize::from(self.writes);
        let (no_readers, no_writers) = (state.readers == 0, state.writers == 0);
        if no_readers && no_writers {
            // A fifo keeps nothing for the next to open it.
            let blocks = core::mem::take(&mut state.blocks);
            state.len = 0;
            drop(state);
            drop(blocks);
        } else {
            drop(state);
        }
        if self.writes && no_writers {
            self.pipe.announce_input();
        }
        if self.reads && no_readers {
            self.pipe.announce_output();
        }
    }
}

impl Body for End {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        self.pipe.read(out, file.non_blocking())
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let unit = if file.flags().contains(OpenFlags::DIRECT) { Unit::Packets } else { Unit::Bytes };
        self.pipe.write(from, unit, file.non_blocking())
    }

    fn ready(&self, _file: &File) -> Ready {
        let state = self.pipe.state.lock();
        let mut ready = Ready::empty();
        if self.reads {
            ready.set(Ready::READABLE, state.len > 0);
            ready.set(Ready::HANG_UP, state.writers == 0 && state.writer_opens > 0);
        }
        if self.writes {
            ready.set(Ready::WRITABLE, !state.is_full());
            ready.set(Ready::ERROR, state.readers == 0);
        }
        ready
    }

    fn happened(&self, _file: &File) -> Happened {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Happened { input: count(&self.pipe.inputs), output: count(&self.pipe.outputs) }
    }

    fn ioctl(&self, _task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        if request != linux_raw_sys::ioctl::FIONREAD {
            return Err(Errno::ENOTTY);
        }
        crate::mm::uaccess::write(argument, &(self.pipe.len() as i32))?;
        Ok(0)
    }
}

/// Opens a fifo: waits for the other end, unless told not to (`fifo(7)`).
pub fn open(pipe: &Arc<Pipe>, flags: OpenFlags) -> Result<Box<dyn Body>, Errno> {
    let (reads, writes) = (flags.readable(), flags.writable());
    let non_blocking = flags.contains(OpenFlags::NON_BLOCKING);
    if writes && !reads && non_blocking && pipe.state.lock().readers == 0 {
        return Err(Errno::ENXIO);
    }
    // An open of the other side counts even if it is closed again before this one runs.
    let (end, reader_opens, writer_opens) = End::counted(pipe, flags);
    pipe.announce_input();
    pipe.announce_output();
    if reads && !writes && !non_blocking {
        pipe.readable.wait_until(|| {
            let state = pipe.state.lock();
            (state.writers > 0 || state.writer_opens != writer_opens).then_some(())
        })?;
    }
    if writes && !reads && !non_blocking {
        pipe.writable.wait_until(|| {
            let state = pipe.state.lock();
            (state.readers > 0 || state.reader_opens != reader_opens).then_some(())
        })?;
    }
    Ok(Box::new(end))
}

/// A pipe without a name: its reading end and its writing end. `flags` may hold NON_BLOCKING, and DIRECT, which is the writing end's.
pub fn pair(flags: OpenFlags) -> (Arc<File>, Arc<File>) {
    let pipe = Pipe::new();
    let inode: Arc<Inode> = Inode::new(superblock::pipefs(), Kind::Fifo(pipe.clone()), Attributes::new(0o600));
    let dentry = Dentry::nowhere(format!("pipe:[{}]", inode.number).into_bytes(), inode);
    let writing = flags | OpenFlags::WRITE_ONLY;
    let reading = flags.difference(OpenFlags::DIRECT);
    let reader = File::new(dentry.clone(), reading, Box::new(End::new(&pipe, reading)));
    let writer = File::new(dentry, writing, Box::new(End::new(&pipe, writing)));
    (reader, writer)
}
