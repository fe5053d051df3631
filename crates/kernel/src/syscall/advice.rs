//! Advice about mappings, and questions: `madvise`, `mincore`, `msync`, `mlock` and its kin.

use foldspace::space::{Access, MapRequest, Placement};
use foldspace::vma::VmaFlags;
use foldspace::{AddressSpace, PageRange, VirtAddr};
use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::memory::{PAGE, in_space, populate, round_up};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::madvise, madvise),
    (Sysno::mincore, mincore),
    (Sysno::msync, msync),
    (Sysno::mlock, mlock),
    (Sysno::mlock2, mlock2),
    (Sysno::munlock, munlock),
    (Sysno::mlockall, mlockall),
    (Sysno::munlockall, munlockall),
];

/// Whether every page of a range belongs to a VMA. O(VMAs in it).
fn is_mapped(range: PageRange) -> bool {
    in_space(|space| {
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
    if !address.is_multiple_of(PAGE) {
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
        Advice::Populate(access) => populate(range, access)?,
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
    if !address.is_multiple_of(PAGE) {
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
    if flags & !(BOTH | raw::MS_INVALIDATE) != 0 || !address.is_multiple_of(PAGE) || flags & BOTH == BOTH {
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
