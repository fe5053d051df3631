//! Memory that files must leave to programs and to the kernel itself, which cannot go on without any.

use crate::errno::Errno;
use crate::mm;

/// The part of the memory that is left free: one of so many.
const PART: u64 = 64;

/// `otherwise` if files, names, or bytes on their way must not take more memory now.
pub fn check(otherwise: Errno) -> Result<(), Errno> {
    let stats = mm::memory().stats();
    if stats.free < stats.total / PART { Err(otherwise) } else { Ok(()) }
}
