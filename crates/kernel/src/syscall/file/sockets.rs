//! Calls on pairs of connected local sockets. There are no addresses to give or to ask for.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use linux_raw_sys::net;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::transfer::{buffer, pieces};
use super::{content_file, descriptor_limit};
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::io::{Sink, UserVector};
use crate::fs::reserve;
use crate::fs::socket::{self, Manner, Shutdown, Socket, Style};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are the open flags (`include/linux/net.h`).
const TYPE_FLAGS: u32 = raw::O_NONBLOCK | raw::O_CLOEXEC;

/// socketpair(2)
pub fn socketpair(task: &Task, domain: u32, kind: u32, protocol: u32, address: u64) -> SysResult {
    if domain != net::AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    let style = match kind & !TYPE_FLAGS {
        net::SOCK_STREAM => Style::Stream,
        net::SOCK_SEQPACKET => Style::Packets,
        net::SOCK_DGRAM => Style::Datagrams,
        _ => return Err(Errno::EPROTONOSUPPORT),
    };
    if protocol > net::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let (first, second) = socket::pair(style, OpenFlags::from_user(kind & raw::O_NONBLOCK));
    insert_pair(task, first, second, AtExec::from_flag(kind, raw::O_CLOEXEC), address)
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

/// sendto(2)
pub fn sendto(task: &Task, fd: i32, address: u64, len: usize, flags: u32, to: u64) -> SysResult {
    with_socket(task, fd, |file, socket| {
        if to != 0 {
            return Err(Errno::EISCONN);
        }
        if flags & net::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        socket.send(manner(file, flags), &mut buffer(address, len)?)
    })
}

fn receive(file: &File, socket: &Socket, flags: u32, out: &mut dyn Sink) -> Result<(usize, bool), Errno> {
    if flags & (net::MSG_OOB | net::MSG_ERRQUEUE) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut total = 0;
    loop {
        let received = match socket.receive(manner(file, flags), out) {
            Err(_) if total > 0 => return Ok((total, false)),
            received => received?,
        };
        total += received.bytes;
        let fills = flags & net::MSG_WAITALL != 0 && flags & net::MSG_PEEK == 0 && socket.style() == Style::Stream;
        if !fills || received.bytes == 0 || out.room() == 0 {
            let cut = received.whole > received.bytes;
            let told = if cut && flags & net::MSG_TRUNC != 0 { received.whole } else { total };
            return Ok((told, cut));
        }
    }
}

/// recvfrom(2)
pub fn recvfrom(task: &Task, fd: i32, address: u64, len: usize, flags: u32, from: (u64, u64)) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let (bytes, _) = receive(file, socket, flags, &mut buffer(address, len)?)?;
        if from.0 != 0 && from.1 != 0 {
            // The other end has no name.
            uaccess::write(from.1, &0i32)?;
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
        if header.name != 0 && header.name_len != 0 {
            return Err(Errno::EISCONN);
        }
        if header.control_len != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        socket.send(manner(file, flags), &mut UserVector::new(&mut pieces))
    })
}

/// recvmsg(2)
pub fn recvmsg(task: &Task, fd: i32, address: u64, flags: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let mut header: MessageHeader = uaccess::read(address)?;
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        let (bytes, cut) = receive(file, socket, flags, &mut UserVector::new(&mut pieces))?;
        header.name_len = 0;
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

/// getsockopt(2): what is true of every pair.
pub fn getsockopt(task: &Task, fd: i32, level: u32, option: u32, value: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| {
        if level != net::SOL_SOCKET {
            return Err(Errno::EOPNOTSUPP);
        }
        let answer: i32 = match option {
            net::SO_TYPE => match socket.style() {
                Style::Stream => net::SOCK_STREAM as i32,
                Style::Packets => net::SOCK_SEQPACKET as i32,
                Style::Datagrams => net::SOCK_DGRAM as i32,
            },
            net::SO_DOMAIN => net::AF_UNIX as i32,
            net::SO_ERROR | net::SO_PROTOCOL | net::SO_REUSEADDR | net::SO_PASSCRED => 0,
            net::SO_SNDBUF | net::SO_RCVBUF => socket::CAPACITY as i32,
            _ => return Err(Errno::ENOPROTOOPT),
        };
        let room = usize::try_from(uaccess::read::<i32>(len)?).map_err(|_| Errno::EINVAL)?;
        let bytes = room.min(4);
        uaccess::write_bytes(value, &answer.to_le_bytes()[..bytes])?;
        uaccess::write(len, &(bytes as i32))?;
        Ok(0)
    })
}

/// getsockname(2) and getpeername(2): a family and no name.
pub fn name(task: &Task, fd: i32, address: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, _| {
        let room = usize::try_from(uaccess::read::<i32>(len)?).map_err(|_| Errno::EINVAL)?;
        let family = (net::AF_UNIX as u16).to_le_bytes();
        uaccess::write_bytes(address, &family[..room.min(2)])?;
        uaccess::write(len, &2i32)?;
        Ok(0)
    })
}
