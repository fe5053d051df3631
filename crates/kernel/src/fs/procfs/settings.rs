//! Settings of `/proc/sys` that say how it is here, and those that are kept and change nothing: there is no swap, and nothing is written back.
//!
//! Those that change something are in [`super::sysctl`].

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use super::node::{Fixed, Node};
use super::sysctl;
use crate::errno::Errno;
use crate::process::credentials::LAST_CAPABILITY;
use crate::process::user_namespace::OVERFLOW;
use crate::syscall::ipc::{messages, semaphores};
use crate::syscall::shm;

/// What a setting is.
enum Value {
    /// Always the same.
    Constant(fn() -> String),
    /// A number from `least` to `most` that is kept.
    Kept { number: AtomicI32, least: i32, most: i32 },
    /// A number from `least` to `most` that asks for something once, and cannot be read.
    Request { least: i32, most: i32 },
}

/// One of the settings.
struct Row {
    directory: Fixed,
    name: &'static str,
    value: Value,
}

/// The place of a setting among them all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting(u16);

const fn kept(directory: Fixed, name: &'static str, number: i32, least: i32, most: i32) -> Row {
    Row { directory, name, value: Value::Kept { number: AtomicI32::new(number), least, most } }
}

const fn constant(directory: Fixed, name: &'static str, text: fn() -> String) -> Row {
    Row { directory, name, value: Value::Constant(text) }
}

/// What is kept begins as on Linux.
static ROWS: [Row; 26] = [
    kept(Fixed::SysVm, "dirty_background_bytes", 0, 0, i32::MAX),
    kept(Fixed::SysVm, "dirty_background_ratio", 10, 0, 100),
    kept(Fixed::SysVm, "dirty_bytes", 0, 0, i32::MAX),
    kept(Fixed::SysVm, "dirty_expire_centisecs", 3000, 0, i32::MAX),
    kept(Fixed::SysVm, "dirty_ratio", 20, 0, 100),
    kept(Fixed::SysVm, "dirty_writeback_centisecs", 500, 0, i32::MAX),
    // What is cached is nowhere else: there is nothing to drop.
    Row { directory: Fixed::SysVm, name: "drop_caches", value: Value::Request { least: 1, most: 4 } },
    kept(Fixed::SysVm, "laptop_mode", 0, 0, i32::MAX),
    kept(Fixed::SysVm, "page-cluster", 3, 0, 31),
    kept(Fixed::SysVm, "swappiness", 60, 0, 200),
    kept(Fixed::SysVm, "vfs_cache_pressure", 100, 0, i32::MAX),
    constant(Fixed::SysKernel, "cap_last_cap", || format!("{LAST_CAPABILITY}")),
    constant(Fixed::SysKernel, "domainname", || "(none)".into()),
    constant(Fixed::SysKernel, "msgmax", || format!("{}", messages::LONGEST)),
    constant(Fixed::SysKernel, "msgmnb", || format!("{}", messages::QUEUE_BYTES)),
    constant(Fixed::SysKernel, "msgmni", || format!("{}", messages::QUEUES)),
    constant(Fixed::SysKernel, "ngroups_max", || "65536".into()),
    constant(Fixed::SysKernel, "overflowgid", || format!("{OVERFLOW}")),
    constant(Fixed::SysKernel, "overflowuid", || format!("{OVERFLOW}")),
    constant(Fixed::SysKernel, "sem", semaphores::limits),
    constant(Fixed::SysKernel, "shmall", || format!("{}", shm::UNLIMITED)),
    constant(Fixed::SysKernel, "shmmax", || format!("{}", shm::UNLIMITED)),
    constant(Fixed::SysKernel, "shmmni", || format!("{}", shm::MAX_SEGMENTS)),
    constant(Fixed::SysKernel, "tainted", || "0".into()),
    constant(Fixed::SysFs, "overflowgid", || format!("{OVERFLOW}")),
    constant(Fixed::SysFs, "overflowuid", || format!("{OVERFLOW}")),
];

/// Those of a directory, by name.
pub fn entries(directory: Fixed) -> impl Iterator<Item = (&'static str, Node)> {
    let rows = ROWS.iter().enumerate().filter(move |(_, row)| row.directory == directory);
    rows.map(|(index, row)| (row.name, Node::Setting(Setting(index as u16))))
}

impl Setting {
    fn value(self) -> &'static Value {
        &ROWS[usize::from(self.0)].value
    }

    /// Its place among all.
    pub fn number(self) -> u64 {
        self.0.into()
    }

    /// As Linux gives them.
    pub fn permissions(self) -> u32 {
        match self.value() {
            Value::Constant(_) => 0o444,
            Value::Kept { .. } => 0o644,
            Value::Request { .. } => 0o200,
        }
    }

    /// Appends what it is.
    pub fn show(self, out: &mut Vec<u8>) {
        match self.value() {
            Value::Constant(text) => out.extend_from_slice(text().as_bytes()),
            Value::Kept { number, .. } => {
                out.extend_from_slice(format!("{}", number.load(Ordering::Relaxed)).as_bytes())
            }
            Value::Request { .. } => return,
        }
        out.push(b'\n');
    }

    /// Sets it to the number at the front of a text; returns how many bytes of that it took.
    ///
    /// # Errors
    /// `EINVAL`: no such number.
    pub fn set(self, text: &[u8]) -> Result<usize, Errno> {
        match self.value() {
            Value::Constant(_) => Err(Errno::EINVAL),
            Value::Kept { number, least, most } => {
                let (value, length) = sysctl::int(text, *least, *most)?;
                number.store(value, Ordering::Relaxed);
                Ok(length)
            }
            Value::Request { least, most } => sysctl::int(text, *least, *most).map(|(_, length)| length),
        }
    }
}
