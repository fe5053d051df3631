//! msync.

use foldspace::vma::VmaFlags;

use crate::abi::{MS_ASYNC, MS_INVALIDATE, MS_SYNC};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{TASK_SIZE, clipped, is_aligned, page_align};

/// msync(2). Backings live in memory, so there is nothing to write back; what is left are the checks.
///
/// # Errors
///
/// `EINVAL`: unknown flags, misaligned, or both `MS_ASYNC` and `MS_SYNC`. `EBUSY`: `MS_INVALIDATE` and locked memory before the end (and before the first hole, with `MS_ASYNC`
/// alone). `ENOMEM`: a hole.
pub fn msync(caller: &impl Caller, address: u64, len: u64, flags: i32) -> Result<(), Errno> {
    // Linux's order: mm/msync.c.
    const BOTH: u64 = MS_ASYNC | MS_SYNC;
    let flags = u64::from(flags as u32);
    if flags & !(BOTH | MS_INVALIDATE) != 0 || !is_aligned(address) || flags & BOTH == BOTH {
        return Err(Errno::EINVAL);
    }
    let end = address.wrapping_add(page_align(len));
    if end < address {
        return Err(Errno::ENOMEM);
    }
    if end == address {
        return Ok(());
    }
    let range = clipped(address, end).ok_or(Errno::ENOMEM)?;
    let version = caller.space().vmas();
    let (mut reached, mut outcome) = (range.start(), Ok(()));
    for vma in version.view().range(range) {
        if vma.start() > reached {
            outcome = Err(Errno::ENOMEM);
            if flags == MS_ASYNC {
                return outcome;
            }
        }
        if flags & MS_INVALIDATE != 0 && vma.flags.contains(VmaFlags::LOCKED) {
            return Err(Errno::EBUSY);
        }
        // There is nowhere that it could be written to (`vfs_fsync_range`).
        if flags & MS_SYNC != 0 && vma.flags.contains(VmaFlags::SECRET | VmaFlags::SHARED) {
            return Err(Errno::EINVAL);
        }
        reached = vma.end();
    }
    if reached < range.end() || end > TASK_SIZE { Err(Errno::ENOMEM) } else { outcome }
}
