//! mmap: from six numbers to a request of the memory manager.
//!
//! The checks come in the order of Linux's `do_mmap` (`mm/mmap.c`): huge pages, length, place, lock limit, kind and rights. Where the place is found only by asking for
//! it, that is done once the rest has been refused: then a place that would have been refused first is what counts.

use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{PageRange, VirtAddr};

use crate::abi;
use crate::caller::{Caller, Capability, Content, OpenFile, OpenRights};
use crate::errno::Errno;
use crate::mprotect::access;
use crate::populate::populate_mapping;
use crate::range::{PAGE, TASK_SIZE, is_aligned, page_align};

/// What mprotect may set.
const MAY_ALL: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);

/// mmap(2). Returns the address.
///
/// # Errors
///
/// As mmap(2) says; where several apply, the one that Linux 6.18 finds first.
pub fn mmap(
    caller: &impl Caller,
    address: u64,
    len: u64,
    prot: u64,
    flags: u64,
    fd: i32,
    offset: u64,
) -> Result<u64, Errno> {
    if !is_aligned(offset) {
        return Err(Errno::EINVAL);
    }
    let anonymous = flags & abi::MAP_ANONYMOUS != 0;
    let huge = flags & abi::MAP_HUGETLB != 0;
    let file = if anonymous { None } else { Some(caller.open_file(fd)?) };
    let len = match (huge, anonymous) {
        (false, _) => len,
        (true, false) => return Err(Errno::EINVAL),
        (true, true) => huge_len(len, flags)?,
    };
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let len = page_align(len);
    if len == 0 || len > TASK_SIZE {
        return Err(Errno::ENOMEM);
    }
    let placement = placement(caller, address, len, flags)?;
    let mut vma = access(prot);
    vma.set(VmaFlags::GROWS_DOWN, flags & abi::MAP_GROWSDOWN != 0);
    vma.set(VmaFlags::NO_RESERVE, flags & abi::MAP_NORESERVE != 0);
    let kind = match &file {
        _ if huge => huge_pages(flags),
        Some(file) => of_file(file, len, prot, flags, offset),
        None => of_nothing(flags),
    };
    let kind = kind.or_else(|errno| {
        caller.space().find_place(placement, len, &Backing::Anonymous)?;
        Err(errno)
    })?;
    let content = file.map_or(Content::Zeros, |file| file.content);
    let (backing, page_offset) = match content {
        Content::Object(object) => (Backing::Object(object), offset / PAGE),
        Content::Zeros if kind.contains(VmaFlags::SHARED) => (Backing::Object(caller.shared_memory(len)?), 0),
        Content::Zeros => (Backing::Anonymous, 0),
        Content::Unmappable => return Err(Errno::ENODEV),
    };
    let start = caller.space().map(MapRequest { placement, len, flags: vma | kind, backing, page_offset })?;
    let populate = flags & (abi::MAP_POPULATE | abi::MAP_NONBLOCK) == abi::MAP_POPULATE;
    if (populate || flags & abi::MAP_LOCKED != 0)
        && let Some(range) = PageRange::from_len(start, len)
    {
        populate_mapping(caller, range);
    }
    Ok(start.get())
}

/// Where the mapping is to go, with the checks of a fixed address (`__get_unmapped_area`).
fn placement(caller: &impl Caller, address: u64, len: u64, flags: u64) -> Result<Placement, Errno> {
    let lowest = caller.space().memory().lowest_address();
    if flags & (abi::MAP_FIXED | abi::MAP_FIXED_NOREPLACE) == 0 {
        // A hint too low is moved up (`round_hint_to_min`); one that leaves the user half counts for none.
        let hint = match address & !(PAGE - 1) {
            0 => None,
            hint => Some(VirtAddr(hint).max(lowest)),
        };
        return Ok(match hint {
            _ if flags & abi::MAP_32BIT != 0 => Placement::Low(hint),
            Some(hint) => Placement::Hint(hint),
            None => Placement::Anywhere,
        });
    }
    if address > TASK_SIZE - len {
        return Err(Errno::ENOMEM);
    }
    if !is_aligned(address) {
        return Err(Errno::EINVAL);
    }
    let address = VirtAddr(address);
    if address < lowest && !caller.is_capable(Capability::RawIo) {
        return Err(Errno::EPERM);
    }
    Ok(match flags & abi::MAP_FIXED_NOREPLACE {
        0 => Placement::Fixed(address),
        _ => Placement::FixedNoReplace(address),
    })
}

