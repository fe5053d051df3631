//! mprotect and pkey_mprotect.

use foldspace::vma::{ProtectionKey, Vma, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::abi::{PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP, PROT_READ, PROT_SEM, PROT_WRITE};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::keys::{execute_only, given};
use crate::populate::populate_mapping;
use crate::range::{clipped, is_aligned, page_align};

/// READ, WRITE and EXEC of a `prot` argument.
pub(crate) fn access(prot: u64) -> VmaFlags {
    let mut flags = VmaFlags::empty();
    flags.set(VmaFlags::READ, prot & PROT_READ != 0);
    flags.set(VmaFlags::WRITE, prot & PROT_WRITE != 0);
    flags.set(VmaFlags::EXEC, prot & PROT_EXEC != 0);
    flags
}

/// mprotect(2).
///
/// # Errors
///
/// `EINVAL`: misaligned, unknown bits, both `PROT_GROWSDOWN` and `PROT_GROWSUP`, or one of them where nothing grows that way. `ENOMEM`: a hole (what comes before it
/// is changed), or out of memory. `EACCES`: a mapping that may not have these permissions, or gain them (what comes before it is changed). `EPERM`: it is sealed.
pub fn mprotect(caller: &impl Caller, address: u64, len: u64, prot: u64) -> Result<(), Errno> {
    pkey_mprotect(caller, address, len, prot, -1)
}

/// pkey_mprotect(2). Key -1 is mprotect, which lets memory keep its key, but for memory that may only be executed: that has a key of its own where
/// the processor has keys.
///
/// # Errors
///
/// As [`mprotect`]; `EINVAL` for a key that the program does not have.
pub fn pkey_mprotect(caller: &impl Caller, address: u64, len: u64, prot: u64, key: i32) -> Result<(), Errno> {
    // Linux's order: `do_mprotect_pkey` in mm/mprotect.c.
    const GROWS: u64 = PROT_GROWSDOWN | PROT_GROWSUP;
    let (grows, prot) = (prot & GROWS, prot & !GROWS);
    if grows == GROWS || !is_aligned(address) {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(());
    }
    let end = address.wrapping_add(page_align(len));
    if end <= address {
        return Err(Errno::ENOMEM);
    }
    if prot & !(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM) != 0 {
        return Err(Errno::EINVAL);
    }
    let space = caller.space();
    let access = access(prot);
    let key = match key {
        -1 if access == VmaFlags::EXEC => execute_only(caller),
        -1 => None,
        number => Some(given(caller, number)?),
    };
    let range = clipped(address, end).ok_or(Errno::ENOMEM)?;
    let range = if grows == 0 { range } else { grown(space, range, grows)? };
    if access.contains(VmaFlags::EXEC) && caller.refuses_exec_gain() {
        refuse_gain(space, range, access, key)?;
    }
    let done = if access.contains(VmaFlags::WRITE) && space.some_have(VmaFlags::LOCKED) {
        make_writable(caller, range, access, key)
    } else {
        set(space, range, access, key)
    };
    done?;
    // Nothing is mapped above the user half.
    if end > range.end().get() { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// With `EXEC`, for who does not want memory to gain it (`map_deny_write_exec` in Linux's `include/linux/mman.h`): `EACCES` if that were so somewhere, and what comes before it is
/// changed.
#[cold]
fn refuse_gain(
    space: &AddressSpace,
    range: PageRange,
    access: VmaFlags,
    key: Option<ProtectionKey>,
) -> Result<(), Errno> {
    let gains = |vma: &&Vma| access.contains(VmaFlags::WRITE) || !vma.flags.contains(VmaFlags::EXEC);
    let version = space.vmas();
    let Some(first) = version.view().range(range).find(gains) else { return Ok(()) };
    if let Some(before) = PageRange::new(range.start(), first.start()) {
        set(space, before, access, key)?;
    }
    Err(Errno::EACCES)
}

#[inline]
fn set(space: &AddressSpace, range: PageRange, access: VmaFlags, key: Option<ProtectionKey>) -> foldspace::Result<()> {
    match key {
        None => space.protect(range, access),
        Some(key) => space.protect_with_key(range, access, key),
    }
}

/// [`set`] with `WRITE`, where there is locked memory: its pages come with the permission to write to them, since until then
/// private ones could not be had, or only shared with others (`mprotect_fixup`). Also if it fails further up.
#[inline(never)]
fn make_writable(
    caller: &impl Caller,
    range: PageRange,
    access: VmaFlags,
    key: Option<ProtectionKey>,
) -> foldspace::Result<()> {
    const DECIDE: VmaFlags = VmaFlags::WRITE.union(VmaFlags::SHARED).union(VmaFlags::LOCKED);
    let before = caller.space().vmas();
    let done = set(caller.space(), range, access, key);
    let after = caller.space().vmas();
    for vma in before.view().range(range).filter(|vma| vma.flags & DECIDE == VmaFlags::LOCKED) {
        let Some(piece) = vma.range.intersect(range) else { continue };
        if !after.view().find(piece.start()).is_some_and(|vma| vma.flags.contains(VmaFlags::WRITE)) {
            break;
        }
        populate_mapping(caller, piece);
    }
    done
}

/// The range with the rest of the first mapping in it, down to where that starts.
fn grown(space: &AddressSpace, range: PageRange, grows: u64) -> Result<PageRange, Errno> {
    let version = space.vmas();
    let first = version.view().range(range).next().ok_or(Errno::ENOMEM)?;
    if grows == PROT_GROWSUP {
        // No area grows upwards on x86.
        return Err(if first.start() > range.start() { Errno::ENOMEM } else { Errno::EINVAL });
    }
    if !first.flags.contains(VmaFlags::GROWS_DOWN) {
        return Err(Errno::EINVAL);
    }
    let start: VirtAddr = first.start();
    PageRange::new(start, range.end()).ok_or(Errno::ENOMEM)
}
