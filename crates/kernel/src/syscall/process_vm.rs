//! Copying between processes: `process_vm_readv` and `process_vm_writev` (process_vm_readv(2); Linux's `mm/process_vm_access.c`).

use alloc::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::{AddressSpace, VirtAddr};
use syscalls::Sysno;

use super::file::transfer::{IoVec, io_vectors, pieces};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::io::{PageBuffer, Sink, Supply, UserVector};
use crate::process::access::{AccessAs, may_access};
use crate::process::{Pid, find, signal};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::process_vm_readv, readv), (Sysno::process_vm_writev, writev)];

fn readv(ctx: &mut SyscallContext<'_>) -> SysResult {
    copy(ctx, |local, space, address, buffer| {
        let got = space.read(VirtAddr(address), buffer);
        Moved { wanted: buffer.len(), done: local.put(&buffer[..got]) }
    })
}

fn writev(ctx: &mut SyscallContext<'_>) -> SysResult {
    copy(ctx, |local, space, address, buffer| {
        let got = local.take(buffer);
        Moved { wanted: buffer.len(), done: space.write(VirtAddr(address), &buffer[..got]) }
    })
}

/// What became of one piece: it was moved whole, or a page on either side could not be reached.
struct Moved {
    wanted: usize,
    done: usize,
}

/// Moves pieces of at most a page, none across a page boundary of the other process, until either side is at its end. Errors in
/// Linux's order; once a byte has been moved, the result is how many were.
fn copy(
    ctx: &SyscallContext<'_>,
    step: impl Fn(&mut UserVector<'_>, &AddressSpace, u64, &mut [u8]) -> Moved,
) -> SysResult {
    let [pid, local, local_count, remote, remote_count, flags] = ctx.args;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let mut local = pieces(local, local_count as usize)?;
    let mut local = UserVector::new(&mut local);
    if local.room() == 0 {
        return Ok(0);
    }
    let remote = io_vectors(remote, remote_count as usize)?;
    if remote.iter().all(|piece| piece.len == 0) {
        return Ok(0);
    }
    let space = space_of(ctx, pid as Pid)?;
    let mut page = PageBuffer::new()?;
    let mut done = 0;
    for &IoVec { base, len } in &remote {
        let mut at = 0;
        while at < len && local.room() > 0 {
            let address = base.wrapping_add(at);
            let want = (PAGE_SIZE - address % PAGE_SIZE).min(len - at).min(local.room() as u64) as usize;
            let moved = step(&mut local, &space, address, &mut page.bytes()[..want]);
            done += moved.done;
            at += moved.done as u64;
            if moved.done < moved.wanted || signal::fatal_pending(ctx.task) {
                return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) };
            }
        }
    }
    Ok(done)
}

/// The address space of a thread that the caller may look into. `ESRCH`, `EPERM`.
fn space_of(ctx: &SyscallContext<'_>, pid: Pid) -> Result<Arc<AddressSpace>, Errno> {
    let task = find(pid).ok_or(Errno::ESRCH)?;
    if !may_access(ctx.task, &task, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    task.live_space().ok_or(Errno::ESRCH)
}
