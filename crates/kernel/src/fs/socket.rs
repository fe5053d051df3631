//! Pairs of connected local sockets (`socketpair`): what programs use between processes where a pipe goes one way only.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use spin::Mutex;

use super::dentry::Dentry;
use super::file::{Body, File, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply, done_or_fault};
use super::{poll, reserve, superblock};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::signal::Signal;
use crate::process::{self, Task};
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// Bytes on their way in one direction (`net.core.wmem_default`).
pub const CAPACITY: usize = 212_992;
/// Bytes of a stream that are kept together.
const PIECE: usize = 4096;

/// Whether a read keeps to what one write wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Bytes (`SOCK_STREAM`).
    Stream,
    /// Messages; the end of the other side is seen (`SOCK_SEQPACKET`).
    Packets,
    /// Messages (`SOCK_DGRAM`).
    Datagrams,
}

/// How a transfer differs from a plain read or write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Manner {
    /// `EAGAIN` rather than wait.
    pub non_blocking: bool,
    /// No `SIGPIPE`.
    pub quiet: bool,
    /// What is read stays.
    pub peek: bool,
}

/// One direction.
struct Channel {
    state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Vec<u8>>,
    /// Bytes of the first message that were read already.
    taken: usize,
    len: usize,
    no_reader: bool,
    no_writer: bool,
}

/// What a read of a message brought.
pub struct Received {
    /// Bytes put into memory.
    pub bytes: usize,
    /// The length of the message (of a stream: the same).
    pub whole: usize,
}

impl Channel {
    fn new() -> Arc<Channel> {
        Arc::new(Channel { state: Mutex::default(), readable: WaitQueue::new(), writable: WaitQueue::new() })
    }

    fn announce(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
        poll::notify();
    }

    fn read(&self, style: Style, manner: Manner, out: &mut dyn Sink) -> Result<Received, Errno> {
        let attempt = |out: &mut dyn Sink| {
            let mut state = self.state.lock();
            if state.messages.is_empty() {
                let ended = state.no_writer && style != Style::Datagrams || state.no_reader;
                return ended.then_some(Ok(Received { bytes: 0, whole: 0 }));
            }
            Some(if style == Style::Stream { state.take_bytes(out, manner) } else { state.take_message(out, manner) })
        };
        let received = match attempt(out) {
            Some(received) => received,
            None if manner.non_blocking => return Err(Errno::EAGAIN),
            None => self.readable.wait_until(|| attempt(out))?,
        };
        self.announce();
        received
    }

    fn write(&self, style: Style, manner: Manner, from: &mut dyn Supply) -> SysResult {
        if style != Style::Stream && from.remaining() > CAPACITY {
            return Err(Errno::EMSGSIZE);
        }
        let mut total = 0;
        loop {
            let attempt = |from: &mut dyn Supply| {
                let mut state = self.state.lock();
                if state.no_reader || state.no_writer {
                    return Some(Err(Errno::EPIPE));
                }
                let want = if style == Style::Stream { from.remaining().min(PIECE) } else { from.remaining() };
                (state.len == 0 || state.len + want <= CAPACITY).then(|| state.put(from, want))
            };
            let outcome = match attempt(from) {
                Some(outcome) => outcome,
                None if total > 0 && manner.non_blocking => return Ok(total),
                None if manner.non_blocking => return Err(Errno::EAGAIN),
                None => match self.writable.wait_until(|| attempt(from)) {
                    Ok(outcome) => outcome,
                    Err(_) if total > 0 => return Ok(total),
                    Err(interrupted) => return Err(interrupted.into()),
                },
            };
            match outcome {
                Ok(put) => {
                    total += put;
                    self.announce();
                }
                Err(_) if total > 0 => return Ok(total),
                Err(error) => {
                    if error == Errno::EPIPE && !manner.quiet && style == Style::Stream {
                        process::send_signal(sched::with_current(|task| task.tgid), Signal::PIPE.number());
                    }
                    return Err(error);
                }
            }
            if style != Style::Stream || from.remaining() == 0 {
                return Ok(total);
            }
        }
    }

    fn close(&self, close: impl FnOnce(&mut State)) {
        close(&mut self.state.lock());
        self.announce();
    }
}