/// A length in huge pages. `EINVAL`: x86 has none of that size.
fn huge_len(len: u64, flags: u64) -> Result<u64, Errno> {
    let shift = match flags >> abi::MAP_HUGE_SHIFT & abi::MAP_HUGE_MASK {
        0 | 21 => 21,
        30 => 30,
        _ => return Err(Errno::EINVAL),
    };
    let mask = (1 << shift) - 1;
    Ok(len.wrapping_add(mask) & !mask)
}

/// Huge pages come from a pool, and it is empty, as on a Linux that nobody configured.
fn huge_pages(flags: u64) -> Result<VmaFlags, Errno> {
    match flags & abi::MAP_TYPE {
        abi::MAP_SHARED | abi::MAP_PRIVATE if flags & abi::MAP_GROWSDOWN != 0 => Err(Errno::EINVAL),
        abi::MAP_SHARED | abi::MAP_PRIVATE | abi::MAP_SHARED_VALIDATE => Err(Errno::ENOMEM),
        _ => Err(Errno::EINVAL),
    }
}

/// The flags of a mapping of no file.
fn of_nothing(flags: u64) -> Result<VmaFlags, Errno> {
    let grows = flags & abi::MAP_GROWSDOWN != 0;
    match flags & abi::MAP_TYPE {
        abi::MAP_PRIVATE => Ok(MAY_ALL),
        abi::MAP_SHARED if !grows => Ok(MAY_ALL | VmaFlags::SHARED),
        // Memory that may be dropped under pressure: never dropping it is allowed.
        abi::MAP_DROPPABLE if !grows && flags & abi::MAP_LOCKED == 0 => Ok(MAY_ALL),
        _ => Err(Errno::EINVAL),
    }
}

/// The flags of a mapping of a file.
fn of_file(file: &OpenFile, len: u64, prot: u64, flags: u64, offset: u64) -> Result<VmaFlags, Errno> {
    let has = |right| file.rights.contains(right);
    if len > file.max_len || offset / PAGE > (file.max_len - len) / PAGE {
        return Err(Errno::EOVERFLOW);
    }
    let kind = flags & abi::MAP_TYPE;
    if kind == abi::MAP_SHARED_VALIDATE && flags & !abi::LEGACY_MAP_MASK != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let shared = match kind {
        abi::MAP_SHARED | abi::MAP_SHARED_VALIDATE => true,
        abi::MAP_PRIVATE => false,
        _ => return Err(Errno::EINVAL),
    };
    if shared && has(OpenRights::WRITE) && has(OpenRights::APPEND_ONLY) {
        return Err(Errno::EACCES);
    }
    if shared && prot & abi::PROT_WRITE != 0 && !has(OpenRights::WRITE) || !has(OpenRights::READ) {
        return Err(Errno::EACCES);
    }
    let mut may = MAY_ALL;
    if !has(OpenRights::EXECUTE) {
        if prot & abi::PROT_EXEC != 0 {
            return Err(Errno::EPERM);
        }
        may.remove(VmaFlags::MAY_EXEC);
    }
    if matches!(file.content, Content::Unmappable) {
        return Err(Errno::ENODEV);
    }
    if flags & abi::MAP_GROWSDOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if shared {
        may |= VmaFlags::SHARED;
        if has(OpenRights::WRITE_SEALED) && prot & abi::PROT_WRITE != 0 {
            return Err(Errno::EPERM);
        }
        may.set(VmaFlags::MAY_WRITE, has(OpenRights::WRITE) && !has(OpenRights::WRITE_SEALED));
    }
    Ok(may)
}
