//! One direction between sockets: what was sent and not yet received.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::sync::Mutex;

use super::Owner;
use crate::errno::Errno;
use crate::fs::File;
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
    /// `EAGAIN` from then on, nanoseconds since boot (`SO_RCVTIMEO`, `SO_SNDTIMEO`).
    pub deadline: Option<u64>,
}

impl Manner {
    /// Waits as long as it may.
    pub(super) fn wait<T>(self, queue: &WaitQueue, attempt: impl FnMut() -> Option<T>) -> Result<T, Errno> {
        match self.deadline {
            None => Ok(queue.wait_until(attempt)?),
            Some(deadline) => {
                // A call with a time is not begun again from the start.
                let done = queue.wait_until_deadline(deadline, attempt).map_err(|_| Errno::EINTR)?;
                done.ok_or(Errno::EAGAIN)
            }
        }
    }
}

/// One direction.
pub(super) struct Channel {
    pub(super) state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

/// The name of whoever sent something: what follows the family in its address. Empty for none.
pub type Name = Arc<[u8]>;

/// What goes along with the bytes of one call.
#[derive(Clone)]
pub struct Parcel {
    /// The name of who sends.
    pub from: Name,
    /// Who that is (`SCM_CREDENTIALS`).
    pub sender: Option<Owner>,
    /// Open files (`SCM_RIGHTS`).
    pub files: Arc<[Arc<File>]>,
}

impl From<Name> for Parcel {
    fn from(from: Name) -> Parcel {
        Parcel { from, sender: None, files: Arc::new([]) }
    }
}

impl Parcel {
    /// Whether one read must not bring both.
    fn is_apart_from(&self, next: &Parcel) -> bool {
        !self.files.is_empty() || !next.files.is_empty() || self.sender != next.sender
    }
}

pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    parcel: Parcel,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) messages: VecDeque<Message>,
    /// Bytes of the first message that were read already.
    taken: usize,
    pub(super) len: usize,
    pub(super) no_reader: bool,
    pub(super) no_writer: bool,
    /// The reader has shut its side down: it finds the end where there is nothing, whatever is still written.
    pub(super) shut: bool,
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
    /// What came along.
    pub parcel: Option<Parcel>,
}

/// Nobody reads: the writer is told by a signal, too, unless it asked not to be.
pub(super) fn broken_pipe(manner: Manner) -> Errno {
    if !manner.quiet {
        process::send_signal(sched::with_current(|task| task.tgid), Signal::PIPE.number());
    }
    Errno::EPIPE
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
                let ended = state.no_writer && style != Style::Datagrams || state.no_reader || state.shut;
                return ended.then_some(Ok(Received { bytes: 0, whole: 0, parcel: None }));
            }
            Some(if style == Style::Stream { state.take_bytes(out, manner) } else { state.take_message(out, manner) })
        };
        let received = match attempt(out) {
            Some(received) => received,
            None if manner.non_blocking => return Err(Errno::EAGAIN),
            None => manner.wait(&self.readable, || attempt(out))?,
        };
        self.announce();
        received
    }

    pub(super) fn write(&self, style: Style, manner: Manner, from: &mut dyn Supply, parcel: Parcel) -> SysResult {
        if style != Style::Stream && from.remaining() > CAPACITY {
            return Err(Errno::EMSGSIZE);
        }
        let mut total = 0;
        // Of the pieces of a stream the first has what goes along.
        let mut parcel = parcel;
        loop {
            let attempt = |from: &mut dyn Supply| {
                let mut state = self.state.lock();
                if state.no_reader || state.no_writer {
                    return Some(Err(Errno::EPIPE));
                }
                let want = if style == Style::Stream { from.remaining().min(PIECE) } else { from.remaining() };
                (state.len == 0 || state.len + want <= CAPACITY).then(|| state.put(from, want, &parcel))
            };
            let outcome = match attempt(from) {
                Some(outcome) => outcome,
                None if total > 0 && manner.non_blocking => return Ok(total),
                None if manner.non_blocking => return Err(Errno::EAGAIN),
                None => match manner.wait(&self.writable, || attempt(from)) {
                    Ok(outcome) => outcome,
                    Err(_) if total > 0 => return Ok(total),
                    Err(error) => return Err(error),
                },
            };
            match outcome {
                Ok(put) => {
                    total += put;
                    if !parcel.files.is_empty() {
                        parcel.files = Arc::new([]);
                    }
                    self.announce();
                }
                Err(_) if total > 0 => return Ok(total),
                Err(error) => {
                    return Err(if error == Errno::EPIPE && style == Style::Stream {
                        broken_pipe(manner)
                    } else {
                        error
                    });
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
        // One read brings what came along with one write, and nothing of what was written after.
        let mut parcel = self.messages.front().map(|message| message.parcel.clone());
        if let Some(parcel) = parcel.as_mut().filter(|_| skip > 0) {
            parcel.files = Arc::new([]);
        }
        while out.room() > 0 {
            let Some(message) = self.messages.get(index) else { break };
            let apart = parcel.as_ref().is_some_and(|parcel| parcel.is_apart_from(&message.parcel));
            if index > 0 && apart {
                break;
            }
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
        Ok(Received { bytes: done, whole: done, parcel })
    }

    /// The first message; what there is no room for is lost.
    fn take_message(&mut self, out: &mut dyn Sink, manner: Manner) -> Result<Received, Errno> {
        let Some(message) = self.messages.front() else { return Ok(Received { bytes: 0, whole: 0, parcel: None }) };
        let (whole, parcel) = (message.bytes.len(), Some(message.parcel.clone()));
        let want = out.room().min(whole);
        if out.put(&message.bytes[..want]) < want {
            return Err(Errno::EFAULT);
        }
        if !manner.peek {
            self.outputs += 1;
            self.messages.pop_front();
            self.len -= whole;
        }
        Ok(Received { bytes: want, whole, parcel })
    }

    fn put(&mut self, from: &mut dyn Supply, want: usize, parcel: &Parcel) -> SysResult {
        reserve::check(Errno::ENOBUFS)?;
        let mut message = Vec::new();
        message.try_reserve_exact(want).map_err(|_| Errno::ENOBUFS)?;
        message.resize(want, 0);
        if from.take(&mut message) < want {
            return Err(Errno::EFAULT);
        }
        self.len += want;
        self.inputs += 1;
        self.messages.push_back(Message { bytes: message, parcel: parcel.clone() });
        Ok(want)
    }
}
