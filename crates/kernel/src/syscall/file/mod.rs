//! System calls about files. Each takes what it needs of the caller and its own arguments; [`FILE_CALLS`] says where those come from.

mod attributes;
mod control;
mod copy;
mod descriptor;
mod events;
mod locks;
mod mount_by_fd;
mod mounts;
mod names;
mod notices;
mod opening;
pub mod polling;
mod sockets;
mod space;
mod special;
mod stat;
mod timestamps;
pub(super) mod transfer;
mod working;
mod xattr;

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use self::xattr::Subject;

use super::Handler;
use crate::errno::Errno;
use crate::fs::dentry::PATH_MAX;
use crate::fs::path::{LastLink, Lookup, Parent};
use crate::fs::{Dentry, File, FsContext};
use crate::mm::uaccess;
use crate::process::Task;

/// The open file of a number. `EBADF`.
fn file(task: &Task, fd: i32) -> Result<Arc<File>, Errno> {
    task.files.lock().get(fd)
}

/// The same for calls that need more than a name (`O_PATH` does not do).
fn content_file(task: &Task, fd: i32) -> Result<Arc<File>, Errno> {
    let file = file(task, fd)?;
    if file.flags().contains(crate::fs::file::OpenFlags::PATH) { Err(Errno::EBADF) } else { Ok(file) }
}

/// The most descriptors that the caller may have.
fn descriptor_limit(task: &Task) -> usize {
    task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize
}

/// Owner and group of what the caller makes.
fn owner(task: &Task) -> (u32, u32) {
    let credentials = task.credentials();
    (credentials.fsuid, credentials.fsgid)
}

/// `EPERM` unless the caller may do what only root may.
fn require_root(task: &Task) -> Result<(), Errno> {
    if task.credentials().is_privileged() { Ok(()) } else { Err(Errno::EPERM) }
}

/// A path from the caller's memory.
fn path(address: u64) -> Result<Vec<u8>, Errno> {
    uaccess::read_cstr(address, PATH_MAX)
}

/// What the paths of a call are relative to: the caller's directories, and one given by descriptor.
struct Base {
    context: FsContext,
    /// The directory of the descriptor, or the current one.
    directory: Result<Arc<Dentry>, Errno>,
}

impl Base {
    /// For calls that take no descriptor.
    fn current(task: &Task) -> Base {
        Base::at(task, raw::AT_FDCWD)
    }

    /// For calls with a directory's descriptor, which is looked at only if the path is relative.
    fn at(task: &Task, dirfd: i32) -> Base {
        let context = task.fs.lock().clone();
        let directory = if dirfd == raw::AT_FDCWD {
            Ok(context.cwd.clone())
        } else {
            file(task, dirfd).map(|file| file.dentry.clone())
        };
        Base { context, directory }
    }

    fn start(&self, path: &[u8]) -> Result<Arc<Dentry>, Errno> {
        if path.first() == Some(&b'/') {
            return Ok(self.context.root.clone());
        }
        let directory = self.directory.clone()?;
        if directory.inode.is_directory() { Ok(directory) } else { Err(Errno::ENOTDIR) }
    }

    /// What a path refers to.
    fn resolve(&self, path: &[u8], last_link: LastLink) -> Result<Arc<Dentry>, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        Lookup::new(&self.context).resolve(&self.start(path)?, path, last_link)
    }

    /// The same, which does not count as a use of the mount where it is.
    fn resolve_unnoticed(&self, path: &[u8], last_link: LastLink) -> Result<Arc<Dentry>, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        Lookup::new(&self.context).resolve_unnoticed(&self.start(path)?, path, last_link)
    }

    /// The same; an empty path is the descriptor itself if `AT_EMPTY_PATH` is among the flags.
    fn resolve_with(&self, path: &[u8], flags: u32, last_link: LastLink) -> Result<Arc<Dentry>, Errno> {
        if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 {
            return self.directory.clone();
        }
        self.resolve(path, last_link)
    }

    /// The directory of a path's last component, and that.
    fn parent(&self, path: &[u8]) -> Result<Parent, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        Lookup::new(&self.context).parent(&self.start(path)?, path)
    }
}

/// What `AT_SYMLINK_NOFOLLOW` among flags means.
fn last_link(flags: u32) -> LastLink {
    if flags & raw::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow }
}

