//! Clocks, sleeping, interval timers.

use linux_raw_sys::general as raw;
use syscalls::Sysno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::signal::state::Continuation;
use crate::process::time_namespace::{Counter, shown};
use crate::process::timer::cpu::{self, Interval};
use crate::process::timer::posix::TimerSetting;
use crate::process::timer::{self, Setting};
use crate::process::usage::TICKS_PER_SECOND;
use crate::process::{Pid, Task, find};
use crate::sched;
use crate::time::{NANOS_PER_SECOND, monotonic_ns, realtime_ns};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::clock_gettime, clock_gettime),
    (Sysno::clock_getres, clock_getres),
    (Sysno::clock_settime, clock_settime),
    (Sysno::adjtimex, adjtimex),
    (Sysno::clock_adjtime, clock_adjtime),
    (Sysno::settimeofday, |_| Err(Errno::EPERM)),
    (Sysno::gettimeofday, gettimeofday),
    (Sysno::time, time),
    (Sysno::nanosleep, nanosleep),
    (Sysno::clock_nanosleep, clock_nanosleep),
    (Sysno::restart_syscall, restart_syscall),
    (Sysno::alarm, alarm),
    (Sysno::setitimer, setitimer),
    (Sysno::getitimer, getitimer),
    (Sysno::times, times),
];

const NANOS_PER_MICRO: u64 = 1000;
const MICROS_PER_SECOND: u64 = 1_000_000;

/// `struct __kernel_timespec`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds, below a second.
    pub nanos: i64,
}

impl Timespec {
    /// From nanoseconds.
    pub fn from_nanos(nanos: u64) -> Timespec {
        Timespec { seconds: (nanos / NANOS_PER_SECOND) as i64, nanos: (nanos % NANOS_PER_SECOND) as i64 }
    }

    /// As nanoseconds; as many as there can be if it is longer.
    ///
    /// # Errors
    /// `EINVAL`: negative, or nanoseconds of a second or more.
    pub fn to_nanos(self) -> Result<u64, Errno> {
        if self.seconds < 0 || !(0..NANOS_PER_SECOND as i64).contains(&self.nanos) {
            return Err(Errno::EINVAL);
        }
        Ok((self.seconds as u64).saturating_mul(NANOS_PER_SECOND).saturating_add(self.nanos as u64))
    }
}

/// `struct timeval`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Timeval {
    seconds: i64,
    micros: i64,
}

impl Timeval {
    fn from_nanos(nanos: u64) -> Timeval {
        Timeval {
            seconds: (nanos / NANOS_PER_SECOND) as i64,
            micros: (nanos % NANOS_PER_SECOND / NANOS_PER_MICRO) as i64,
        }
    }

    fn to_nanos(self) -> Result<u64, Errno> {
        if self.seconds < 0 || !(0..MICROS_PER_SECOND as i64).contains(&self.micros) {
            return Err(Errno::EINVAL);
        }
        let seconds = (self.seconds as u64).saturating_mul(NANOS_PER_SECOND);
        Ok(seconds.saturating_add(self.micros as u64 * NANOS_PER_MICRO))
    }
}

/// The moment `nanos` from now, on the monotonic clock.
pub fn deadline_after(nanos: u64) -> u64 {
    monotonic_ns().saturating_add(nanos)
}

/// Where a clock gets its time.
pub(super) enum Clock {
    /// Since 1970.
    Realtime,
    /// Since boot.
    Monotonic(Counter),
    /// Processor time of a process.
    Process(Pid),
    /// Processor time of a thread.
    Thread(Pid),
}

/// `EINVAL` for a clock that does not exist.
pub(super) fn clock(ctx: &SyscallContext<'_>, id: u64) -> Result<Clock, Errno> {
    let id = id as i32;
    if id < 0 {
        return dynamic_clock(ctx, id);
    }
    match id as u32 {
        raw::CLOCK_REALTIME | raw::CLOCK_REALTIME_COARSE | raw::CLOCK_REALTIME_ALARM | raw::CLOCK_TAI => {
            Ok(Clock::Realtime)
        }
        raw::CLOCK_MONOTONIC | raw::CLOCK_MONOTONIC_RAW | raw::CLOCK_MONOTONIC_COARSE => {
            Ok(Clock::Monotonic(Counter::Monotonic))
        }
        raw::CLOCK_BOOTTIME | raw::CLOCK_BOOTTIME_ALARM => Ok(Clock::Monotonic(Counter::Boottime)),
        raw::CLOCK_PROCESS_CPUTIME_ID => Ok(Clock::Process(ctx.task.tgid)),
        raw::CLOCK_THREAD_CPUTIME_ID => Ok(Clock::Thread(ctx.task.pid)),
        _ => Err(Errno::EINVAL),
    }
}

