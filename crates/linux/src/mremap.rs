//! mremap.

use foldspace::space::{Destination, Leave, RemapRequest};
use foldspace::vma::VmaFlags;
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};

use crate::abi::{MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::populate::populate_mapping;
use crate::range::{TASK_SIZE, is_aligned, page_align};

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
    let target = VirtAddr(target);
    let to = match (flags & MREMAP_FIXED != 0, flags & MREMAP_DONTUNMAP != 0) {
        (true, _) => Destination::Fixed(target),
        (false, true) => Destination::Hint(target),
        (false, false) if flags & MREMAP_MAYMOVE != 0 => Destination::Anywhere,
        (false, false) => Destination::InPlace,
    };
    let leave = if flags & MREMAP_DONTUNMAP != 0 { Leave::Area } else { Leave::Hole };
    let request = RemapRequest { start: VirtAddr(address), len: old_len, new_len, to, leave };
    let moved = caller.space().remap(request).map_err(|error| match error {
        Error::NotMapped => Errno::EFAULT,
        error => error.into(),
    })?;
    // What a locked area has gained is there at once.
    if let Some(gained) = PageRange::new(VirtAddr(moved.get().saturating_add(old_len)), VirtAddr(moved.get() + new_len))
        && is_locked(caller.space(), gained.start())
    {
        populate_mapping(caller, gained);
    }
    Ok(moved.get())
}

fn is_locked(space: &AddressSpace, address: VirtAddr) -> bool {
    let lock = VmaFlags::LOCKED | VmaFlags::LOCK_ON_FAULT;
    space.vmas().view().find(address).is_some_and(|vma| vma.flags & lock == VmaFlags::LOCKED)
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
