//! The current program's memory, as seen by system calls.
//!
//! Program addresses are never dereferenced: the manager walks the program's tables, faults pages in as the program's own access would, and
//! copies through the direct map. So the kernel takes no page faults, and SMAP need never be lifted.

use alloc::vec::Vec;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::Access;
use foldspace::{Object, VirtAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errno::Errno;
use crate::fs::userfault;
use crate::process::keys;
use crate::sched;

/// An address that a program gave: nothing is known about it.
pub type UserAddr = u64;

/// Copies `out.len()` bytes from the program. `EFAULT` if one of them cannot be read.
pub fn read_bytes(address: UserAddr, out: &mut [u8]) -> Result<(), Errno> {
    if read_some(address, out) == out.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies bytes to the program. `EFAULT` if one of them cannot be written; those before it may have been.
pub fn write_bytes(address: UserAddr, bytes: &[u8]) -> Result<(), Errno> {
    if write_some(address, bytes) == bytes.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies from the program until a byte cannot be read; returns how many could.
pub fn read_some(address: UserAddr, out: &mut [u8]) -> usize {
    if out.is_empty() {
        return 0;
    }
    let len = if keys::in_use() { keys::allowed(address, out.len(), Access::Read) } else { out.len() };
    let out = &mut out[..len];
    let done = sched::with_space(|space| space.read(VirtAddr(address), out)).unwrap_or(0);
    if done < out.len() {
        userfault::note_kernel_access(address.wrapping_add(done as u64), Access::Read);
    }
    done
}

/// Copies to the program until a byte cannot be written; returns how many could.
pub fn write_some(address: UserAddr, bytes: &[u8]) -> usize {
    let len = if keys::in_use() { keys::allowed(address, bytes.len(), Access::Write) } else { bytes.len() };
    write_whatever_key(address, &bytes[..len])
}

/// The same where no protection key matters: for signal frames, which go to a stack that its thread may not write to by itself.
pub fn write_whatever_key(address: UserAddr, bytes: &[u8]) -> usize {
    if bytes.is_empty() {
        return 0;
    }
    let done = sched::with_space(|space| space.write(VirtAddr(address), bytes)).unwrap_or(0);
    if done < bytes.len() {
        userfault::note_kernel_access(address.wrapping_add(done as u64), Access::Write);
    }
    done
}

/// Copies `len` bytes of an object to the program until its end or a byte that cannot be written; returns how many could.
pub fn write_from(address: UserAddr, object: &Object, offset: u64, len: usize) -> Result<usize, Errno> {
    let len = if keys::in_use() { keys::allowed(address, len, Access::Write) } else { len };
    let done = sched::with_space(|space| space.write_from(VirtAddr(address), object, offset, len)).unwrap_or(Ok(0))?;
    if done < len && offset.saturating_add(done as u64) < object.len() {
        userfault::note_kernel_access(address.wrapping_add(done as u64), Access::Write);
    }
    Ok(done)
}

/// Reads a value from the program. Its address need not be aligned.
pub fn read<T: FromBytes + IntoBytes>(address: UserAddr) -> Result<T, Errno> {
    let mut value = T::new_zeroed();
    read_bytes(address, value.as_mut_bytes())?;
    Ok(value)
}

/// Writes a value to the program. Its address need not be aligned.
pub fn write<T: IntoBytes + Immutable>(address: UserAddr, value: &T) -> Result<(), Errno> {
    write_bytes(address, value.as_bytes())
}

/// Reads bytes up to a NUL, which is left out. `ENAMETOOLONG` if there is none among the first `max`.
pub fn read_cstr(address: UserAddr, max: usize) -> Result<Vec<u8>, Errno> {
    /// Few strings are longer.
    const CHUNK: usize = 64;
    let mut text = Vec::new();
    let mut at = address;
    while text.len() < max {
        // Never across a page boundary: the next page may be missing and not be needed.
        let to_boundary = (PAGE_SIZE - at % PAGE_SIZE) as usize;
        let len = CHUNK.min(to_boundary).min(max - text.len());
        let mut chunk = [0; CHUNK];
        read_bytes(at, &mut chunk[..len])?;
        let part = &chunk[..len];
        let end = part.iter().position(|&byte| byte == 0);
        text.try_reserve(len).map_err(|_| Errno::ENOMEM)?;
        text.extend_from_slice(&part[..end.unwrap_or(len)]);
        if end.is_some() {
            return Ok(text);
        }
        at = at.checked_add(len as u64).ok_or(Errno::EFAULT)?;
    }
    Err(Errno::ENAMETOOLONG)
}
