//! process_madvise(2): advice about many ranges, of the caller or of another process.

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::file::transfer::pieces;
use super::memory::call_in;
use super::{Handler, SysResult, SyscallContext, pidfd};
use crate::errno::Errno;
use crate::process::access::{AccessAs, may_access};
use crate::process::credentials::CAP_SYS_NICE;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::process_madvise, process_madvise)];

/// Errors in Linux's order (`mm/madvise.c`). Once a range has been advised, the result is how many bytes were.
fn process_madvise(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, vector, count, advice, flags, _] = ctx.args;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let ranges = pieces(vector, count as usize)?;
    let target = pidfd::of_descriptor(ctx.task, fd as i32)?.task()?;
    if !may_access(ctx.task, &target, AccessAs::FileSystem) {
        return Err(Errno::EACCES);
    }
    let space = target.live_space().ok_or(Errno::ESRCH)?;
    let own = space.id() == ctx.task.space().id();
    // Of others only what changes nothing that they see.
    let harmless =
        matches!(advice as u32, raw::MADV_COLD | raw::MADV_PAGEOUT | raw::MADV_WILLNEED | raw::MADV_COLLAPSE);
    if !own && !harmless {
        return Err(Errno::EINVAL);
    }
    if !own && !ctx.task.credentials().may(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let mut done = 0;
    for (base, len) in ranges.iter().map(|range| range.extent()) {
        match call_in(ctx, &space, |caller| foldspace_linux::madvise(caller, base, len as u64, advice as i32)) {
            Ok(()) => done += len,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
