//! Character devices.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::backing::{Identity, Reference, Source};
use spin::Once;

use super::dentry::Dentry;
use super::file::{Body, File, Mappable, Ready, Whence};
use super::inode::DeviceNumber;
use super::io::{CHUNK, Sink, Supply, done_or_fault};
use super::random;
use super::tty::{self, TtyBody, devpts, pty};
use crate::errno::Errno;
use crate::mm;
use crate::process::Task;
use crate::syscall::{SysResult, userfault};

/// Numbers of `Documentation/admin-guide/devices.txt`.
mod number {
    pub const MEMORY: u32 = 1;
    pub const SERIAL: u32 = 4;
    pub const MISCELLANEOUS: u32 = 10;
    pub const ALTERNATE_TTY: u32 = 5;
}

/// A device without state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Simple {
    /// Takes all, gives nothing.
    Null,
    /// Takes all, gives zeros.
    Zero,
    /// Takes nothing, gives zeros.
    Full,
    /// Gives random bytes.
    Random,
    /// Takes lines for the kernel's log.
    Log,
    /// Makes descriptors that answer faults.
    Userfault,
}

/// The devices of `/dev`: name, permission bits, number.
pub const DEVICES: &[(&str, u32, DeviceNumber)] = &[
    ("null", 0o666, DeviceNumber::new(1, 3)),
    ("zero", 0o666, DeviceNumber::new(1, 5)),
    ("full", 0o666, DeviceNumber::new(1, 7)),
    ("random", 0o666, DeviceNumber::new(1, 8)),
    ("urandom", 0o666, DeviceNumber::new(1, 9)),
    ("kmsg", 0o644, DeviceNumber::new(1, 11)),
    ("ttyS0", 0o600, DeviceNumber::new(4, 64)),
    ("ttyS1", 0o600, DeviceNumber::new(4, 65)),
    ("ttyS2", 0o600, DeviceNumber::new(4, 66)),
    ("ttyS3", 0o600, DeviceNumber::new(4, 67)),
    ("userfaultfd", 0o600, DeviceNumber::new(10, 126)),
    ("tty", 0o666, DeviceNumber::new(5, 0)),
    ("console", 0o600, DeviceNumber::new(5, 1)),
    ("ptmx", 0o666, devpts::MULTIPLEXER),
];

/// Opens a device. `ENXIO` if there is no such one.
pub fn open(number: DeviceNumber) -> Result<Box<dyn Body>, Errno> {
    let simple = match (number.major, number.minor) {
        (number::MEMORY, 3) => Simple::Null,
        (number::MEMORY, 5) => return Ok(Box::new(Zero(Once::new()))),
        (number::MEMORY, 7) => Simple::Full,
        (number::MEMORY, 8 | 9) => Simple::Random,
        (number::MEMORY, 11) => Simple::Log,
        (number::MISCELLANEOUS, 126) => Simple::Userfault,
        (number::SERIAL, minor @ 64..) => {
            let tty = tty::tty(minor as usize - 64).ok_or(Errno::ENXIO)?;
            return Ok(Box::new(TtyBody::new(tty)));
        }
        (pty::MAJOR, index) => return pty::open_slave(index),
        (number::ALTERNATE_TTY, 0) => {
            let session = crate::sched::with_current(|task| task.process.sid());
            return Ok(Box::new(TtyBody::new(tty::controlling(session).ok_or(Errno::ENXIO)?)));
        }
        // The console is where the kernel's own lines go.
        (number::ALTERNATE_TTY, 1) => return Ok(Box::new(TtyBody::new(tty::tty(3).ok_or(Errno::ENXIO)?))),
        (number::ALTERNATE_TTY, 2) => {
            let owner = crate::sched::with_current(|task| {
                let credentials = task.credentials();
                (credentials.fsuid, credentials.fsgid)
            });
            return pty::open_master(owner);
        }
        _ => return Err(Errno::ENXIO),
    };
    Ok(Box::new(simple))
}

