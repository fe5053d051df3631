//! process_madvise: advice about several ranges, of the caller or of another process.

use core::ops::Deref;
use core::ptr;

use foldspace::AddressSpace;
use linux_raw_sys::general as raw;

use crate::advice::advise;
use crate::caller::{Caller, Capability};
use crate::errno::Errno;
use crate::vector::{IoVec, total};

/// process_madvise(2): the caller's array of `count` ranges at `ranges`, of the process that `find` finds once the arguments have been checked. Returns the bytes
/// advised.
///
/// # Errors
///
/// `EINVAL`: flags, an array too long, or advice that is not for others. `EPERM`: no CAP_SYS_NICE. What `find` says. If nothing was advised, what madvise says
/// of the first range.
pub fn process_madvise<S: Deref<Target = AddressSpace>>(
    caller: &impl Caller,
    ranges: u64,
    count: u64,
    advice: i32,
    flags: u32,
    find: impl FnOnce() -> Result<S, Errno>,
) -> Result<u64, Errno> {
    // Linux's order: mm/madvise.c.
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let ranges = IoVec::import(caller.space(), ranges, count)?;
    let space = find()?;
    let is_own = ptr::eq(&*space, caller.space());
    if !is_own && !is_for_others(advice) {
        return Err(Errno::EINVAL);
    }
    if !is_own && !caller.is_capable(Capability::Nice) {
        return Err(Errno::EPERM);
    }
    let (all, mut done) = (total(&ranges), 0);
    for (index, range) in ranges.iter().enumerate() {
        // Empty ranges are passed over, but for the first, which is looked at if anything follows.
        if done == all || range.len == 0 && index > 0 {
            continue;
        }
        match advise(caller, &space, range.base, range.len, advice) {
            Ok(()) => done += range.len,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Advice that may be given about another process (`process_madvise_remote_valid`).
fn is_for_others(advice: i32) -> bool {
    matches!(advice as u32, raw::MADV_COLD | raw::MADV_PAGEOUT | raw::MADV_WILLNEED | raw::MADV_COLLAPSE)
}
