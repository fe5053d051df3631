//! mincore.

use foldspace::{Error, PageRange, VirtAddr};

use crate::caller::Caller;
use crate::errno::Errno;
use crate::range::{PAGE, TASK_SIZE, is_aligned, is_user};

/// mincore(2): a byte for each page, 1 if it is in memory.
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
    // An answer is given out VMA by VMA, and in parts of no more than this.
    let mut answer = [0; PAGE as usize];
    let (mut done, space) = (0, caller.space());
    while done < pages {
        let part = (pages - done).min(PAGE) as usize;
        let start = VirtAddr(address + done * PAGE);
        let rest = PageRange::new(start, VirtAddr(TASK_SIZE)).ok_or(Errno::ENOMEM)?;
        let answered = space.mincore(rest, &mut answer[..part]).map_err(|error| match error {
            Error::NotMapped => Errno::ENOMEM,
            error => error.into(),
        })?;
        if space.write(VirtAddr(vector + done), &answer[..answered]) < answered {
            return Err(Errno::EFAULT);
        }
        done += answered as u64;
        if caller.is_being_killed() {
            return Err(Errno::EINTR);
        }
    }
    Ok(())
}