impl Simple {
    fn give(self, out: &mut dyn Sink) -> SysResult {
        static ZEROS: [u8; CHUNK] = [0; CHUNK];
        let mut done = 0;
        while out.room() > 0 {
            let (want, put) = if self == Simple::Random {
                let mut bytes = [0; 256];
                let want = out.room().min(bytes.len());
                random::fill(&mut bytes[..want]);
                (want, out.put(&bytes[..want]))
            } else {
                let want = out.room().min(CHUNK);
                (want, out.put(&ZEROS[..want]))
            };
            done += put;
            if put < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }
}

impl Body for Simple {
    fn read(&self, _file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        match self {
            Simple::Null => Ok(0),
            Simple::Zero | Simple::Full | Simple::Random => self.give(out),
            Simple::Log => Err(Errno::EAGAIN),
            Simple::Userfault => Err(Errno::EINVAL),
        }
    }

    fn write(&self, _file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        match self {
            Simple::Full => Err(Errno::ENOSPC),
            Simple::Userfault => Err(Errno::EINVAL),
            Simple::Null | Simple::Zero | Simple::Random => Ok(from.remaining()),
            Simple::Log => {
                let mut line = [0; 512];
                let len = from.remaining();
                let want = len.min(line.len());
                if from.take(&mut line[..want]) < want {
                    return Err(Errno::EFAULT);
                }
                log::info!("{}", alloc::string::String::from_utf8_lossy(line[..want].trim_ascii_end()));
                Ok(len)
            }
        }
    }

    fn seek(&self, _file: &File, _offset: i64, _whence: Whence) -> Result<u64, Errno> {
        Ok(0)
    }

    fn has_position(&self) -> bool {
        true
    }

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        /// `USERFAULTFD_IOC_NEW`.
        const NEW_USERFAULT: u32 = 0xaa00;
        match (self, request) {
            (Simple::Userfault, NEW_USERFAULT) => userfault::new(task, argument as u32),
            (Simple::Userfault, _) => Err(Errno::EINVAL),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn ready(&self, _file: &File) -> Ready {
        if *self == Simple::Log { Ready::WRITABLE } else { Ready::READABLE | Ready::WRITABLE }
    }
}

/// `/dev/zero`, which can be mapped too. Mappings merge if they were made through the same open file, as on Linux.
struct Zero(Once<Arc<Reference>>);

impl Body for Zero {
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        Simple::Zero.read(file, at, out)
    }

    fn write(&self, file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        Simple::Zero.write(file, at, from)
    }

    fn seek(&self, file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
        Simple::Zero.seek(file, offset, whence)
    }

    fn has_position(&self) -> bool {
        true
    }

    fn mappable(&self, file: &File) -> Result<Mappable, Errno> {
        let make = || Reference::zeros_of(mm::memory(), Box::new(ZeroFile(file.dentry.clone())));
        Ok(Mappable::Zeros(self.0.call_once(make).clone()))
    }
}

/// What a private mapping of `/dev/zero` is shown as.
struct ZeroFile(Arc<Dentry>);

impl Source for ZeroFile {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::Result<()> {
        Ok(())
    }

    fn identity(&self) -> Identity {
        let inode = &self.0.inode;
        let DeviceNumber { major, minor } = inode.superblock.device;
        Identity { major, minor, inode: inode.number }
    }

    fn path(&self, out: &mut Vec<u8>) {
        self.0.path(None, out);
    }
}

/// Makes a terminal that was just opened the controlling one of a session leader that has none (`tty_open_proc_set_tty`).
pub fn opened(task: &Task, file: &Arc<File>) {
    let number = file.inode().device();
    let tty = match number.major {
        number::SERIAL => number.minor.checked_sub(64).and_then(|port| tty::tty(port as usize)),
        pty::MAJOR => pty::slave(number.minor),
        _ => None,
    };
    if let Some(tty) = tty {
        tty.adopt(task);
    }
}
