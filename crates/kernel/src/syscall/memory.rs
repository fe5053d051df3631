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
use crate::mm::{memory, uaccess};
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
    (Sysno::madvise, madvise),
    (Sysno::mincore, mincore),
    (Sysno::msync, msync),
    (Sysno::mlock, mlock),
    (Sysno::mlock2, mlock2),
    (Sysno::munlock, munlock),
    (Sysno::mlockall, mlockall),
    (Sysno::munlockall, munlockall),
];

const PAGE: u64 = foldspace::addr::PAGE_SIZE;
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
fn round_up(len: u64) -> Option<u64> {
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
    let (prot, flags) = (prot as u32, flags as u32);
    if offset % PAGE != 0 {
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
        Some(file) => file_backing(file, prot, flags)?,
        None => anonymous_backing(len, flags)?,
    };
    vma |= access(prot);
    vma.set(VmaFlags::NO_RESERVE, flags & raw::MAP_NORESERVE != 0);
    if flags & raw::MAP_GROWSDOWN != 0 {
        vma |= VmaFlags::GROWS_DOWN;
    }
    let page_offset = if matches!(backing, Backing::Object(_)) && file.is_some() { offset / PAGE } else { 0 };
    let request = MapRequest { placement, len, flags: vma, backing, page_offset };
    let start = in_space(|space| space.map(request))??;
    if flags & (raw::MAP_POPULATE | raw::MAP_NONBLOCK) == raw::MAP_POPULATE || flags & raw::MAP_LOCKED != 0 {
        populate(start, len, prot);
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
    if address % PAGE != 0 {
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
            Ok((Backing::Object(Object::anonymous(memory(), len)?), MAY_ALL | VmaFlags::SHARED))
        }
        raw::MAP_DROPPABLE if flags & (raw::MAP_LOCKED | raw::MAP_GROWSDOWN) == 0 => {
            // Memory that may be dropped under pressure: never dropping it is allowed.
            Ok((Backing::Anonymous, MAY_ALL))
        }
        _ => Err(Errno::EINVAL),
    }
}

fn file_backing(file: &Arc<File>, prot: u32, flags: u32) -> Result<(Backing, VmaFlags), Errno> {
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
        Mappable::Zero if shared => (Backing::Object(Object::anonymous(memory(), u64::MAX >> 16)?), may),
        Mappable::Zero => (Backing::Anonymous, may),
    })
}

/// Faults pages in as `MAP_POPULATE` does: as far as it goes, without an error.
fn populate(start: VirtAddr, len: u64, prot: u32) {
    let access = match prot & (raw::PROT_READ | raw::PROT_WRITE) {
        0 => return,
        prot if prot & raw::PROT_WRITE != 0 => Access::Write,
        _ => Access::Read,
    };
    if let Some(range) = PageRange::from_len(start, len) {
        let _ = populate_strictly(range, access);
    }
}

fn munmap(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    let range = round_up(len).and_then(|len| PageRange::from_len(VirtAddr(address), len)).ok_or(Errno::EINVAL)?;
    in_space(|space| space.unmap(range))??;
    Ok(0)
}

fn mprotect(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, prot, ..] = ctx.args;
    const GROWS: u32 = raw::PROT_GROWSDOWN | raw::PROT_GROWSUP;
    let prot = prot as u32;
    let growth = prot & GROWS;
    if growth == GROWS || address % PAGE != 0 {
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
        || address % PAGE != 0
        || flags & raw::MREMAP_FIXED != 0 && target % PAGE != 0
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
                page_offset: if matches!(vma.backing, Backing::Anonymous) { 0 } else { vma.page_offset + grown_by },
            })
            .map_err(|_| Errno::ENOMEM)?;
        Ok(address as usize)
    })?
}

/// Lets `look` at the caller's address space.
fn in_space<R>(look: impl FnOnce(&AddressSpace) -> R) -> Result<R, Errno> {
    sched::with_space(look).ok_or(Errno::EFAULT)
}

/// Whether every page of a range belongs to a VMA. O(VMAs in it).
fn is_mapped(range: PageRange) -> bool {
    sched::with_space(|space| {
        let version = space.vmas();
        let mut reached = range.start();
        for vma in version.view().range(range) {
            if vma.start() > reached {
                return false;
            }
            reached = vma.end();
        }
        reached >= range.end()
    })
    .unwrap_or(false)
}

fn madvise(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, advice, ..] = ctx.args;
    let effect = advice_effect(advice as u32).ok_or(Errno::EINVAL)?;
    if address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    let rounded = round_up(len).ok_or(Errno::EINVAL)?;
    if rounded == 0 && len != 0 || address.checked_add(rounded).is_none() {
        return Err(Errno::EINVAL);
    }
    if rounded == 0 {
        return Ok(0);
    }
    let range = PageRange::from_len(VirtAddr(address), rounded).ok_or(Errno::ENOMEM)?;
    match effect {
        Advice::Hint => {}
        Advice::Empty => in_space(|space| empty(space, range))??,
        Advice::Populate(access) => populate_strictly(range, access)?,
        // What it promises is not there, and a program must not believe it is.
        Advice::Unsupported => return Err(Errno::EINVAL),
    }
    if is_mapped(range) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// `MADV_DONTNEED`: private memory gets its first content back. Mapping the same thing over it does just that, and joins it to its
