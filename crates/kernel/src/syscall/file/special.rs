//! Files that no path leads to: pipes, memfds, eventfds.

use alloc::boxed::Box;
use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::sockets::insert_pair;
use super::{Base, descriptor_limit, owner, path};
use crate::errno::Errno;
use crate::fs::eventfd::{self, Takes};
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::Attributes;
use crate::fs::path::LastLink;
use crate::fs::regular::{Regular, RegularBody};
use crate::fs::seal::Seals;
use crate::fs::secret;
use crate::fs::{Dentry, File, pipe as pipes, superblock};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::credentials::CAP_SYS_ADMIN;
use crate::syscall::SysResult;

fn insert(task: &Task, file: Arc<File>, at_exec: AtExec) -> Result<i32, Errno> {
    let limit = descriptor_limit(task);
    task.files.lock().insert_from(0, limit, file, at_exec)
}

/// pipe2(2)
pub fn pipe(task: &Task, address: u64, flags: u32) -> SysResult {
    if flags & !(raw::O_CLOEXEC | raw::O_DIRECT | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let (reader, writer) = pipes::pair(OpenFlags::from_user(flags & (raw::O_NONBLOCK | raw::O_DIRECT)));
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    insert_pair(task, reader, writer, at_exec, address)
}

/// Longest name of a memfd, bytes (`MFD_NAME_MAX_LEN`).
const MEMFD_NAME_MAX: usize = 249;

/// memfd_create(2), without huge pages. Errors in Linux's order (`mm/memfd.c`).
pub fn memfd_create(task: &Task, name: u64, flags: u32) -> SysResult {
    const KNOWN: u32 = raw::MFD_CLOEXEC | raw::MFD_ALLOW_SEALING | raw::MFD_NOEXEC_SEAL | raw::MFD_EXEC;
    const HUGE: u32 = raw::MFD_HUGETLB | raw::MFD_HUGE_MASK << raw::MFD_HUGE_SHIFT;
    const EITHER: u32 = raw::MFD_NOEXEC_SEAL | raw::MFD_EXEC;
    let huge = flags & raw::MFD_HUGETLB != 0;
    if flags & !(KNOWN | if huge { HUGE } else { 0 }) != 0 || flags & EITHER == EITHER {
        return Err(Errno::EINVAL);
    }
    let name = uaccess::read_cstr(name, MEMFD_NAME_MAX + 1).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        error => error,
    })?;
    if huge {
        // As a Linux without hugetlbfs says.
        return Err(Errno::ENOSYS);
    }
    let (permissions, seals) = match flags & raw::MFD_NOEXEC_SEAL {
        0 if flags & raw::MFD_ALLOW_SEALING == 0 => (0o777, Seals::SEAL),
        0 => (0o777, Seals::empty()),
        _ => (0o666, Seals::EXEC),
    };
    let attributes = Attributes { links: 0, ..Attributes::new(permissions).owned_by(owner(task)) };
    let inode = Regular::create(superblock::shmem(), attributes, &[])?;
    let shown = [b"/memfd:", &name[..], b" (deleted)"].concat();
    if let Some(regular) = inode.regular() {
        regular.set_label(&shown);
        regular.change_seals(|_| Ok(seals))?;
    }
    let dentry = Dentry::nowhere(shown, inode);
    let file =
        File::new(dentry, OpenFlags::READ_WRITE | OpenFlags::LARGE_FILE, Box::new(RegularBody { writing: None }));
    Ok(insert(task, file, AtExec::from_flag(flags, raw::MFD_CLOEXEC))? as usize)
}

/// memfd_secret(2)
pub fn memfd_secret(task: &Task, flags: u32) -> SysResult {
    if flags & !raw::O_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let file = secret::create(owner(task))?;
    Ok(insert(task, file, AtExec::from_flag(flags, raw::O_CLOEXEC))? as usize)
}

/// eventfd2(2)
pub fn eventfd(task: &Task, initial: u32, flags: u32) -> SysResult {
    if flags & !(raw::EFD_CLOEXEC | raw::EFD_NONBLOCK | raw::EFD_SEMAPHORE) != 0 {
        return Err(Errno::EINVAL);
    }
    let takes = if flags & raw::EFD_SEMAPHORE != 0 { Takes::One } else { Takes::All };
    let file = eventfd::create(u64::from(initial), takes, OpenFlags::from_user(flags & raw::O_NONBLOCK));
    Ok(insert(task, file, AtExec::from_flag(flags, raw::O_CLOEXEC))? as usize)
}

/// swapon(2) and swapoff(2): nothing here can be swapped to. Files are in memory, which Linux refuses as well (`EINVAL`).
pub fn swap(task: &Task, path_address: u64, flags: u32) -> SysResult {
    /// `SWAP_FLAGS_VALID` of `linux/swap.h`.
    const KNOWN: u32 = 0x7_ffff;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if !task.credentials().may(CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let dentry = Base::current(task).resolve(&path(path_address)?, LastLink::Follow)?;
    if dentry.inode.is_directory() { Err(Errno::EISDIR) } else { Err(Errno::EINVAL) }
}
