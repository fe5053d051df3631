//! Options of sockets (socket(7), ip(7), tcp(7)).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::net;
use zerocopy::IntoBytes;

use super::{address, with_socket};
use crate::errno::Errno;
use crate::fs::socket::{self, Family, Socket, Style};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;

/// Levels: `IPPROTO_IP`, `IPPROTO_TCP`, `IPPROTO_UDP`, `IPPROTO_IPV6`.
const IP: u32 = 0;
const TCP: u32 = 6;
const UDP: u32 = 17;
const IPV6: u32 = 41;
/// `IPV6_V6ONLY`.
const ONLY_V6: u32 = 26;
/// `TCP_INFO`.
const INFO: u32 = 11;
/// `SO_RCVTIMEO`, `SO_SNDTIMEO` (the old ones, which are all that there is with times of 64 bits).
const RECEIVE_TIMEOUT: u32 = 20;
const SEND_TIMEOUT: u32 = 21;

/// Options that are numbers, make no difference here, and are told again: level, number, what it is before it is set.
const KEPT: &[(u32, u32, i32)] = &[
    (net::SOL_SOCKET, net::SO_KEEPALIVE, 0),
    (net::SOL_SOCKET, net::SO_BROADCAST, 0),
    (net::SOL_SOCKET, net::SO_OOBINLINE, 0),
    (net::SOL_SOCKET, net::SO_DONTROUTE, 0),
    (net::SOL_SOCKET, net::SO_DEBUG, 0),
    (net::SOL_SOCKET, net::SO_PRIORITY, 0),
    (net::SOL_SOCKET, net::SO_MARK, 0),
    (net::SOL_SOCKET, net::SO_RCVLOWAT, 1),
    (net::SOL_SOCKET, net::SO_TIMESTAMP, 0),
    (net::SOL_SOCKET, net::SO_BUSY_POLL, 0),
    // TCP_NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP, QUICKACK, USER_TIMEOUT, FASTOPEN,
    // NOTSENT_LOWAT, FASTOPEN_CONNECT.
    (TCP, 1, 0),
    (TCP, 2, 32_768),
    (TCP, 3, 0),
    (TCP, 4, 7200),
    (TCP, 5, 75),
    (TCP, 6, 9),
    (TCP, 7, 6),
    (TCP, 8, 60),
    (TCP, 9, 0),
    (TCP, 10, 0),
    (TCP, 12, 1),
    (TCP, 18, 0),
    (TCP, 23, 0),
    (TCP, 25, -1),
    (TCP, 30, 0),
    // IP_TOS, TTL, RECVOPTS, PKTINFO, MTU_DISCOVER, RECVERR, RECVTTL, RECVTOS, TRANSPARENT, FREEBIND, BIND_ADDRESS_NO_PORT, MULTICAST_TTL and LOOP.
    (IP, 1, 0),
    (IP, 2, 64),
    (IP, 6, 0),
    (IP, 8, 0),
    (IP, 10, 1),
    (IP, 11, 0),
    (IP, 12, 0),
    (IP, 13, 0),
    (IP, 15, 0),
    (IP, 19, 0),
    (IP, 24, 0),
    (IP, 33, 1),
    (IP, 34, 1),
    // IPV6_UNICAST_HOPS, MULTICAST_HOPS, MULTICAST_LOOP, MTU_DISCOVER, RECVERR, RECVPKTINFO, RECVHOPLIMIT, RECVTCLASS, TCLASS.
    (IPV6, 16, 64),
    (IPV6, 18, 1),
    (IPV6, 19, 1),
    (IPV6, 23, 1),
    (IPV6, 25, 0),
    (IPV6, 49, 0),
    (IPV6, 51, 0),
    (IPV6, 66, 0),
    (IPV6, 67, 0),
];

fn kept(level: u32, option: u32) -> Option<i32> {
    KEPT.iter().find(|entry| (entry.0, entry.1) == (level, option)).map(|entry| entry.2)
}

