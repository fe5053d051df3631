//! madvise.

use foldspace::space::Access;
use foldspace::{Error, PageRange, VirtAddr};
use linux_raw_sys::general as raw;

use crate::caller::Caller;
use crate::errno::Errno;
use crate::populate::populate;
use crate::range::{is_aligned, is_mapped, page_align};

/// madvise(2).
///
/// # Errors
///
/// `EINVAL`: unknown advice, misaligned, a length that wraps, or memory that the advice is not for. `ENOMEM`: a hole; what is mapped around it is advised all the same.
pub fn madvise(caller: &impl Caller, address: u64, len: u64, advice: i32) -> Result<(), Errno> {
    // Linux's order: `is_valid_madvise` in mm/madvise.c.
    let advice = Advice::of(advice).ok_or(Errno::EINVAL)?;
    if !is_aligned(address) {
        return Err(Errno::EINVAL);
    }
    let rounded = page_align(len);
    if rounded == 0 && len != 0 || address.checked_add(rounded).is_none() {
        return Err(Errno::EINVAL);
    }
    if rounded == 0 {
        return Ok(());
    }
    let range = PageRange::from_len(VirtAddr(address), rounded).ok_or(Errno::ENOMEM)?;
    let space = caller.space();
    match advice {
        Advice::Hint if is_mapped(space, range) => Ok(()),
        Advice::Hint => Err(Errno::ENOMEM),
        Advice::Empty => space.discard(range).map_err(|error| match error {
            Error::AccessDenied => Errno::EINVAL,
            error => error.into(),
        }),
        Advice::Populate(access) => populate(caller, range, access),
        // What it promises is not there, and a program must not believe it is.
        Advice::Unsupported => Err(Errno::EINVAL),
    }
}

/// What advice means here.
enum Advice {
    /// It may be ignored.
    Hint,
    /// Private memory starts afresh.
    Empty,
    /// Pages are touched at once.
    Populate(Access),
    /// It changes what the program sees, and the memory manager cannot do it yet.
    Unsupported,
}

impl Advice {
    fn of(number: i32) -> Option<Advice> {
        Some(match number as u32 {
            raw::MADV_NORMAL
            | raw::MADV_RANDOM
            | raw::MADV_SEQUENTIAL
            | raw::MADV_WILLNEED
            | raw::MADV_MERGEABLE
            | raw::MADV_UNMERGEABLE
            | raw::MADV_HUGEPAGE
            | raw::MADV_NOHUGEPAGE
            | raw::MADV_DONTDUMP
            | raw::MADV_DODUMP
            | raw::MADV_COLD
            | raw::MADV_PAGEOUT
            | raw::MADV_FREE => Advice::Hint,
            raw::MADV_DONTNEED | raw::MADV_DONTNEED_LOCKED => Advice::Empty,
            raw::MADV_POPULATE_READ => Advice::Populate(Access::Read),
            raw::MADV_POPULATE_WRITE => Advice::Populate(Access::Write),
            raw::MADV_REMOVE | raw::MADV_DONTFORK | raw::MADV_DOFORK | raw::MADV_WIPEONFORK | raw::MADV_KEEPONFORK => {
                Advice::Unsupported
            }
            _ => return None,
        })
    }
}
