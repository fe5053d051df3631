//! membarrier(2): barriers in other threads, so that those that run often need none.

use core::sync::atomic::Ordering;

use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::{self, Barrier};
use crate::process::rseq;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::membarrier, membarrier)];

/// Commands (`linux/membarrier.h`).
const QUERY: u32 = 0;
const GLOBAL: u32 = 1;
const GLOBAL_EXPEDITED: u32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;
const PRIVATE_EXPEDITED: u32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: u32 = 1 << 4;
const PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 5;
const REGISTER_PRIVATE_EXPEDITED_SYNC_CORE: u32 = 1 << 6;
const PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: u32 = 1 << 8;
const GET_REGISTRATIONS: u32 = 1 << 9;

/// `MEMBARRIER_CMD_FLAG_CPU`, for [`PRIVATE_EXPEDITED_RSEQ`]: one processor is enough. All are interrupted here.
const FLAG_CPU: u32 = 1;

/// All of them.
const ALL: u32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL_EXPEDITED
    | PRIVATE_EXPEDITED
    | REGISTER_PRIVATE_EXPEDITED
    | PRIVATE_EXPEDITED_SYNC_CORE
    | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
    | PRIVATE_EXPEDITED_RSEQ
    | REGISTER_PRIVATE_EXPEDITED_RSEQ
    | GET_REGISTRATIONS;

fn membarrier(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [command, flags, ..] = ctx.args;
    let known = if command as u32 == PRIVATE_EXPEDITED_RSEQ { FLAG_CPU } else { 0 };
    if flags as u32 & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let registered = &ctx.task.process.membarrier;
    let within = |needed: u32, barrier: Barrier| match registered.load(Ordering::Relaxed) & needed {
        0 => Err(Errno::EPERM),
        _ => {
            mm::barrier(barrier);
            Ok(())
        }
    };
    let space = ctx.task.space().id();
    match command as u32 {
        QUERY => return Ok(ALL as usize),
        // Who has registered for the second is not asked: everybody gets it.
        GLOBAL | GLOBAL_EXPEDITED => mm::barrier(Barrier::Everywhere),
        PRIVATE_EXPEDITED => within(REGISTER_PRIVATE_EXPEDITED, Barrier::Within(space))?,
        PRIVATE_EXPEDITED_SYNC_CORE => {
            within(REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, Barrier::WithinForCode(space))?;
        }
        PRIVATE_EXPEDITED_RSEQ => {
            rseq::abort_others(ctx.task);
            within(REGISTER_PRIVATE_EXPEDITED_RSEQ, Barrier::Within(space))?;
        }
        REGISTER_GLOBAL_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED
        | REGISTER_PRIVATE_EXPEDITED_SYNC_CORE
        | REGISTER_PRIVATE_EXPEDITED_RSEQ => {
            registered.fetch_or(command as u32, Ordering::Relaxed);
        }
        GET_REGISTRATIONS => return Ok(registered.load(Ordering::Relaxed) as usize),
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}
