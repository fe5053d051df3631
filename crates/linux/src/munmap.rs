//! munmap.

use foldspace::{PageRange, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{TASK_SIZE, is_aligned, page_align};

/// munmap(2): what is mapped in the range goes; holes are fine.
///
/// # Errors
///
/// `EINVAL`: misaligned, empty, or beyond the user half. `ENOMEM`: a VMA would be split and there are too many. `EPERM`: something in it is sealed.
pub fn munmap(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    // Linux's order: `do_vmi_munmap` in mm/vma.c.
    if !is_aligned(address) || address > TASK_SIZE || len > TASK_SIZE - address {
        return Err(Errno::EINVAL);
    }
    let range = PageRange::from_len(VirtAddr(address), page_align(len)).ok_or(Errno::EINVAL)?;
    Ok(caller.space().unmap(range)?)
}
