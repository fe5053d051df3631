//! Sockets: local ones (unix(7)), with connected pairs, names in the file system and abstract ones, streams, packets and datagrams; and those of the internet
//! families within this machine ([`inet`]).
//!
//! - [`body`]: a socket as a file.
//! - [`channel`]: one direction between two sockets, or what comes to a socket for datagrams.
//! - [`names`]: who is reached by which name.
//!
//! A connected stream is two channels. A socket that listens keeps the other ends of connections until they are accepted.

mod body;
pub mod channel;
pub mod inet;
pub mod names;
pub mod options;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::process::net::Net;
use crate::sync::Mutex;

pub use self::channel::{CAPACITY, Manner, Parcel, Received, Style};
use self::channel::{Channel, Name};
use self::inet::Inet;
use self::names::Bound;
use self::options::Options;
use super::dentry::Dentry;
use super::file::{File, OpenFlags};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::{poll, superblock};
use crate::errno::Errno;
use crate::process::Pid;
use crate::process::Task;
use crate::sched::{self, WaitQueue};
use crate::syscall::SysResult;

/// What kind of addresses a socket has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `AF_UNIX`.
    Local,
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

/// Who made a socket (`SO_PEERCRED`), or sends something (`SCM_CREDENTIALS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Process.
    pub pid: Pid,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Owner {
    /// As somebody is shown it: process, user, group.
    pub fn shown_to(&self, task: &Task) -> [u32; 3] {
        let ids = task.credentials();
        [task.number_of(self.pid), ids.shown_user(self.uid), ids.shown_group(self.gid)]
    }

    /// The current task.
    pub fn current() -> Owner {
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
    family: Family,
    /// What the internet families have besides.
    inet: Option<Inet>,
    owner: Owner,
    /// Where it was made.
    net: Arc<Net>,
    name: Mutex<Name>,
    /// What is sent to it by name: datagrams.
    inbox: Arc<Channel>,
    backlog: Mutex<Option<Backlog>>,
    /// Who accepts waits for connections here, who connects for room.
    changed: WaitQueue,
}

impl Endpoint {
    fn new(family: Family, style: Style) -> Arc<Endpoint> {
        Arc::new(Endpoint {
            style,
            family,
            inet: (family != Family::Local).then(Inet::default),
            owner: Owner::current(),
            net: Net::current(),
            name: Mutex::new(Name::from([])),
            inbox: Channel::new(),
            backlog: Mutex::new(None),
            changed: WaitQueue::new(),
        })
    }

    /// Its name now.
    pub fn name(&self) -> Name {
        match &self.inet {
            Some(inet) => inet::name(self.family, *inet.address.lock()),
            None => self.name.lock().clone(),
        }
    }

    /// Whether it listens.
    fn is_listening(&self) -> bool {
        self.backlog.lock().is_some()
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
    bound: Mutex<Option<Held>>,
    /// What it was told besides.
    pub options: Options,
    /// Nobody accepted it: the other side is to know.
    abandoned: AtomicBool,
}

/// What makes others find a socket.
#[expect(dead_code, reason = "held for what dropping them does")]
enum Held {
    Name(Bound),
    Port(inet::ports::Held),
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
    let socket = Socket {
        end,
        link: Mutex::new(link),
        bound: Mutex::new(None),
        options: Options::default(),
        abandoned: AtomicBool::new(false),
    };
    File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(socket))
}

/// One that is connected to nothing. `flags` may hold NON_BLOCKING.
pub fn create(family: Family, style: Style, flags: OpenFlags) -> Arc<File> {
    open(Endpoint::new(family, style), None, flags)
}

/// Two local ends, connected. `flags` may hold NON_BLOCKING.
pub fn pair(style: Style, flags: OpenFlags) -> (Arc<File>, Arc<File>) {
    let (first, second) = (Endpoint::new(Family::Local, style), Endpoint::new(Family::Local, style));
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
    /// Where it was made.
    pub fn net(&self) -> &Net {
        &self.end.net
    }

    /// How reads keep to writes.
    pub fn style(&self) -> Style {
        self.end.style
    }

    /// Its kind of addresses.
    pub fn family(&self) -> Family {
        self.end.family
    }

    /// What it has besides if it is of the internet families.
    pub fn inet(&self) -> Option<&Inet> {
        self.end.inet.as_ref()
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
        self.end.is_listening()
    }

    /// The other side's name: `ENOTCONN`.
    pub fn peer_name(&self) -> Result<Name, Errno> {
        let link = self.link().ok_or(Errno::ENOTCONN)?;
        if let Some(inet) = self.inet() {
            return Ok(inet::name(self.family(), *inet.peer.lock()));
        }
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
        *bound = Some(Held::Name(register(&self.end)?));
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
        if let Some(inet) = self.inet() {
            self.prepare_to_listen(inet)?;
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
        self.join(peer, manner, None)
    }

    /// Makes a connection to one that listens. With the two addresses, this one's first, if they have any.
    fn join(
        &self,
        peer: &Arc<Endpoint>,
        manner: Manner,
        addresses: Option<(SocketAddr, SocketAddr)>,
    ) -> Result<(), Errno> {
        let (there, back) = (Channel::new(), Channel::new());
        // Made before there is room for it: nothing may be made under the lock of the backlog.
        let accepted = Link {
            incoming: there.clone(),
            outgoing: back.clone(),
            peer: Some(self.end.clone()),
            owner: Owner::current(),
        };
        let server = Endpoint::new(peer.family, self.style());
        match addresses {
            Some((own, other)) => inet::streams::place(&server, other, own),
            None => *server.name.lock() = peer.name(),
        }
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
            None => manner.wait(&peer.changed, attempt)?,
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
        if let Some(inet) = self.inet() {
            *inet.peer.lock() = None;
        }
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
            None => manner.wait(&self.end.changed, attempt)?,
        }?;
        self.end.announce();
        Ok(file)
    }

    /// Reads (`recv`).
    pub fn receive(&self, manner: Manner, out: &mut dyn Sink) -> Result<Received, Errno> {
        if let Some(inet) = self.inet() {
            inet.take_error()?;
        }
        let incoming = match (self.link(), self.style()) {
            (Some(link), _) => link.incoming,
            (None, Style::Datagrams) => self.end.inbox.clone(),
            (None, Style::Packets) => return Err(Errno::ENOTCONN),
            (None, Style::Stream) if self.inet().is_some() => return Err(Errno::ENOTCONN),
            (None, Style::Stream) => return Err(Errno::EINVAL),
        };
        incoming.read(self.style(), manner, out)
    }

    /// Writes (`send`): to what it is connected to, or a datagram to `target`.
    pub fn send(
        &self,
        manner: Manner,
        from: &mut dyn Supply,
        target: Option<&Arc<Endpoint>>,
        parcel: Parcel,
    ) -> SysResult {
        if let Some(inet) = self.inet() {
            if self.style() == Style::Datagrams {
                return self.send_datagram(inet, manner, from, None);
            }
            inet.take_error()?;
        }
        let outgoing = match (target, self.link()) {
            (Some(target), _) if target.style != self.style() => return Err(Errno::EPROTOTYPE),
            (Some(target), _) => target.inbox.clone(),
            (None, Some(link)) => link.outgoing,
            (None, None) if self.inet().is_some() => return Err(channel::broken_pipe(manner)),
            (None, None) => return Err(Errno::ENOTCONN),
        };
        let sent = outgoing.write(self.style(), manner, from, parcel);
        // Nobody reads there any more.
        match (sent, self.style()) {
            (Err(Errno::EPIPE), Style::Datagrams) => Err(Errno::ECONNREFUSED),
            (sent, _) => sent,
        }
    }

    /// shutdown(2). A local one that is not connected has nobody to tell; who waits for connections gets none any more.
    ///
    /// # Errors
    /// `ENOTCONN`: one of the internet families.
    pub fn shut_down(&self, what: Shutdown) -> Result<(), Errno> {
        if self.is_listening() && what != Shutdown::Write {
            let backlog = self.end.backlog.lock().take();
            drop(backlog);
            self.end.announce();
            return Ok(());
        }
        let Some(link) = self.link() else {
            return if self.inet().is_some() { Err(Errno::ENOTCONN) } else { Ok(()) };
        };
        if what != Shutdown::Write {
            // The other side of a connection over a network does not learn of this.
            let quiet = self.inet().is_some();
            link.incoming.close(|state| if quiet { state.shut = true } else { state.no_reader = true });
        }
        if what != Shutdown::Read && self.style() != Style::Datagrams {
            link.outgoing.close(|state| state.no_writer = true);
        }
        Ok(())
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
                let abrupt = self.inet().is_some() && self.options.ends_at_once();
                link.outgoing.state.lock().reset = unread || abrupt || self.abandoned.load(Ordering::Relaxed);
            }
            // Both directions end, whatever is still in them.
            if let Some(link) = self.link() {
                link.incoming.close(|state| state.no_reader = true);
                if self.style() != Style::Datagrams {
                    link.outgoing.close(|state| state.no_writer = true);
                }
            }
        }
        self.end.announce();
    }
}
