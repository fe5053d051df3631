//! The internet families (ip(7), ipv6(7), tcp(7), udp(7)), within this machine: there is the loopback interface and no other, so every peer is a socket
//! here, nothing is lost on the way, and a connection is a pair of channels as between local sockets.
//!
//! - [`ports`]: who is reached by which address.
//! - [`streams`]: connections. [`datagrams`]: single messages.

pub mod datagrams;
pub mod ports;
pub mod streams;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use super::channel::Name;
use super::{Endpoint, Family};
use crate::errno::Errno;
use crate::sync::Mutex;

/// What an endpoint of these families has besides.
#[derive(Default)]
pub struct Inet {
    /// Its own address, once it has one. One of version 4 is kept as such, whatever the family.
    pub address: Mutex<Option<SocketAddr>>,
    /// Where what it sends goes and what it gets must come from.
    pub peer: Mutex<Option<SocketAddr>>,
    /// What went wrong while nobody waited for it: an errno, 0 for nothing.
    error: AtomicU16,
    /// A connection was begun without waiting; nobody has asked yet what became of it.
    pub begun: AtomicBool,
    /// `SO_REUSEADDR`.
    pub reuse_address: AtomicBool,
    /// `SO_REUSEPORT`.
    pub reuse_port: AtomicBool,
    /// `IPV6_V6ONLY`.
    pub only_v6: AtomicBool,
}

impl Inet {
    /// Keeps an error for whoever asks next.
    pub fn fail(&self, error: Errno) {
        self.error.store(error.number() as u16, Ordering::Relaxed);
        crate::fs::poll::notify();
    }

    /// Whether there is one.
    pub fn has_failed(&self) -> bool {
        self.error.load(Ordering::Relaxed) != 0
    }

    /// Takes it.
    pub fn take_error(&self) -> Result<(), Errno> {
        Errno::new(self.error.swap(0, Ordering::Relaxed)).map_or(Ok(()), Err)
    }
}

/// Bytes after the family of `struct sockaddr_in` and `sockaddr_in6`.
const V4: usize = 14;
const V6: usize = 26;
/// Bytes that an address of version 6 must have at least (`SIN6_LEN_RFC2133`), its family left out.
const V6_SHORTEST: usize = 22;

/// What follows the family in an address.
///
/// # Errors
/// `EINVAL`: too short.
pub fn parse(family: Family, bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let least = if family == Family::V4 { V4 } else { V6_SHORTEST };
    let bytes = bytes.get(..least).ok_or(Errno::EINVAL)?;
    let (port, rest) = bytes.split_first_chunk::<2>().ok_or(Errno::EINVAL)?;
    let ip = match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(*rest.first_chunk::<4>().ok_or(Errno::EINVAL)?)),
        _ => {
            let ip = rest.get(4..).and_then(|rest| rest.first_chunk::<16>()).ok_or(Errno::EINVAL)?;
            IpAddr::V6(Ipv6Addr::from(*ip)).to_canonical()
        }
    };
    Ok(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

/// The same the other way, as a socket of `family` sees it; of no address all is 0.
pub fn name(family: Family, address: Option<SocketAddr>) -> Name {
    let mut bytes = [0; V6];
    let len = if family == Family::V4 { V4 } else { V6 };
    if let Some(address) = address {
        bytes[..2].copy_from_slice(&address.port().to_be_bytes());
        match (family, address.ip()) {
            (Family::V4, IpAddr::V4(ip)) => bytes[2..6].copy_from_slice(&ip.octets()),
            (_, IpAddr::V4(ip)) => bytes[6..22].copy_from_slice(&ip.to_ipv6_mapped().octets()),
            (_, IpAddr::V6(ip)) => bytes[6..22].copy_from_slice(&ip.octets()),
        }
    }
    Name::from(&bytes[..len])
}

/// No address in particular, of a family.
pub fn unspecified(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Where something that is sent to `to` by a socket goes: no address in particular means this machine.
///
/// # Errors
/// `ENETUNREACH`: not this machine, not the socket's version, or nothing is up. `ECONNREFUSED`: port 0.
pub fn destination(end: &Endpoint, inet: &Inet, to: SocketAddr) -> Result<SocketAddr, Errno> {
    if !end.net.is_up() {
        return Err(Errno::ENETUNREACH);
    }
    if end.family == Family::V6 && to.is_ipv4() && inet.only_v6.load(Ordering::Relaxed) {
        return Err(Errno::ENETUNREACH);
    }
    let ip = match to.ip() {
        ip if ip.is_unspecified() => own(ip),
        ip if ip.is_loopback() => ip,
        _ => return Err(Errno::ENETUNREACH),
    };
    Ok(SocketAddr::new(ip, to.port()))
}

/// From where something comes that is sent to an address of this machine.
pub fn own(to: IpAddr) -> IpAddr {
    match to {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    }
}
