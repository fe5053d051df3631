//! Arithmetic on addresses and lengths that programs give.

use foldspace::addr::{PAGE_SIZE, USER_END};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::errno::Errno;

/// Bytes in a page.
pub(crate) const PAGE: u64 = PAGE_SIZE;
/// End of what a program may map: Linux's `TASK_SIZE`.
pub(crate) const TASK_SIZE: u64 = USER_END.get();

/// Rounded up to pages; 0 where that wraps, as with Linux's `PAGE_ALIGN`.
pub(crate) const fn page_align(len: u64) -> u64 {
    len.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// Whether it is a page's first byte.
pub(crate) const fn is_aligned(address: u64) -> bool {
    address & (PAGE - 1) == 0
}

/// Whether a program may access `len` bytes there, as far as the address alone tells (`access_ok`).
pub(crate) const fn is_user(address: u64, len: u64) -> bool {
    match address.checked_add(len) {
        Some(end) => end <= TASK_SIZE,
        None => false,
    }
}

/// What of `start..end` lies in the user half; nothing if that is empty. Both are page aligned.
pub(crate) fn clipped(start: u64, end: u64) -> Option<PageRange> {
    PageRange::new(VirtAddr(start), VirtAddr(end.min(TASK_SIZE)))
}

/// Lets `act` at what of `start..end`, which is not empty, lies in the user half. `ENOMEM`, as for any hole, if that is not all of it.
pub(crate) fn in_user_half(
    start: u64,
    end: u64,
    act: impl FnOnce(PageRange) -> Result<(), Errno>,
) -> Result<(), Errno> {
    act(clipped(start, end).ok_or(Errno::ENOMEM)?)?;
    if end > TASK_SIZE { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Whether every page of a range belongs to a VMA. O(VMAs in it).
pub(crate) fn is_mapped(space: &AddressSpace, range: PageRange) -> bool {
    let version = space.vmas();
    let mut reached = range.start();
    for vma in version.view().range(range) {
        if vma.start() > reached {
            return false;
        }
        reached = vma.end();
    }
    reached >= range.end()
}
