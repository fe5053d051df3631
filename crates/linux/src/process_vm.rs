//! process_vm_readv and process_vm_writev: copies between two address spaces.

use core::ops::Deref;

use foldspace::addr::PAGE_SIZE;
use foldspace::{AddressSpace, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::vector::{IoVec, total};

/// Bytes on their way at a time: on the stack, which may be a kernel's.
const CHUNK: u64 = 1024;

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
    copy(caller, vectors, flags, find, |local, here, remote, there, bytes| {
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
    copy(caller, vectors, flags, find, |local, here, remote, there, bytes| {
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
        let mut at = 0;
        while at < len {
            while here.len == 0 {
                match local.next() {
                    Some(next) => here = next,
                    None => return Ok(done),
                }
            }
            let there = base.wrapping_add(at);
            let want = CHUNK.min(PAGE_SIZE - there % PAGE_SIZE).min(len - at).min(here.len);
            let buffer = &mut buffer[..want as usize];
            let moved = match other.vmas().view().find(VirtAddr(there)) {
                Some(_) => step(own, VirtAddr(here.base), &other, VirtAddr(there), buffer) as u64,
                // Nobody else's stack grows for this.
                None => 0,
            };
            (here.base, here.len) = (here.base + moved, here.len - moved);
            (at, done) = (at + moved, done + moved);
            if moved < want || caller.is_being_killed() {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
    }
    Ok(done)
}
