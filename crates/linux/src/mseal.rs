//! mseal.

use foldspace::{PageRange, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{is_aligned, page_align};

/// mseal(2): mappings that may not be changed any more.
///
/// # Errors
///
/// `EINVAL`: flags, misaligned, or a length that wraps. `ENOMEM`: a hole; nothing is sealed.
pub fn mseal(caller: &impl Caller, address: u64, len: u64, flags: u64) -> Result<(), Errno> {
    // Linux's order: `do_mseal` in mm/mseal.c.
    let rounded = page_align(len);
    let end = address.wrapping_add(rounded);
    if flags != 0 || !is_aligned(address) || rounded == 0 && len != 0 || end < address {
        return Err(Errno::EINVAL);
    }
    if end == address {
        return Ok(());
    }
    let range = PageRange::new(VirtAddr(address), VirtAddr(end)).ok_or(Errno::ENOMEM)?;
    Ok(caller.space().seal(range)?)
}
