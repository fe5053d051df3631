//! `futex` and the calls that belong to it.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use smallvec::SmallVec;
use syscalls::Sysno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::time::{Timespec, deadline_after};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::access::{AccessAs, may_access};
use crate::process::futex::key::Scope;
use crate::process::futex::pi::{self, Patience};
use crate::process::futex::wait::{self, Pair, Wanted};
use crate::process::signal::state::Continuation;
use crate::process::time_namespace::{Counter, meant};
use crate::process::{Pid, Task};
use crate::time::{monotonic_ns, realtime_ns};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::futex, futex_call),
    (Sysno::futex_waitv, futex_waitv),
    (Sysno::set_robust_list, set_robust_list),
    (Sysno::get_robust_list, get_robust_list),
];

const COMMAND_MASK: u32 = !(raw::FUTEX_PRIVATE_FLAG | raw::FUTEX_CLOCK_REALTIME);
/// Bytes of `struct robust_list_head`.
const ROBUST_LIST_SIZE: u64 = 24;

/// Which clock counts a timeout.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TimeoutClock {
    Monotonic,
    Realtime,
}

/// A moment of a clock as one of the monotonic clock.
fn deadline(nanos: u64, clock: TimeoutClock) -> u64 {
    match clock {
        TimeoutClock::Monotonic => meant(Counter::Monotonic, nanos),
        TimeoutClock::Realtime => monotonic_ns().saturating_add(nanos.saturating_sub(realtime_ns())),
    }
}

/// The timeout argument of a command that has one, as a moment of the monotonic clock.
fn timeout(command: u32, address: u64, clock: TimeoutClock) -> Result<Option<u64>, Errno> {
    let has_timeout = matches!(
        command,
        raw::FUTEX_WAIT
            | raw::FUTEX_WAIT_BITSET
            | raw::FUTEX_LOCK_PI
            | raw::FUTEX_LOCK_PI2
            | raw::FUTEX_WAIT_REQUEUE_PI
    );
    if !has_timeout || address == 0 {
        return Ok(None);
    }
    let nanos = uaccess::read::<Timespec>(address)?.to_nanos()?;
    Ok(Some(match command {
        // Relative for FUTEX_WAIT, a moment for the others: of the real-time clock always for FUTEX_LOCK_PI.
        raw::FUTEX_WAIT => deadline_after(nanos),
        raw::FUTEX_LOCK_PI => deadline(nanos, TimeoutClock::Realtime),
        _ => deadline(nanos, clock),
    }))
}

/// A count that must not be negative.
fn not_negative(count: u32) -> Result<usize, Errno> {
    usize::try_from(count as i32).map_err(|_| Errno::EINVAL)
}

/// A plain wait, which goes on where it was after a signal that no handler runs for.
pub(super) fn wait(task: &Task, wanted: &Wanted, deadline: Option<u64>) -> SysResult {
    match (wait::wait(task, wanted, deadline), deadline) {
        (Ok(()), _) => Ok(0),
        (Err(Errno::ERESTARTSYS), Some(deadline)) => {
            task.signals.lock().continuation = Some(Continuation::Futex { wanted: *wanted, deadline });
            Err(Errno::ERESTART_RESTARTBLOCK)
        }
        (Err(error), _) => Err(error),
    }
}

