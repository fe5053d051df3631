//! Who is reached by which address and port.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicU16, Ordering};

use smallvec::SmallVec;

use crate::errno::Errno;
use crate::fs::socket::{Endpoint, Style};
use crate::process::net::Net;
use crate::sync::Mutex;

/// `net.ipv4.ip_local_port_range`.
const EPHEMERAL: core::ops::Range<u16> = 32_768..61_000;

/// Ports of streams and of datagrams are different ones, and those of each network namespace, by its number.
type Port = (u64, Style, u16);

fn port_of(end: &Endpoint, port: u16) -> Port {
    (end.net.number, end.style, port)
}

struct Binding {
    ip: IpAddr,
    end: Weak<Endpoint>,
}

type Bindings = SmallVec<[Binding; 1]>;

static PORTS: Mutex<BTreeMap<Port, Bindings>> = Mutex::new(BTreeMap::new());

/// That a socket has a port, until this is dropped.
pub struct Held {
    port: Port,
    end: Weak<Endpoint>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut ports = PORTS.lock();
        let Some(bindings) = ports.get_mut(&self.port) else { return };
        let gone = bindings.iter().position(|binding| binding.end.ptr_eq(&self.end));
        let gone = gone.map(|index| bindings.swap_remove(index));
        let empty = if bindings.is_empty() { ports.remove(&self.port) } else { None };
        drop(ports);
        drop((gone, empty));
    }
}

/// How exactly an address that a socket has is the one that is looked for: not at all, by standing for any, or as it is.
fn covers(bound: IpAddr, end: &Endpoint, wanted: IpAddr) -> u32 {
    let both = end.inet.as_ref().is_some_and(|inet| !inet.only_v6.load(Ordering::Relaxed));
    match (bound, wanted) {
        _ if bound == wanted => 3,
        (IpAddr::V4(bound), IpAddr::V4(_)) if bound.is_unspecified() => 2,
        (IpAddr::V6(bound), IpAddr::V6(_)) if bound.is_unspecified() => 2,
        (IpAddr::V6(bound), IpAddr::V4(_)) if bound.is_unspecified() && both => 1,
        _ => 0,
    }
}

/// Whether two sockets cannot have the same port (`inet_csk_bind_conflict`, `inet_rcv_saddr_equal`).
fn conflict(one: &Arc<Endpoint>, ip: IpAddr, binding: &Binding) -> bool {
    let Some(other) = binding.end.upgrade() else { return false };
    if covers(ip, one, binding.ip) == 0 && covers(binding.ip, &other, ip) == 0 {
        return false;
    }
    let (Some(a), Some(b)) = (&one.inet, &other.inet) else { return true };
    let both = |flag: fn(&super::Inet) -> bool| flag(a) && flag(b);
    let reuse_port = both(|inet| inet.reuse_port.load(Ordering::Relaxed)) && one.owner.uid == other.owner.uid;
    let reuse_address = both(|inet| inet.reuse_address.load(Ordering::Relaxed)) && !other.is_listening();
    !reuse_port && !reuse_address
}

/// Gives a socket an address; port 0 is any that is free.
///
/// # Errors
/// `EADDRINUSE`.
pub fn bind(end: &Arc<Endpoint>, address: SocketAddr) -> Result<(Held, SocketAddr), Errno> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let ip = address.ip();
    let mut ports = PORTS.lock();
    let port = match address.port() {
        0 => {
            let count = EPHEMERAL.end - EPHEMERAL.start;
            let first = NEXT.fetch_add(1, Ordering::Relaxed) % count;
            let mut candidates = (0..count).map(|step| EPHEMERAL.start + (first + step) % count);
            candidates.find(|&port| !ports.contains_key(&port_of(end, port))).ok_or(Errno::EADDRINUSE)?
        }
        port => {
            let others = ports.get(&port_of(end, port));
            if others.is_some_and(|others| others.iter().any(|other| conflict(end, ip, other))) {
                return Err(Errno::EADDRINUSE);
            }
            port
        }
    };
    let weak = Arc::downgrade(end);
    ports.entry(port_of(end, port)).or_default().push(Binding { ip, end: weak.clone() });
    Ok((Held { port: port_of(end, port), end: weak }, SocketAddr::new(ip, port)))
}

/// Whether another socket listens where this one wants to (`EADDRINUSE` of listen).
pub fn is_taken(end: &Arc<Endpoint>, address: SocketAddr) -> bool {
    let ports = PORTS.lock();
    let Some(bindings) = ports.get(&port_of(end, address.port())) else { return false };
    bindings.iter().any(|binding| {
        let other = binding.end.upgrade().filter(|other| !Arc::ptr_eq(other, end) && other.is_listening());
        other.is_some() && conflict(end, address.ip(), binding)
    })
}

/// The socket of `net` that is reached at `to`. Of several, the one with the most exact address; of datagrams, first the one that is connected to who sends.
pub fn find(net: &Net, style: Style, to: SocketAddr, from: Option<SocketAddr>) -> Option<Arc<Endpoint>> {
    let ports = PORTS.lock();
    let candidates = ports.get(&(net.number, style, to.port()))?.iter().filter_map(|binding| {
        let end = binding.end.upgrade()?;
        let exact = covers(binding.ip, &end, to.ip());
        let peer = if style == Style::Datagrams { *end.inet.as_ref()?.peer.lock() } else { None };
        let score = match peer {
            _ if exact == 0 => return None,
            None if style == Style::Stream && !end.is_listening() => return None,
            None => exact,
            Some(peer) if Some(peer) == from => exact + 10,
            Some(_) => return None,
        };
        Some((score, end))
    });
    let best = candidates.max_by_key(|(score, _)| *score);
    drop(ports);
    best.map(|(_, end)| end)
}
