//! `timer_create` and its like.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use syscalls::Sysno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::time::{Clock, clock, read_timer_setting, write_timer_setting};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::find;
use crate::process::signal::Signal;
use crate::process::timer::cpu::Whose;
use crate::process::timer::posix::{self, Receiver, Reference, TimerClock};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::timer_create, timer_create),
    (Sysno::timer_settime, timer_settime),
    (Sysno::timer_gettime, timer_gettime),
    (Sysno::timer_getoverrun, timer_getoverrun),
    (Sysno::timer_delete, timer_delete),
];

/// The start of `struct sigevent`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SignalEvent {
    value: u64,
    signal: i32,
    notify: u32,
    thread: i32,
    pad: u32,
}

/// Bytes of the whole, all of which must be readable.
const EVENT_SIZE: usize = 64;

/// `EINVAL` for a clock that does not exist, `EOPNOTSUPP` for one that counts no timers.
fn timer_clock(ctx: &SyscallContext<'_>, id: u64) -> Result<TimerClock, Errno> {
    const NONE: [u32; 3] = [raw::CLOCK_MONOTONIC_RAW, raw::CLOCK_REALTIME_COARSE, raw::CLOCK_MONOTONIC_COARSE];
    if NONE.contains(&(id as u32)) {
        return Err(Errno::EOPNOTSUPP);
    }
    match clock(ctx, id)? {
        Clock::Realtime => Ok(TimerClock::Realtime),
        Clock::Monotonic(counter) => Ok(TimerClock::Monotonic(counter)),
        Clock::Process(pid) if pid == ctx.task.tgid => Ok(TimerClock::Cpu(Whose::Process)),
        Clock::Thread(pid) if find(pid).is_some_and(|task| task.tgid == ctx.task.tgid) => {
            Ok(TimerClock::Cpu(Whose::Thread(pid)))
        }
        // Timers on others' processor time are not here.
        Clock::Process(_) | Clock::Thread(_) => Err(Errno::EINVAL),
    }
}

fn receiver(ctx: &SyscallContext<'_>, event: &SignalEvent) -> Result<Receiver, Errno> {
    let signal = || {
        let number = u64::try_from(event.signal).map_err(|_| Errno::EINVAL)?;
        Signal::new(number).ok_or(Errno::EINVAL)
    };
    match event.notify {
        raw::SIGEV_NONE => Ok(Receiver::Nobody),
        raw::SIGEV_SIGNAL | raw::SIGEV_THREAD => Ok(Receiver::Process(signal()?)),
        raw::SIGEV_THREAD_ID => {
            let task = u32::try_from(event.thread).ok().and_then(|number| ctx.task.find(number));
            let task = task.filter(|task| task.tgid == ctx.task.tgid).ok_or(Errno::EINVAL)?;
            Ok(Receiver::Thread(signal()?, Arc::downgrade(&task)))
        }
        _ => Err(Errno::EINVAL),
    }
}

fn timer_create(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, event, number, ..] = ctx.args;
    let event = match event {
        0 => None,
        address => {
            let bytes: [u8; EVENT_SIZE] = uaccess::read(address)?;
            Some(SignalEvent::read_from_prefix(&bytes).map_err(|_| Errno::EFAULT)?.0)
        }
    };
    let clock = timer_clock(ctx, id)?;
    let given = match event {
        Some(event) => Some((receiver(ctx, &event)?, event.value)),
        None => None,
    };
    let process = &ctx.task.process;
    let created = posix::create(process, clock, |id| given.unwrap_or((Receiver::Process(Signal::ALRM), id as u64)))?;
    if let Err(error) = uaccess::write(number, &created) {
        posix::delete(process, created)?;
        return Err(error);
    }
    Ok(0)
}

fn timer_settime(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, flags, new, old, ..] = ctx.args;
    if new == 0 {
        return Err(Errno::EINVAL);
    }
    let setting = read_timer_setting(new)?;
    let timer = posix::find(&ctx.task.process, id as i32)?;
    let reference = if flags as u32 & raw::TIMER_ABSTIME != 0 { Reference::Clock } else { Reference::Now };
    let before = timer.set(setting, reference);
    if old != 0 {
        write_timer_setting(old, before)?;
    }
    Ok(0)
}

fn timer_gettime(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, setting, ..] = ctx.args;
    write_timer_setting(setting, posix::find(&ctx.task.process, id as i32)?.setting())?;
    Ok(0)
}

fn timer_getoverrun(ctx: &mut SyscallContext<'_>) -> SysResult {
    Ok(posix::find(&ctx.task.process, ctx.args[0] as i32)?.overrun() as usize)
}

fn timer_delete(ctx: &mut SyscallContext<'_>) -> SysResult {
    posix::delete(&ctx.task.process, ctx.args[0] as i32)?;
    Ok(0)
}
