//! Calls on local sockets. Descriptors and credentials are not passed along.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use linux_raw_sys::net;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::transfer::{buffer, pieces};
use super::{Base, content_file, descriptor_limit, owner};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::{Attributes, Inode, Kind};
use crate::fs::io::{Sink, UserVector};
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::fs::socket::channel::Name;
use crate::fs::socket::{self, Endpoint, Manner, Shutdown, Socket, Style, names};
use crate::fs::{File, reserve, tree};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are the open flags (`include/linux/net.h`).
const TYPE_FLAGS: u32 = raw::O_NONBLOCK | raw::O_CLOEXEC;

/// Checks a domain, a kind and a protocol (`__sock_create` of Linux's `net/socket.c`, `unix_create`). Only local sockets are here: other families are
/// answered as by a Linux that was built without them.
fn style(domain: u32, kind: u32, protocol: u32) -> Result<Style, Errno> {
    /// The first number that is no kind (`SOCK_MAX`).
    const KINDS: u32 = 11;
    const KIND_MASK: u32 = 0xf;
    let flags = kind & !KIND_MASK;
    if flags & !TYPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let kind = kind & KIND_MASK;
    if domain >= net::AF_MAX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind >= KINDS {
        return Err(Errno::EINVAL);
    }
    if domain != net::AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if protocol != 0 && protocol != net::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        net::SOCK_STREAM => Ok(Style::Stream),
        net::SOCK_SEQPACKET => Ok(Style::Packets),
        net::SOCK_DGRAM | net::SOCK_RAW => Ok(Style::Datagrams),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// socket(2)
pub fn socket(task: &Task, domain: u32, kind: u32, protocol: u32) -> SysResult {
    let style = style(domain, kind, protocol)?;
    reserve::check(Errno::ENFILE)?;
    insert(task, socket::create(style, OpenFlags::from_user(kind & raw::O_NONBLOCK)), kind)
}

fn insert(task: &Task, file: Arc<File>, flags: u32) -> SysResult {
    let limit = descriptor_limit(task);
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
}

/// socketpair(2)
pub fn socketpair(task: &Task, domain: u32, kind: u32, protocol: u32, address: u64) -> SysResult {
    let style = style(domain, kind, protocol)?;
    let (first, second) = socket::pair(style, OpenFlags::from_user(kind & raw::O_NONBLOCK));
    insert_pair(task, first, second, AtExec::from_flag(kind, raw::O_CLOEXEC), address)
}

/// What an address says.
enum Address {
    /// No family: ends a connection of datagrams.
    Unspecified,
    /// Nothing but the family.
    Unnamed,
    /// A path.
    Path(Vec<u8>),
    /// What follows a NUL.
    Abstract(Vec<u8>),
}

/// Bytes of the longest address: a family and 108 bytes.
const ADDRESS_MAX: usize = 110;

/// `EINVAL` for what is no address of a local socket (`unix_validate_addr`).
fn read_address(address: u64, len: u32) -> Result<Address, Errno> {
    let len = usize::try_from(len as i32).map_err(|_| Errno::EINVAL)?;
    // `struct sockaddr_storage`.
    if len > 128 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 128];
    uaccess::read_bytes(address, &mut bytes[..len])?;
    let family = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    if len >= 2 && family == net::AF_UNSPEC {
        return Ok(Address::Unspecified);
    }
    if !(2..=ADDRESS_MAX).contains(&len) || family != net::AF_UNIX {
        return Err(Errno::EINVAL);
    }
    let name = &bytes[2..len];
    Ok(match name.first() {
        None => Address::Unnamed,
        Some(0) => Address::Abstract(name[1..].to_vec()),
        Some(_) => Address::Path(name.iter().copied().take_while(|&byte| byte != 0).collect()),
    })
}

