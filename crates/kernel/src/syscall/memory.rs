//! Mappings: what `foldspace-linux` needs to know of the calling task, and the calls that it does.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use foldspace::addr::{PAGE_SIZE, VirtAddr};
use foldspace::vma::ProtectionKey;
use foldspace::{AddressSpace, Object};
use foldspace_linux::{Caller, Capability, Content, OpenFile, OpenRights, Reserve};
use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::Mappable;
use crate::fs::file::OpenFlags;
use crate::fs::mount::check_executable;
use crate::fs::secret;
use crate::fs::userfault::events::{Moving, Unmapping};
use crate::mm::{is_scarce, memory, objects};
use crate::process::credentials::{
    CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, CAP_SYS_NICE, CAP_SYS_RAWIO, CAP_SYS_RESOURCE,
};
use crate::process::signal::{SigInfo, send};
use crate::process::{EXEC_GAIN_REFUSED, Task, keys, signal};
use crate::sched;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::mmap, mmap),
    (Sysno::munmap, munmap),
    (Sysno::mprotect, mprotect),
    (Sysno::pkey_mprotect, pkey_mprotect),
    (Sysno::pkey_alloc, pkey_alloc),
    (Sysno::pkey_free, pkey_free),
    (Sysno::brk, brk),
    (Sysno::mremap, mremap),
    (Sysno::remap_file_pages, remap_file_pages),
    (Sysno::mseal, mseal),
];

pub(super) const PAGE: u64 = PAGE_SIZE;

/// The current task, in its address space.
pub(super) struct Current<'a> {
    task: &'a Task,
    space: &'a AddressSpace,
}

impl Caller for Current<'_> {
    fn space(&self) -> &AddressSpace {
        self.space
    }

    fn open_file(&self, fd: i32) -> Result<OpenFile, Errno> {
        let file = self.task.files.lock().get(fd)?;
        if file.flags().contains(OpenFlags::PATH) {
            return Err(Errno::EBADF);
        }
        let mut rights = OpenRights::empty();
        let executable = !secret::is(&file) && check_executable(&file.dentry).is_ok();
        rights.set(OpenRights::EXECUTE, executable);
        rights.set(OpenRights::READ, file.readable());
        rights.set(OpenRights::WRITE, file.writable());
        let (content, max_len) = match file.mappable() {
            Ok(Mappable::Object(object)) => (Content::Object(object), i64::MAX as u64),
            Ok(Mappable::Zeros(reference)) => (Content::ZerosOf(reference), u64::MAX),
            Ok(Mappable::Pattern(reference)) => (Content::Pattern(reference), u64::MAX),
            Err(_) => (Content::Unmappable, u64::MAX),
        };
        Ok(OpenFile { content, rights, max_len })
    }

    fn is_capable(&self, capability: Capability) -> bool {
        let credentials = self.task.credentials();
        match capability {
            Capability::RawIo => credentials.may(CAP_SYS_RAWIO),
            Capability::Admin => credentials.may(CAP_SYS_ADMIN),
            Capability::Nice => credentials.may(CAP_SYS_NICE),
            Capability::Resource => credentials.may(CAP_SYS_RESOURCE),
            Capability::CheckpointRestore => credentials.may(CAP_CHECKPOINT_RESTORE) || credentials.may(CAP_SYS_ADMIN),
        }
    }

    fn refuses_exec_gain(&self) -> bool {
        self.task.process.exec_gain.load(Ordering::Relaxed) & EXEC_GAIN_REFUSED != 0
    }

    fn is_being_killed(&self) -> bool {
        signal::fatal_pending(self.task)
    }

    fn memory_failed(&self, address: u64) {
        send::force(&sched::current(), SigInfo::memory_failure(address));
    }

    fn set_key_rights(&self, key: ProtectionKey, rights: u32) {
        keys::set_rights(key, rights);
    }

    fn shared_memory(&self, len: u64, reserve: Reserve) -> Result<Arc<Object>, Errno> {
        let object = reserve.object(memory(), len)?;
        objects::made(&object);
        Ok(object)
    }
}

/// ioctl(PROCMAP_QUERY) about the address space that `find` gives.
pub fn procmap_query(task: &Task, argument: u64, find: impl FnOnce() -> Result<Arc<AddressSpace>, Errno>) -> SysResult {
    in_space(|space| foldspace_linux::procmap_query(&Current { task, space }, argument, find))??;
    Ok(0)
}

