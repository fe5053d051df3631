//! Addresses of sockets, as programs write them.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use linux_raw_sys::net;

use crate::errno::Errno;
use crate::fs::path::LastLink;
use crate::fs::permission::{self, Wanted};
use crate::fs::socket::channel::Name;
use crate::fs::socket::{Endpoint, Family, Style, inet, names};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::net::Net;
use crate::syscall::file::Base;

/// What an address says.
pub enum Address {
    /// No family: ends a connection.
    Unspecified,
    /// Nothing but the family.
    Unnamed,
    /// A path.
    Path(Vec<u8>),
    /// What follows a NUL.
    Abstract(Vec<u8>),
    /// Of the internet families.
    Inet(SocketAddr),
}

/// Bytes of the longest local address: a family and 108 bytes.
const LOCAL_MAX: usize = 110;

/// The number of a family.
pub fn number(family: Family) -> u32 {
    match family {
        Family::Local => net::AF_UNIX,
        Family::V4 => net::AF_INET,
        Family::V6 => net::AF_INET6,
    }
}

/// `EINVAL` for what is no address of a socket of that family (`unix_validate_addr`, `inet_bind`), `EAFNOSUPPORT` for one of another.
pub fn read(family: Family, address: u64, len: u32) -> Result<Address, Errno> {
    let len = usize::try_from(len as i32).map_err(|_| Errno::EINVAL)?;
    // `struct sockaddr_storage`.
    if len > 128 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; 128];
    uaccess::read_bytes(address, &mut bytes[..len])?;
    let found = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    if len >= 2 && found == net::AF_UNSPEC {
        return Ok(Address::Unspecified);
    }
    if family != Family::Local {
        let rest = bytes.get(2..len).ok_or(Errno::EINVAL)?;
        let other = found != number(family);
        return match inet::parse(family, rest) {
            Ok(_) if other => Err(Errno::EAFNOSUPPORT),
            parsed => parsed.map(Address::Inet),
        };
    }
    if !(2..=LOCAL_MAX).contains(&len) || found != net::AF_UNIX {
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
pub fn write(family: Family, name: &Name, address: u64, len: u64) -> Result<(), Errno> {
    let room = usize::try_from(uaccess::read::<i32>(len)?).map_err(|_| Errno::EINVAL)?;
    let mut bytes: Vec<u8> = (number(family) as u16).to_le_bytes().to_vec();
    bytes.extend_from_slice(name);
    uaccess::write_bytes(address, &bytes[..room.min(bytes.len())])?;
    uaccess::write(len, &(bytes.len() as i32))
}

/// The local socket that is reached by an address: `ENOENT`, `EACCES`, `ECONNREFUSED`.
pub fn reached(task: &Task, net: &Net, style: Style, address: &Address) -> Result<Arc<Endpoint>, Errno> {
    match address {
        Address::Unspecified | Address::Unnamed | Address::Inet(_) => Err(Errno::EINVAL),
        Address::Abstract(name) => names::by_abstract(net, style, name).ok_or(Errno::ECONNREFUSED),
        Address::Path(path) => {
            let dentry = Base::current(task).resolve(path, LastLink::Follow)?;
            permission::check(&dentry.inode, Wanted::WRITE)?;
            names::by_inode(&dentry.inode).ok_or(Errno::ECONNREFUSED)
        }
    }
}
