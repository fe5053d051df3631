//! Faulting pages in before they are touched.

use foldspace::space::{Access, Failures, Fault, PopulateError};
use foldspace::{AddressSpace, PageRange};

use crate::caller::Caller;
use crate::errno::Errno;

/// How `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` fault a range in.
///
/// # Errors
///
/// `ENOMEM`: a hole, or no memory. `EINVAL`: a mapping that does not allow it. `EFAULT`: past the end of a file, or a guard. `EHWPOISON`: its
/// memory has failed. `EINTR`: the caller is being ended.
pub(crate) fn populate(
    caller: &impl Caller,
    space: &AddressSpace,
    range: PageRange,
    access: Access,
) -> Result<(), Errno> {
    let populated = space.populate(range, access, &mut || caller.is_being_killed());
    populated.map_err(|error| match error {
        PopulateError::NotMapped | PopulateError::OutOfMemory => Errno::ENOMEM,
        PopulateError::AccessDenied => Errno::EINVAL,
        PopulateError::Faulted(Fault::Poisoned) => Errno::EHWPOISON,
        PopulateError::Faulted(_) => Errno::EFAULT,
        PopulateError::Interrupted => Errno::EINTR,
    })
}

/// What `MAP_POPULATE` and `MAP_LOCKED` do: as far as it goes, without an error (`mm_populate` in `mm/gup.c`).
pub(crate) fn populate_mapping(caller: &impl Caller, range: PageRange) {
    // Interrupted or not: the mapping is made.
    let _ = caller.space().populate_mapped(range, Failures::Skip, &mut || caller.is_being_killed());
}
