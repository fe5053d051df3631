//! process_madvise(2): advice about many ranges, of the caller or of another process. `foldspace-linux` gives it.

use syscalls::Sysno;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext, pidfd};
use crate::errno::Errno;
use crate::process::access::{AccessAs, may_access};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::process_madvise, process_madvise)];

fn process_madvise(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, ranges, count, advice, flags, _] = ctx.args;
    let find = || {
        let target = pidfd::of_descriptor(ctx.task, fd as i32)?.task()?;
        if !may_access(ctx.task, &target, AccessAs::FileSystem) {
            return Err(Errno::EACCES);
        }
        target.live_space().ok_or(Errno::ESRCH)
    };
    let done =
        call(ctx, |caller| foldspace_linux::process_madvise(caller, ranges, count, advice as i32, flags as u32, find))?;
    Ok(done as usize)
}
