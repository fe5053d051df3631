//! One direction between sockets: what was sent and not yet received.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::sync::Mutex;

use crate::errno::Errno;
use crate::fs::io::{Sink, Supply, done_or_fault};
use crate::fs::{poll, reserve};
use crate::process;
use crate::process::signal::Signal;
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// Bytes on their way in one direction (`net.core.wmem_default`).
pub const CAPACITY: usize = 212_992;
/// Bytes of a stream that are kept together.
const PIECE: usize = 4096;

/// Whether a read keeps to what one write wrote.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
pub(super) struct Channel {
    pub(super) state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

/// The name of whoever sent something: what follows the family in its address. Empty for none.
pub type Name = Arc<[u8]>;

pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    from: Name,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) messages: VecDeque<Message>,
    /// Bytes of the first message that were read already.
    taken: usize,
    pub(super) len: usize,
    pub(super) no_reader: bool,
    pub(super) no_writer: bool,
    /// The writer ended without having read all that it was sent: the reader is told once, when nothing is left.
    pub(super) reset: bool,
    /// How often something was put in, or either side ended.
    pub(super) inputs: u64,
    /// How often something was taken out, or either side ended.
    pub(super) outputs: u64,
}

/// What a read of a message brought.
pub struct Received {
    /// Bytes put into memory.
    pub bytes: usize,
    /// The length of the message (of a stream: the same).
    pub whole: usize,
    /// Who sent it.
    pub from: Option<Name>,
}

impl Channel {
    pub(super) fn new() -> Arc<Channel> {
        Arc::new(Channel { state: Mutex::default(), readable: WaitQueue::new(), writable: WaitQueue::new() })
    }

    fn announce(&self) {
        self.readable.wake_all();
        self.writable.wake_all();
        poll::notify();
    }

    pub(super) fn read(&self, style: Style, manner: Manner, out: &mut dyn Sink) -> Result<Received, Errno> {
        let attempt = |out: &mut dyn Sink| {
            let mut state = self.state.lock();
            if state.messages.is_empty() {
                if core::mem::take(&mut state.reset) {
                    return Some(Err(Errno::ECONNRESET));
                }
                let ended = state.no_writer && style != Style::Datagrams || state.no_reader;
                return ended.then_some(Ok(Received { bytes: 0, whole: 0, from: None }));
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

    pub(super) fn write(&self, style: Style, manner: Manner, from: &mut dyn Supply, name: &Name) -> SysResult {
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
                (state.len == 0 || state.len + want <= CAPACITY).then(|| state.put(from, want, name))
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

    pub(super) fn close(&self, close: impl FnOnce(&mut State)) {
        {
            let mut state = self.state.lock();
            close(&mut state);
            state.inputs += 1;
            state.outputs += 1;
        }
        self.announce();
    }
}

impl State {
    /// Bytes of one or more messages, as many as there is room for.
    fn take_bytes(&mut self, out: &mut dyn Sink, manner: Manner) -> Result<Received, Errno> {
        let (mut done, mut index, mut skip) = (0, 0, self.taken);
        while out.room() > 0 {
            let Some(message) = self.messages.get(index) else { break };
            let bytes = &message.bytes;
            let want = out.room().min(bytes.len() - skip);
            let put = out.put(&bytes[skip..skip + want]);
            done += put;
            skip += put;
            if put < want {
                done_or_fault(done)?;
                break;
            }
            if skip == bytes.len() {
                (index, skip) = (index + 1, 0);
            }
        }
        if !manner.peek {
            self.outputs += 1;
            self.messages.drain(..index);
            self.taken = skip;
            self.len -= done;
        }
        Ok(Received { bytes: done, whole: done, from: None })
    }

    /// The first message; what there is no room for is lost.
    fn take_message(&mut self, out: &mut dyn Sink, manner: Manner) -> Result<Received, Errno> {
        let Some(message) = self.messages.front() else { return Ok(Received { bytes: 0, whole: 0, from: None }) };
        let (whole, from) = (message.bytes.len(), Some(message.from.clone()));
        let want = out.room().min(whole);
        if out.put(&message.bytes[..want]) < want {
            return Err(Errno::EFAULT);
        }
        if !manner.peek {
            self.outputs += 1;
            self.messages.pop_front();
            self.len -= whole;
        }
        Ok(Received { bytes: want, whole, from })
    }

    fn put(&mut self, from: &mut dyn Supply, want: usize, name: &Name) -> SysResult {
        reserve::check(Errno::ENOBUFS)?;
        let mut message = Vec::new();
        message.try_reserve_exact(want).map_err(|_| Errno::ENOBUFS)?;
        message.resize(want, 0);
        if from.take(&mut message) < want {
            return Err(Errno::EFAULT);
        }
        self.len += want;
        self.inputs += 1;
        self.messages.push_back(Message { bytes: message, from: name.clone() });
        Ok(want)
    }
}
