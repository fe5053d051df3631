//! Datagrams: to whoever has the port at the time. What nobody takes, or has no room for, is lost.

use core::net::SocketAddr;

use super::{Inet, destination, name, own, ports};
use crate::errno::Errno;
use crate::fs::io::Supply;
use crate::fs::socket::channel::Parcel;
use crate::fs::socket::{Link, Manner, Socket, Style};
use crate::syscall::SysResult;

/// The longest: what the header's 16 bits count, without the headers.
const LONGEST: usize = 65_507;

impl Socket {
    /// Says where datagrams go from now on, and from where alone they come.
    pub(super) fn direct(&self, inet: &Inet, to: SocketAddr) -> Result<(), Errno> {
        let to = destination(&self.end, inet, to)?;
        let local = self.bind_somewhere(inet)?;
        if local.ip().is_unspecified() {
            *inet.address.lock() = Some(SocketAddr::new(own(to.ip()), local.port()));
        }
        *inet.peer.lock() = Some(to);
        let inbox = self.end.inbox.clone();
        let link = Link { incoming: inbox.clone(), outgoing: inbox, peer: None, owner: self.end.owner };
        let before = self.link.lock().replace(link);
        drop(before);
        Ok(())
    }

    /// Sends one, to `to` or where it is directed.
    ///
    /// # Errors
    /// `EDESTADDRREQ`: nowhere. `EMSGSIZE`, `ENETUNREACH`, `EFAULT`; `ECONNREFUSED`: what was sent before met nobody.
    pub fn send_datagram(
        &self,
        inet: &Inet,
        manner: Manner,
        from: &mut dyn Supply,
        to: Option<SocketAddr>,
    ) -> SysResult {
        inet.take_error()?;
        let directed = *inet.peer.lock();
        let to = match to {
            Some(to) => destination(&self.end, inet, to)?,
            None => directed.ok_or(Errno::EDESTADDRREQ)?,
        };
        if to.port() == 0 {
            return Err(Errno::EINVAL);
        }
        let len = from.remaining();
        if len > LONGEST {
            return Err(Errno::EMSGSIZE);
        }
        let local = self.bind_somewhere(inet)?;
        let ip = if local.ip().is_unspecified() { own(to.ip()) } else { local.ip() };
        let sender = SocketAddr::new(ip, local.port());
        let Some(target) = ports::find(&self.end.net, Style::Datagrams, to, Some(sender)) else {
            if directed == Some(to) {
                inet.fail(Errno::ECONNREFUSED);
            }
            return Ok(len);
        };
        let parcel = Parcel::from(name(target.family, Some(sender)));
        match target.inbox.write(Style::Datagrams, Manner { non_blocking: true, ..manner }, from, parcel) {
            // No room: lost.
            Err(Errno::EAGAIN | Errno::EPIPE) => Ok(len),
            sent => sent,
        }
    }
}
