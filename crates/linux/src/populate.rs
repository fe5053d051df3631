//! Faulting pages in before they are touched.

use foldspace::space::{Access, Fault};
use foldspace::vma::VmaFlags;
use foldspace::{PageRange, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::PAGE;

/// How `MADV_POPULATE_READ` and `MADV_POPULATE_WRITE` fault a range in.
///
/// # Errors
///
/// `ENOMEM`: a hole, or no memory. `EINVAL`: a mapping that does not allow it. `EFAULT`: past the end of a file. `EINTR`: the caller is being ended.
pub(crate) fn populate(caller: &impl Caller, range: PageRange, access: Access) -> Result<(), Errno> {
    for page in 0..range.pages() {
        let address = VirtAddr(range.start().get() + page * PAGE);
        caller.space().fault(address, access).map_err(|fault| match fault {
            Fault::NotMapped | Fault::OutOfMemory => Errno::ENOMEM,
            Fault::AccessDenied => Errno::EINVAL,
            Fault::PastEnd => Errno::EFAULT,
        })?;
        if caller.is_being_killed() {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}

/// What `MAP_POPULATE` and `MAP_LOCKED` do: as far as it goes, without an error (`mm_populate`).
pub(crate) fn populate_mapping(caller: &impl Caller, range: PageRange) {
    let version = caller.space().vmas();
    for vma in version.view().range(range) {
        if let Some(part) = vma.range.intersect(range) {
            let _ = populate(caller, part, touch(vma.flags));
        }
    }
}

/// The access that makes the pages of a mapping present for good: private pages that can be written are copied at once
/// (`populate_vma_page_range` in `mm/gup.c`).
fn touch(flags: VmaFlags) -> Access {
    if flags.contains(VmaFlags::WRITE) && !flags.contains(VmaFlags::SHARED) {
        Access::Write
    } else if flags.intersects(VmaFlags::READ | VmaFlags::WRITE) {
        Access::Read
    } else {
        Access::Execute
    }
}
