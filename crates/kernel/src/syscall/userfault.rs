//! userfaultfd(2).

use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::userfault::{self, Accesses};
use crate::process::Task;
use crate::process::credentials::CAP_SYS_PTRACE;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::userfaultfd, userfaultfd)];

/// `UFFD_USER_MODE_ONLY`.
const USER_MODE_ONLY: u32 = 1;

fn userfaultfd(ctx: &mut SyscallContext<'_>) -> SysResult {
    let flags = ctx.args[0] as u32;
    let allowed = flags & USER_MODE_ONLY != 0
        || userfault::UNPRIVILEGED.load(Ordering::Relaxed) != 0
        || ctx.task.credentials().may(CAP_SYS_PTRACE);
    if !allowed {
        return Err(Errno::EPERM);
    }
    new(ctx.task, flags)
}

/// Makes one; also for `/dev/userfaultfd`, which whoever may open it may use.
pub fn new(task: &Task, flags: u32) -> SysResult {
    if flags & !(USER_MODE_ONLY | raw::O_CLOEXEC | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let accesses = if flags & USER_MODE_ONLY != 0 { Accesses::UserMode } else { Accesses::All };
    let file = userfault::create(task, accesses, OpenFlags::from_user(flags & raw::O_NONBLOCK));
    let limit = task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
}
