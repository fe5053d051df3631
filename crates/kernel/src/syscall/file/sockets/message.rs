//! Sending and receiving with more than the bytes: addresses, pieces, what goes along, several at a time.

use core::mem::offset_of;

use linux_raw_sys::net;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::transfer::{buffer, pieces};
use super::address::{self, Address, reached};
use super::{passed, with_socket};
use crate::errno::Errno;
use crate::fs::File;
use crate::fs::io::{Sink, Supply, UserVector};
use crate::fs::socket::{Manner, Parcel, Socket, Style};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;
use crate::syscall::time::{Timespec, deadline_after};
use crate::time::monotonic_ns;

fn with_flags(manner: Manner, flags: u32) -> Manner {
    Manner {
        non_blocking: manner.non_blocking || flags & net::MSG_DONTWAIT != 0,
        quiet: flags & net::MSG_NOSIGNAL != 0,
        peek: flags & net::MSG_PEEK != 0,
        ..manner
    }
}

/// Sends to an address, or to what the socket is connected to.
fn send(
    task: &Task,
    (file, socket): (&File, &Socket),
    flags: u32,
    from: &mut dyn Supply,
    to: (u64, u32),
    parcel: Parcel,
) -> SysResult {
    let manner = with_flags(socket.options.sending(file), flags);
    if flags & net::MSG_OOB != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if to.0 == 0 || to.1 == 0 {
        return socket.send(manner, from, None, parcel);
    }
    let address = address::read(socket.family(), to.0, to.1)?;
    match (socket.inet(), socket.style(), address) {
        // A stream of these families goes where it goes.
        (Some(_), Style::Stream, _) => socket.send(manner, from, None, parcel),
        (Some(inet), _, Address::Inet(to)) => socket.send_datagram(inet, manner, from, Some(to)),
        (Some(inet), ..) => socket.send_datagram(inet, manner, from, None),
        (None, Style::Datagrams, address) => {
            let target = reached(task, socket.net(), socket.style(), &address)?;
            socket.send(manner, from, Some(&target), parcel)
        }
        // Streams are connected or not, and take no address.
        (None, ..) if socket.is_connected() => Err(Errno::EISCONN),
        (None, ..) => Err(Errno::EOPNOTSUPP),
    }
}

/// sendto(2)
pub fn sendto(task: &Task, fd: i32, address: u64, len: usize, flags: u32, to: (u64, u32)) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let parcel = passed::nothing(socket);
        send(task, (file, socket), flags, &mut buffer(address, len)?, to, parcel)
    })
}

/// What a receiving call got.
struct Got {
    /// What it returns.
    bytes: usize,
    /// Whether a part of the message is lost.
    cut: bool,
    parcel: Option<Parcel>,
}

fn receive(file: &File, socket: &Socket, flags: u32, out: &mut dyn Sink) -> Result<Got, Errno> {
    if flags & net::MSG_OOB != 0 {
        return Err(if socket.inet().is_some() { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    if flags & net::MSG_ERRQUEUE != 0 {
        return Err(if socket.inet().is_some() { Errno::EAGAIN } else { Errno::EOPNOTSUPP });
    }
    let manner = with_flags(socket.options.receiving(file), flags);
    let mut total = 0;
    loop {
        let received = match socket.receive(manner, out) {
            Err(_) if total > 0 => return Ok(Got { bytes: total, cut: false, parcel: None }),
            received => received?,
        };
        total += received.bytes;
        let fills = flags & net::MSG_WAITALL != 0 && flags & net::MSG_PEEK == 0 && socket.style() == Style::Stream;
        let alone = received.parcel.as_ref().is_some_and(|parcel| !parcel.files.is_empty());
        if !fills || alone || received.bytes == 0 || out.room() == 0 {
            let cut = received.whole > received.bytes;
            let bytes = if cut && flags & net::MSG_TRUNC != 0 { received.whole } else { total };
            return Ok(Got { bytes, cut, parcel: received.parcel });
        }
    }
}

/// recvfrom(2)
pub fn recvfrom(task: &Task, fd: i32, address: u64, len: usize, flags: u32, from: (u64, u64)) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let got = receive(file, socket, flags, &mut buffer(address, len)?)?;
        if from.0 != 0 && from.1 != 0 {
            let name = got.parcel.map(|parcel| parcel.from).filter(|name| !name.is_empty() && shows_sender(socket));
            match name {
                Some(name) => address::write(socket.family(), &name, from.0, from.1)?,
                // The other end has no name.
                None => uaccess::write(from.1, &0i32)?,
            }
        }
        Ok(got.bytes)
    })
}