/// Writes an address as far as there is room, and how long it is.
fn write_address(name: &Name, address: u64, len: u64) -> Result<(), Errno> {
    let room = usize::try_from(uaccess::read::<i32>(len)?).map_err(|_| Errno::EINVAL)?;
    let mut bytes: Vec<u8> = (net::AF_UNIX as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(name);
    uaccess::write_bytes(address, &bytes[..room.min(bytes.len())])?;
    uaccess::write(len, &(bytes.len() as i32))
}

/// Whoever is reached by an address: `ENOENT`, `EACCES`, `ECONNREFUSED`.
fn reached(task: &Task, style: Style, address: &Address) -> Result<Arc<Endpoint>, Errno> {
    match address {
        Address::Unspecified | Address::Unnamed => Err(Errno::EINVAL),
        Address::Abstract(name) => names::by_abstract(style, name).ok_or(Errno::ECONNREFUSED),
        Address::Path(path) => {
            let dentry = Base::current(task).resolve(path, LastLink::Follow)?;
            permission::check(&dentry.inode, Wanted::WRITE)?;
            names::by_inode(&dentry.inode).ok_or(Errno::ECONNREFUSED)
        }
    }
}

/// bind(2)
pub fn bind(task: &Task, fd: i32, address: u64, len: u32) -> SysResult {
    with_socket(task, fd, |_, socket| {
        match read_address(address, len)? {
            Address::Unspecified => return Err(Errno::EINVAL),
            Address::Unnamed => {
                let name = names::unused(socket.style()).ok_or(Errno::ENOSPC)?;
                socket.bind(shown(0, &name), |end| names::bind_abstract(&name, end))?;
            }
            Address::Abstract(name) => socket.bind(shown(0, &name), |end| names::bind_abstract(&name, end))?,
            Address::Path(path) => {
                let mut name = path.clone();
                name.push(0);
                socket.bind(name.into(), |end| {
                    let base = Base::current(task);
                    let parent = base.parent(&path)?;
                    let last = parent.last.name(Errno::EADDRINUSE)?;
                    let attributes = Attributes::new(0o777 & !base.context.umask).owned_by(owner(task));
                    let superblock = parent.directory.inode.superblock.clone();
                    let made =
                        tree::create(&parent.directory, last, || Ok(Inode::new(&superblock, Kind::Socket, attributes)));
                    let dentry =
                        made.map_err(|error| if error == Errno::EEXIST { Errno::EADDRINUSE } else { error })?;
                    names::bind_inode(&dentry.inode, end)
                })?;
            }
        }
        Ok(0)
    })
}

/// An abstract name as it is shown: after a NUL.
fn shown(first: u8, name: &[u8]) -> Name {
    core::iter::once(first).chain(name.iter().copied()).collect()
}

/// listen(2)
pub fn listen(task: &Task, fd: i32, most: i32) -> SysResult {
    /// `net.core.somaxconn`.
    const MOST: usize = 4096;
    with_socket(task, fd, |_, socket| {
        // Below 0 is as much as there may be.
        socket.listen(usize::try_from(most).unwrap_or(MOST).min(MOST))?;
        Ok(0)
    })
}

/// connect(2)
pub fn connect(task: &Task, fd: i32, address: u64, len: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let address = read_address(address, len)?;
        if matches!(address, Address::Unspecified) && socket.style() == Style::Datagrams {
            socket.disconnect();
            return Ok(0);
        }
        let peer = reached(task, socket.style(), &address)?;
        socket.connect(&peer, manner(file, 0))?;
        Ok(0)
    })
}

/// accept4(2)
pub fn accept(task: &Task, fd: i32, address: u64, len: u64, flags: u32) -> SysResult {
    if flags & !TYPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    with_socket(task, fd, |file, socket| {
        let connection = socket.accept(manner(file, 0))?;
        connection.set_flags(OpenFlags::from_user(flags & raw::O_NONBLOCK));
        if address != 0 {
            let name = connection.body.socket().map_or(Ok(Name::from([])), Socket::peer_name)?;
            write_address(&name, address, len)?;
        }
        insert(task, connection, flags)
    })
}

