//! Calls that Linux does not have. Their numbers are far above any that it gives out: they begin with "FOLD" in ASCII.

use linux_raw_sys::general as raw;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::refpage;
use crate::mm::is_scarce;

/// `refpage_create(const void *content, unsigned size, unsigned long flags)`.
const REFPAGE_CREATE: u64 = 0x464f_4c44;

/// What does a call of that number, if it is one of these.
pub fn handler(number: u64) -> Option<Handler> {
    (number == REFPAGE_CREATE).then_some(refpage_create)
}

/// A descriptor, closed by exec, whose private mappings show `size` bytes of the caller's over and over until they are written to.
fn refpage_create(ctx: &mut SyscallContext<'_>) -> SysResult {
    if is_scarce() {
        return Err(Errno::ENOMEM);
    }
    let [content, size, flags, ..] = ctx.args;
    let reference = call(ctx, |caller| foldspace_linux::refpage_create(caller, content, size as u32, flags))?;
    let limit = ctx.task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    let file = refpage::create(reference);
    Ok(ctx.task.files.lock().insert_from(0, limit, file, AtExec::Close)? as usize)
}
