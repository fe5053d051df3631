//! mmap: from six numbers to a request of the memory manager.
//!
//! The checks come in the order of Linux's `do_mmap` (`mm/mmap.c`): huge pages, length, place, lock limit, kind and rights. Where the place is found only by asking for
//! it, that is done once the rest has been refused: then a place that would have been refused first is what counts.

use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::abi;
use crate::caller::{Caller, Capability, Content, OpenFile, OpenRights, Reserve};
use crate::errno::Errno;
use crate::keys::execute_only;
use crate::mprotect::access;
use crate::populate::populate_mapping;
use crate::range::{PAGE, TASK_SIZE, is_aligned, page_align};
use crate::refpage;

/// What mprotect may set.
const MAY_ALL: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);

/// mmap(2), and `MAP_REFPAGE`. Returns the address.
///
/// # Errors
///
/// As mmap(2) says; where several apply, the one that Linux 6.18 finds first. `MAP_REFPAGE`: `EINVAL` unless private, or with a page that is misaligned;
/// `EFAULT`: that page cannot be read.
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
    let anonymous = flags & (abi::MAP_ANONYMOUS | abi::MAP_REFPAGE) != 0;
    let file = if anonymous { None } else { Some(caller.open_file(fd)?) };
    let huge = huge_page(flags)?;
    if huge.is_some() && !anonymous {
        return Err(Errno::EINVAL);
    }
    let len = match huge {
        Some(page) => len.wrapping_add(page - 1) & !(page - 1),
        None => len,
    };
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    let len = page_align(len);
    if len == 0 || len > TASK_SIZE {
        return Err(Errno::ENOMEM);
    }
    let placement = placement(caller, address, len, flags, huge.unwrap_or(PAGE))?;
    let source = match (&file, huge) {
        (Some(file), _) => of_file(file, len, prot, flags, offset),
        (None, Some(_)) => of_huge_pages(len, prot, flags, offset),
        (None, None) => of_nothing(caller, flags, offset),
    };
    let (content, mut vma) = match source {
        Ok(source) if huge.is_none() => source,
        refused => {
            caller.space().find_place(placement, len, &Backing::Anonymous)?;
            may_lock(caller.space(), len, flags)?;
            refused?;
            return Err(no_huge_pages(caller, placement, len, offset.is_multiple_of(huge.unwrap_or(PAGE))));
        }
    };
    let locked = flags & abi::MAP_LOCKED != 0;
    if locked && caller.space().with_layout(|layout| layout.lock_limit) == 0 {
        // If there is a place.
        caller.space().find_place(placement, len, &Backing::Anonymous)?;
        return Err(Errno::EPERM);
    }
    vma |= access(prot);
    if vma.contains(VmaFlags::WRITE | VmaFlags::EXEC) && caller.refuses_exec_gain() {
        // If there is a place.
        caller.space().find_place(placement, len, &Backing::Anonymous)?;
        return Err(Errno::EACCES);
    }
    vma.set(VmaFlags::LOCKED, locked);
    vma.set(VmaFlags::GROWS_DOWN, flags & abi::MAP_GROWSDOWN != 0);
    vma.set(VmaFlags::NO_RESERVE, vma.contains(VmaFlags::NO_RESERVE) || flags & abi::MAP_NORESERVE != 0);
    // Since 6.7: a stack of huge pages would be mostly unused.
    vma.set(VmaFlags::NO_HUGE_PAGE, flags & abi::MAP_STACK != 0);
    let (backing, page_offset) = match content {
        Content::Object(object) => {
            vma.set(VmaFlags::UNLINKED, object.is_unlinked());
            if object.is_secret() {
                // `secretmem_mmap`; that it is locked is held against the limit when it is mapped.
                if !vma.contains(VmaFlags::SHARED) {
                    return Err(Errno::EINVAL);
                }
                vma |= VmaFlags::SECRET | VmaFlags::LOCKED | VmaFlags::DONT_DUMP;
            }
            (Backing::Object(object), offset / PAGE)
        }
        Content::Zeros | Content::ZerosOf(_) if vma.contains(VmaFlags::SHARED) => {
            let reserve = if vma.contains(VmaFlags::NO_RESERVE) { Reserve::No } else { Reserve::Yes };
            let object = caller.shared_memory(len, reserve);
            (Backing::Object(object.inspect_err(|_| leave_gap(caller, placement, len))?), 0)
        }
        Content::Zeros => (Backing::Anonymous, 0),
        Content::ZerosOf(reference) => (Backing::Reference(reference), offset / PAGE),
        Content::Pattern(reference) => (Backing::Reference(reference), 0),
        Content::Unmappable => return Err(Errno::ENODEV),
    };
    let start = caller.space().map(MapRequest { placement, len, flags: vma, backing, page_offset })?;
    if access(prot) == VmaFlags::EXEC
        && let Some(key) = execute_only(caller)
        && let Some(range) = PageRange::from_len(start, len)
    {
        // Without memory for it, it can be read as well: a key is an extra.
        let _ = caller.space().protect_with_key(range, VmaFlags::EXEC, key);
    }
    populate_new(caller, start, len, flags);
    Ok(start.get())
}

