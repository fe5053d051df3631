//! Advice about mappings, and questions: `madvise`, `mincore`, `msync`, `mlock` and its kin. `foldspace-linux` does them.

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext};
use crate::fs::userfault::events;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::madvise, madvise),
    (Sysno::mincore, mincore),
    (Sysno::msync, msync),
    (Sysno::mlock, mlock),
    (Sysno::mlock2, mlock2),
    (Sysno::munlock, munlock),
    (Sysno::mlockall, mlockall),
    (Sysno::munlockall, munlockall),
];

fn madvise(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, advice, ..] = ctx.args;
    if matches!(advice as u32, raw::MADV_DONTNEED | raw::MADV_FREE | raw::MADV_REMOVE | raw::MADV_DONTNEED_LOCKED) {
        events::before_removal(ctx.task, address, len);
    }
    call(ctx, |caller| foldspace_linux::madvise(caller, address, len, advice as i32))?;
    Ok(0)
}

fn mincore(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, vector, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::mincore(caller, address, len, vector))?;
    Ok(0)
}

fn msync(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, flags, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::msync(caller, address, len, flags as i32))?;
    Ok(0)
}

fn mlock(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::mlock(caller, address, len))?;
    Ok(0)
}

fn mlock2(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, flags, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::mlock2(caller, address, len, flags as i32))?;
    Ok(0)
}

fn munlock(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, len, ..] = ctx.args;
    call(ctx, |caller| foldspace_linux::munlock(caller, address, len))?;
    Ok(0)
}

fn mlockall(ctx: &mut SyscallContext<'_>) -> SysResult {
    let flags = ctx.args[0];
    call(ctx, |caller| foldspace_linux::mlockall(caller, flags as i32))?;
    Ok(0)
}

fn munlockall(ctx: &mut SyscallContext<'_>) -> SysResult {
    call(ctx, |caller| foldspace_linux::munlockall(caller))?;
    Ok(0)
}