fn futex_call(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, operation, value, timeout_or_count, address2, value3] = ctx.args;
    let (operation, value, value3) = (operation as u32, value as u32, value3 as u32);
    let scope = if operation & raw::FUTEX_PRIVATE_FLAG != 0 { Scope::Private } else { Scope::Shared };
    let command = operation & COMMAND_MASK;
    let realtime = operation & raw::FUTEX_CLOCK_REALTIME != 0;
    let clock = if realtime { TimeoutClock::Realtime } else { TimeoutClock::Monotonic };
    let deadline = timeout(command, timeout_or_count, clock)?;
    if realtime && !matches!(command, raw::FUTEX_WAIT_BITSET | raw::FUTEX_WAIT_REQUEUE_PI | raw::FUTEX_LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    // One is woken even if none is asked for: Linux compares after counting.
    let count = |value: u32| usize::try_from(value as i32).unwrap_or(1);
    let task = ctx.task;
    let pair = Pair { from: address, to: address2, scope };
    let any = raw::FUTEX_BITSET_MATCH_ANY;
    match command {
        raw::FUTEX_WAIT => wait(task, &Wanted { address, scope, expected: value, bits: any }, deadline),
        raw::FUTEX_WAIT_BITSET | raw::FUTEX_WAKE_BITSET if value3 == 0 => Err(Errno::EINVAL),
        raw::FUTEX_WAIT_BITSET => wait(task, &Wanted { address, scope, expected: value, bits: value3 }, deadline),
        raw::FUTEX_WAKE => wait::wake(task, address, scope, count(value), any),
        raw::FUTEX_WAKE_BITSET => wait::wake(task, address, scope, count(value), value3),
        raw::FUTEX_REQUEUE | raw::FUTEX_CMP_REQUEUE => {
            let counts = (not_negative(value)?, not_negative(timeout_or_count as u32)?);
            let expected = (command == raw::FUTEX_CMP_REQUEUE).then_some(value3);
            wait::requeue(task, pair, counts, expected)
        }
        raw::FUTEX_WAKE_OP => {
            let counts = (count(value), count(timeout_or_count as u32));
            let operation = WakeOperation(value3);
            operation.check()?;
            wait::wake_op(task, pair, counts, |word| operation.change(word), |word| operation.compare(word))
        }
        raw::FUTEX_LOCK_PI | raw::FUTEX_LOCK_PI2 => {
            pi::lock(task, address, scope, Patience::Until(deadline)).map(|()| 0)
        }
        raw::FUTEX_TRYLOCK_PI => pi::lock(task, address, scope, Patience::None).map(|()| 0),
        raw::FUTEX_UNLOCK_PI => pi::unlock(task, address, scope).map(|()| 0),
        raw::FUTEX_WAIT_REQUEUE_PI => {
            let wanted = Wanted { address, scope, expected: value, bits: any };
            pi::wait_requeue(task, &wanted, address2, deadline).map(|()| 0)
        }
        raw::FUTEX_CMP_REQUEUE_PI => {
            let others = not_negative(timeout_or_count as u32)?;
            // Just one can be the next owner.
            if value != 1 {
                return Err(Errno::EINVAL);
            }
            pi::requeue(task, pair, others, value3)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// The last argument of `FUTEX_WAKE_OP`: four bits each for an operation and a comparison, twelve each for their arguments (futex(2)).
#[derive(Clone, Copy)]
struct WakeOperation(u32);

impl WakeOperation {
    /// `ENOSYS` for an operation that there is not.
    fn check(self) -> Result<(), Errno> {
        if self.0 >> 28 & 7 > 4 { Err(Errno::ENOSYS) } else { Ok(()) }
    }

    fn change(self, word: u32) -> u32 {
        /// The argument is a bit's number.
        const SHIFT_ARGUMENT: u32 = 8;
        let mut argument = sign_extended(self.0 >> 12) as u32;
        if self.0 >> 28 & SHIFT_ARGUMENT != 0 {
            // Linux masks what is out of range (`futex_atomic_op_inuser`).
            argument = 1 << (argument & 31);
        }
        match self.0 >> 28 & 7 {
            0 => argument,
            1 => word.wrapping_add(argument),
            2 => word | argument,
            3 => word & !argument,
            _ => word ^ argument,
        }
    }

    /// What the word was decides about the second wake-up. `ENOSYS` for a comparison that there is not; the word has changed then.
    fn compare(self, before: u32) -> Result<bool, Errno> {
        let (word, comparand) = (before as i32, sign_extended(self.0));
        Ok(match self.0 >> 24 & 0xf {
            0 => word == comparand,
            1 => word != comparand,
            2 => word < comparand,
            3 => word <= comparand,
            4 => word > comparand,
            5 => word >= comparand,
            _ => return Err(Errno::ENOSYS),
        })
    }
}

/// The lowest twelve bits as a signed number.
fn sign_extended(bits: u32) -> i32 {
    ((bits << 20) as i32) >> 20
}

/// `struct futex_waitv`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WaitRecord {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Most words that one `futex_waitv` waits for (`FUTEX_WAITV_MAX`).
const WAITV_MAX: u32 = 128;
/// `FUTEX_32`: the size of the word, the only one that Linux 6.18 offers here.
const FUTEX_32: u32 = 2;

fn futex_waitv(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [records, count, flags, timeout, clock, _] = ctx.args;
    let count = count as u32;
    if flags as u32 != 0 || count == 0 || count > WAITV_MAX || records == 0 {
        return Err(Errno::EINVAL);
    }
    let deadline = match timeout {
        0 => None,
        timeout => {
            let clock = match clock as u32 {
                raw::CLOCK_REALTIME => TimeoutClock::Realtime,
                raw::CLOCK_MONOTONIC => TimeoutClock::Monotonic,
                _ => return Err(Errno::EINVAL),
            };
            Some(deadline(uaccess::read::<Timespec>(timeout)?.to_nanos()?, clock))
        }
    };
    let mut wanted: SmallVec<[Wanted; 8]> = SmallVec::new();
    for index in 0..u64::from(count) {
        let record: WaitRecord = uaccess::read(records.wrapping_add(index * size_of::<WaitRecord>() as u64))?;
        if record.flags & !(FUTEX_32 | raw::FUTEX_PRIVATE_FLAG) != 0
            || record.reserved != 0
            || record.flags & FUTEX_32 == 0
        {
            return Err(Errno::EINVAL);
        }
        let scope = if record.flags & raw::FUTEX_PRIVATE_FLAG != 0 { Scope::Private } else { Scope::Shared };
        let (expected, bits) = (record.value as u32, raw::FUTEX_BITSET_MATCH_ANY);
        wanted.push(Wanted { address: record.address, scope, expected, bits });
    }
    wait::wait_any(ctx.task, &wanted, deadline)
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
        pid => ctx.task.find(pid).ok_or(Errno::ESRCH)?,
    };
    if !may_access(ctx.task, &task, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    uaccess::write(len, &ROBUST_LIST_SIZE)?;
    uaccess::write(head, &task.robust_list.load(Ordering::Relaxed))?;
    Ok(0)
}