/// Gives two files numbers and tells them to the caller (`pipe2`, `socketpair`); none stays if something fails.
pub(super) fn insert_pair(
    task: &Task,
    first: Arc<File>,
    second: Arc<File>,
    at_exec: AtExec,
    address: u64,
) -> SysResult {
    reserve::check(Errno::ENFILE)?;
    let limit = descriptor_limit(task);
    let (a, b) = {
        let mut files = task.files.lock();
        let a = files.insert_from(0, limit, first, at_exec)?;
        match files.insert_from(0, limit, second, at_exec) {
            Ok(b) => (a, b),
            Err(error) => {
                let first = files.remove(a);
                drop(files);
                drop(first);
                return Err(error);
            }
        }
    };
    if let Err(error) = uaccess::write(address, &[a, b]) {
        let both = {
            let mut files = task.files.lock();
            (files.remove(a), files.remove(b))
        };
        drop(both);
        return Err(error);
    }
    Ok(0)
}

fn with_socket<T>(task: &Task, fd: i32, call: impl FnOnce(&File, &Socket) -> Result<T, Errno>) -> Result<T, Errno> {
    let file = content_file(task, fd)?;
    let socket = file.body.socket().ok_or(Errno::ENOTSOCK)?;
    call(&file, socket)
}

fn manner(file: &File, flags: u32) -> Manner {
    Manner {
        non_blocking: file.non_blocking() || flags & net::MSG_DONTWAIT != 0,
        quiet: flags & net::MSG_NOSIGNAL != 0,
        peek: flags & net::MSG_PEEK != 0,
    }
}

/// Where something with an address goes: streams are connected or not, and take none.
fn target(task: &Task, socket: &Socket, to: (u64, u32)) -> Result<Option<Arc<Endpoint>>, Errno> {
    if to.0 == 0 || to.1 == 0 {
        return Ok(None);
    }
    let address = read_address(to.0, to.1)?;
    match (socket.style(), socket.is_connected()) {
        (Style::Datagrams, _) => reached(task, socket.style(), &address).map(Some),
        (_, true) => Err(Errno::EISCONN),
        (_, false) => Err(Errno::EOPNOTSUPP),
    }
}

/// sendto(2)
pub fn sendto(task: &Task, fd: i32, address: u64, len: usize, flags: u32, to: (u64, u32)) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let target = target(task, socket, to)?;
        if flags & net::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        socket.send(manner(file, flags), &mut buffer(address, len)?, target.as_ref())
    })
}

fn receive(file: &File, socket: &Socket, flags: u32, out: &mut dyn Sink) -> Result<(usize, bool, Option<Name>), Errno> {
    if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut total = 0;
    loop {
        let received = match socket.receive(manner(file, flags), out) {
            Err(_) if total > 0 => return Ok((total, false, None)),
            received => received?,
        };
        total += received.bytes;
        let fills = flags & net::MSG_WAITALL != 0 && flags & net::MSG_PEEK == 0 && socket.style() == Style::Stream;
        if !fills || received.bytes == 0 || out.room() == 0 {
            let cut = received.whole > received.bytes;
            let told = if cut && flags & net::MSG_TRUNC != 0 { received.whole } else { total };
            return Ok((told, cut, received.from));
        }
    }
}

/// recvfrom(2)
pub fn recvfrom(task: &Task, fd: i32, address: u64, len: usize, flags: u32, from: (u64, u64)) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let (bytes, _, sender) = receive(file, socket, flags, &mut buffer(address, len)?)?;
        if from.0 != 0 && from.1 != 0 {
            match sender.filter(|name| !name.is_empty()) {
                Some(name) => write_address(&name, from.0, from.1)?,
                // The other end has no name.
                None => uaccess::write(from.1, &0i32)?,
            }
        }
        Ok(bytes)
    })
}

/// `struct msghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MessageHeader {
    name: u64,
    name_len: u32,
    pad: u32,
    pieces: u64,
    count: u64,
    control: u64,
    control_len: u64,
    flags: u32,
    pad_end: u32,
}

const _: () = assert!(size_of::<MessageHeader>() == size_of::<net::msghdr>());