/// neighbours again; shared memory keeps its content anyway.
fn empty(space: &AddressSpace, range: PageRange) -> Result<(), Errno> {
    let version = space.vmas();
    for vma in version.view().range(range) {
        let Some(part) = vma.range.intersect(range) else { continue };
        if vma.flags.contains(VmaFlags::LOCKED) {
            return Err(Errno::EINVAL);
        }
        if vma.flags.contains(VmaFlags::SHARED) {
            continue;
        }
        let part = vma.slice(part);
        space.map(MapRequest {
            placement: Placement::Fixed(part.start()),
            len: part.range.len(),
            flags: part.flags,
            backing: part.backing,
            page_offset: part.page_offset,
        })?;
    }
    Ok(())
}

/// `MADV_POPULATE_READ` and `_WRITE`: like the accesses themselves, with their failures.
fn populate_strictly(range: PageRange, access: Access) -> Result<(), Errno> {
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

/// What advice means here.
enum Advice {
    /// It may be ignored.
    Hint,
    /// Private memory starts afresh.
    Empty,
    /// Pages are touched at once.
    Populate(Access),
    /// It changes what the program sees, and the memory manager cannot do it yet.
    Unsupported,
}

fn advice_effect(advice: u32) -> Option<Advice> {
    Some(match advice {
        raw::MADV_NORMAL
        | raw::MADV_RANDOM
        | raw::MADV_SEQUENTIAL
        | raw::MADV_WILLNEED
        | raw::MADV_MERGEABLE
        | raw::MADV_UNMERGEABLE
        | raw::MADV_HUGEPAGE
        | raw::MADV_NOHUGEPAGE
        | raw::MADV_DONTDUMP
        | raw::MADV_DODUMP
        | raw::MADV_COLD
        | raw::MADV_PAGEOUT
        | raw::MADV_FREE => Advice::Hint,
        raw::MADV_DONTNEED | raw::MADV_DONTNEED_LOCKED => Advice::Empty,
        raw::MADV_POPULATE_READ => Advice::Populate(Access::Read),
        raw::MADV_POPULATE_WRITE => Advice::Populate(Access::Write),
        raw::MADV_REMOVE | raw::MADV_DONTFORK | raw::MADV_DOFORK | raw::MADV_WIPEONFORK | raw::MADV_KEEPONFORK => {
            Advice::Unsupported
        }
        _ => return None,
    })
}

/// Everything that is mapped counts as in memory, since there is no swap: a page that was not touched yet needs no reading from anywhere either.
fn mincore(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, vector, ..] = ctx.args;
    if address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    let pages = round_up(len).ok_or(Errno::ENOMEM)? / PAGE;
    let end = address.checked_add(pages * PAGE).ok_or(Errno::ENOMEM)?;
    if end > foldspace::addr::USER_END.get() {
        return Err(Errno::ENOMEM);
    }
    if PageRange::new(VirtAddr(address), VirtAddr(end)).is_some_and(|range| !is_mapped(range)) {
        return Err(Errno::ENOMEM);
    }
    let ones = [1u8; 256];
    let mut done = 0;
    while done < pages {
        let part = (pages - done).min(ones.len() as u64);
        uaccess::write_bytes(vector.wrapping_add(done), &ones[..part as usize])?;
        done += part;
    }
    Ok(0)
}

/// Files live in memory, so there is nothing to write back.
fn msync(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, flags, ..] = ctx.args;
    let flags = flags as u32;
    const BOTH: u32 = raw::MS_ASYNC | raw::MS_SYNC;
    if flags & !(BOTH | raw::MS_INVALIDATE) != 0 || address % PAGE != 0 || flags & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    check_range(address, len)
}

fn mlock(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    lock(ctx, address, len)
}

fn mlock2(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, flags, ..] = ctx.args;
    if flags as u32 & !raw::MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    lock(ctx, address, len)
}

/// Nothing is ever swapped out, so memory is as good as locked; it is only faulted in.
fn lock(_ctx: &SyscallContext<'_>, address: u64, len: u64) -> SysResult {
    let start = address & !(PAGE - 1);
    let result = check_range(start, len.saturating_add(address - start))?;
    Ok(result)
}

fn munlock(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    let start = address & !(PAGE - 1);
    check_range(start, len.saturating_add(address - start))
}

fn mlockall(ctx: &mut SyscallContext<'_>) -> SysResult {
    let flags = ctx.args[0] as u32;
    const KNOWN: u32 = raw::MCL_CURRENT | raw::MCL_FUTURE | raw::MCL_ONFAULT;
    if flags == 0 || flags & !KNOWN != 0 || flags == raw::MCL_ONFAULT {
        return Err(Errno::EINVAL);
    }
    Ok(0)
}

fn munlockall(_ctx: &mut SyscallContext<'_>) -> SysResult {
    Ok(0)
}

/// Success if all of a range is mapped (an empty one is), else `ENOMEM`.
fn check_range(address: u64, len: u64) -> SysResult {
    let len = round_up(len).ok_or(Errno::ENOMEM)?;
    let end = address.checked_add(len).ok_or(Errno::ENOMEM)?;
    if len == 0 {
        return Ok(0);
    }
    match PageRange::new(VirtAddr(address), VirtAddr(end)) {
        Some(range) if is_mapped(range) => Ok(0),
        _ => Err(Errno::ENOMEM),
    }
}
