//! Calls about who runs where, and `nice` values, which are kept and reported.

use core::sync::atomic::Ordering;

use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::arch::{self, PerCpu};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::CAP_SYS_NICE;
use crate::process::{Pid, Process, Task, rseq as sequences, tree};
use crate::sched;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::sched_yield, sched_yield),
    (Sysno::sched_getaffinity, sched_getaffinity),
    (Sysno::sched_setaffinity, sched_setaffinity),
    (Sysno::getpriority, getpriority),
    (Sysno::setpriority, setpriority),
    (Sysno::getcpu, getcpu),
    (Sysno::rseq, rseq),
];

/// Bytes of the processor mask that the kernel works with.
const MASK_SIZE: u64 = 8;
/// `nice` values go from here
const NICEST: i32 = 19;
/// to here.
const LEAST_NICE: i32 = -20;

/// The task that a pid argument means; 0 is the caller.
pub(super) fn target(ctx: &SyscallContext<'_>) -> Result<Arc<Task>, Errno> {
    match ctx.args[0] as i32 {
        ..0 => Err(Errno::EINVAL),
        0 => Ok(ctx.task.clone()),
        pid => ctx.task.find(pid as Pid).ok_or(Errno::ESRCH),
    }
}

/// The same for affinities, where a number below 0 is one that nobody has.
fn affinity_target(ctx: &SyscallContext<'_>) -> Result<Arc<Task>, Errno> {
    if (ctx.args[0] as i32) < 0 { Err(Errno::ESRCH) } else { target(ctx) }
}

fn sched_yield(_ctx: &mut SyscallContext<'_>) -> SysResult {
    sched::yield_now();
    Ok(0)
}

fn sched_getaffinity(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [_, len, mask, ..] = ctx.args;
    let len = u64::from(len as u32);
    if len < MASK_SIZE || len % 8 != 0 {
        return Err(Errno::EINVAL);
    }
    let allowed = sched::affinity(&*affinity_target(ctx)?);
    uaccess::write(mask, &allowed)?;
    Ok(MASK_SIZE as usize)
}

fn sched_setaffinity(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [_, len, mask, ..] = ctx.args;
    let len = u64::from(len as u32).min(MASK_SIZE) as usize;
    let mut bytes = [0; MASK_SIZE as usize];
    uaccess::read_bytes(mask, &mut bytes[..len])?;
    let task = affinity_target(ctx)?;
    let (own, other) = (ctx.task.credentials(), task.credentials());
    if ![other.euid, other.uid].contains(&own.euid) && !own.may(CAP_SYS_NICE) {
        return Err(Errno::EPERM);
    }
    let allowed = u64::from_le_bytes(bytes) & arch::existing();
    if allowed == 0 {
        return Err(Errno::EINVAL);
    }
    sched::set_affinity(&task, allowed);
    Ok(0)
}

/// The processes that `getpriority` and `setpriority` mean.
fn priority_targets(ctx: &SyscallContext<'_>) -> Result<alloc::vec::Vec<Arc<Process>>, Errno> {
    let [which, who, ..] = ctx.args;
    let own = &ctx.task.process;
    let found = match (which as u32, who as u32) {
        (raw::PRIO_PROCESS, 0) => alloc::vec![own.clone()],
        (raw::PRIO_PROCESS, pid) => ctx.task.find_process(pid).into_iter().collect(),
        (raw::PRIO_PGRP, 0) => tree::group(own.pgid()),
        (raw::PRIO_PGRP, pgid) => ctx.task.find_group(pgid),
        (raw::PRIO_USER, uid) => {
            let uid = if uid == 0 { own.uid() } else { uid };
            tree::processes().into_iter().filter(|process| process.uid() == uid).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if found.is_empty() { Err(Errno::ESRCH) } else { Ok(found) }
}

fn getpriority(ctx: &mut SyscallContext<'_>) -> SysResult {
    let nice = priority_targets(ctx)?.iter().map(|process| process.nice.load(Ordering::Relaxed)).min().unwrap_or(0);
    // Shifted so that it is never negative (getpriority(2), "C library/kernel differences").
    Ok((NICEST + 1 - nice) as usize)
}

fn setpriority(ctx: &mut SyscallContext<'_>) -> SysResult {
    let nice = (ctx.args[2] as i32).clamp(LEAST_NICE, NICEST);
    let privileged = ctx.task.credentials().is_privileged();
    for process in priority_targets(ctx)? {
        if !privileged && nice < process.nice.load(Ordering::Relaxed) {
            return Err(Errno::EACCES);
        }
        process.nice.store(nice, Ordering::Relaxed);
    }
    Ok(0)
}

fn getcpu(ctx: &mut SyscallContext<'_>) -> SysResult {
    let number = PerCpu::current().number as u32;
    for (address, value) in [(ctx.args[0], number), (ctx.args[1], 0)] {
        if address != 0 {
            uaccess::write(address, &value)?;
        }
    }
    Ok(0)
}

/// rseq(2)
fn rseq(ctx: &mut SyscallContext<'_>) -> SysResult {
    /// `RSEQ_FLAG_UNREGISTER`.
    const UNREGISTER: u32 = 1;
    let [address, len, flags, signature, ..] = ctx.args;
    let call = match flags as u32 {
        0 => sequences::register,
        UNREGISTER => sequences::unregister,
        _ => return Err(Errno::EINVAL),
    };
    call(ctx.task, address, len as u32, signature as u32)?;
    Ok(0)
}
