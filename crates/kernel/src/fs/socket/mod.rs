//! Local sockets (unix(7)): connected pairs, names in the file system and abstract ones, streams, packets and datagrams. Other families are not here.
//!
//! - [`channel`]: one direction between two sockets, or what comes to a socket for datagrams.
//! - [`names`]: who is reached by which name.
//!
//! A connected stream is two channels. A socket that listens keeps the other ends of connections until they are accepted.

pub mod channel;
pub mod names;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Mutex;

pub use self::channel::{CAPACITY, Manner, Received, Style};
use self::channel::{Channel, Name};
use self::names::Bound;
use super::dentry::Dentry;
use super::file::{Body, File, Happened, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::{poll, superblock};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::{Pid, Task};
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// Who made a socket (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Process.
    pub pid: Pid,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Owner {
    fn current() -> Owner {
        sched::with_current(|task| {
            let credentials = task.credentials();
            Owner { pid: task.tgid, uid: credentials.euid, gid: credentials.egid }
        })
    }
}

/// What a socket is connected to.
#[derive(Clone)]
struct Link {
    incoming: Arc<Channel>,
    outgoing: Arc<Channel>,
    /// The other side's part; `None` for one of a pair.
    peer: Option<Arc<Endpoint>>,
    owner: Owner,
}

/// Connections that wait to be accepted.
struct Backlog {
    most: usize,
    waiting: VecDeque<Arc<File>>,
}

/// The part of a socket that others reach.
pub struct Endpoint {
    style: Style,
    owner: Owner,
    name: Mutex<Name>,
    /// What is sent to it by name: datagrams.
    inbox: Arc<Channel>,
    backlog: Mutex<Option<Backlog>>,
    /// Who accepts waits for connections here, who connects for room.
    changed: WaitQueue,
}

impl Endpoint {
    fn new(style: Style) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            style,
            owner: Owner::current(),
            name: Mutex::new(Name::from([])),
            inbox: Channel::new(),
            backlog: Mutex::new(None),
            changed: WaitQueue::new(),
        })
    }

    /// Its name now.
    pub fn name(&self) -> Name {
        self.name.lock().clone()
    }

    fn announce(&self) {
        self.changed.wake_all();
        poll::notify();
    }
}

/// A socket.
pub struct Socket {
    end: Arc<Endpoint>,
    link: Mutex<Option<Link>>,
    /// Its name, as long as it has it.
    bound: Mutex<Option<Bound>>,
    /// Nobody accepted it: the other side is to know.
    abandoned: AtomicBool,
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

fn open(end: Arc<Endpoint>, link: Option<Link>, flags: OpenFlags) -> Arc<File> {
    let inode = Inode::new(superblock::sockets(), Kind::Socket, Attributes::new(0o777));
    let dentry = Dentry::nowhere(format!("socket:[{}]", inode.number).into_bytes(), inode);
    let socket = Socket { end, link: Mutex::new(link), bound: Mutex::new(None), abandoned: AtomicBool::new(false) };
    File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(socket))
}

/// One that is connected to nothing. `flags` may hold NON_BLOCKING.
pub fn create(style: Style, flags: OpenFlags) -> Arc<File> {
    open(Endpoint::new(style), None, flags)
}

/// Two ends, connected. `flags` may hold NON_BLOCKING.
pub fn pair(style: Style, flags: OpenFlags) -> (Arc<File>, Arc<File>) {
    let (first, second) = (Endpoint::new(style), Endpoint::new(style));
    let (there, back) = match style {
        Style::Datagrams => (second.inbox.clone(), first.inbox.clone()),
        _ => (Channel::new(), Channel::new()),
    };
    let link = |incoming: &Arc<Channel>, outgoing: &Arc<Channel>| {
        Some(Link { incoming: incoming.clone(), outgoing: outgoing.clone(), peer: None, owner: Owner::current() })
    };
    (open(first, link(&back, &there), flags), open(second, link(&there, &back), flags))
}

impl Socket {
    /// How reads keep to writes.
    pub fn style(&self) -> Style {
        self.end.style
    }

    /// Its own name.
    pub fn name(&self) -> Name {
        self.end.name()
    }