/// What is not there: a level that the socket does not have, or an option that the level does not.
fn missing(socket: &Socket, level: u32) -> Errno {
    let known = match (socket.family(), socket.style()) {
        (_, _) if level == net::SOL_SOCKET => true,
        (Family::Local, _) => false,
        (_, Style::Stream) if level == UDP => false,
        (_, Style::Datagrams) if level == TCP => false,
        (Family::V4, _) => matches!(level, IP | TCP | UDP),
        (Family::V6, _) => matches!(level, IP | TCP | UDP | IPV6),
    };
    if known { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
}

/// An option that is yes or no.
fn flag(socket: &Socket, level: u32, option: u32) -> Option<&AtomicBool> {
    match (level, option, socket.inet()) {
        (net::SOL_SOCKET, net::SO_PASSCRED, _) => Some(&socket.options.wants_credentials),
        (net::SOL_SOCKET, net::SO_REUSEADDR, Some(inet)) => Some(&inet.reuse_address),
        (net::SOL_SOCKET, net::SO_REUSEPORT, Some(inet)) => Some(&inet.reuse_port),
        (IPV6, ONLY_V6, Some(inet)) if socket.family() == Family::V6 => Some(&inet.only_v6),
        _ => None,
    }
}

fn timeout(socket: &Socket, level: u32, option: u32) -> Option<&AtomicU64> {
    match (level, option) {
        (net::SOL_SOCKET, RECEIVE_TIMEOUT) => Some(&socket.options.receive_timeout),
        (net::SOL_SOCKET, SEND_TIMEOUT) => Some(&socket.options.send_timeout),
        _ => None,
    }
}

/// Whether a kept option is one of a level that the socket has.
fn has_level(socket: &Socket, level: u32) -> bool {
    missing(socket, level) == Errno::ENOPROTOOPT
}

/// getsockopt(2)
pub fn getsockopt(task: &Task, fd: i32, level: u32, option: u32, value: u64, len: u64) -> SysResult {
    with_socket(task, fd, |_, socket| {
        if let Some(flag) = flag(socket, level, option) {
            return answer(&i32::from(flag.load(Ordering::Relaxed)).to_le_bytes(), value, len);
        }
        if let Some(timeout) = timeout(socket, level, option) {
            let micros = timeout.load(Ordering::Relaxed) / 1000;
            return answer([micros / 1_000_000, micros % 1_000_000].as_bytes(), value, len);
        }
        if let Some(default) = kept(level, option).filter(|_| has_level(socket, level)) {
            return answer(&socket.options.kept(level, option).unwrap_or(default).to_le_bytes(), value, len);
        }
        if (level, option) == (TCP, INFO) && has_level(socket, level) {
            // The state alone: established, listening or closed.
            let state = match (socket.is_connected(), socket.is_listening()) {
                (true, _) => 1,
                (_, true) => 10,
                _ => 7_u8,
            };
            let mut info = [0; 104];
            info[0] = state;
            return answer(&info, value, len);
        }
        if level != net::SOL_SOCKET {
            return Err(missing(socket, level));
        }
        let number: i32 = match option {
            net::SO_PEERCRED => {
                let nobody = [0, u32::MAX, u32::MAX];
                let record = socket.peer_owner().filter(|_| socket.inet().is_none());
                let record = record.map_or(nobody, |owner| owner.shown_to(task));
                return answer(record.as_bytes(), value, len);
            }
            net::SO_LINGER => {
                let seconds = socket.options.kept(level, option).unwrap_or(-1);
                let record = [i32::from(seconds >= 0), seconds.max(0)];
                return answer(record.as_bytes(), value, len);
            }
            net::SO_TYPE => match socket.style() {
                Style::Stream => net::SOCK_STREAM as i32,
                Style::Packets => net::SOCK_SEQPACKET as i32,
                Style::Datagrams => net::SOCK_DGRAM as i32,
            },
            net::SO_DOMAIN => address::number(socket.family()) as i32,
            net::SO_PROTOCOL => match (socket.family(), socket.style()) {
                (Family::Local, _) => 0,
                (_, Style::Datagrams) => UDP as i32,
                _ => TCP as i32,
            },
            net::SO_ACCEPTCONN => i32::from(socket.is_listening()),
            net::SO_ERROR => {
                let error = socket.inet().and_then(|inet| inet.take_error().err());
                error.map_or(0, Errno::number)
            }
            net::SO_REUSEADDR | net::SO_REUSEPORT => socket.options.kept(level, option).unwrap_or(0),
            net::SO_SNDLOWAT => 1,
            net::SO_SNDBUF | net::SO_RCVBUF => socket.options.kept(level, option).unwrap_or(socket::CAPACITY as i32),
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
    with_socket(task, fd, |_, socket| {
        if let Some(timeout) = timeout(socket, level, option) {
            if (len as usize) < size_of::<[i64; 2]>() {
                return Err(Errno::EINVAL);
            }
            let [seconds, micros]: [i64; 2] = uaccess::read(value)?;
            if !(0..1_000_000).contains(&micros) {
                return Err(Errno::EDOM);
            }
            // Below 0 is no time at all: the least that there is.
            let wanted = match seconds {
                ..0 => 1,
                _ => (seconds as u64).saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000),
            };
            timeout.store(wanted, Ordering::Relaxed);
            return Ok(0);
        }
        if !has_level(socket, level) {
            return Err(missing(socket, level));
        }
        if (len as i32) < 4 {
            return Err(Errno::EINVAL);
        }
        let number: i32 = uaccess::read(value)?;
        if let Some(flag) = flag(socket, level, option) {
            if option == ONLY_V6 && level == IPV6 && socket.inet().is_some_and(|inet| inet.address.lock().is_some()) {
                return Err(Errno::EINVAL);
            }
            flag.store(number != 0, Ordering::Relaxed);
            return Ok(0);
        }
        if kept(level, option).is_some() {
            socket.options.keep(level, option, number);
            return Ok(0);
        }
        if level != net::SOL_SOCKET {
            return Err(Errno::ENOPROTOOPT);
        }
        match option {
            net::SO_REUSEADDR | net::SO_REUSEPORT => socket.options.keep(level, option, i32::from(number != 0)),
            // Told twice as large as asked (socket(7)); channels hold what they hold.
            net::SO_SNDBUF | net::SO_RCVBUF | net::SO_SNDBUFFORCE | net::SO_RCVBUFFORCE => {
                let told = number.clamp(1152, socket::CAPACITY as i32) * 2;
                let option = match option {
                    net::SO_SNDBUF | net::SO_SNDBUFFORCE => net::SO_SNDBUF,
                    _ => net::SO_RCVBUF,
                };
                socket.options.keep(level, option, told);
            }
            net::SO_LINGER => {
                let [on, seconds]: [i32; 2] = match len {
                    8.. => uaccess::read(value)?,
                    _ => return Err(Errno::EINVAL),
                };
                socket.options.keep(level, option, if on != 0 { seconds.max(0) } else { -1 });
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(0)
    })
}