/// Whether who receives is told an address: not over a connection of the internet families.
fn shows_sender(socket: &Socket) -> bool {
    socket.inet().is_none() || socket.style() == Style::Datagrams
}

/// `struct msghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
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

const _: () = assert!(size_of::<Header>() == size_of::<net::msghdr>());

/// `struct mmsghdr`: a header, and what became of it.
const BATCH_STRIDE: u64 = size_of::<Header>() as u64 + 8;
/// `MSG_WAITFORONE`.
const WAIT_FOR_ONE: u32 = 0x1_0000;
/// Most that one call takes (`UIO_MAXIOV`).
const BATCH_MAX: u32 = 1024;

/// sendmsg(2)
pub fn sendmsg(task: &Task, fd: i32, address: u64, flags: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let header: Header = uaccess::read(address)?;
        let parcel = passed::read(task, socket, header.control, header.control_len)?;
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        let mut from = UserVector::new(&mut pieces);
        send(task, (file, socket), flags, &mut from, (header.name, header.name_len), parcel)
    })
}

/// recvmsg(2)
pub fn recvmsg(task: &Task, fd: i32, address: u64, flags: u32) -> SysResult {
    with_socket(task, fd, |file, socket| {
        let mut header: Header = uaccess::read(address)?;
        let mut pieces = pieces(header.pieces, header.count as usize)?;
        let got = receive(file, socket, flags, &mut UserVector::new(&mut pieces))?;
        let mut told = if got.cut { net::MSG_TRUNC } else { 0 };
        let name = got.parcel.as_ref().map(|parcel| parcel.from.clone());
        header.name_len = match name.filter(|name| header.name != 0 && !name.is_empty() && shows_sender(socket)) {
            Some(name) => {
                let len = address.wrapping_add(offset_of!(Header, name_len) as u64);
                address::write(socket.family(), &name, header.name, len)?;
                name.len() as u32 + 2
            }
            None => 0,
        };
        let room = (header.control, header.control_len);
        let (written, lost) = passed::write(task, socket, got.parcel.as_ref(), room, flags)?;
        header.control_len = written;
        told |= lost;
        header.flags = told | flags & net::MSG_CMSG_CLOEXEC;
        uaccess::write(address, &header)?;
        Ok(got.bytes)
    })
}

/// Does a call for each header of a batch, until one fails. The error counts only if it is the first's.
fn batch(address: u64, count: u32, mut each: impl FnMut(u64, usize) -> SysResult) -> SysResult {
    let mut done = 0;
    while done < count.min(BATCH_MAX) as usize {
        let header = address.wrapping_add(done as u64 * BATCH_STRIDE);
        match each(header, done) {
            Ok(bytes) => uaccess::write(header.wrapping_add(size_of::<Header>() as u64), &(bytes as u32))?,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        done += 1;
    }
    Ok(done)
}

/// sendmmsg(2)
pub fn sendmmsg(task: &Task, fd: i32, address: u64, count: u32, flags: u32) -> SysResult {
    with_socket(task, fd, |_, _| Ok(()))?;
    batch(address, count, |header, _| sendmsg(task, fd, header, flags))
}

/// recvmmsg(2). The time is looked at between messages only, as on Linux.
pub fn recvmmsg(task: &Task, fd: i32, address: u64, count: u32, flags: u32, timeout: u64) -> SysResult {
    with_socket(task, fd, |_, _| Ok(()))?;
    let deadline = match timeout {
        0 => None,
        timeout => Some(deadline_after(uaccess::read::<Timespec>(timeout)?.to_nanos()?)),
    };
    batch(address, count, |header, done| {
        if done > 0 && deadline.is_some_and(|deadline| deadline <= monotonic_ns()) {
            return Err(Errno::EAGAIN);
        }
        let later = if done > 0 && flags & WAIT_FOR_ONE != 0 { net::MSG_DONTWAIT } else { 0 };
        recvmsg(task, fd, header, flags & !WAIT_FOR_ONE | later)
    })
}