/// `EINVAL` for a flag that the call does not know.
fn check_flags(flags: u32, known: u32) -> Result<(), Errno> {
    if flags & !known != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Every call of this module, by number.
pub const FILE_CALLS: &[(Sysno, Handler)] = &[
    // Bytes.
    (Sysno::read, |c| transfer::read(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize)),
    (Sysno::write, |c| transfer::write(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize)),
    (Sysno::readv, |c| transfer::readv(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize)),
    (Sysno::writev, |c| transfer::writev(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize)),
    (Sysno::pread64, |c| transfer::pread(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64)),
    (Sysno::pwrite64, |c| transfer::pwrite(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64)),
    (Sysno::preadv, |c| transfer::preadv(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64)),
    (Sysno::pwritev, |c| transfer::pwritev(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64)),
    (Sysno::preadv2, |c| {
        transfer::preadv2(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64, c.args[5] as u32)
    }),
    (Sysno::pwritev2, |c| {
        transfer::pwritev2(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as i64, c.args[5] as u32)
    }),
    (Sysno::lseek, |c| transfer::lseek(c.task, c.args[0] as i32, c.args[1] as i64, c.args[2] as u32)),
    (Sysno::sendfile, |c| copy::sendfile(c.task, c.args[0] as i32, c.args[1] as i32, c.args[2], c.args[3] as usize)),
    (Sysno::copy_file_range, |c| {
        copy::copy_file_range(
            c.task,
            (c.args[0] as i32, c.args[1]),
            (c.args[2] as i32, c.args[3]),
            c.args[4] as usize,
            c.args[5] as u32,
        )
    }),
    // Length and storage.
    (Sysno::vmsplice, |c| {
        transfer::vmsplice(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as u32)
    }),
    (Sysno::tee, |c| copy::tee(c.task, c.args[0] as i32, c.args[1] as i32, c.args[2] as usize, c.args[3] as u32)),
    (Sysno::splice, |c| {
        let (from, to) = ((c.args[0] as i32, c.args[1]), (c.args[2] as i32, c.args[3]));
        copy::splice(c.task, from, to, c.args[4] as usize, c.args[5] as u32)
    }),
    (Sysno::ftruncate, |c| space::ftruncate(c.task, c.args[0] as i32, c.args[1] as i64)),
    (Sysno::truncate, |c| space::truncate(c.task, c.args[0], c.args[1] as i64)),
    (Sysno::fallocate, |c| {
        space::fallocate(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2] as i64, c.args[3] as i64)
    }),
    (Sysno::fadvise64, |c| space::fadvise(c.task, c.args[0] as i32, c.args[2] as i64, c.args[3] as u32)),
    (Sysno::cachestat, |c| space::cachestat(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as u32)),
    (Sysno::readahead, |c| space::readahead(c.task, c.args[0] as i32)),
    (Sysno::fsync, |c| space::fsync(c.task, c.args[0] as i32)),
    (Sysno::fdatasync, |c| space::fsync(c.task, c.args[0] as i32)),
    (Sysno::syncfs, |c| space::syncfs(c.task, c.args[0] as i32)),
    (Sysno::sync_file_range, |c| space::fsync(c.task, c.args[0] as i32)),
    (Sysno::sync, |_| Ok(0)),
    (Sysno::swapon, |ctx| special::swap(ctx.task, ctx.args[0], ctx.args[1] as u32)),
    (Sysno::swapoff, |ctx| special::swap(ctx.task, ctx.args[0], 0)),
    // Descriptors.
    (Sysno::open, |c| opening::open(c.task, c.args[0], c.args[1] as u32, c.args[2] as u32)),
    (Sysno::openat, |c| opening::openat(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32)),
    (Sysno::openat2, |c| opening::openat2(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as usize)),
    (Sysno::creat, |c| opening::creat(c.task, c.args[0], c.args[1] as u32)),
    (Sysno::close, |c| descriptor::close(c.task, c.args[0] as i32)),
    (Sysno::close_range, |c| descriptor::close_range(c.task, c.args[0] as u32, c.args[1] as u32, c.args[2] as u32)),
    (Sysno::dup, |c| descriptor::dup(c.task, c.args[0] as i32)),
    (Sysno::dup2, |c| descriptor::dup2(c.task, c.args[0] as i32, c.args[1] as i32)),
    (Sysno::dup3, |c| descriptor::dup3(c.task, c.args[0] as i32, c.args[1] as i32, c.args[2] as u32)),
    (Sysno::fcntl, |c| descriptor::fcntl(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2])),
    (Sysno::ioctl, |c| control::ioctl(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2])),
    (Sysno::flock, |c| locks::flock(c.task, c.args[0] as i32, c.args[1] as u32)),
    (Sysno::pipe, |c| special::pipe(c.task, c.args[0], 0)),
    (Sysno::pipe2, |c| special::pipe(c.task, c.args[0], c.args[1] as u32)),
    (Sysno::memfd_create, |c| special::memfd_create(c.task, c.args[0], c.args[1] as u32)),
    (Sysno::memfd_secret, |c| special::memfd_secret(c.task, c.args[0] as u32)),
    (Sysno::eventfd, |c| special::eventfd(c.task, c.args[0] as u32, 0)),
    (Sysno::eventfd2, |c| special::eventfd(c.task, c.args[0] as u32, c.args[1] as u32)),
    (Sysno::timerfd_create, |c| notices::timerfd_create(c.task, c.args[0] as u32, c.args[1] as u32)),
    (Sysno::timerfd_settime, |c| {
        notices::timerfd_settime(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2], c.args[3])
    }),
    (Sysno::timerfd_gettime, |c| notices::timerfd_gettime(c.task, c.args[0] as i32, c.args[1])),
    (Sysno::signalfd, |c| notices::signalfd(c.task, c.args[0] as i32, c.args[1], c.args[2], 0)),
    (Sysno::signalfd4, |c| notices::signalfd(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as u32)),
    (Sysno::epoll_create, |c| if (c.args[0] as i32) <= 0 { Err(Errno::EINVAL) } else { events::create(c.task, 0) }),
    (Sysno::epoll_create1, |c| events::create(c.task, c.args[0] as u32)),
    (Sysno::epoll_ctl, |c| events::control(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2] as i32, c.args[3])),
    (Sysno::epoll_wait, |c| {
        events::wait(
            c.task,
            c.args[0] as i32,
            c.args[1],
            c.args[2] as i32,
            events::Patience::Millis(c.args[3] as i32),
            (0, 0),
        )
    }),
    (Sysno::epoll_pwait, |c| {
        let mask = (c.args[4], c.args[5] as usize);
        events::wait(
            c.task,
            c.args[0] as i32,
            c.args[1],
            c.args[2] as i32,
            events::Patience::Millis(c.args[3] as i32),
            mask,
        )
    }),
    (Sysno::epoll_pwait2, |c| {
        let mask = (c.args[4], c.args[5] as usize);
        events::wait(c.task, c.args[0] as i32, c.args[1], c.args[2] as i32, events::Patience::Timespec(c.args[3]), mask)
    }),
    (Sysno::poll, |c| polling::poll(c.task, c.args[0], c.args[1] as usize, c.args[2] as i32)),
    (Sysno::ppoll, |c| {
        polling::ppoll(c.task, c.args[0], c.args[1] as usize, c.args[2], (c.args[3], c.args[4] as usize))
    }),
    (Sysno::select, |c| polling::select(c.task, c.args[0] as i32, [c.args[1], c.args[2], c.args[3]], c.args[4])),
    (Sysno::pselect6, |c| {
        polling::pselect6(c.task, c.args[0] as i32, [c.args[1], c.args[2], c.args[3]], c.args[4], c.args[5])
    }),
    // Sockets.
    (Sysno::socketpair, |c| {
        sockets::socketpair(c.task, c.args[0] as u32, c.args[1] as u32, c.args[2] as u32, c.args[3])
    }),
    (Sysno::sendto, |c| {
        sockets::sendto(
            c.task,
            c.args[0] as i32,
            c.args[1],
            c.args[2] as usize,
            c.args[3] as u32,
            (c.args[4], c.args[5] as u32),
        )
    }),
    (Sysno::recvfrom, |c| {
        let from = (c.args[4], c.args[5]);
        sockets::recvfrom(c.task, c.args[0] as i32, c.args[1], c.args[2] as usize, c.args[3] as u32, from)
    }),
    (Sysno::sendmsg, |c| sockets::sendmsg(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::recvmsg, |c| sockets::recvmsg(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::sendmmsg, |c| sockets::sendmmsg(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32)),
    (Sysno::recvmmsg, |c| {
        sockets::recvmmsg(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32, c.args[4])
    }),
    (Sysno::shutdown, |c| sockets::shutdown(c.task, c.args[0] as i32, c.args[1] as u32)),
    (Sysno::getsockopt, |c| {
        sockets::getsockopt(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2] as u32, c.args[3], c.args[4])
    }),
    (Sysno::setsockopt, |c| {
        sockets::setsockopt(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2] as u32, c.args[3], c.args[4] as u32)
    }),
    (Sysno::getsockname, |c| sockets::own_name(c.task, c.args[0] as i32, c.args[1], c.args[2])),
    (Sysno::getpeername, |c| sockets::peer_name(c.task, c.args[0] as i32, c.args[1], c.args[2])),
    (Sysno::socket, |c| sockets::socket(c.task, c.args[0] as u32, c.args[1] as u32, c.args[2] as u32)),
    (Sysno::bind, |c| sockets::bind(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::listen, |c| sockets::listen(c.task, c.args[0] as i32, c.args[1] as i32)),
    (Sysno::connect, |c| sockets::connect(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::accept, |c| sockets::accept(c.task, c.args[0] as i32, c.args[1], c.args[2], 0)),
    (Sysno::accept4, |c| sockets::accept(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as u32)),
    // What is known about files.
    (Sysno::stat, |c| stat::stat(c.task, c.args[0], c.args[1])),
    (Sysno::lstat, |c| stat::lstat(c.task, c.args[0], c.args[1])),
    (Sysno::fstat, |c| stat::fstat(c.task, c.args[0] as i32, c.args[1])),
    (Sysno::newfstatat, |c| stat::newfstatat(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as u32)),
    (Sysno::statx, |c| stat::statx(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32, c.args[4])),
    (Sysno::statfs, |c| stat::statfs(c.task, c.args[0], c.args[1])),
    (Sysno::fstatfs, |c| stat::fstatfs(c.task, c.args[0] as i32, c.args[1])),
    (Sysno::access, |c| attributes::access(c.task, raw::AT_FDCWD, c.args[0], c.args[1] as u32, 0)),
    (Sysno::faccessat, |c| attributes::access(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, 0)),
    (Sysno::faccessat2, |c| {
        attributes::access(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32)
    }),
    (Sysno::chmod, |c| attributes::chmod(c.task, raw::AT_FDCWD, c.args[0], c.args[1] as u32, 0)),
    (Sysno::fchmodat, |c| attributes::chmod(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, 0)),
    (Sysno::fchmodat2, |c| attributes::chmod(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3] as u32)),
    (Sysno::fchmod, |c| attributes::fchmod(c.task, c.args[0] as i32, c.args[1] as u32)),
    (Sysno::chown, |c| attributes::chown(c.task, raw::AT_FDCWD, c.args[0], [c.args[1] as u32, c.args[2] as u32], 0)),
    (Sysno::lchown, |c| {
        let owners = [c.args[1] as u32, c.args[2] as u32];
        attributes::chown(c.task, raw::AT_FDCWD, c.args[0], owners, raw::AT_SYMLINK_NOFOLLOW)
    }),
    (Sysno::fchownat, |c| {
        let owners = [c.args[2] as u32, c.args[3] as u32];
        attributes::chown(c.task, c.args[0] as i32, c.args[1], owners, c.args[4] as u32)
    }),
    (Sysno::fchown, |c| attributes::fchown(c.task, c.args[0] as i32, [c.args[1] as u32, c.args[2] as u32])),
    (Sysno::utimensat, |c| timestamps::utimensat(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as u32)),
    (Sysno::utime, |c| timestamps::utime(c.task, c.args[0], c.args[1])),
    (Sysno::utimes, |c| timestamps::futimesat(c.task, raw::AT_FDCWD, c.args[0], c.args[1])),
    (Sysno::futimesat, |c| timestamps::futimesat(c.task, c.args[0] as i32, c.args[1], c.args[2])),
    (Sysno::getxattr, |c| xattr::get(c.task, Subject::Path(c.args[0], LastLink::Follow), c.args[1])),
    (Sysno::lgetxattr, |c| xattr::get(c.task, Subject::Path(c.args[0], LastLink::Keep), c.args[1])),
    (Sysno::fgetxattr, |c| xattr::get(c.task, Subject::Descriptor(c.args[0] as i32), c.args[1])),
    (Sysno::listxattr, |c| xattr::list(c.task, Subject::Path(c.args[0], LastLink::Follow))),
    (Sysno::llistxattr, |c| xattr::list(c.task, Subject::Path(c.args[0], LastLink::Keep))),
    (Sysno::flistxattr, |c| xattr::list(c.task, Subject::Descriptor(c.args[0] as i32))),
    (Sysno::setxattr, |c| xattr::set(c.task, Subject::Path(c.args[0], LastLink::Follow), c.args[1])),
    (Sysno::lsetxattr, |c| xattr::set(c.task, Subject::Path(c.args[0], LastLink::Keep), c.args[1])),
    (Sysno::fsetxattr, |c| xattr::set(c.task, Subject::Descriptor(c.args[0] as i32), c.args[1])),
    (Sysno::removexattr, |c| xattr::remove(c.task, Subject::Path(c.args[0], LastLink::Follow), c.args[1])),
    (Sysno::lremovexattr, |c| xattr::remove(c.task, Subject::Path(c.args[0], LastLink::Keep), c.args[1])),
    (Sysno::fremovexattr, |c| xattr::remove(c.task, Subject::Descriptor(c.args[0] as i32), c.args[1])),
    // Names.
    (Sysno::mkdir, |c| names::mkdirat(c.task, raw::AT_FDCWD, c.args[0], c.args[1] as u32)),
    (Sysno::mkdirat, |c| names::mkdirat(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::mknod, |c| names::mknodat(c.task, raw::AT_FDCWD, c.args[0], c.args[1] as u32, c.args[2])),
    (Sysno::mknodat, |c| names::mknodat(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32, c.args[3])),
    (Sysno::rmdir, |c| names::unlinkat(c.task, raw::AT_FDCWD, c.args[0], raw::AT_REMOVEDIR)),
    (Sysno::unlink, |c| names::unlinkat(c.task, raw::AT_FDCWD, c.args[0], 0)),
    (Sysno::unlinkat, |c| names::unlinkat(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::rename, |c| names::rename(c.task, (raw::AT_FDCWD, c.args[0]), (raw::AT_FDCWD, c.args[1]), 0)),
    (Sysno::renameat, |c| names::rename(c.task, (c.args[0] as i32, c.args[1]), (c.args[2] as i32, c.args[3]), 0)),
    (Sysno::renameat2, |c| {
        names::rename(c.task, (c.args[0] as i32, c.args[1]), (c.args[2] as i32, c.args[3]), c.args[4] as u32)
    }),
    (Sysno::link, |c| names::link(c.task, (raw::AT_FDCWD, c.args[0]), (raw::AT_FDCWD, c.args[1]), 0)),
    (Sysno::linkat, |c| {
        names::link(c.task, (c.args[0] as i32, c.args[1]), (c.args[2] as i32, c.args[3]), c.args[4] as u32)
    }),
    (Sysno::symlink, |c| names::symlink(c.task, c.args[0], raw::AT_FDCWD, c.args[1])),
    (Sysno::symlinkat, |c| names::symlink(c.task, c.args[0], c.args[1] as i32, c.args[2])),
    (Sysno::readlink, |c| names::readlink(c.task, raw::AT_FDCWD, c.args[0], c.args[1], c.args[2] as i32)),
    (Sysno::readlinkat, |c| names::readlink(c.task, c.args[0] as i32, c.args[1], c.args[2], c.args[3] as i32)),
    (Sysno::getdents64, |c| names::getdents64(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    // Where the caller is.
    (Sysno::getcwd, |c| working::getcwd(c.task, c.args[0], c.args[1] as usize)),
    (Sysno::chdir, |c| working::chdir(c.task, c.args[0])),
    (Sysno::fchdir, |c| working::fchdir(c.task, c.args[0] as i32)),
    (Sysno::chroot, |c| working::chroot(c.task, c.args[0])),
    (Sysno::umask, |c| working::umask(c.task, c.args[0] as u32)),
    (Sysno::mount, |c| mounts::mount(c.task, [c.args[0], c.args[1], c.args[2], c.args[3], c.args[4]])),
    (Sysno::fsopen, |c| mount_by_fd::fsopen(c.task, c.args[0], c.args[1] as u32)),
    (Sysno::fsconfig, |c| mount_by_fd::fsconfig(c.task, [c.args[0], c.args[1], c.args[2], c.args[3], c.args[4]])),
    (Sysno::fsmount, |c| mount_by_fd::fsmount(c.task, c.args[0] as i32, c.args[1] as u32, c.args[2] as u32)),
    (Sysno::open_tree, |c| mount_by_fd::open_tree(c.task, c.args[0] as i32, c.args[1], c.args[2] as u32)),
    (Sysno::move_mount, |c| mount_by_fd::move_mount(c.task, [c.args[0], c.args[1], c.args[2], c.args[3], c.args[4]])),
    (Sysno::pivot_root, |c| mounts::pivot_root(c.task, c.args[0], c.args[1])),
    (Sysno::umount2, |c| mounts::umount(c.task, c.args[0], c.args[1] as u32)),
];