/// Negative numbers: `~pid << 3`, with bit 2 for a thread and a kind below it (`posix-timers_types.h`); 3 is a file.
fn dynamic_clock(ctx: &SyscallContext<'_>, id: i32) -> Result<Clock, Errno> {
    const PER_THREAD: i32 = 4;
    let pid = !(id >> 3) as Pid;
    if id & 3 == 3 {
        return Err(Errno::EINVAL);
    }
    let known = || ctx.task.pid_of(pid).ok_or(Errno::EINVAL);
    if id & PER_THREAD != 0 {
        let pid = if pid == 0 { ctx.task.pid } else { known()? };
        return Ok(Clock::Thread(pid));
    }
    Ok(Clock::Process(if pid == 0 { ctx.task.tgid } else { known()? }))
}

impl Clock {
    fn now(&self) -> Result<u64, Errno> {
        let task = |pid: &Pid| find(*pid).ok_or(Errno::EINVAL);
        Ok(match self {
            Clock::Realtime => realtime_ns(),
            Clock::Monotonic(counter) => shown(*counter, monotonic_ns()),
            Clock::Process(pid) => {
                let usage = task(pid)?.process.usage();
                usage.user_ns + usage.system_ns
            }
            Clock::Thread(pid) => {
                let usage = task(pid)?.thread_usage();
                usage.user_ns + usage.system_ns
            }
        })
    }
}

fn clock_gettime(ctx: &mut SyscallContext<'_>) -> SysResult {
    let now = clock(ctx, ctx.args[0])?.now()?;
    uaccess::write(ctx.args[1], &Timespec::from_nanos(now))?;
    Ok(0)
}

fn clock_getres(ctx: &mut SyscallContext<'_>) -> SysResult {
    clock(ctx, ctx.args[0])?;
    if ctx.args[1] != 0 {
        uaccess::write(ctx.args[1], &Timespec::from_nanos(1))?;
    }
    Ok(0)
}

