//! Open file descriptions.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::Mutex;
use bitflags::bitflags;
use foldspace::Object;
use foldspace::backing::Reference;
use linux_raw_sys::general as raw;

use super::dentry::Dentry;
use super::directory::Entry;
use super::epoll::Epoll;
use super::inode::{Inode, Timestamp};
use super::io::{Sink, Supply};
use super::lock::Owner;
use super::mount::{Detached, Making};
use super::pidfd::PidFd;
use super::signalfd::SignalFd;
use super::socket::Socket;
use super::timerfd::TimerFd;
use crate::errno::Errno;
use crate::process::Task;
use crate::process::namespaces::Namespace;
use crate::syscall::SysResult;

bitflags! {
    /// What `open` was told, and `fcntl(F_SETFL)` may change. Values of `asm/fcntl.h`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct OpenFlags: u32 {
        /// Writing only.
        const WRITE_ONLY = raw::O_WRONLY;
        /// Reading and writing.
        const READ_WRITE = raw::O_RDWR;
        /// Make the file if it is not there.
        const CREATE = raw::O_CREAT;
        /// Fail if it is there.
        const EXCLUSIVE = raw::O_EXCL;
        /// Do not make it the controlling terminal.
        const NO_CTTY = raw::O_NOCTTY;
        /// Empty it.
        const TRUNCATE = raw::O_TRUNC;
        /// Write at the end.
        const APPEND = raw::O_APPEND;
        /// Do not wait.
        const NON_BLOCKING = raw::O_NONBLOCK;
        /// Writes return when data and what finds it again are stored. Memory is as stored as it gets here.
        const SYNC = raw::O_SYNC;
        /// Signals on input. Stored, without effect.
        const ASYNC = raw::FASYNC;
        /// Bypass the page cache. Stored; the page cache is the storage.
        const DIRECT = raw::O_DIRECT;
        /// Files above 2 GiB are welcome: always.
        const LARGE_FILE = raw::O_LARGEFILE;
        /// Fail unless it is a directory.
        const DIRECTORY = raw::O_DIRECTORY;
        /// Fail if it is a symbolic link.
        const NO_FOLLOW = raw::O_NOFOLLOW;
        /// Do not note reads in the access time.
        const NO_ATIME = raw::O_NOATIME;
        /// Close at exec.
        const CLOSE_ON_EXEC = raw::O_CLOEXEC;
        /// Only a name, not the content.
        const PATH = raw::O_PATH;
        /// A file without a name in this directory.
        const TEMPORARY = raw::__O_TMPFILE;
    }
}

impl OpenFlags {
    /// From a call's argument: bits without a meaning are ignored, as `open` does.
    pub fn from_user(bits: u32) -> OpenFlags {
        OpenFlags::from_bits_truncate(bits)
    }

    /// Whether reading is allowed.
    pub fn readable(self) -> bool {
        !self.contains(OpenFlags::WRITE_ONLY) && !self.contains(OpenFlags::PATH)
    }

    /// Whether writing is allowed.
    pub fn writable(self) -> bool {
        self.intersects(OpenFlags::WRITE_ONLY | OpenFlags::READ_WRITE) && !self.contains(OpenFlags::PATH)
    }

    /// What F_SETFL may change (`SETFL_MASK` of `fs/fcntl.c`).
    pub fn changeable() -> OpenFlags {
        OpenFlags::APPEND | OpenFlags::NON_BLOCKING | OpenFlags::ASYNC | OpenFlags::DIRECT | OpenFlags::NO_ATIME
    }

    /// What is over once the file is open, and is not shown by F_GETFL.
    pub fn of_opening() -> OpenFlags {
        OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::NO_CTTY | OpenFlags::TRUNCATE | OpenFlags::CLOSE_ON_EXEC
    }
}

bitflags! {
    /// What a file is ready for: the bits of `poll`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Ready: u16 {
        /// Reading will not wait.
        const IN = raw::POLLIN as u16;
        /// Urgent data.
        const PRIORITY = raw::POLLPRI as u16;
        /// Writing will not wait.
        const OUT = raw::POLLOUT as u16;
        /// Nobody reads what is written.
        const ERROR = raw::POLLERR as u16;
        /// The other side is gone.
        const HANG_UP = raw::POLLHUP as u16;
        /// Not an open file.
        const INVALID = raw::POLLNVAL as u16;
        /// Like IN.
        const READ_NORMAL = raw::POLLRDNORM as u16;
        /// Like OUT.
        const WRITE_NORMAL = raw::POLLWRNORM as u16;
        /// The other side writes no more.
        const READ_HANG_UP = raw::POLLRDHUP as u16;
    }
}