/// sendmsg(2), without control messages (descriptors, credentials): `EOPNOTSUPP`.
pub fn sendmsg(task: &Task, fd: i32, address: u64, flags: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let header: MessageHeader = uaccess::read(address)?;
        let target = target(task, socket, (header.name, header.name_len))?;
        if header.control_len != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        socket.send(manner(file, flags), &mut UserVector::new(&mut pieces), target.as_ref())
    })
}

/// recvmsg(2)
pub fn recvmsg(task: &Task, fd: i32, address: u64, flags: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let mut header: MessageHeader = uaccess::read(address)?;
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        let (bytes, cut, sender) = receive(file, socket, flags, &mut UserVector::new(&mut pieces))?;
        header.name_len = match sender.filter(|name| header.name != 0 && !name.is_empty()) {
            Some(name) => {
                let len = address.wrapping_add(core::mem::offset_of!(MessageHeader, name_len) as u64);
                write_address(&name, header.name, len)?;
                name.len() as u32 + 2
            }
            None => 0,
        };
        header.control_len = 0;
        header.flags = if cut { net::MSG_TRUNC } else { 0 };
        uaccess::write(address, &header)?;
        Ok(bytes)
    })
}

/// shutdown(2)
pub fn shutdown(task: &Task, fd: i32, how: u32) -> SysResult {
    with_socket(task, fd, |_, socket| {
        socket.shut_down(match how {
            net::SHUT_RD => Shutdown::Read,
            net::SHUT_WR => Shutdown::Write,
            net::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        });
        Ok(0)
    })
}

/// getsockopt(2)
pub fn getsockopt(task: &Task, fd: i32, level: u32, option: u32, value: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| {
        if level != net::SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let number: i32 = match option {
            net::SO_PEERCRED => {
                let nobody = [0, u32::MAX, u32::MAX];
                let record = socket.peer_owner().map_or(nobody, |owner| [owner.pid, owner.uid, owner.gid]);
                return answer(record.as_bytes(), value, len);
            }
            net::SO_TYPE => match socket.style() {
                Style::Stream => net::SOCK_STREAM as i32,
                Style::Packets => net::SOCK_SEQPACKET as i32,
                Style::Datagrams => net::SOCK_DGRAM as i32,
            },
            net::SO_DOMAIN => net::AF_UNIX as i32,
            net::SO_ACCEPTCONN => i32::from(socket.is_listening()),
            net::SO_ERROR | net::SO_PROTOCOL | net::SO_REUSEADDR | net::SO_PASSCRED | net::SO_KEEPALIVE => 0,
            net::SO_SNDBUF | net::SO_RCVBUF => socket::CAPACITY as i32,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        answer(&number.to_le_bytes(), value, len)
    })
}

/// Writes as much of an option's value as there is room for.
fn answer(bytes: &[u8], value: u64, len: u64) -> SysResult {
    let room = usize::try_from(uaccess::read::<i32>(len)?).map_err(|_| Errno::EINVAL)?;
    let bytes = &bytes[..room.min(bytes.len())];
    uaccess::write_bytes(value, bytes)?;
    uaccess::write(len, &(bytes.len() as i32))?;
    Ok(0)
}

/// setsockopt(2): options that make no difference here are taken; what would is `ENOPROTOOPT`.
pub fn setsockopt(task: &Task, fd: i32, level: u32, option: u32, value: u64, len: u32) -> SysResult {
    with_socket(task, fd, |_, _| {
        if level != net::SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        if (len as i32) < 4 {
            return Err(Errno::EINVAL);
        }
        uaccess::read::<i32>(value)?;
        match option {
            net::SO_REUSEADDR | net::SO_KEEPALIVE | net::SO_BROADCAST | net::SO_SNDBUF | net::SO_RCVBUF => Ok(0),
            _ => Err(Errno::ENOPROTOOPT),
        }
    })
}

/// getsockname(2)
pub fn own_name(task: &Task, fd: i32, address: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| write_address(&socket.name(), address, len))?;
    Ok(0)
}

/// getpeername(2)
pub fn peer_name(task: &Task, fd: i32, address: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| write_address(&socket.peer_name()?, address, len))?;
    Ok(0)
}
