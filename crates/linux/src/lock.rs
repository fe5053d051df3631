//! mlock and its kin.

use crate::abi::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, clipped, is_mapped, page_align};

/// mlock(2): nothing is ever swapped out, so memory is as good as locked.
///
/// # Errors
///
/// `ENOMEM`: a hole.
pub fn mlock(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    mlock2(caller, address, len, 0)
}

/// mlock2(2).
///
/// # Errors
///
/// As [`mlock`]; `EINVAL`: unknown flags.
pub fn mlock2(caller: &impl Caller, address: u64, len: u64, flags: i32) -> Result<(), Errno> {
    if u64::from(flags as u32) & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    check(caller, address, len)
}

/// munlock(2).
///
/// # Errors
///
/// `ENOMEM`: a hole. `EINVAL`: the range wraps.
pub fn munlock(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    check(caller, address, len)
}

/// mlockall(2).
///
/// # Errors
///
/// `EINVAL`: unknown flags, none, or `MCL_ONFAULT` alone.
pub fn mlockall(_caller: &impl Caller, flags: i32) -> Result<(), Errno> {
    let flags = u64::from(flags as u32);
    if flags == 0 || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || flags == MCL_ONFAULT {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// munlockall(2).
///
/// # Errors
///
/// None.
pub fn munlockall(_caller: &impl Caller) -> Result<(), Errno> {
    Ok(())
}

/// The range of a call: whole pages around what was asked for. A length that wraps to nothing is an empty range, as on Linux.
fn check(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    let start = address & !(PAGE - 1);
    let len = page_align(len.wrapping_add(address - start));
    let end = start.wrapping_add(len);
    if end < start {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(());
    }
    match clipped(start, end) {
        Some(range) if range.end().get() == end && is_mapped(caller.space(), range) => Ok(()),
        _ => Err(Errno::ENOMEM),
    }
}
