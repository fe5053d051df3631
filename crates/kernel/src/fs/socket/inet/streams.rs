//! Connections.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;

use super::{Inet, destination, own, ports};
use crate::errno::Errno;
use crate::fs::socket::{Endpoint, Held, Manner, Socket, Style};

impl Socket {
    /// Gives a socket of the internet families its address.
    ///
    /// # Errors
    /// `EINVAL`: it has one. `EADDRNOTAVAIL`: not one of this machine. `EADDRINUSE`.
    pub fn bind_inet(&self, inet: &Inet, address: SocketAddr) -> Result<(), Errno> {
        let ip = address.ip();
        if !ip.is_loopback() && !ip.is_unspecified() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let mut bound = self.bound.lock();
        if bound.is_some() || self.is_connected() {
            return Err(Errno::EINVAL);
        }
        let (held, address) = ports::bind(&self.end, address)?;
        *bound = Some(Held::Port(held));
        *inet.address.lock() = Some(address);
        Ok(())
    }

    /// Gives it an address if it has none.
    pub(in crate::fs::socket) fn bind_somewhere(&self, inet: &Inet) -> Result<SocketAddr, Errno> {
        let address = *inet.address.lock();
        match address {
            Some(address) => Ok(address),
            None => {
                self.bind_inet(inet, SocketAddr::new(super::unspecified(self.family()), 0))?;
                let address = *inet.address.lock();
                address.ok_or(Errno::EADDRINUSE)
            }
        }
    }

    /// Connects to an address. A stream that does not wait for it has begun to, and learns later what became of it.
    ///
    /// # Errors
    /// `ENETUNREACH`, `ECONNREFUSED`, `EISCONN`, `EINPROGRESS`; `EADDRNOTAVAIL`: no port is free.
    pub fn connect_inet(&self, inet: &Inet, to: SocketAddr, manner: Manner) -> Result<(), Errno> {
        if self.style() == Style::Datagrams {
            return self.direct(inet, to);
        }
        if inet.begun.swap(false, Ordering::Relaxed) {
            return inet.take_error();
        }
        if self.is_connected() || self.is_listening() {
            return Err(Errno::EISCONN);
        }
        let to = destination(&self.end, inet, to)?;
        let local = self.bind_somewhere(inet).map_err(|_| Errno::EADDRNOTAVAIL)?;
        let from = if local.ip().is_unspecified() { own(to.ip()) } else { local.ip() };
        let from = SocketAddr::new(from, local.port());
        let done = match ports::find(&self.end.net, Style::Stream, to, None) {
            Some(peer) => self.join(&peer, Manner { non_blocking: false, ..manner }, Some((from, to))),
            None => Err(Errno::ECONNREFUSED),
        };
        if done.is_ok() {
            *inet.address.lock() = Some(from);
            *inet.peer.lock() = Some(to);
        }
        if !manner.non_blocking {
            return done;
        }
        if let Err(error) = done {
            inet.fail(error);
        }
        inet.begun.store(true, Ordering::Relaxed);
        Err(Errno::EINPROGRESS)
    }

    /// Before it listens: it needs an address that nobody listens at.
    pub(in crate::fs::socket) fn prepare_to_listen(&self, inet: &Inet) -> Result<(), Errno> {
        let address = self.bind_somewhere(inet)?;
        if ports::is_taken(&self.end, address) { Err(Errno::EADDRINUSE) } else { Ok(()) }
    }
}

/// The addresses of an endpoint that was made for a connection.
pub(in crate::fs::socket) fn place(end: &Arc<Endpoint>, own: SocketAddr, peer: SocketAddr) {
    if let Some(inet) = &end.inet {
        *inet.address.lock() = Some(own);
        *inet.peer.lock() = Some(peer);
    }
}
