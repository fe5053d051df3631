//! timerfd_create(2), signalfd(2) and what belongs to them.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::{content_file, descriptor_limit, file};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::timerfd::{self, FdClock};
use crate::fs::{File, reserve, signalfd};
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::signal::SigSet;
use crate::process::time_namespace::Counter;
use crate::process::timer::posix::Reference;
use crate::syscall::SysResult;
use crate::syscall::time::{read_timer_setting, write_timer_setting};

const TFD_TIMER_ABSTIME: u32 = 1;
const TFD_TIMER_CANCEL_ON_SET: u32 = 2;

fn insert(task: &Task, file: Arc<File>, flags: u32) -> SysResult {
    reserve::check(Errno::ENFILE)?;
    let limit = descriptor_limit(task);
    let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
    Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
}

/// timerfd_create(2)
pub fn timerfd_create(task: &Task, clock: u32, flags: u32) -> SysResult {
    let clock = match clock {
        raw::CLOCK_MONOTONIC => Some(FdClock::Monotonic(Counter::Monotonic)),
        raw::CLOCK_BOOTTIME | raw::CLOCK_BOOTTIME_ALARM => Some(FdClock::Monotonic(Counter::Boottime)),
        raw::CLOCK_REALTIME | raw::CLOCK_REALTIME_ALARM => Some(FdClock::Realtime),
        _ => None,
    };
    let (Some(clock), 0) = (clock, flags & !(raw::O_CLOEXEC | raw::O_NONBLOCK)) else { return Err(Errno::EINVAL) };
    insert(task, timerfd::create(clock, OpenFlags::from_user(flags & raw::O_NONBLOCK)), flags)
}

/// timerfd_settime(2). Nothing ever sets the clock, so nothing is cancelled by that.
pub fn timerfd_settime(task: &Task, fd: i32, flags: u32, new: u64, old: u64) -> SysResult {
    let setting = read_timer_setting(new);
    let setting = match setting {
        Err(Errno::EFAULT) => return Err(Errno::EFAULT),
        _ if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 => return Err(Errno::EINVAL),
        setting => setting?,
    };
    let file = file(task, fd)?;
    let timer = file.body.timer().ok_or(Errno::EINVAL)?;
    let reference = if flags & TFD_TIMER_ABSTIME != 0 { Reference::Clock } else { Reference::Now };
    let before = timer.set(setting, reference);
    if old != 0 {
        write_timer_setting(old, before)?;
    }
    Ok(0)
}

/// timerfd_gettime(2)
pub fn timerfd_gettime(task: &Task, fd: i32, address: u64) -> SysResult {
    let file = file(task, fd)?;
    write_timer_setting(address, file.body.timer().ok_or(Errno::EINVAL)?.setting())?;
    Ok(0)
}

/// signalfd4(2)
pub fn signalfd(task: &Task, fd: i32, mask: u64, size: u64, flags: u32) -> SysResult {
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let wanted = SigSet::from_bits(uaccess::read(mask)?).without(SigSet::UNBLOCKABLE);
    if flags & !(raw::O_CLOEXEC | raw::O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    if fd == -1 {
        return insert(task, signalfd::create(wanted, OpenFlags::from_user(flags & raw::O_NONBLOCK)), flags);
    }
    content_file(task, fd)?.body.signals().ok_or(Errno::EINVAL)?.set(wanted);
    Ok(fd as usize)
}