/// Does a call of `foldspace-linux` for the current task.
pub(super) fn call<R>(
    ctx: &SyscallContext<'_>,
    act: impl FnOnce(&Current<'_>) -> Result<R, Errno>,
) -> Result<R, Errno> {
    in_space(|space| act(&Current { task: ctx.task, space }))?
}

/// Lets `look` at the caller's address space.
pub(super) fn in_space<R>(look: impl FnOnce(&AddressSpace) -> R) -> Result<R, Errno> {
    sched::with_space(look).ok_or(Errno::EFAULT)
}

/// Lengths rounded up to pages; `None` if that wraps.
pub(super) fn round_up(len: u64) -> Option<u64> {
    VirtAddr(len).page_ceil().map(VirtAddr::get)
}

/// Of [`crate::process::Process::personality`]: whoever may load may execute (`linux/personality.h`).
pub const READ_IMPLIES_EXEC: u32 = 0x0040_0000;

/// What a program that asks for `prot` is given by its personality.
fn with_personality(ctx: &SyscallContext<'_>, prot: u64) -> u64 {
    let implies = ctx.task.process.personality.load(Ordering::Relaxed) & READ_IMPLIES_EXEC != 0;
    if implies && prot & u64::from(raw::PROT_READ) != 0 { prot | u64::from(raw::PROT_EXEC) } else { prot }
}

/// The same for a file, unless nothing there may be executed.
fn with_personality_of_file(ctx: &SyscallContext<'_>, prot: u64, flags: u64, fd: u64) -> u64 {
    let more = with_personality(ctx, prot);
    if more == prot || flags as u32 & raw::MAP_ANONYMOUS != 0 {
        return more;
    }
    let file = ctx.task.files.lock().get(fd as i32);
    if file.is_ok_and(|file| check_executable(&file.dentry).is_err()) { prot } else { more }
}

fn mmap(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [address, len, prot, flags, fd, offset] = ctx.args;
    let prot = with_personality_of_file(ctx, prot, flags, fd);
    let unmapping = (flags as u32 & raw::MAP_FIXED != 0).then(|| Unmapping::begin(ctx.task, address, len)).flatten();
    let start = call(ctx, |caller| foldspace_linux::mmap(caller, address, len, prot, flags, fd as i32, offset))?;
    if let Some(unmapping) = unmapping {
        unmapping.done();
    }
    Ok(start as usize)
}

fn munmap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    let unmapping = Unmapping::begin(ctx.task, address, len);
    call(ctx, |caller| foldspace_linux::munmap(caller, address, len))?;
    if let Some(unmapping) = unmapping {
        unmapping.done();
    }
    Ok(0)
}

fn mprotect(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [address, len, prot, ..] = ctx.args;
    let prot = with_personality(ctx, prot);
    call(ctx, |caller| foldspace_linux::mprotect(caller, address, len, prot))?;
    Ok(0)
}

fn pkey_mprotect(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [address, len, prot, key, ..] = ctx.args;
    let prot = with_personality(ctx, prot);
    call(ctx, |caller| foldspace_linux::pkey_mprotect(caller, address, len, prot, key as i32))?;
    Ok(0)
}

fn pkey_alloc(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [flags, rights, ..] = ctx.args;
    Ok(call(ctx, |caller| foldspace_linux::pkey_alloc(caller, flags, rights))? as usize)
}

fn pkey_free(ctx: &mut SyscallContext<'_>) -> SysResult {
    let key = ctx.args[0] as i32;
    call(ctx, |caller| foldspace_linux::pkey_free(caller, key))?;
    Ok(0)
}

fn brk(ctx: &mut SyscallContext<'_>) -> SysResult {
    let end = ctx.args[0];
    let unmapping = Unmapping::begin_heap(ctx.task, end);
    let now = call(ctx, |caller| Ok(foldspace_linux::brk(caller, end)))?;
    if let Some(unmapping) = unmapping.filter(|_| now == end) {
        unmapping.done();
    }
    Ok(now as usize)
}

fn mremap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, old_len, new_len, flags, target, _] = ctx.args;
    let moving = Moving::begin(ctx.task, address);
    let target_unmapping =
        (flags as u32 & raw::MREMAP_FIXED != 0).then(|| Unmapping::begin(ctx.task, target, new_len)).flatten();
    let leaves = flags as u32 & raw::MREMAP_DONTUNMAP != 0;
    let unmapping = if leaves { None } else { Unmapping::begin(ctx.task, address, old_len) };
    let start = call(ctx, |caller| foldspace_linux::mremap(caller, address, old_len, new_len, flags, target))?;
    if let Some(unmapping) = target_unmapping {
        unmapping.done();
    }
    if let Some(moving) = moving {
        moving.done(start, old_len);
    }
    if let Some(unmapping) = unmapping {
        if start != address {
            unmapping.done();
        } else if new_len < old_len {
            unmapping.only_from(address.wrapping_add(new_len)).done();
        }
    }
    Ok(start as usize)
}

fn remap_file_pages(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, prot, offset, flags, _] = ctx.args;
    call(ctx, |caller| foldspace_linux::remap_file_pages(caller, address, len, prot, offset, flags))?;
    Ok(0)
}

fn mseal(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, flags, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::mseal(caller, address, len, flags))?;
    Ok(0)
}