impl State {
    /// Bytes of one or more messages, as many as there is room for.
    fn take_bytes(&mut self, out: &mut dyn Sink, manner: Manner) -> Result<Received, Errno> {
        let (mut done, mut index, mut skip) = (0, 0, self.taken);
        while out.room() > 0 {
            let Some(message) = self.messages.get(index) else { break };
            let want = out.room().min(message.len() - skip);
            let put = out.put(&message[skip..skip + want]);
            done += put;
            skip += put;
            if put < want {
                done_or_fault(done)?;
                break;
            }
            if skip == message.len() {
                (index, skip) = (index + 1, 0);
            }
        }
        if !manner.peek {
            self.messages.drain(..index);
            self.taken = skip;
            self.len -= done;
        }
        Ok(Received { bytes: done, whole: done })
    }

    /// The first message; what there is no room for is lost.
    fn take_message(&mut self, out: &mut dyn Sink, manner: Manner) -> Result<Received, Errno> {
        let Some(message) = self.messages.front() else { return Ok(Received { bytes: 0, whole: 0 }) };
        let whole = message.len();
        let want = out.room().min(whole);
        if out.put(&message[..want]) < want {
            return Err(Errno::EFAULT);
        }
        if !manner.peek {
            self.messages.pop_front();
            self.len -= whole;
        }
        Ok(Received { bytes: want, whole })
    }

    fn put(&mut self, from: &mut dyn Supply, want: usize) -> SysResult {
        reserve::check(Errno::ENOBUFS)?;
        let mut message = Vec::new();
        message.try_reserve_exact(want).map_err(|_| Errno::ENOBUFS)?;
        message.resize(want, 0);
        if from.take(&mut message) < want {
            return Err(Errno::EFAULT);
        }
        self.len += want;
        self.messages.push_back(message);
        Ok(want)
    }
}

/// One end.
pub struct Socket {
    style: Style,
    incoming: Arc<Channel>,
    outgoing: Arc<Channel>,
}

/// Which directions `shutdown` ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// Nothing more is read here.
    Read,
    /// Nothing more is written here.
    Write,
    /// Both.
    Both,
}

impl Socket {
    /// How reads keep to writes.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Reads (`recv`).
    pub fn receive(&self, manner: Manner, out: &mut dyn Sink) -> Result<Received, Errno> {
        self.incoming.read(self.style, manner, out)
    }

    /// Writes (`send`).
    pub fn send(&self, manner: Manner, from: &mut dyn Supply) -> SysResult {
        self.outgoing.write(self.style, manner, from)
    }

    /// shutdown(2)
    pub fn shut_down(&self, what: Shutdown) {
        if what != Shutdown::Write {
            self.incoming.close(|state| state.no_reader = true);
        }
        if what != Shutdown::Read {
            self.outgoing.close(|state| state.no_writer = true);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shut_down(Shutdown::Both);
    }
}

impl Body for Socket {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let manner = Manner { non_blocking: file.non_blocking(), ..Manner::default() };
        Ok(self.receive(manner, out)?.bytes)
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        if from.remaining() == 0 && self.style == Style::Stream {
            return Ok(0);
        }
        self.send(Manner { non_blocking: file.non_blocking(), ..Manner::default() }, from)
    }

    fn ready(&self, _file: &File) -> Ready {
        let mut ready = Ready::empty();
        let incoming = self.incoming.state.lock();
        ready.set(Ready::READABLE, !incoming.messages.is_empty() || incoming.no_writer || incoming.no_reader);
        let gone = incoming.no_writer;
        drop(incoming);
        let outgoing = self.outgoing.state.lock();
        ready.set(Ready::WRITABLE, outgoing.len < CAPACITY);
        ready.set(Ready::HANG_UP, gone && (outgoing.no_reader || outgoing.no_writer));
        ready
    }

    fn ioctl(&self, _task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        if request != linux_raw_sys::ioctl::FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let state = self.incoming.state.lock();
        let available = match self.style {
            Style::Stream | Style::Packets => state.len,
            Style::Datagrams => state.messages.front().map_or(0, Vec::len),
        };
        drop(state);
        uaccess::write(argument, &(available as i32))?;
        Ok(0)
    }

    fn socket(&self) -> Option<&Socket> {
        Some(self)
    }
}

/// Two ends, connected. `flags` may hold NON_BLOCKING.
pub fn pair(style: Style, flags: OpenFlags) -> (Arc<File>, Arc<File>) {
    let (there, back) = (Channel::new(), Channel::new());
    let open = |incoming: &Arc<Channel>, outgoing: &Arc<Channel>| {
        let inode = Inode::new(superblock::sockets(), Kind::Socket, Attributes::new(0o777));
        let dentry = Dentry::nowhere(format!("socket:[{}]", inode.number).into_bytes(), inode);
        let socket = Socket { style, incoming: incoming.clone(), outgoing: outgoing.clone() };
        File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(socket))
    };
    (open(&back, &there), open(&there, &back))
}