impl Ready {
    /// Input is there.
    pub const READABLE: Ready = Ready::IN.union(Ready::READ_NORMAL);
    /// Output will be taken.
    pub const WRITABLE: Ready = Ready::OUT.union(Ready::WRITE_NORMAL);
}

/// How often something has come in and how often room was made, whatever became of it; both count an end. A file that keeps no count is looked at
/// for what it is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Happened {
    /// For readers.
    pub input: u64,
    /// For writers.
    pub output: u64,
}

/// From where `lseek` counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whence {
    /// From the start.
    Set,
    /// From the position.
    Current,
    /// From the end.
    End,
    /// To the next data at or after.
    Data,
    /// To the next hole at or after; there is one at the end.
    Hole,
}

/// What `mmap` makes of a file.
pub enum Mappable {
    /// Its pages.
    Object(Arc<Object>),
    /// Zeros: almost the same as anonymous memory (`/dev/zero`).
    Zeros(Arc<Reference>),
    /// A reference page over and over.
    Pattern(Arc<Reference>),
}

/// The part of an open file that depends on what it is. The position is passed in by those who have one: `Some` for a
/// call at an explicit offset.
pub trait Body: Send + Sync {
    /// Reads at the position, or at an offset without moving the position.
    fn read(&self, file: &File, at: Option<u64>, out: &mut dyn Sink) -> SysResult;
    /// Writes.
    fn write(&self, file: &File, at: Option<u64>, from: &mut dyn Supply) -> SysResult;
    /// Moves the position.
    fn seek(&self, _file: &File, _offset: i64, _whence: Whence) -> Result<u64, Errno> {
        Err(Errno::ESPIPE)
    }
    /// Whether `pread` and its like make sense.
    fn has_position(&self) -> bool {
        false
    }
    /// What it is ready for now. Regular files always are.
    fn ready(&self, _file: &File) -> Ready {
        Ready::READABLE | Ready::WRITABLE
    }
    /// Whether it becomes ready without [`super::poll::notify`] being called, so that `poll` must look again from time to time.
    fn changes_unannounced(&self) -> bool {
        false
    }
    /// What has happened to it so far, for those who want to know of each change (`EPOLLET`).
    fn happened(&self, _file: &File) -> Happened {
        Happened::default()
    }
    /// Device-specific requests.
    fn ioctl(&self, _task: &Task, _file: &File, _request: u32, _argument: u64) -> SysResult {
        Err(Errno::ENOTTY)
    }
    /// What `mmap` shows.
    fn mappable(&self, _file: &File) -> Result<Mappable, Errno> {
        Err(Errno::ENODEV)
    }
    /// The socket that it is, if it is one.
    fn socket(&self) -> Option<&Socket> {
        None
    }
    /// The set of watched files that it is, if it is one.
    fn epoll(&self) -> Option<&Epoll> {
        None
    }
    /// The timer that it is, if it is one.
    fn timer(&self) -> Option<&Arc<TimerFd>> {
        None
    }
    /// The window on signals that it is, if it is one.
    fn signals(&self) -> Option<&SignalFd> {
        None
    }
    /// The process that it stands for, if it does.
    fn pidfd(&self) -> Option<&PidFd> {
        None
    }
    /// The namespace that it stands for, if it does.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }
    /// The file system in the making that it is, if it is one.
    fn making(&self) -> Option<&Making> {
        None
    }
    /// The mounts that are nowhere yet that it stands for, if it does.
    fn detached(&self) -> Option<&Detached> {
        None
    }
    /// Calls `take` for each entry from the position on, until it says that it is full.
    fn entries(&self, _file: &File, _take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> Result<(), Errno> {
        Err(Errno::ENOTDIR)
    }
}

/// Whether an entry fitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It did: go on.
    Yes,
    /// No room: it will be first next time.
    Full,
}

/// An open file description: what several descriptors may share.
pub struct File {
    /// The name it was opened by.
    pub dentry: Arc<Dentry>,
    flags: AtomicU32,
    /// Position in bytes (directories: an opaque position in the listing).
    pub position: Mutex<u64>,
    /// What does the work.
    pub body: Box<dyn Body>,
}

impl File {
    /// Opens.
    pub fn new(dentry: Arc<Dentry>, flags: OpenFlags, body: Box<dyn Body>) -> Arc<File> {
        let flags = flags - OpenFlags::of_opening();
        Arc::new(File { dentry, flags: AtomicU32::new(flags.bits()), position: Mutex::new(0), body })
    }

    /// What it refers to.
    pub fn inode(&self) -> &Arc<Inode> {
        &self.dentry.inode
    }

    /// Flags now.
    pub fn flags(&self) -> OpenFlags {
        OpenFlags::from_bits_retain(self.flags.load(Ordering::Relaxed))
    }

