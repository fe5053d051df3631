//! mincore.

use foldspace::VirtAddr;

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, is_aligned, is_user};

/// Pages that are answered for at a time.
const CHUNK: u64 = PAGE;

/// mincore(2). Everything that is mapped counts as in memory, since there is no swap: a page that was not touched yet needs no reading from anywhere either.
///
/// # Errors
///
/// `EINVAL`: misaligned. `ENOMEM`: a hole (what comes before it is answered), or beyond the user half. `EFAULT`: the vector cannot be written.
pub fn mincore(caller: &impl Caller, address: u64, len: u64, vector: u64) -> Result<(), Errno> {
    // Linux's order: mm/mincore.c.
    if !is_aligned(address) {
        return Err(Errno::EINVAL);
    }
    if !is_user(address, len) {
        return Err(Errno::ENOMEM);
    }
    let pages = len.div_ceil(PAGE);
    if !is_user(vector, pages) {
        return Err(Errno::EFAULT);
    }
    let ones = [1; 256];
    let mut done = 0;
    while done < pages {
        let at = VirtAddr(address + done * PAGE);
        let end = caller.space().vmas().view().find(at).ok_or(Errno::ENOMEM)?.end();
        let part = (pages - done).min(CHUNK).min((end.get() - at.get()) / PAGE).min(ones.len() as u64);
        if caller.space().write(VirtAddr(vector + done), &ones[..part as usize]) < part as usize {
            return Err(Errno::EFAULT);
        }
        done += part;
    }
    Ok(())
}
