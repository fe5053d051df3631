//! Network namespaces (network_namespaces(7)): each has a loopback interface, which only the first has up from the start, and ports and abstract names of
//! its own.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;

use super::namespaces::next_number;
use super::user_namespace::UserNamespace;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::sched;
use crate::syscall::SysResult;

/// One of them.
pub struct Net {
    /// `st_ino` of its file.
    pub number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    /// Whether its interface is up: nobody is reached before.
    up: AtomicBool,
}

impl Net {
    /// The first, with Linux's `PROC_NET_INIT_INO`.
    pub fn first() -> &'static Arc<Net> {
        static FIRST: Once<Arc<Net>> = Once::new();
        FIRST.call_once(|| {
            let owner = UserNamespace::first().clone();
            Arc::new(Net { number: 0xefff_fff9, owner, up: AtomicBool::new(true) })
        })
    }

    /// A new one of `owner`.
    pub fn new(owner: &Arc<UserNamespace>) -> Arc<Net> {
        Arc::new(Net { number: next_number(), owner: owner.clone(), up: AtomicBool::new(false) })
    }

    /// That of the current task.
    pub fn current() -> Arc<Net> {
        let net = sched::try_with_current(|task| task.namespaces.lock().net.clone());
        net.unwrap_or_else(|| Net::first().clone())
    }

    /// Whether its interface is up.
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// What is asked of interfaces by an ioctl of a socket (netdevice(7)). `None` if it is about something else.
    pub fn request(&self, request: u32, argument: u64, may_change: bool) -> Option<SysResult> {
        const SIOCGIFNAME: u32 = 0x8910;
        const SIOCGIFCONF: u32 = 0x8912;
        const SIOCGIFFLAGS: u32 = 0x8913;
        const SIOCSIFFLAGS: u32 = 0x8914;
        const SIOCGIFADDR: u32 = 0x8915;
        const SIOCGIFNETMASK: u32 = 0x891b;
        const SIOCGIFMETRIC: u32 = 0x891d;
        const SIOCGIFMTU: u32 = 0x8921;
        const SIOCGIFHWADDR: u32 = 0x8927;
        const SIOCGIFINDEX: u32 = 0x8933;
        const SIOCGIFTXQLEN: u32 = 0x8942;
        Some(match request {
            SIOCGIFCONF => self.list(argument),
            SIOCGIFNAME => name(argument),
            SIOCSIFFLAGS => self.set_flags(argument, may_change),
            SIOCGIFFLAGS => {
                let state = if self.is_up() { IFF_UP | IFF_RUNNING } else { 0 };
                answer(argument, &(IFF_LOOPBACK | state).to_le_bytes())
            }
            SIOCGIFADDR | SIOCGIFNETMASK if !self.is_up() => Err(Errno::EADDRNOTAVAIL),
            SIOCGIFADDR => answer(argument, &internet([127, 0, 0, 1])),
            SIOCGIFNETMASK => answer(argument, &internet([255, 0, 0, 0])),
            SIOCGIFMETRIC => answer(argument, &0u32.to_le_bytes()),
            SIOCGIFMTU => answer(argument, &65_536u32.to_le_bytes()),
            // ARPHRD_LOOPBACK, and no address.
            SIOCGIFHWADDR => answer(argument, &[4, 3, 0, 0, 0, 0, 0, 0]),
            SIOCGIFINDEX => answer(argument, &1u32.to_le_bytes()),
            SIOCGIFTXQLEN => answer(argument, &1000u32.to_le_bytes()),
            _ => return None,
        })
    }

    /// `struct ifconf`: the interfaces that have an address.
    fn list(&self, argument: u64) -> SysResult {
        let (room, to): (i32, u64) = (uaccess::read(argument)?, uaccess::read(argument.wrapping_add(8))?);
        let count = usize::from(self.is_up());
        let mut len = count * RECORD;
        if to != 0 {
            len = len.min(usize::try_from(room).map_err(|_| Errno::EINVAL)? / RECORD * RECORD);
            if len > 0 {
                let mut record = [0; RECORD];
                record[..2].copy_from_slice(b"lo");
                record[NAME..NAME + 8].copy_from_slice(&internet([127, 0, 0, 1]));
                uaccess::write_bytes(to, &record)?;
            }
        }
        uaccess::write(argument, &(len as i32))?;
        Ok(0)
    }

    fn set_flags(&self, argument: u64, may_change: bool) -> SysResult {
        check_name(argument)?;
        let flags: u16 = uaccess::read(argument.wrapping_add(NAME as u64))?;
        if !may_change {
            return Err(Errno::EPERM);
        }
        self.up.store(flags & IFF_UP != 0, Ordering::Relaxed);
        Ok(0)
    }
}

const IFF_UP: u16 = 1;
const IFF_LOOPBACK: u16 = 8;
const IFF_RUNNING: u16 = 0x40;
/// Bytes of an interface's name, and of `struct ifreq`.
const NAME: usize = 16;
const RECORD: usize = 40;

/// `struct sockaddr_in` as far as it says something.
fn internet(address: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = address;
    [linux_raw_sys::net::AF_INET as u8, 0, 0, 0, a, b, c, d]
}

/// The name of an interface in `struct ifreq`: `ENODEV` unless it is the one that there is.
fn check_name(argument: u64) -> Result<(), Errno> {
    let name: [u8; NAME] = uaccess::read(argument)?;
    if name.starts_with(b"lo\0") { Ok(()) } else { Err(Errno::ENODEV) }
}

fn answer(argument: u64, bytes: &[u8]) -> SysResult {
    check_name(argument)?;
    uaccess::write_bytes(argument.wrapping_add(NAME as u64), bytes)?;
    Ok(0)
}

fn name(argument: u64) -> SysResult {
    let index: u32 = uaccess::read(argument.wrapping_add(NAME as u64))?;
    if index != 1 {
        return Err(Errno::ENODEV);
    }
    uaccess::write_bytes(argument, b"lo\0")?;
    Ok(0)
}