fn clock_settime(ctx: &mut SyscallContext<'_>) -> SysResult {
    match clock(ctx, ctx.args[0])? {
        Clock::Realtime => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// `struct timex`, as words of 64 bits, without what is reserved at its end.
type Timex = [i64; 20];

/// Reads the state of a clock that nothing disciplines and nobody may set.
fn adjust(address: u64) -> SysResult {
    /// `STA_UNSYNC`, and what calls return then (`TIME_ERROR`).
    const UNSYNCHRONIZED: i64 = 0x40;
    const ERROR: usize = 5;
    /// `NTP_PHASE_LIMIT`, in microseconds: the error grows to this and no further.
    const ERROR_MOST: i64 = 16_000_000;
    let modes: u32 = uaccess::read(address)?;
    if modes != 0 {
        return Err(Errno::EPERM);
    }
    let now = Timeval::from_nanos(realtime_ns());
    let mut timex: Timex = [0; 20];
    (timex[3], timex[4], timex[5]) = (ERROR_MOST, ERROR_MOST, UNSYNCHRONIZED);
    // A time constant of 2, a precision of a microsecond, a tolerance of 500 parts in a million, ticks of 10 ms.
    (timex[6], timex[7], timex[8], timex[11]) = (2, 1, 32_768_000, 10_000);
    (timex[9], timex[10]) = (now.seconds, now.micros);
    uaccess::write(address, &timex)?;
    Ok(ERROR)
}

fn adjtimex(ctx: &mut SyscallContext<'_>) -> SysResult {
    adjust(ctx.args[0])
}

fn clock_adjtime(ctx: &mut SyscallContext<'_>) -> SysResult {
    match clock(ctx, ctx.args[0])? {
        Clock::Realtime => adjust(ctx.args[1]),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn gettimeofday(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [time, zone, ..] = ctx.args;
    if time != 0 {
        uaccess::write(time, &Timeval::from_nanos(realtime_ns()))?;
    }
    if zone != 0 {
        uaccess::write(zone, &[0u32; 2])?;
    }
    Ok(0)
}

fn time(ctx: &mut SyscallContext<'_>) -> SysResult {
    let seconds = realtime_ns() / NANOS_PER_SECOND;
    if ctx.args[0] != 0 {
        uaccess::write(ctx.args[0], &seconds)?;
    }
    Ok(seconds as usize)
}

/// Sleeps until a moment of the monotonic clock. `remaining`: where to write what was left when a signal came; 0 for nowhere.
fn sleep_relative(task: &Task, deadline: u64, remaining: u64) -> SysResult {
    if sched::sleep_until(deadline).is_ok() {
        return Ok(0);
    }
    let left = deadline.saturating_sub(monotonic_ns());
    if left == 0 {
        return Ok(0);
    }
    if remaining != 0 {
        uaccess::write(remaining, &Timespec::from_nanos(left))?;
    }
    task.signals.lock().continuation = Some(Continuation::Sleep { deadline, remaining });
    Err(Errno::ERESTART_RESTARTBLOCK)
}

fn nanosleep(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [time, remaining, ..] = ctx.args;
    let nanos = uaccess::read::<Timespec>(time)?.to_nanos()?;
    sleep_relative(ctx.task, deadline_after(nanos), remaining)
}

fn clock_nanosleep(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [id, flags, time, remaining, ..] = ctx.args;
    let clock = match clock(ctx, id)? {
        Clock::Thread(_) => return Err(Errno::EINVAL),
        // Would have to watch processor time go by.
        Clock::Process(_) => return Err(Errno::EOPNOTSUPP),
        clock => clock,
    };
    let nanos = uaccess::read::<Timespec>(time)?.to_nanos()?;
    if flags as u32 & raw::TIMER_ABSTIME == 0 {
        return sleep_relative(ctx.task, deadline_after(nanos), remaining);
    }
    let ahead = nanos.saturating_sub(clock.now()?);
    sched::sleep_until(deadline_after(ahead)).map_err(|_| Errno::ERESTARTNOHAND)?;
    Ok(0)
}

fn restart_syscall(ctx: &mut SyscallContext<'_>) -> SysResult {
    let continuation = ctx.task.signals.lock().continuation.take();
    match continuation {
        Some(Continuation::Sleep { deadline, remaining }) => sleep_relative(ctx.task, deadline, remaining),
        Some(Continuation::Futex { wanted, deadline }) => super::futex::wait(ctx.task, &wanted, Some(deadline)),
        Some(Continuation::Poll { address, count, deadline }) => {
            super::file::polling::poll_until(ctx.task, address, count, deadline)
        }
        None => Err(Errno::EINTR),
    }
}

fn alarm(ctx: &mut SyscallContext<'_>) -> SysResult {
    let seconds = u64::from(ctx.args[0] as u32);
    let setting = Setting { remaining: seconds * NANOS_PER_SECOND, interval: 0 };
    let before = timer::set(ctx.task, setting).remaining;
    // Rounded, but an alarm that will come is never reported as 0 (alarm(2), Linux's `alarm_setitimer`).
    let seconds = (before + NANOS_PER_SECOND / 2) / NANOS_PER_SECOND;
    Ok(if before != 0 { seconds.max(1) as usize } else { 0 })
}

fn write_setting(address: u64, setting: Setting) -> Result<(), Errno> {
    uaccess::write(address, &Timeval::from_nanos(setting.interval))?;
    // What is left of a microsecond is not nothing.
    let remaining = setting.remaining.next_multiple_of(NANOS_PER_MICRO);
    uaccess::write(address.wrapping_add(16), &Timeval::from_nanos(remaining))
}

/// Which interval timer a call means: `None` for `ITIMER_REAL`.
fn interval_timer(which: u64) -> Result<Option<Interval>, Errno> {
    match which as u32 {
        raw::ITIMER_REAL => Ok(None),
        raw::ITIMER_VIRTUAL => Ok(Some(Interval::Virtual)),
        raw::ITIMER_PROF => Ok(Some(Interval::Profiling)),
        _ => Err(Errno::EINVAL),
    }
}

fn getitimer(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [which, value, ..] = ctx.args;
    let process = &ctx.task.process;
    let setting = match interval_timer(which)? {
        None => process.real_timer.lock().setting(),
        Some(which) => cpu::setting(process, which),
    };
    write_setting(value, setting)?;
    Ok(0)
}

fn setitimer(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [which, new, old, ..] = ctx.args;
    let setting = match new {
        // A null pointer switches the timer off, as Linux still allows.
        0 => Setting::default(),
        _ => {
            let [interval, remaining]: [Timeval; 2] = uaccess::read(new)?;
            Setting { interval: interval.to_nanos()?, remaining: remaining.to_nanos()? }
        }
    };
    let before = match interval_timer(which)? {
        None => timer::set(ctx.task, setting),
        Some(which) => cpu::set(&ctx.task.process, which, setting),
    };
    if old != 0 {
        write_setting(old, before)?;
    }
    Ok(0)
}

/// `struct itimerspec`: the interval, then the value.
pub fn read_timer_setting(address: u64) -> Result<TimerSetting, Errno> {
    let [interval, value]: [Timespec; 2] = uaccess::read(address)?;
    Ok(TimerSetting { interval: interval.to_nanos()?, value: value.to_nanos()? })
}

/// The same to a program.
pub fn write_timer_setting(address: u64, setting: TimerSetting) -> Result<(), Errno> {
    uaccess::write(address, &[Timespec::from_nanos(setting.interval), Timespec::from_nanos(setting.value)])
}

fn times(ctx: &mut SyscallContext<'_>) -> SysResult {
    if ctx.args[0] != 0 {
        let process = &ctx.task.process;
        let (own, children) = (process.usage(), process.children_usage());
        let record = [own.user_ticks(), own.system_ticks(), children.user_ticks(), children.system_ticks()];
        uaccess::write(ctx.args[0], &record)?;
    }
    Ok((monotonic_ns() / (NANOS_PER_SECOND / TICKS_PER_SECOND)) as usize)
}
