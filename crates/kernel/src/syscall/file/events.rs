//! epoll(7).

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::polling::{Timeout, with_mask};
use super::{content_file, descriptor_limit};
use crate::errno::Errno;
use crate::fs::epoll::{self, Watch};
use crate::fs::fdtable::AtExec;
use crate::fs::{File, reserve};
use crate::mm::uaccess;
use crate::process::Task;
use crate::syscall::SysResult;
use crate::time::monotonic_ns;

/// Bytes of `struct epoll_event` of x86-64, which is packed: events, then data.
const RECORD: u64 = 12;

/// epoll_create1(2)
pub fn create(task: &Task, flags: u32) -> SysResult {
    if flags & !raw::EPOLL_CLOEXEC != 0 {
        return Err(Errno::EINVAL);
    }
    reserve::check(Errno::ENFILE)?;
    let limit = descriptor_limit(task);
    let at_exec = AtExec::from_flag(flags, raw::EPOLL_CLOEXEC);
    Ok(task.files.lock().insert_from(0, limit, epoll::create(), at_exec)? as usize)
}

/// epoll_ctl(2). Errors in Linux's order (`do_epoll_ctl` of `fs/eventpoll.c`).
pub fn control(task: &Task, set: i32, operation: u32, fd: i32, event: u64) -> SysResult {
    let watch = match operation {
        raw::EPOLL_CTL_DEL => Watch { events: 0, data: 0 },
        _ => read_watch(event)?,
    };
    let set = content_file(task, set)?;
    let file = content_file(task, fd)?;
    if !epoll::is_watchable(&file) {
        return Err(Errno::EPERM);
    }
    if Arc::ptr_eq(&set, &file) {
        return Err(Errno::EINVAL);
    }
    let epoll = set.body.epoll().ok_or(Errno::EINVAL)?;
    if operation != raw::EPOLL_CTL_DEL && watch.events & raw::EPOLLEXCLUSIVE != 0 {
        const BESIDE: u32 = raw::EPOLLIN
            | raw::EPOLLOUT
            | raw::EPOLLERR
            | raw::EPOLLHUP
            | raw::EPOLLWAKEUP
            | raw::EPOLLET
            | raw::EPOLLEXCLUSIVE;
        let refused = operation == raw::EPOLL_CTL_MOD || file.body.epoll().is_some() || watch.events & !BESIDE != 0;
        if refused {
            return Err(Errno::EINVAL);
        }
    }
    match operation {
        raw::EPOLL_CTL_ADD => epoll.add(fd, &file, watch)?,
        raw::EPOLL_CTL_MOD => epoll.modify(fd, &file, watch)?,
        raw::EPOLL_CTL_DEL => epoll.remove(fd, &file)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

fn read_watch(address: u64) -> Result<Watch, Errno> {
    let [low, middle, high]: [u32; 3] = uaccess::read(address)?;
    Ok(Watch { events: low, data: u64::from(middle) | u64::from(high) << 32 })
}

/// How long a call waits.
#[derive(Clone, Copy)]
pub enum Patience {
    /// Milliseconds, below 0 for ever.
    Millis(i32),
    /// The address of a `struct timespec`, 0 for ever.
    Timespec(u64),
}

/// epoll_wait(2), epoll_pwait(2), epoll_pwait2(2)
pub fn wait(task: &Arc<Task>, set: i32, events: u64, most: i32, patience: Patience, mask: (u64, usize)) -> SysResult {
    let deadline = match patience {
        Patience::Millis(millis) => {
            u64::try_from(millis).ok().map(|millis| monotonic_ns().saturating_add(millis * 1_000_000))
        }
        Patience::Timespec(address) => Timeout::read(address, 1)?.deadline,
    };
    with_mask(task, mask, || {
        let most = usize::try_from(most).ok().filter(|&most| most > 0 && most as u64 <= i32::MAX as u64 / RECORD);
        let most = most.ok_or(Errno::EINVAL)?;
        let end = events.checked_add(most as u64 * RECORD).ok_or(Errno::EFAULT)?;
        if end > foldspace::addr::USER_END.get() {
            return Err(Errno::EFAULT);
        }
        let set: Arc<File> = content_file(task, set)?;
        let found = set.body.epoll().ok_or(Errno::EINVAL)?.wait(most, deadline)?;
        for (index, watch) in found.iter().enumerate() {
            let record = [watch.events, watch.data as u32, (watch.data >> 32) as u32];
            if let Err(error) = uaccess::write(events + index as u64 * RECORD, &record) {
                return if index > 0 { Ok(index) } else { Err(error) };
            }
        }
        Ok(found.len())
    })
}
