//! Mappings: from the arguments of `mmap` and its kin to requests of the memory manager.

use alloc::sync::Arc;

use foldspace::space::{Access, Fault, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::file::OpenFlags;
use crate::fs::{File, Mappable};
use crate::mm::{is_scarce, memory, objects};
use crate::process::signal;
use crate::sched;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::mmap, mmap),
    (Sysno::munmap, munmap),
    (Sysno::mprotect, mprotect),
    (Sysno::pkey_mprotect, pkey_mprotect),
    (Sysno::brk, brk),
    (Sysno::mremap, mremap),
];

pub(super) const PAGE: u64 = foldspace::addr::PAGE_SIZE;
const PROT_ALL: u32 = raw::PROT_READ | raw::PROT_WRITE | raw::PROT_EXEC;
/// Below this nothing is mapped unless the program insists (Linux's default `mmap_min_addr`, for programs that are not root as for all).
const MMAP_MIN_ADDR: u64 = 0x1_0000;
/// Bits of the type field of `mmap`'s flags.
const MAP_TYPE: u32 = 0xf;
/// Flags that `MAP_SHARED_VALIDATE` accepts (Linux's `LEGACY_MAP_MASK`, `MAP_SYNC` left out as no file system here has it).
const VALIDATED: u32 = raw::MAP_SHARED
    | raw::MAP_PRIVATE
    | raw::MAP_FIXED
    | raw::MAP_ANONYMOUS
    | raw::MAP_DENYWRITE
    | raw::MAP_EXECUTABLE
    | raw::MAP_GROWSDOWN
    | raw::MAP_LOCKED
    | raw::MAP_NORESERVE
    | raw::MAP_POPULATE
    | raw::MAP_NONBLOCK
    | raw::MAP_STACK
    | raw::MAP_HUGETLB
    | raw::MAP_32BIT;

/// Lengths rounded up to pages; `None` if that wraps or lies outside the user half.
pub(super) fn round_up(len: u64) -> Option<u64> {
    VirtAddr(len).page_ceil().map(VirtAddr::get)
}

/// READ, WRITE and EXEC of a `prot` argument. On x86-64 what can be written or executed can be read.
fn access(prot: u32) -> VmaFlags {
    let mut flags = VmaFlags::empty();
    flags.set(VmaFlags::READ, prot & raw::PROT_READ != 0);
    flags.set(VmaFlags::WRITE, prot & raw::PROT_WRITE != 0);
    flags.set(VmaFlags::EXEC, prot & raw::PROT_EXEC != 0);
    flags
}

fn mmap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, prot, flags, fd, offset] = ctx.args;
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let (prot, flags) = (prot as u32, flags as u32);
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let file = match flags & raw::MAP_ANONYMOUS {
        0 => Some(ctx.task.files.lock().get(fd as i32)?),
        // Huge pages come from a pool that is empty here, as it is on a Linux that nobody configured.
        _ if flags & raw::MAP_HUGETLB != 0 => return Err(Errno::ENOMEM),
        _ => None,
    };
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let len = round_up(len).filter(|&len| len <= foldspace::addr::USER_END.get()).ok_or(Errno::ENOMEM)?;
    if offset.checked_add(len).is_none() {
        return Err(Errno::EOVERFLOW);
    }
    let placement = placement(address, len, flags)?;
    let (backing, mut vma) = match &file {
        Some(file) => file_backing(file, len, prot, flags)?,
        None => anonymous_backing(len, flags)?,
    };
    vma |= access(prot);
    vma.set(VmaFlags::NO_RESERVE, flags & raw::MAP_NORESERVE != 0);
    if flags & raw::MAP_GROWSDOWN != 0 {
        vma |= VmaFlags::GROWS_DOWN;
    }
    let page_offset = match &backing {
        Backing::Object(object) if !object.is_anonymous() => offset / PAGE,
        _ => 0,
    };
    let request = MapRequest { placement, len, flags: vma, backing, page_offset };
    let start = in_space(|space| space.map(request))??;
    if flags & (raw::MAP_POPULATE | raw::MAP_NONBLOCK) == raw::MAP_POPULATE || flags & raw::MAP_LOCKED != 0 {
        populate_mapping(start, len, prot);
    }
    Ok(start.get() as usize)
}