    /// Changes those flags that F_SETFL may change.
    pub fn set_flags(&self, flags: OpenFlags) {
        let kept = self.flags() - OpenFlags::changeable();
        self.flags.store((kept | (flags & OpenFlags::changeable())).bits(), Ordering::Relaxed);
    }

    /// Whether it was opened for reading.
    pub fn readable(&self) -> bool {
        self.flags().readable()
    }

    /// Whether it was opened for writing.
    pub fn writable(&self) -> bool {
        self.flags().writable()
    }

    /// Whether calls return `EAGAIN` rather than wait.
    pub fn non_blocking(&self) -> bool {
        self.flags().contains(OpenFlags::NON_BLOCKING)
    }

    /// Reads; `at` for a read that leaves the position alone (`pread`).
    pub fn read(&self, at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        if !self.readable() {
            return Err(Errno::EBADF);
        }
        self.check_offset(at)?;
        self.body.read(self, at, out)
    }

    /// Writes; `at` for a write that leaves the position alone (`pwrite`).
    pub fn write(&self, at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        if !self.writable() {
            return Err(Errno::EBADF);
        }
        self.check_offset(at)?;
        self.body.write(self, at, from)
    }

    fn check_offset(&self, at: Option<u64>) -> Result<(), Errno> {
        match at {
            None => Ok(()),
            Some(_) if !self.body.has_position() => Err(Errno::ESPIPE),
            Some(offset) if offset > i64::MAX as u64 => Err(Errno::EINVAL),
            Some(_) => Ok(()),
        }
    }

    /// What `mmap` shows.
    pub fn mappable(&self) -> Result<Mappable, Errno> {
        self.body.mappable(self)
    }

    /// The path that `/proc` shows, in the view of everything.
    pub fn path(&self) -> alloc::vec::Vec<u8> {
        let mut path = alloc::vec::Vec::new();
        self.dentry.path(None, &mut path);
        path
    }

    /// Notes a read in the access time.
    pub fn touch_accessed(&self) {
        if !self.flags().contains(OpenFlags::NO_ATIME) {
            // As with relatime (the default of mounts): only if it would show something new.
            let mut attributes = self.inode().attributes.lock();
            if attributes.accessed <= attributes.modified || attributes.accessed <= attributes.changed {
                attributes.accessed = Timestamp::now();
            }
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.inode().locks.release(Owner::Description(self as *const File as usize));
    }
}

/// A body for `O_PATH`: a name that can be used as one, and nothing else.
pub struct NameOnly;

impl Body for NameOnly {
    fn read(&self, _file: &File, _at: Option<u64>, _out: &mut dyn Sink) -> SysResult {
        Err(Errno::EBADF)
    }
    fn write(&self, _file: &File, _at: Option<u64>, _from: &mut dyn Supply) -> SysResult {
        Err(Errno::EBADF)
    }
    fn seek(&self, _file: &File, _offset: i64, _whence: Whence) -> Result<u64, Errno> {
        Err(Errno::EBADF)
    }
    fn ioctl(&self, _task: &Task, _file: &File, _request: u32, _argument: u64) -> SysResult {
        Err(Errno::EBADF)
    }
    fn mappable(&self, _file: &File) -> Result<Mappable, Errno> {
        Err(Errno::EBADF)
    }
    fn entries(&self, _file: &File, _take: &mut dyn FnMut(&Entry<'_>) -> Taken) -> Result<(), Errno> {
        Err(Errno::EBADF)
    }
    fn ready(&self, _file: &File) -> Ready {
        Ready::INVALID
    }
}

/// Moves the position of a file that has no end to seek from: a directory, or a list that the kernel makes. `EINVAL` for the end.
pub fn seek_without_end(file: &File, offset: i64, whence: Whence) -> Result<u64, Errno> {
    match whence {
        Whence::Set | Whence::Current => seek_within(&mut file.position.lock(), 0, offset, whence),
        _ => Err(Errno::EINVAL),
    }
}

/// Moves a position in something of `len` bytes. `EINVAL` for a negative or too large result, `ENXIO` for data or holes sought past the end.
pub fn seek_within(position: &mut u64, len: u64, offset: i64, whence: Whence) -> Result<u64, Errno> {
    let base = match whence {
        Whence::Set => 0,
        Whence::Current => *position,
        Whence::End => len,
        Whence::Data | Whence::Hole => {
            if offset < 0 || offset as u64 >= len {
                return Err(Errno::ENXIO);
            }
            // Holes are not told apart: all is data, and a hole begins at the end (which lseek(2) allows).
            let target = if whence == Whence::Data { offset as u64 } else { len };
            *position = target;
            return Ok(target);
        }
    };
    let target = (base as i64).checked_add(offset).filter(|&target| target >= 0).ok_or(Errno::EINVAL)?;
    *position = target as u64;
    Ok(target as u64)
}
