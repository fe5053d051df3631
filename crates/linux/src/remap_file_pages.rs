//! remap_file_pages, as Linux emulates it since 4.0: a new mapping in place of the old one.

use foldspace::space::{MapRequest, Placement};
use foldspace::vma::{Backing, Vma, VmaFlags};
use foldspace::{PageRange, VirtAddr};

use crate::abi::MAP_NONBLOCK;
use crate::caller::Caller;
use crate::errno::Errno;
use crate::populate::populate_mapping;
use crate::range::PAGE;

/// What of a mapping's flags the new one has: the rest is advice, and begins afresh.
const KEPT: VmaFlags = VmaFlags::ACCESS
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC)
    .union(VmaFlags::SHARED)
    .union(VmaFlags::WRITE_SEALED)
    .union(VmaFlags::LOCKED);

/// remap_file_pages(2): shows from `page_offset` on what a shared mapping at `address` showed before.
///
/// # Errors
///
/// `EPERM`: it is locked, and nothing may be; or it may be written, and its file has been sealed. `EINVAL`: `prot` is not 0, a length that is empty or wraps, or no shared mapping, alike throughout. `EOVERFLOW`: beyond the largest file.
pub fn remap_file_pages(
    caller: &impl Caller,
    address: u64,
    len: u64,
    prot: u64,
    page_offset: u64,
    flags: u64,
) -> Result<(), Errno> {
    // Linux's order: mm/mmap.c.
    let (start, len) = (address & !(PAGE - 1), len & !(PAGE - 1));
    if prot != 0 || start.wrapping_add(len) <= start || page_offset.checked_add(len / PAGE).is_none() {
        return Err(Errno::EINVAL);
    }
    let space = caller.space();
    let version = space.vmas();
    let first = version.view().find(VirtAddr(start)).filter(|vma| is_shared(vma)).ok_or(Errno::EINVAL)?;
    let range = PageRange::from_len(VirtAddr(start), len).ok_or(Errno::EINVAL)?;
    let mut reached = range.start();
    for vma in version.view().range(range) {
        if vma.start() > reached || vma.flags != first.flags || !vma.backing.same(&first.backing) {
            return Err(Errno::EINVAL);
        }
        reached = vma.end();
    }
    if reached < range.end() {
        return Err(Errno::EINVAL);
    }
    let Backing::Object(object) = &first.backing else { return Err(Errno::EINVAL) };
    if first.flags.contains(VmaFlags::LOCKED) && space.with_layout(|layout| layout.lock_limit) == 0 {
        return Err(Errno::EPERM);
    }
    // No file reaches further than this on Linux, shared memory included.
    if page_offset > (i64::MAX as u64 - len) / PAGE {
        return Err(Errno::EOVERFLOW);
    }
    let mut kept = first.flags & KEPT;
    // As of any new mapping of a file that has been sealed since.
    if object.is_sealed() {
        if kept.contains(VmaFlags::WRITE) {
            return Err(Errno::EPERM);
        }
        kept.insert(VmaFlags::WRITE_SEALED);
        kept.remove(VmaFlags::MAY_WRITE);
    }
    // As of any mapping of a file that is made now.
    kept.set(VmaFlags::UNLINKED, object.is_unlinked());
    if object.is_secret() {
        kept |= VmaFlags::SECRET | VmaFlags::LOCKED | VmaFlags::DONT_DUMP;
    }
    space.map(MapRequest {
        placement: Placement::Fixed(range.start()),
        len,
        flags: kept,
        backing: Backing::Object(object.clone()),
        page_offset,
    })?;
    // What is locked is there, as what was locked before or as all that is mapped from now on.
    let locked = first.flags | space.with_layout(|layout| layout.future_lock);
    if flags & MAP_NONBLOCK == 0 || locked.contains(VmaFlags::LOCKED) {
        populate_mapping(caller, range);
    }
    Ok(())
}

/// Linux's `VM_SHARED`, which a file that is open for reading only does not give, and one that is sealed against writing does.
fn is_shared(vma: &Vma) -> bool {
    vma.flags.contains(VmaFlags::SHARED) && vma.flags.intersects(VmaFlags::MAY_WRITE | VmaFlags::WRITE_SEALED)
}
