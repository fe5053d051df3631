//! Memory that files must leave to programs and to the kernel itself, which cannot go on without any.

use alloc::vec::Vec;

use foldspace::addr::PAGE_SIZE;

use crate::errno::Errno;
use crate::mm;

/// The part of the memory that is left free: one of so many.
const PART: u64 = 64;

/// `otherwise` if files, names, or bytes on their way must not take more memory now.
pub fn check(otherwise: Errno) -> Result<(), Errno> {
    let stats = mm::memory().stats();
    if stats.free < stats.total / PART { Err(otherwise) } else { Ok(()) }
}

/// `ENOMEM` if the heap lives on its reserve: what is made only to be shown or handed over can wait, and what ends processes cannot.
pub fn check_heap() -> Result<(), Errno> {
    if mm::is_scarce() { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// An empty vector with room for so many, which a program has named. `ENOMEM`; for more than a page already when the heap lives on its reserve.
pub fn room_for<T>(count: usize) -> Result<Vec<T>, Errno> {
    if count.saturating_mul(size_of::<T>()) > PAGE_SIZE as usize {
        check_heap()?;
    }
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    Ok(all)
}
