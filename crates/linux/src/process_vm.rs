//! process_vm_readv and process_vm_writev: copies between two address spaces.

use core::ops::Deref;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::Access;
use foldspace::{AddressSpace, PageRange, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, TASK_SIZE, page_align};
use crate::vector::{IoVec, total};

/// Bytes on their way at a time: on the stack, which may be a kernel's.
const CHUNK: u64 = 1024;

/// Bytes of the other address space that are brought into memory at a time (`PVM_MAX_KMALLOC_PAGES` in `mm/process_vm_access.c`).
const AHEAD: u64 = 1024 * PAGE;

/// Where the two arrays of ranges are, in the caller's memory.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    /// Address of the caller's own ranges.
    pub local: u64,
    /// How many there are.
    pub local_count: u64,
    /// Address of the other's.
    pub remote: u64,
    /// How many there are.
    pub remote_count: u64,
}

/// process_vm_readv(2): copies from the address space that `find` finds, once the arguments have been checked, to the caller's. Returns the bytes.
///
/// # Errors
///
/// `EINVAL`: flags, or arrays that are too long. `EFAULT`: an array that cannot be read, or not even one byte could be copied. What `find` says.
pub fn process_vm_readv<S: Deref<Target = AddressSpace>>(
    caller: &impl Caller,
    vectors: Vectors,
    flags: u64,
    find: impl FnOnce() -> Result<S, Errno>,
) -> Result<u64, Errno> {
    copy(caller, vectors, flags, find, Access::Read, |local, here, remote, there, bytes| {
        let got = remote.read(there, bytes);
        local.write(here, &bytes[..got])
    })
}

/// process_vm_writev(2): the other way.
///
/// # Errors
///
/// As [`process_vm_readv`].
pub fn process_vm_writev<S: Deref<Target = AddressSpace>>(
    caller: &impl Caller,
    vectors: Vectors,
    flags: u64,
    find: impl FnOnce() -> Result<S, Errno>,
) -> Result<u64, Errno> {
    copy(caller, vectors, flags, find, Access::Write, |local, here, remote, there, bytes| {
        let got = local.read(here, bytes);
        remote.write(there, &bytes[..got])
    })
}

/// Moves pieces that cross no page boundary of the other address space, until either side is at its end or cannot be reached. `step` moves one and says how
/// many bytes it was. Errors in the order of Linux's `mm/process_vm_access.c`; once a byte has been moved, there are none.
fn copy<S: Deref<Target = AddressSpace>>(
    caller: &impl Caller,
    vectors: Vectors,
    flags: u64,
    find: impl FnOnce() -> Result<S, Errno>,
    access: Access,
    step: impl Fn(&AddressSpace, VirtAddr, &AddressSpace, VirtAddr, &mut [u8]) -> usize,
) -> Result<u64, Errno> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let own = caller.space();
    let local = IoVec::import(own, vectors.local, vectors.local_count)?;
    if total(&local) == 0 {
        return Ok(0);
    }
    let remote = IoVec::read(own, vectors.remote, vectors.remote_count)?;
    if total(&remote) == 0 {
        return Ok(0);
    }
    let other = find()?;
    let mut buffer = [0; CHUNK as usize];
    let (mut local, mut here) = (local.into_iter(), IoVec { base: 0, len: 0 });
    let mut done = 0;
    for IoVec { base, len } in remote {
        let (mut at, mut ready) = (0, 0);
        while at < len {
            if at == ready {
                ready += touch(caller, &other, base.wrapping_add(at), AHEAD.min(len - at), access);
            }
            while here.len == 0 {
                match local.next() {
                    Some(next) => here = next,
                    None => return Ok(done),
                }
            }
            let there = base.wrapping_add(at);
            let want = CHUNK.min(PAGE_SIZE - there % PAGE_SIZE).min(ready - at).min(here.len);
            let buffer = &mut buffer[..want as usize];
            let moved =
                if want > 0 { step(own, VirtAddr(here.base), &other, VirtAddr(there), buffer) as u64 } else { 0 };
            (here.base, here.len) = (here.base + moved, here.len - moved);
            (at, done) = (at + moved, done + moved);
            if moved < want || want == 0 || caller.is_being_killed() {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
    }
    Ok(done)
}

/// Brings pages of the other address space into memory before any of them is copied, up to the first that cannot be had: Linux pins as many at a time,
/// and they stay where they are whatever comes of the copy. Nobody else's stack grows for this. Returns how many bytes are there.
fn touch(caller: &impl Caller, other: &AddressSpace, base: u64, len: u64, access: Access) -> u64 {
    let end = page_align(base.saturating_add(len)).min(TASK_SIZE);
    let Some(range) = PageRange::new(VirtAddr(base & !(PAGE - 1)), VirtAddr(end)) else { return 0 };
    let populate = |range| other.populate(range, access, &mut || caller.is_being_killed()).is_ok();
    if populate(range) {
        return len.min(end - base);
    }
    let pages = (range.start().get()..end).step_by(PAGE as usize);
    let had =
        pages.map_while(|page| PageRange::from_len(VirtAddr(page), PAGE)).take_while(|page| populate(*page)).last();
    had.map_or(0, |page| page.end().get() - base)
}
