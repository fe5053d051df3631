//! Calls on sockets.
//!
//! - [`address`]: addresses. [`message`]: `sendmsg` and its like. [`passed`]: what goes along with the bytes. [`options`].

mod address;
mod message;
mod options;
mod passed;

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use linux_raw_sys::net;

use self::address::{Address, reached};
pub use self::message::{recvfrom, recvmmsg, recvmsg, sendmmsg, sendmsg, sendto};
pub use self::options::{getsockopt, setsockopt};
use super::{Base, content_file, descriptor_limit, owner};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::{Attributes, Inode, Kind};
use crate::fs::socket::channel::Name;
use crate::fs::socket::{self, Family, Shutdown, Socket, Style, names};
use crate::fs::{File, reserve, tree};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::credentials::CAP_NET_BIND_SERVICE;
use crate::syscall::SysResult;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are the open flags (`include/linux/net.h`).
const TYPE_FLAGS: u32 = raw::O_NONBLOCK | raw::O_CLOEXEC;

/// Checks a domain, a kind and a protocol (`__sock_create` of Linux's `net/socket.c`, `unix_create`, `inet_create`). Other families are answered as by a
/// Linux that was built without them.
fn kind_of(domain: u32, kind: u32, protocol: u32) -> Result<(Family, Style), Errno> {
    /// The first number that is no kind (`SOCK_MAX`).
    const KINDS: u32 = 11;
    const KIND_MASK: u32 = 0xf;
    /// `IPPROTO_TCP` and `IPPROTO_UDP`.
    const TCP: u32 = 6;
    const UDP: u32 = 17;
    /// `IPPROTO_UDPLITE`: within a machine nothing is damaged, so it is the same.
    const UDP_LITE: u32 = 136;
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
    let family = match domain {
        net::AF_UNIX => Family::Local,
        net::AF_INET => Family::V4,
        net::AF_INET6 => Family::V6,
        _ => return Err(Errno::EAFNOSUPPORT),
    };
    let local = family == Family::Local;
    if local && protocol != 0 && protocol != net::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let style = match kind {
        net::SOCK_STREAM if local || matches!(protocol, 0 | TCP) => Style::Stream,
        net::SOCK_DGRAM if local || matches!(protocol, 0 | UDP | UDP_LITE) => Style::Datagrams,
        net::SOCK_SEQPACKET if local => Style::Packets,
        net::SOCK_RAW if local => Style::Datagrams,
        net::SOCK_STREAM | net::SOCK_DGRAM => return Err(Errno::EPROTONOSUPPORT),
        _ => return Err(Errno::ESOCKTNOSUPPORT),
    };
    Ok((family, style))
}

/// socket(2)
pub fn socket(task: &Task, domain: u32, kind: u32, protocol: u32) -> SysResult {
    let (family, style) = kind_of(domain, kind, protocol)?;
    reserve::check(Errno::ENFILE)?;
    insert(task, socket::create(family, style, OpenFlags::from_user(kind & raw::O_NONBLOCK)), kind)
}

fn insert(task: &Task, file: Arc<File>, flags: u32) -> SysResult {
    let limit = descriptor_limit(task);
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
}

/// socketpair(2)
pub fn socketpair(task: &Task, domain: u32, kind: u32, protocol: u32, address: u64) -> SysResult {
    let (family, style) = kind_of(domain, kind, protocol)?;
    if family != Family::Local {
        return Err(Errno::EOPNOTSUPP);
    }
    let (first, second) = socket::pair(style, OpenFlags::from_user(kind & raw::O_NONBLOCK));
    insert_pair(task, first, second, AtExec::from_flag(kind, raw::O_CLOEXEC), address)
}

/// bind(2)
pub fn bind(task: &Task, fd: i32, address: u64, len: u32) -> SysResult {
    with_socket(task, fd, |_, socket| {
        match address::read(socket.family(), address, len)? {
            Address::Unspecified if socket.inet().is_some() => return Err(Errno::EAFNOSUPPORT),
            Address::Unspecified => return Err(Errno::EINVAL),
            Address::Inet(address) => {
                let inet = socket.inet().ok_or(Errno::EINVAL)?;
                if (1..1024).contains(&address.port())
                    && !task.credentials().may_in(&task.namespaces.lock().net.owner, CAP_NET_BIND_SERVICE)
                {
                    return Err(Errno::EACCES);
                }
                socket.bind_inet(inet, address)?;
            }
            Address::Unnamed => {
                let name = names::unused(socket.net(), socket.style()).ok_or(Errno::ENOSPC)?;
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
        let address = address::read(socket.family(), address, len)?;
        let manner = socket.options.sending(file);
        match (address, socket.inet()) {
            (Address::Unspecified, _) if socket.style() == Style::Datagrams => socket.disconnect(),
            (Address::Inet(address), Some(inet)) => socket.connect_inet(inet, address, manner)?,
            (address, _) => socket.connect(&reached(task, socket.net(), socket.style(), &address)?, manner)?,
        }
        Ok(0)
    })
}

/// accept4(2)
pub fn accept(task: &Task, fd: i32, address: u64, len: u64, flags: u32) -> SysResult {
    if flags & !TYPE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    with_socket(task, fd, |file, socket| {
        let connection = socket.accept(socket.options.receiving(file))?;
        connection.set_flags(OpenFlags::from_user(flags & raw::O_NONBLOCK));
        if address != 0 {
            let name = connection.body.socket().map_or(Ok(Name::from([])), Socket::peer_name)?;
            address::write(socket.family(), &name, address, len)?;
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

/// shutdown(2)
pub fn shutdown(task: &Task, fd: i32, how: u32) -> SysResult {
    with_socket(task, fd, |_, socket| {
        socket.shut_down(match how {
            net::SHUT_RD => Shutdown::Read,
            net::SHUT_WR => Shutdown::Write,
            net::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::EINVAL),
        })?;
        Ok(0)
    })
}

/// getsockname(2)
pub fn own_name(task: &Task, fd: i32, address: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| address::write(socket.family(), &socket.name(), address, len))?;
    Ok(0)
}

/// getpeername(2)
pub fn peer_name(task: &Task, fd: i32, address: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| address::write(socket.family(), &socket.peer_name()?, address, len))?;
    Ok(0)
}
