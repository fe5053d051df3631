//! Copying between processes: `process_vm_readv` and `process_vm_writev`. `foldspace-linux` does them.

use alloc::sync::Arc;

use foldspace::AddressSpace;
use foldspace_linux::{Vectors, process_vm_readv, process_vm_writev};
use syscalls::Sysno;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::process::Pid;
use crate::process::access::{AccessAs, may_access};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::process_vm_readv, readv), (Sysno::process_vm_writev, writev)];

fn readv(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, .., flags] = ctx.args;
    let done = call(ctx, |caller| process_vm_readv(caller, vectors(ctx), flags, || space_of(ctx, pid as Pid)))?;
    Ok(done as usize)
}

fn writev(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, .., flags] = ctx.args;
    let done = call(ctx, |caller| process_vm_writev(caller, vectors(ctx), flags, || space_of(ctx, pid as Pid)))?;
    Ok(done as usize)
}

fn vectors(ctx: &SyscallContext<'_>) -> Vectors {
    let [_, local, local_count, remote, remote_count, _] = ctx.args;
    Vectors { local, local_count, remote, remote_count }
}

/// The address space of a thread that the caller may look into. `ESRCH`, `EPERM`.
fn space_of(ctx: &SyscallContext<'_>, pid: Pid) -> Result<Arc<AddressSpace>, Errno> {
    let task = ctx.task.find(pid).ok_or(Errno::ESRCH)?;
    if !may_access(ctx.task, &task, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    task.live_space().ok_or(Errno::ESRCH)
}
