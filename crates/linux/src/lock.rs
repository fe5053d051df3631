//! mlock and its kin.

use foldspace::space::{Failures, LockMode, PopulateError};
use foldspace::{Error, PageRange, VirtAddr};

use crate::abi::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};
use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, TASK_SIZE, in_user_half, page_align};

/// mlock(2).
///
/// # Errors
///
/// `EPERM`: nothing may be locked. `ENOMEM`: more than may be locked, a hole (what comes before is locked), or pages that cannot be had (all is locked).
/// `EAGAIN`: no memory for the pages. `EINVAL`: the range wraps.
pub fn mlock(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    mlock2(caller, address, len, 0)
}

/// mlock2(2).
///
/// # Errors
///
/// As [`mlock`]; `EINVAL`: unknown flags.
pub fn mlock2(caller: &impl Caller, address: u64, len: u64, flags: i32) -> Result<(), Errno> {
    // Linux's order: mm/mlock.c.
    let flags = u64::from(flags as u32);
    if flags & !MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    let limit = caller.space().with_layout(|layout| layout.lock_limit);
    if limit == 0 {
        return Err(Errno::EPERM);
    }
    let mode = if flags & MLOCK_ONFAULT != 0 { LockMode::OnFault } else { LockMode::Now };
    let (start, end) = whole_pages(address, len);
    if end <= start {
        // The limit is looked at first, by who locks nothing too.
        let locked = caller.space().vmas().view().summary().totals.pages.locked;
        let over = limit != u64::MAX && locked + end.wrapping_sub(start) / PAGE > limit / PAGE;
        return match end == start {
            _ if over => Err(Errno::ENOMEM),
            true => Ok(()),
            false => Err(Errno::EINVAL),
        };
    }
    in_user_half(start, end, |range| {
        caller.space().lock(range, mode).map_err(|error| match error {
            Error::LockLimit => Errno::ENOMEM,
            error => error.into(),
        })?;
        // What is locked only as it is touched is passed over: what cannot be locked is not.
        populate(caller, range)
    })
}

/// munlock(2).
///
/// # Errors
///
/// `ENOMEM`: a hole; what comes before is unlocked. `EINVAL`: the range wraps.
pub fn munlock(caller: &impl Caller, address: u64, len: u64) -> Result<(), Errno> {
    match whole_pages(address, len) {
        (start, end) if end < start => Err(Errno::EINVAL),
        (start, end) if end == start => Ok(()),
        (start, end) => in_user_half(start, end, |range| Ok(caller.space().unlock(range)?)),
    }
}

/// mlockall(2).
///
/// # Errors
///
/// `EINVAL`: unknown flags, none, or `MCL_ONFAULT` alone. `EPERM`: nothing may be locked. `ENOMEM`: more is mapped than may be locked.
pub fn mlockall(caller: &impl Caller, flags: i32) -> Result<(), Errno> {
    let flags = u64::from(flags as u32);
    if flags == 0 || flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0 || flags == MCL_ONFAULT {
        return Err(Errno::EINVAL);
    }
    let space = caller.space();
    if space.with_layout(|layout| layout.lock_limit) == 0 {
        return Err(Errno::EPERM);
    }
    let mode = if flags & MCL_ONFAULT != 0 { LockMode::OnFault } else { LockMode::Now };
    let wanted = |flag| (flags & flag != 0).then_some(mode);
    space.lock_all(wanted(MCL_CURRENT), wanted(MCL_FUTURE)).map_err(|error| match error {
        Error::LockLimit => Errno::ENOMEM,
        error => error.into(),
    })?;
    if flags & MCL_CURRENT != 0
        && let Some(everything) = PageRange::new(VirtAddr(0), VirtAddr(TASK_SIZE))
    {
        // As far as it goes: they are locked.
        let _ = space.populate_mapped(everything, Failures::Skip, &mut || caller.is_being_killed());
    }
    Ok(())
}

/// munlockall(2).
///
/// # Errors
///
/// None.
pub fn munlockall(caller: &impl Caller) -> Result<(), Errno> {
    caller.space().unlock_all();
    Ok(())
}

/// The ends of the pages around what was asked for. A length that wraps on the way is none, as on Linux.
fn whole_pages(address: u64, len: u64) -> (u64, u64) {
    let start = address & !(PAGE - 1);
    (start, start.wrapping_add(page_align(len.wrapping_add(address - start))))
}

/// Faults in what has been locked, with the errors that POSIX wants (`__mlock_posix_error_return`).
fn populate(caller: &impl Caller, range: PageRange) -> Result<(), Errno> {
    let populated = caller.space().populate_mapped(range, Failures::Stop, &mut || caller.is_being_killed());
    populated.map_err(|error| match error {
        PopulateError::OutOfMemory => Errno::EAGAIN,
        PopulateError::Interrupted => Errno::EINTR,
        PopulateError::NotMapped | PopulateError::AccessDenied | PopulateError::Faulted(_) => Errno::ENOMEM,
    })
}
