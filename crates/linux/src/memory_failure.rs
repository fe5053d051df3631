//! Memory that is said to have failed: `MADV_HWPOISON` and `MADV_SOFT_OFFLINE` (`madvise_inject_error` in Linux's `mm/madvise.c`).

use foldspace::migrate::Lost;
use foldspace::{AddressSpace, Error, PageRange, VirtAddr};

use crate::caller::{Caller, Capability};
use crate::errno::Errno;
use crate::range::PAGE;

/// What is said of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// It has failed, and what was in it is lost.
    Now,
    /// It will soon: what is in it is to be elsewhere.
    Soon,
}

/// Says it of each page of `range`, until one cannot be had.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`; `EFAULT` for a page that cannot be loaded from; `EBUSY` for one of zeros that nobody has written to, and for one
/// that others were changing again and again.
pub(crate) fn inject(
    caller: &impl Caller,
    space: &AddressSpace,
    range: PageRange,
    failure: Failure,
) -> Result<(), Errno> {
    if !caller.is_capable(Capability::Admin) {
        return Err(Errno::EPERM);
    }
    for page in 0..range.pages() {
        let at = VirtAddr(range.start().get() + page * PAGE);
        let outcome = match failure {
            Failure::Soon => space.soft_offline(at),
            Failure::Now => space.poison(at).map(|lost| {
                // Of a clean page nothing is lost that its file does not have.
                if lost != (Lost::Page { dirty: false }) && core::ptr::eq(space, caller.space()) {
                    caller.memory_failed(at.get());
                }
            }),
        };
        outcome.map_err(|error| match error {
            Error::NotMapped => Errno::EFAULT,
            error => error.into(),
        })?;
    }
    Ok(())
}
