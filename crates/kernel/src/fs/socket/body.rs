//! A socket as a file: `read`, `write`, `poll`, `ioctl`.

use super::channel::{CAPACITY, Style};
use super::{Parcel, Socket};
use crate::errno::Errno;
use crate::fs::file::{Body, File, Happened, Ready};
use crate::fs::io::{Sink, Supply};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::credentials::CAP_NET_ADMIN;
use crate::syscall::SysResult;

impl Body for Socket {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        Ok(self.receive(self.options.receiving(file), out)?.bytes)
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        if from.remaining() == 0 && self.style() == Style::Stream && self.is_connected() {
            return Ok(0);
        }
        self.send(self.options.sending(file), from, None, Parcel::from(self.name()))
    }

    fn ready(&self, _file: &File) -> Ready {
        let mut ready = Ready::empty();
        if let Some(backlog) = &*self.end.backlog.lock() {
            ready.set(Ready::READABLE, !backlog.waiting.is_empty());
            return ready;
        }
        if let Some(inet) = self.inet()
            && inet.has_failed()
        {
            return Ready::ERROR | Ready::HANG_UP | Ready::READABLE | Ready::WRITABLE | Ready::READ_HANG_UP;
        }
        let Some(link) = self.link() else {
            let waiting = !self.end.inbox.state.lock().messages.is_empty();
            ready.set(Ready::READABLE, waiting);
            ready.set(Ready::HANG_UP, self.style() != Style::Datagrams);
            return ready | Ready::WRITABLE;
        };
        if self.inet().is_some() && self.style() == Style::Datagrams {
            ready.set(Ready::READABLE, !self.end.inbox.state.lock().messages.is_empty());
            return ready | Ready::WRITABLE;
        }
        let incoming = link.incoming.state.lock();
        ready.set(
            Ready::READABLE,
            !incoming.messages.is_empty() || incoming.no_writer || incoming.no_reader || incoming.shut,
        );
        let gone = incoming.no_writer;
        ready.set(Ready::READ_HANG_UP, incoming.no_writer || incoming.no_reader || incoming.shut);
        drop(incoming);
        let outgoing = link.outgoing.state.lock();
        ready.set(Ready::WRITABLE, outgoing.len < CAPACITY);
        ready.set(Ready::HANG_UP, gone && (outgoing.no_reader || outgoing.no_writer));
        ready
    }

    fn happened(&self, _file: &File) -> Happened {
        match self.link() {
            Some(link) => {
                // One after the other: the peer's are these, the other way round.
                let input = link.incoming.state.lock().inputs;
                let output = link.outgoing.state.lock().outputs;
                Happened { input, output }
            }
            None => Happened { input: self.end.inbox.state.lock().inputs, output: 0 },
        }
    }

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        const SIOCOUTQ: u32 = 0x5411;
        if request == SIOCOUTQ {
            let unsent = self.link().map_or(0, |link| link.outgoing.state.lock().len);
            uaccess::write(argument, &(unsent as i32))?;
            return Ok(0);
        }
        if request != linux_raw_sys::ioctl::FIONREAD {
            let may_change = task.credentials().may_in(&self.end.net.owner, CAP_NET_ADMIN);
            if let Some(done) = self.end.net.request(request, argument, may_change) {
                return done;
            }
            return Err(Errno::ENOTTY);
        }
        let incoming = self.link().map_or_else(|| self.end.inbox.clone(), |link| link.incoming);
        let available = {
            let state = incoming.state.lock();
            match self.style() {
                Style::Stream | Style::Packets => state.len,
                Style::Datagrams => state.messages.front().map_or(0, |message| message.bytes.len()),
            }
        };
        uaccess::write(argument, &(available as i32))?;
        Ok(0)
    }

    fn socket(&self) -> Option<&Socket> {
        Some(self)
    }
}