    fn link(&self) -> Option<Link> {
        self.link.lock().clone()
    }

    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        self.link.lock().is_some()
    }

    /// Whether it listens.
    pub fn is_listening(&self) -> bool {
        self.end.backlog.lock().is_some()
    }

    /// The other side's name: `ENOTCONN`.
    pub fn peer_name(&self) -> Result<Name, Errno> {
        let link = self.link().ok_or(Errno::ENOTCONN)?;
        Ok(link.peer.map_or_else(|| Name::from([]), |peer| peer.name()))
    }

    /// Who made the other side.
    pub fn peer_owner(&self) -> Option<Owner> {
        self.link().map(|link| link.owner)
    }

    /// Gives it a name. `EINVAL`: it has one.
    pub fn bind(&self, name: Name, register: impl FnOnce(&Arc<Endpoint>) -> Result<Bound, Errno>) -> Result<(), Errno> {
        let mut bound = self.bound.lock();
        if bound.is_some() {
            return Err(Errno::EINVAL);
        }
        *bound = Some(register(&self.end)?);
        *self.end.name.lock() = name;
        Ok(())
    }

    /// Lets others connect to it. `EOPNOTSUPP` for datagrams; `EINVAL`: it has no name, or is connected.
    pub fn listen(&self, most: usize) -> Result<(), Errno> {
        if self.style() == Style::Datagrams {
            return Err(Errno::EOPNOTSUPP);
        }
        if self.end.name().is_empty() || self.is_connected() {
            return Err(Errno::EINVAL);
        }
        match &mut *self.end.backlog.lock() {
            Some(backlog) => backlog.most = most,
            none => *none = Some(Backlog { most, waiting: VecDeque::new() }),
        }
        self.end.announce();
        Ok(())
    }

    /// Connects it; for datagrams, says where they go from now on.
    ///
    /// # Errors
    /// `EPROTOTYPE`: the other is of another kind. `ECONNREFUSED`: it does not listen. `EAGAIN`, `ERESTARTSYS`. `EISCONN`; `EINVAL`: this one listens.
    pub fn connect(&self, peer: &Arc<Endpoint>, manner: Manner) -> Result<(), Errno> {
        if peer.style != self.style() {
            return Err(Errno::EPROTOTYPE);
        }
        if self.style() == Style::Datagrams {
            let link = Link {
                incoming: self.end.inbox.clone(),
                outgoing: peer.inbox.clone(),
                owner: peer.owner,
                peer: Some(peer.clone()),
            };
            *self.link.lock() = Some(link);
            return Ok(());
        }
        if self.is_listening() {
            return Err(Errno::EINVAL);
        }
        if self.is_connected() {
            return Err(Errno::EISCONN);
        }
        let (there, back) = (Channel::new(), Channel::new());
        // Made before there is room for it: nothing may be made under the lock of the backlog.
        let accepted = Link {
            incoming: there.clone(),
            outgoing: back.clone(),
            peer: Some(self.end.clone()),
            owner: Owner::current(),
        };
        let server = Endpoint::new(self.style());
        *server.name.lock() = peer.name();
        let mut file = Some(open(server, Some(accepted), OpenFlags::empty()));
        let mut attempt = || {
            let mut backlog = peer.backlog.lock();
            let Some(backlog) = &mut *backlog else { return Some(Err(Errno::ECONNREFUSED)) };
            if backlog.waiting.len() > backlog.most {
                return None;
            }
            backlog.waiting.extend(file.take());
            Some(Ok(()))
        };
        match attempt() {
            Some(result) => result,
            None if manner.non_blocking => Err(Errno::EAGAIN),
            None => peer.changed.wait_until(attempt)?,
        }?;
        let link = Link { incoming: back, outgoing: there, peer: Some(peer.clone()), owner: peer.owner };
        *self.link.lock() = Some(link);
        peer.announce();
        Ok(())
    }

    /// Ends the destination of datagrams (`AF_UNSPEC`).
    pub fn disconnect(&self) {
        let link = self.link.lock().take();
        drop(link);
    }

    /// The next connection. `EOPNOTSUPP` for datagrams; `EINVAL`: it does not listen. `EAGAIN`, `ERESTARTSYS`.
    pub fn accept(&self, manner: Manner) -> Result<Arc<File>, Errno> {
        if self.style() == Style::Datagrams {
            return Err(Errno::EOPNOTSUPP);
        }
        let attempt = || match &mut *self.end.backlog.lock() {
            None => Some(Err(Errno::EINVAL)),
            Some(backlog) => backlog.waiting.pop_front().map(Ok),
        };
        let file = match attempt() {
            Some(result) => result,
            None if manner.non_blocking => Err(Errno::EAGAIN),
            None => self.end.changed.wait_until(attempt)?,
        }?;
        self.end.announce();
        Ok(file)
    }

    /// Reads (`recv`).
    pub fn receive(&self, manner: Manner, out: &mut dyn Sink) -> Result<Received, Errno> {
        let incoming = match (self.link(), self.style()) {
            (Some(link), _) => link.incoming,
            (None, Style::Datagrams) => self.end.inbox.clone(),
            (None, Style::Packets) => return Err(Errno::ENOTCONN),
            (None, Style::Stream) => return Err(Errno::EINVAL),
        };
        incoming.read(self.style(), manner, out)
    }

    /// Writes (`send`): to what it is connected to, or a datagram to `target`.
    pub fn send(&self, manner: Manner, from: &mut dyn Supply, target: Option<&Arc<Endpoint>>) -> SysResult {
        let outgoing = match (target, self.link()) {
            (Some(target), _) if target.style != self.style() => return Err(Errno::EPROTOTYPE),
            (Some(target), _) => target.inbox.clone(),
            (None, Some(link)) => link.outgoing,
            (None, None) => return Err(Errno::ENOTCONN),
        };
        let sent = outgoing.write(self.style(), manner, from, &self.name());
        // Nobody reads there any more.
        match (sent, self.style()) {
            (Err(Errno::EPIPE), Style::Datagrams) => Err(Errno::ECONNREFUSED),
            (sent, _) => sent,
        }
    }

    /// shutdown(2). One that is not connected has nobody to tell.
    pub fn shut_down(&self, what: Shutdown) {
        let Some(link) = self.link() else { return };
        if what != Shutdown::Write {
            link.incoming.close(|state| state.no_reader = true);
        }
        if what != Shutdown::Read && self.style() != Style::Datagrams {
            link.outgoing.close(|state| state.no_writer = true);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let bound = self.bound.lock().take();
        drop(bound);
        // Whoever was not accepted sees the end.
        let backlog = self.end.backlog.lock().take();
        for file in backlog.iter().flat_map(|backlog| &backlog.waiting) {
            if let Some(socket) = file.body.socket() {
                socket.abandoned.store(true, Ordering::Relaxed);
            }
        }
        drop(backlog);
        self.end.inbox.close(|state| state.no_reader = true);
        let one_of_a_pair = self.link().is_some_and(|link| link.peer.is_none());
        if self.style() != Style::Datagrams || one_of_a_pair {
            if let Some(link) = self.link().filter(|_| self.style() != Style::Datagrams) {
                let unread = !link.incoming.state.lock().messages.is_empty();
                link.outgoing.state.lock().reset = unread || self.abandoned.load(Ordering::Relaxed);
            }
            self.shut_down(Shutdown::Both);
        }
        self.end.announce();
    }
}

