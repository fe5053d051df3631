//! mremap.

use foldspace::space::{MapRequest, Placement};
use foldspace::{PageRange, VirtAddr};

use crate::abi::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, TASK_SIZE, is_aligned, page_align};

/// mremap(2). Returns the address.
///
/// # Errors
///
/// `EINVAL`: unknown or contradicting flags, misaligned addresses, no new length, places that overlap. `EFAULT`: not mapped. `ENOMEM`: no room.
pub fn mremap(
    caller: &impl Caller,
    address: u64,
    old_len: u64,
    new_len: u64,
    flags: u64,
    target: u64,
) -> Result<u64, Errno> {
    let (old_len, new_len) = (page_align(old_len), page_align(new_len));
    check(address, old_len, new_len, flags, target)?;
    remap(caller, address, old_len, new_len, flags)
}

/// Linux's order: `check_mremap_params` in mm/mremap.c.
fn check(address: u64, old_len: u64, new_len: u64, flags: u64, target: u64) -> Result<(), Errno> {
    let silly = flags & !(MREMAP_FIXED | MREMAP_MAYMOVE | MREMAP_DONTUNMAP) != 0
        || !is_aligned(address)
        || new_len == 0
        || new_len > TASK_SIZE;
    if silly {
        return Err(Errno::EINVAL);
    }
    if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) == 0 {
        return Ok(());
    }
    // The new address is looked at even where DONTUNMAP alone gives it no meaning.
    let overlap = address.wrapping_add(old_len) > target && target.wrapping_add(new_len) > address;
    if target > TASK_SIZE - new_len
        || !is_aligned(target)
        || flags & MREMAP_MAYMOVE == 0
        || flags & MREMAP_DONTUNMAP != 0 && old_len != new_len
        || overlap
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// The memory manager cannot move mappings yet: they shrink, and grow where they are; all else is refused with `ENOMEM`, which makes
/// the C libraries' `realloc` copy.
fn remap(caller: &impl Caller, address: u64, old_len: u64, new_len: u64, flags: u64) -> Result<u64, Errno> {
    if flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) != 0 || old_len == 0 {
        return Err(Errno::ENOMEM);
    }
    let old_end = address.checked_add(old_len).ok_or(Errno::EINVAL)?;
    let new_end = address.checked_add(new_len).ok_or(Errno::ENOMEM)?;
    let space = caller.space();
    let version = space.vmas();
    let vma = version.view().find(VirtAddr(address)).ok_or(Errno::EFAULT)?;
    if new_len <= old_len {
        if let Some(tail) = PageRange::new(VirtAddr(new_end), VirtAddr(old_end)) {
            space.unmap(tail)?;
        }
        return Ok(address);
    }
    if vma.end().get() < old_end {
        return Err(Errno::EFAULT);
    }
    if vma.end().get() > old_end {
        return Err(Errno::ENOMEM);
    }
    let grown_by = (old_end - vma.start().get()) / PAGE;
    let page_offset = if vma.backing.has_offsets() { vma.page_offset + grown_by } else { 0 };
    let tail = MapRequest {
        placement: Placement::FixedNoReplace(VirtAddr(old_end)),
        len: new_len - old_len,
        flags: vma.flags,
        backing: vma.backing.clone(),
        page_offset,
    };
    space.map(tail).map_err(|_| Errno::ENOMEM)?;
    Ok(address)
}
