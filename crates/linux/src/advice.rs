//! madvise.

use foldspace::space::{Access, Advice as Noted};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, PageRange};
use linux_raw_sys::general as raw;

use crate::caller::Caller;
use crate::errno::Errno;
use crate::memory_failure::{Failure, inject};
use crate::populate::populate;
use crate::range::{PAGE, in_user_half, is_aligned, is_mapped, page_align};

/// madvise(2).
///
/// # Errors
///
/// `EINVAL`: unknown advice, misaligned, a length that wraps, or memory that the advice is not for. `ENOMEM`: a hole; what is mapped around it is advised all the same.
/// `EPERM`, `EFAULT`, `EBUSY`: memory that is said to have failed, by whoever may not say so, or that cannot be had.
pub fn madvise(caller: &impl Caller, address: u64, len: u64, advice: i32) -> Result<(), Errno> {
    advise(caller, caller.space(), address, len, advice)
}

/// [`madvise`] about the memory of `space`, which need not be the caller's.
pub(crate) fn advise(
    caller: &impl Caller,
    space: &AddressSpace,
    address: u64,
    len: u64,
    advice: i32,
) -> Result<(), Errno> {
    // Linux's order: `is_valid_madvise` in mm/madvise.c.
    let advice = Advice::of(advice).ok_or(Errno::EINVAL)?;
    if !is_aligned(address) {
        return Err(Errno::EINVAL);
    }
    let rounded = page_align(len);
    let end = address.wrapping_add(rounded);
    if rounded == 0 && len != 0 || end < address {
        return Err(Errno::EINVAL);
    }
    if end == address {
        return Ok(());
    }
    in_user_half(address, end, |range| advice.give(caller, space, range))
}

/// What advice means here.
enum Advice {
    /// It is noted, and looked at later.
    Note(Noted),
    /// Nothing.
    Nothing,
    /// Private memory starts afresh.
    Discard,
    /// Locked memory too.
    DiscardLocked,
    /// Private memory need not keep its content.
    Free,
    /// It is not needed soon.
    Cold,
    /// It is not needed for long.
    PageOut,
    /// A hole in the file.
    Remove,
    /// Pages are touched at once.
    Populate(Access),
    /// Pages become inaccessible.
    InstallGuards,
    /// They are accessible again.
    RemoveGuards,
    /// Memory fails.
    Fail(Failure),
}

impl Advice {
    fn of(number: i32) -> Option<Advice> {
        Some(match number as u32 {
            raw::MADV_NORMAL => Advice::Note(Noted::Normal),
            raw::MADV_RANDOM => Advice::Note(Noted::Random),
            raw::MADV_SEQUENTIAL => Advice::Note(Noted::Sequential),
            raw::MADV_DONTFORK => Advice::Note(Noted::DontFork),
            raw::MADV_DOFORK => Advice::Note(Noted::DoFork),
            raw::MADV_WIPEONFORK => Advice::Note(Noted::WipeOnFork),
            raw::MADV_KEEPONFORK => Advice::Note(Noted::KeepOnFork),
            raw::MADV_DONTDUMP => Advice::Note(Noted::DontDump),
            raw::MADV_DODUMP => Advice::Note(Noted::DoDump),
            raw::MADV_HUGEPAGE => Advice::Note(Noted::HugePage),
            raw::MADV_NOHUGEPAGE => Advice::Note(Noted::NoHugePage),
            raw::MADV_MERGEABLE => Advice::Note(Noted::Mergeable),
            raw::MADV_UNMERGEABLE => Advice::Note(Noted::Unmergeable),
            // Everything is where it is needed.
            raw::MADV_WILLNEED => Advice::Nothing,
            raw::MADV_DONTNEED => Advice::Discard,
            raw::MADV_DONTNEED_LOCKED => Advice::DiscardLocked,
            raw::MADV_FREE => Advice::Free,
            raw::MADV_COLD => Advice::Cold,
            raw::MADV_PAGEOUT => Advice::PageOut,
            raw::MADV_REMOVE => Advice::Remove,
            raw::MADV_POPULATE_READ => Advice::Populate(Access::Read),
            raw::MADV_POPULATE_WRITE => Advice::Populate(Access::Write),
            raw::MADV_HWPOISON => Advice::Fail(Failure::Now),
            raw::MADV_SOFT_OFFLINE => Advice::Fail(Failure::Soon),
            raw::MADV_GUARD_INSTALL => Advice::InstallGuards,
            raw::MADV_GUARD_REMOVE => Advice::RemoveGuards,
            _ => return None,
        })
    }

    fn give(&self, caller: &impl Caller, space: &AddressSpace, range: PageRange) -> Result<(), Errno> {
        let given = match self {
            Advice::Note(note) => {
                return space.advise(range, *note).map_err(|error| match error {
                    Error::OutOfMemory | Error::TooManyVmas => Errno::EAGAIN,
                    error => error.into(),
                });
            }
            Advice::Nothing if is_mapped(space, range) => Ok(()),
            Advice::Nothing => Err(Error::NotMapped),
            Advice::Discard => space.discard(range),
            Advice::DiscardLocked => space.discard_locked(range),
            Advice::Free => space.free(range),
            Advice::Cold => space.cold(range),
            Advice::PageOut => space.pageout(range),
            Advice::Remove => return remove(space, range),
            Advice::Fail(failure) => return inject(caller, space, range, *failure),
            Advice::Populate(access) => return populate(caller, space, range, *access),
            Advice::InstallGuards => space.guard_install(range),
            Advice::RemoveGuards => space.guard_remove(range),
        };
        given.map_err(|error| match error {
            // Locked memory.
            Error::AccessDenied => Errno::EINVAL,
            error => error.into(),
        })
    }
}

/// `MADV_REMOVE`: holes in what shared mappings show (`madvise_remove` in mm/madvise.c).
fn remove(space: &AddressSpace, range: PageRange) -> Result<(), Errno> {
    let version = space.vmas();
    let (mut reached, mut holes) = (range.start(), false);
    for vma in version.view().range(range) {
        let Some(part) = vma.range.intersect(range) else { continue };
        holes |= part.start() > reached;
        reached = part.end();
        let Backing::Object(object) = &vma.backing else {
            let sealed = vma.flags & (VmaFlags::SEALED | VmaFlags::WRITE) == VmaFlags::SEALED;
            return Err(if sealed { Errno::EPERM } else { Errno::EINVAL });
        };
        if vma.flags.contains(VmaFlags::LOCKED) {
            return Err(Errno::EINVAL);
        }
        if !vma.flags.contains(VmaFlags::SHARED | VmaFlags::MAY_WRITE) {
            return Err(Errno::EACCES);
        }
        let start = vma.slice(part).page_offset.checked_mul(PAGE).ok_or(Errno::EFBIG)?;
        let end = start.checked_add(part.len()).ok_or(Errno::EFBIG)?;
        object.punch_hole(start..end)?;
    }
    if holes || reached < range.end() { Err(Errno::ENOMEM) } else { Ok(()) }
}