impl Body for Socket {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let manner = Manner { non_blocking: file.non_blocking(), ..Manner::default() };
        Ok(self.receive(manner, out)?.bytes)
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        if from.remaining() == 0 && self.style() == Style::Stream && self.is_connected() {
            return Ok(0);
        }
        self.send(Manner { non_blocking: file.non_blocking(), ..Manner::default() }, from, None)
    }

    fn ready(&self, _file: &File) -> Ready {
        let mut ready = Ready::empty();
        if let Some(backlog) = &*self.end.backlog.lock() {
            ready.set(Ready::READABLE, !backlog.waiting.is_empty());
            return ready;
        }
        let Some(link) = self.link() else {
            let waiting = !self.end.inbox.state.lock().messages.is_empty();
            ready.set(Ready::READABLE, waiting);
            ready.set(Ready::HANG_UP, self.style() != Style::Datagrams);
            return ready | Ready::WRITABLE;
        };
        let incoming = link.incoming.state.lock();
        ready.set(Ready::READABLE, !incoming.messages.is_empty() || incoming.no_writer || incoming.no_reader);
        let gone = incoming.no_writer;
        ready.set(Ready::READ_HANG_UP, incoming.no_writer || incoming.no_reader);
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

    fn ioctl(&self, _task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        if request != linux_raw_sys::ioctl::FIONREAD {
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