/// Where the mapping is to go, with Linux's checks of a fixed address.
fn placement(address: u64, len: u64, flags: u32) -> Result<Placement, Errno> {
    let fixed = flags & (raw::MAP_FIXED | raw::MAP_FIXED_NOREPLACE) != 0;
    if !fixed {
        if flags & raw::MAP_32BIT != 0 {
            return Ok(Placement::Low);
        }
        // A hint too low is moved up, as `round_hint_to_min` does.
        return Ok(match address & !(PAGE - 1) {
            0 => Placement::Anywhere,
            hint => Placement::Hint(VirtAddr(hint.max(MMAP_MIN_ADDR))),
        });
    }
    if foldspace::addr::USER_END.get() - len < address {
        return Err(Errno::ENOMEM);
    }
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    if address < MMAP_MIN_ADDR {
        return Err(Errno::EPERM);
    }
    let address = VirtAddr(address);
    Ok(match flags & raw::MAP_FIXED_NOREPLACE {
        0 => Placement::Fixed(address),
        _ => Placement::FixedNoReplace(address),
    })
}

const MAY_ALL: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);

fn anonymous_backing(len: u64, flags: u32) -> Result<(Backing, VmaFlags), Errno> {
    match flags & MAP_TYPE {
        raw::MAP_PRIVATE => Ok((Backing::Anonymous, MAY_ALL)),
        raw::MAP_SHARED => {
            if flags & raw::MAP_GROWSDOWN != 0 {
                return Err(Errno::EINVAL);
            }
            Ok((shared_memory(len)?, MAY_ALL | VmaFlags::SHARED))
        }
        raw::MAP_DROPPABLE if flags & (raw::MAP_LOCKED | raw::MAP_GROWSDOWN) == 0 => {
            // Memory that may be dropped under pressure: never dropping it is allowed.
            Ok((Backing::Anonymous, MAY_ALL))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Memory that children will share.
fn shared_memory(len: u64) -> Result<Backing, Errno> {
    let object = Object::anonymous(memory(), len)?;
    objects::made(&object);
    Ok(Backing::Object(object))
}

fn file_backing(file: &Arc<File>, len: u64, prot: u32, flags: u32) -> Result<(Backing, VmaFlags), Errno> {
    if file.flags().contains(OpenFlags::PATH) {
        return Err(Errno::EBADF);
    }
    let kind = flags & MAP_TYPE;
    if kind == raw::MAP_SHARED_VALIDATE && flags & !(VALIDATED | raw::MAP_SHARED_VALIDATE) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let shared = match kind {
        raw::MAP_SHARED | raw::MAP_SHARED_VALIDATE => true,
        raw::MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if shared && prot & raw::PROT_WRITE != 0 && !file.writable() {
        return Err(Errno::EACCES);
    }
    if !file.readable() {
        return Err(Errno::EACCES);
    }
    let mappable = file.mappable()?;
    if flags & raw::MAP_GROWSDOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let mut may = MAY_ALL;
    if shared {
        may |= VmaFlags::SHARED;
        may.set(VmaFlags::MAY_WRITE, file.writable());
    }
    Ok(match mappable {
        Mappable::Object(object) => (Backing::Object(object), may),
        Mappable::Zero if shared => (shared_memory(len)?, may),
        Mappable::Zero => (Backing::Anonymous, may),
    })
}

/// What `MAP_POPULATE` does: as far as it goes, without an error.
fn populate_mapping(start: VirtAddr, len: u64, prot: u32) {
    let access = match prot & (raw::PROT_READ | raw::PROT_WRITE) {
        0 => return,
        prot if prot & raw::PROT_WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    if let Some(range) = PageRange::from_len(start, len) {
        let _ = populate(range, access);
    }
}

/// Faults pages in by an access to each, with the failures of `MADV_POPULATE_READ` and `_WRITE`.
pub(super) fn populate(range: PageRange, access: Access) -> Result<(), Errno> {
    for page in 0..range.pages() {
        let address = VirtAddr(range.start().get() + page * PAGE);
        in_space(|space| space.fault(address, access))?.map_err(|fault| match fault {
            Fault::NotMapped | Fault::OutOfMemory => Errno::ENOMEM,
            Fault::AccessDenied => Errno::EINVAL,
            Fault::PastEnd => Errno::EFAULT,
        })?;
        if sched::with_current(|task| signal::fatal_pending(task)) {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}

fn munmap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    let range = round_up(len).and_then(|len| PageRange::from_len(VirtAddr(address), len)).ok_or(Errno::EINVAL)?;
    in_space(|space| space.unmap(range))??;
    Ok(0)
}

fn mprotect(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [address, len, prot, ..] = ctx.args;
    const GROWS: u32 = raw::PROT_GROWSDOWN | raw::PROT_GROWSUP;
    let prot = prot as u32;
    let growth = prot & GROWS;
    if growth == GROWS || !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(0);
    }
    let len = round_up(len).filter(|&len| len != 0).ok_or(Errno::ENOMEM)?;
    if address.checked_add(len).is_none() {
        return Err(Errno::ENOMEM);
    }
    if prot & !(PROT_ALL | raw::PROT_SEM | GROWS) != 0 {
        return Err(Errno::EINVAL);
    }
    let range = PageRange::from_len(VirtAddr(address), len).ok_or(Errno::ENOMEM)?;
    if growth != 0 {
        // Would extend to the start of a stack: not offered, and no area here grows upwards.
        return Err(Errno::EINVAL);
    }
    in_space(|space| space.protect(range, access(prot)))??;
    Ok(0)
}

fn pkey_mprotect(ctx: &mut SyscallContext<'_>) -> SysResult {
    // Without protection keys only "none" exists.
    if ctx.args[3] as i32 != -1 {
        return Err(Errno::EINVAL);
    }
    mprotect(ctx)
}

fn brk(ctx: &mut SyscallContext<'_>) -> SysResult {
    let end = VirtAddr(ctx.args[0]);
    Ok(in_space(|space| space.brk(end))?.get() as usize)
}

/// The memory manager cannot move mappings yet: they shrink, and grow where they are; all else is refused with `ENOMEM`, which makes
/// the C libraries' `realloc` copy.
fn mremap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, old_len, new_len, flags, target, _] = ctx.args;
    let flags = flags as u32;
    if flags & !(raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP) != 0
        || flags & (raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP) != 0 && flags & raw::MREMAP_MAYMOVE == 0
        || flags & raw::MREMAP_DONTUNMAP != 0 && old_len != new_len
        || !address.is_multiple_of(PAGE)
        || flags & raw::MREMAP_FIXED != 0 && !target.is_multiple_of(PAGE)
    {
        return Err(Errno::EINVAL);
    }
    let old_len = round_up(old_len).ok_or(Errno::EINVAL)?;
    let new_len = round_up(new_len).filter(|&len| len != 0).ok_or(Errno::EINVAL)?;
    if flags & (raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP) != 0 || old_len == 0 {
        return Err(Errno::ENOMEM);
    }
    let old_end = address.checked_add(old_len).ok_or(Errno::EINVAL)?;
    let new_end = address.checked_add(new_len).ok_or(Errno::ENOMEM)?;
    in_space(|space| {
        let version = space.vmas();
        let vma = version.view().find(VirtAddr(address)).ok_or(Errno::EFAULT)?;
        if new_len <= old_len {
            if let Some(tail) = PageRange::new(VirtAddr(new_end), VirtAddr(old_end)) {
                space.unmap(tail)?;
            }
            return Ok(address as usize);
        }
        if vma.end().get() < old_end {
            return Err(Errno::EFAULT);
        }
        if vma.end().get() > old_end {
            return Err(Errno::ENOMEM);
        }
        let grown_by = (old_end - vma.start().get()) / PAGE;
        space
            .map(MapRequest {
                placement: Placement::FixedNoReplace(VirtAddr(old_end)),
                len: new_len - old_len,
                flags: vma.flags,
                backing: vma.backing.clone(),
                page_offset: if vma.backing.has_offsets() { vma.page_offset + grown_by } else { 0 },
            })
            .map_err(|_| Errno::ENOMEM)?;
        Ok(address as usize)
    })?
}

/// Lets `look` at the caller's address space.
pub(super) fn in_space<R>(look: impl FnOnce(&AddressSpace) -> R) -> Result<R, Errno> {
    sched::with_space(look).ok_or(Errno::EFAULT)
}
