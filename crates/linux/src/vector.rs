//! Arrays of ranges that programs give (`struct iovec`).

use foldspace::{AddressSpace, VirtAddr};
use smallvec::SmallVec;

use crate::errno::Errno;
use crate::range::is_user;

/// Most ranges in an array (`UIO_MAXIOV`).
pub const MAX_VECTORS: u64 = 1024;
/// Most bytes that one call moves (`MAX_RW_COUNT`): 2 GiB without a page.
pub const MAX_BYTES: u64 = 0x7fff_f000;

/// `struct iovec`: a range as a program gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoVec {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// An array of them: few need the heap.
pub type IoVecs = SmallVec<[IoVec; AT_HAND]>;

/// Ranges that are read at a time.
const AT_HAND: usize = 8;

impl IoVec {
    /// Bytes that one takes in an array.
    const SIZE: u64 = 16;

    /// The array of `count` ranges at `address`, as it is (`iovec_from_user` in `lib/iov_iter.c`): ranges of another address space.
    ///
    /// # Errors
    ///
    /// `EINVAL`: too many, or one that is longer than a signed number says. `EFAULT`: not readable. `ENOMEM`.
    pub fn read(space: &AddressSpace, address: u64, count: u64) -> Result<IoVecs, Errno> {
        if count > MAX_VECTORS {
            return Err(Errno::EINVAL);
        }
        let mut vectors = IoVecs::new();
        vectors.try_reserve_exact(count as usize).map_err(|_| Errno::ENOMEM)?;
        if count > 0 && !is_user(address, count * IoVec::SIZE) {
            return Err(Errno::EFAULT);
        }
        let mut bytes = [0; AT_HAND * IoVec::SIZE as usize];
        while (vectors.len() as u64) < count {
            let done = vectors.len() as u64;
            let part = (count - done).min(AT_HAND as u64) * IoVec::SIZE;
            let bytes = &mut bytes[..part as usize];
            let got = space.read(VirtAddr(address + done * IoVec::SIZE), bytes);
            for vector in bytes[..got].chunks_exact(IoVec::SIZE as usize) {
                let (base, len) = vector.split_at(8);
                let vector = IoVec { base: number(base), len: number(len) };
                if vector.len > i64::MAX as u64 {
                    return Err(Errno::EINVAL);
                }
                vectors.push(vector);
            }
            if got < bytes.len() {
                return Err(Errno::EFAULT);
            }
        }
        Ok(vectors)
    }

    /// The same for ranges of the address space itself (`import_iovec`): all of them in the user half, cut to [`MAX_BYTES`] together. Of `count` only the
    /// lower 32 bits are looked at, as there.
    ///
    /// # Errors
    ///
    /// As [`IoVec::read`]; `EFAULT`: one leaves the user half.
    pub fn import(space: &AddressSpace, address: u64, count: u64) -> Result<IoVecs, Errno> {
        let mut vectors = IoVec::read(space, address, count & u64::from(u32::MAX))?;
        let single = vectors.len() == 1;
        let mut total = 0;
        for vector in &mut vectors {
            // A single range is cut before it is looked at.
            let looked_at = if single { vector.len.min(MAX_BYTES) } else { vector.len };
            if !is_user(vector.base, looked_at) {
                return Err(Errno::EFAULT);
            }
            vector.len = vector.len.min(MAX_BYTES - total);
            total += vector.len;
        }
        Ok(vectors)
    }
}

/// Bytes in all of them.
pub(crate) fn total(vectors: &[IoVec]) -> u64 {
    vectors.iter().map(|vector| vector.len).fold(0, u64::saturating_add)
}

/// Eight bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}
