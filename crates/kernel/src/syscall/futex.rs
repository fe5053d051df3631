//! `futex` and the calls that belong to it.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::time::{Timespec, deadline_after};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::futex::{self, Scope};
use crate::process::{Pid, find};
use crate::time::{monotonic_ns, realtime_ns};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::futex, futex_call),
    (Sysno::set_robust_list, set_robust_list),
    (Sysno::get_robust_list, get_robust_list),
    (Sysno::membarrier, membarrier),
];

const COMMAND_MASK: u32 = !(raw::FUTEX_PRIVATE_FLAG | raw::FUTEX_CLOCK_REALTIME);
/// Bytes of `struct robust_list_head`.
const ROBUST_LIST_SIZE: u64 = 24;

fn futex_call(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, operation, value, timeout, address2, value3] = ctx.args;
    let (operation, value, value3) = (operation as u32, value as u32, value3 as u32);
    let scope = if operation & raw::FUTEX_PRIVATE_FLAG != 0 { Scope::Private } else { Scope::Shared };
    let command = operation & COMMAND_MASK;
    let realtime = operation & raw::FUTEX_CLOCK_REALTIME != 0;
    if realtime && !matches!(command, raw::FUTEX_WAIT_BITSET | raw::FUTEX_WAIT_REQUEUE_PI | raw::FUTEX_LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    // Counts are signed; a negative one means no limit where Linux compares after counting.
    let count = |value: u32| usize::try_from(value as i32).unwrap_or(usize::MAX);
    let task = ctx.task;
    match command {
        raw::FUTEX_WAIT | raw::FUTEX_WAIT_BITSET => {
            let bits = if command == raw::FUTEX_WAIT { raw::FUTEX_BITSET_MATCH_ANY } else { value3 };
            if bits == 0 {
                return Err(Errno::EINVAL);
            }
            let deadline = match timeout {
                0 => None,
                timeout => {
                    let nanos = uaccess::read::<Timespec>(timeout)?.to_nanos()?;
                    Some(match command {
                        // Relative for FUTEX_WAIT, a moment of one of two clocks for the other.
                        raw::FUTEX_WAIT => deadline_after(nanos),
                        _ if realtime => monotonic_ns().saturating_add(nanos.saturating_sub(realtime_ns())),
                        _ => nanos,
                    })
                }
            };
            futex::wait(task, address, scope, value, bits, deadline).map_err(|error| match error {
                // A relative timeout must not start again from its beginning.
                Errno::ERESTARTSYS if deadline.is_some() && command == raw::FUTEX_WAIT => Errno::EINTR,
                error => error,
            })?;
            Ok(0)
        }
        raw::FUTEX_WAKE => futex::wake(task, address, scope, count(value).max(1), raw::FUTEX_BITSET_MATCH_ANY),
        raw::FUTEX_WAKE_BITSET => {
            if value3 == 0 {
                return Err(Errno::EINVAL);
            }
            futex::wake(task, address, scope, count(value).max(1), value3)
        }
        raw::FUTEX_REQUEUE | raw::FUTEX_CMP_REQUEUE => {
            // The fourth argument is a count here.
            let (wake, moved) = (value as i32, timeout as i32);
            if wake < 0 || moved < 0 {
                return Err(Errno::EINVAL);
            }
            let expected = (command == raw::FUTEX_CMP_REQUEUE).then_some(value3);
            futex::requeue(task, address, address2, scope, (wake as usize, moved as usize), expected)
        }
        raw::FUTEX_WAKE_OP => {
            let word = uaccess::read::<u32>(address2)?;
            let matches = wake_operation(address2, word, value3)?;
            let mut woken = futex::wake(task, address, scope, count(value).max(1), raw::FUTEX_BITSET_MATCH_ANY)?;
            if matches {
                woken += futex::wake(task, address2, scope, count(timeout as u32).max(1), raw::FUTEX_BITSET_MATCH_ANY)?;
            }
            Ok(woken)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// `FUTEX_WAKE_OP`: changes the second word as `encoded` says, and tells whether its old value compares (futex(2)). Nothing else runs between the read and
/// the write: the kernel is not preempted, and threads of an address space run one at a time.
fn wake_operation(address: u64, old: u32, encoded: u32) -> Result<bool, Errno> {
    const SHIFT_ARGUMENT: u32 = 8;
    let sign_extended = |bits: u32| ((bits << 20) as i32) >> 20;
    let operation = encoded >> 28;
    let mut argument = sign_extended(encoded >> 12);
    let comparand = sign_extended(encoded);
    if operation & SHIFT_ARGUMENT != 0 {
        if !(0..32).contains(&argument) {
            return Err(Errno::EINVAL);
        }
        argument = 1 << argument;
    }
    let argument = argument as u32;
    let new = match operation & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        4 => old ^ argument,
        _ => return Err(Errno::ENOSYS),
    };
    let signed = old as i32;
    let matches = match encoded >> 24 & 0xf {
        0 => signed == comparand,
        1 => signed != comparand,
        2 => signed < comparand,
        3 => signed <= comparand,
        4 => signed > comparand,
        5 => signed >= comparand,
        _ => return Err(Errno::ENOSYS),
    };
    uaccess::write(address, &new)?;
    Ok(matches)
}

fn set_robust_list(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [head, len, ..] = ctx.args;
    if len != ROBUST_LIST_SIZE {
        return Err(Errno::EINVAL);
    }
    ctx.task.robust_list.store(head, Ordering::Relaxed);
    Ok(0)
}

fn get_robust_list(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, head, len, ..] = ctx.args;
    let task = match pid as Pid {
        0 => ctx.task.clone(),
        pid => find(pid).ok_or(Errno::ESRCH)?,
    };
    uaccess::write(len, &ROBUST_LIST_SIZE)?;
    uaccess::write(head, &task.robust_list.load(Ordering::Relaxed))?;
    Ok(0)
}

/// Commands of `membarrier` that have an effect here, all of them none: with one processor, a thread that runs sees what ran before.
const MEMBARRIER_COMMANDS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6;

fn membarrier(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [command, flags, ..] = ctx.args;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    match u64::from(command as u32) {
        0 => Ok(MEMBARRIER_COMMANDS as usize),
        command if command.is_power_of_two() && command & MEMBARRIER_COMMANDS != 0 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