/// Faults in what is to be there at once: by `MAP_POPULATE`, or since it is locked.
fn populate_new(caller: &impl Caller, start: VirtAddr, len: u64, flags: u64) {
    let asked = flags & (abi::MAP_POPULATE | abi::MAP_NONBLOCK) == abi::MAP_POPULATE;
    // What is locked only as it is touched is passed over, unless it cannot be locked.
    let locked = || caller.space().with_layout(|layout| layout.future_lock).contains(VmaFlags::LOCKED);
    if (asked || flags & abi::MAP_LOCKED != 0 || locked())
        && let Some(range) = PageRange::from_len(start, len)
    {
        populate_mapping(caller, range);
    }
}

/// What Linux says of the lock before it looks at the kind of a mapping.
fn may_lock(space: &AddressSpace, len: u64, flags: u64) -> Result<(), Errno> {
    let layout = space.layout();
    let wanted = flags & abi::MAP_LOCKED != 0;
    if wanted && layout.lock_limit == 0 {
        return Err(Errno::EPERM);
    }
    let locked = space.vmas().view().summary().totals.pages.locked.saturating_mul(PAGE).saturating_add(len);
    if (wanted || layout.future_lock.contains(VmaFlags::LOCKED)) && locked > layout.lock_limit {
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

/// Where the mapping is to go, with the checks of a fixed address (`__get_unmapped_area`), which must be a multiple of `page`.
fn placement(caller: &impl Caller, address: u64, len: u64, flags: u64, page: u64) -> Result<Placement, Errno> {
    let lowest = caller.space().memory().lowest_address();
    if flags & (abi::MAP_FIXED | abi::MAP_FIXED_NOREPLACE) == 0 {
        // A hint too low is moved up (`round_hint_to_min`).
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
    if page > PAGE && !address.is_multiple_of(page) {
        return Err(Errno::EINVAL);
    }
    // Linux takes such an address for the error that it looks like, before it finds it too high.
    if let Some(errno) = u16::try_from(address.wrapping_neg()).ok().and_then(Errno::new) {
        return Err(errno);
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

/// The size of the huge pages that are wanted, if any are. `EINVAL`: x86 has none of that size.
fn huge_page(flags: u64) -> Result<Option<u64>, Errno> {
    if flags & abi::MAP_HUGETLB == 0 {
        return Ok(None);
    }
    match flags >> abi::MAP_HUGE_SHIFT & abi::MAP_HUGE_MASK {
        // The default.
        0 => Ok(Some(1 << 21)),
        shift @ (21 | 30) => Ok(Some(1 << shift)),
        // A file is looked at before the size is.
        _ if flags & abi::MAP_ANONYMOUS == 0 => Ok(Some(PAGE)),
        _ => Err(Errno::EINVAL),
    }
}

/// The checks of huge pages: those of a file, since Linux makes one for them.
fn of_huge_pages(len: u64, prot: u64, flags: u64, offset: u64) -> Result<(Content, VmaFlags), Errno> {
    let rights = OpenRights::READ | OpenRights::WRITE | OpenRights::EXECUTE;
    of_file(&OpenFile { content: Content::Zeros, rights, max_len: i64::MAX as u64 }, len, prot, flags, offset)
}

/// Huge pages come from a pool, and it is empty, as on a Linux that nobody configured.
fn no_huge_pages(caller: &impl Caller, placement: Placement, len: u64, aligned: bool) -> Errno {
    leave_gap(caller, placement, len);
    if aligned { Errno::ENOMEM } else { Errno::EINVAL }
}

/// What Linux leaves of the old mappings if it finds out only while making the new one that it cannot (`vms_abort_munmap_vmas` in mm/vma.h):
/// nothing.
fn leave_gap(caller: &impl Caller, placement: Placement, len: u64) {
    if let Placement::Fixed(start) = placement
        && let Some(range) = PageRange::from_len(start, len)
    {
        // Refused: then the old mappings stay, for lack of memory for it.
        let _ = caller.space().unmap(range);
    }
}

/// What a mapping of no file shows, and its flags.
fn of_nothing(caller: &impl Caller, flags: u64, offset: u64) -> Result<(Content, VmaFlags), Errno> {
    let grows = flags & abi::MAP_GROWSDOWN != 0;
    let kind = flags & abi::MAP_TYPE;
    if flags & abi::MAP_REFPAGE != 0 {
        return match kind {
            abi::MAP_PRIVATE if !grows => Ok((Content::Pattern(refpage::page_at(caller, offset)?), MAY_ALL)),
            _ => Err(Errno::EINVAL),
        };
    }
    let kind = match kind {
        abi::MAP_PRIVATE => VmaFlags::empty(),
        abi::MAP_SHARED if !grows => VmaFlags::SHARED,
        abi::MAP_DROPPABLE if !grows && flags & abi::MAP_LOCKED == 0 => {
            VmaFlags::DROPPABLE | VmaFlags::NO_RESERVE | VmaFlags::WIPE_ON_FORK | VmaFlags::DONT_DUMP
        }
        _ => return Err(Errno::EINVAL),
    };
    Ok((Content::Zeros, MAY_ALL | kind))
}

/// What a mapping of a file shows, and its flags.
fn of_file(file: &OpenFile, len: u64, prot: u64, flags: u64, offset: u64) -> Result<(Content, VmaFlags), Errno> {
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
    let writes = shared && prot & abi::PROT_WRITE != 0;
    if writes && !has(OpenRights::WRITE)
        || shared && has(OpenRights::WRITE | OpenRights::APPEND_ONLY)
        || !has(OpenRights::READ)
    {
        return Err(Errno::EACCES);
    }
    let mut vma = MAY_ALL;
    if !has(OpenRights::EXECUTE) {
        if prot & abi::PROT_EXEC != 0 {
            return Err(Errno::EPERM);
        }
        vma.remove(VmaFlags::MAY_EXEC);
    }
    if matches!(file.content, Content::Unmappable) {
        return Err(Errno::ENODEV);
    }
    if flags & abi::MAP_GROWSDOWN != 0 || shared && matches!(file.content, Content::Pattern(_)) {
        return Err(Errno::EINVAL);
    }
    if shared {
        // F_SEAL_WRITE or F_SEAL_FUTURE_WRITE.
        let sealed = matches!(&file.content, Content::Object(object) if object.is_sealed());
        if writes && sealed {
            return Err(Errno::EPERM);
        }
        vma |= VmaFlags::SHARED;
        vma.set(VmaFlags::MAY_WRITE, has(OpenRights::WRITE) && !sealed);
        vma.set(VmaFlags::WRITE_SEALED, has(OpenRights::WRITE) && sealed);
    }
    Ok((file.content.clone(), vma))
}
