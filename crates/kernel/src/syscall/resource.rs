//! Resource limits and what was used.

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::CAP_SYS_RESOURCE;
use crate::process::limits::{Limit, MAX_FILES};
use crate::process::timer::cpu;
use crate::process::{Pid, Process};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::getrlimit, getrlimit),
    (Sysno::setrlimit, setrlimit),
    (Sysno::prlimit64, prlimit64),
    (Sysno::getrusage, getrusage),
];

/// `RUSAGE_*`, which linux/resource.h has as expressions.
const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;

/// Reads and changes a limit of a process. `EPERM`: above what it may have.
fn exchange(ctx: &SyscallContext<'_>, process: &Process, resource: u32, new: Option<Limit>) -> Result<Limit, Errno> {
    let privileged = ctx.task.credentials().may(CAP_SYS_RESOURCE);
    let old = {
        let mut limits = process.limits.lock();
        let old = limits.get(resource).ok_or(Errno::EINVAL)?;
        if let Some(new) = new {
            if new.soft > new.hard {
                return Err(Errno::EINVAL);
            }
            if resource == raw::RLIMIT_NOFILE && new.hard > MAX_FILES {
                return Err(Errno::EPERM);
            }
            if new.hard > old.hard && !privileged {
                return Err(Errno::EPERM);
            }
            limits.set(resource, new);
        }
        old
    };
    if let Some(new) = new {
        apply(process, resource, new);
    }
    Ok(old)
}

/// Tells the memory manager about limits that are its business.
fn apply(process: &Process, resource: u32, limit: Limit) {
    if resource == raw::RLIMIT_CPU {
        cpu::update(process);
    }
    let Some(task) = process.leader() else { return };
    let lock_limit = task.lock_limit();
    task.space().update_layout(|layout| match resource {
        raw::RLIMIT_STACK => layout.stack_limit = limit.soft,
        raw::RLIMIT_DATA => (layout.data_limit, layout.data_limit_hard) = (limit.soft, limit.hard),
        raw::RLIMIT_AS => layout.address_space_limit = limit.soft,
        raw::RLIMIT_MEMLOCK => layout.lock_limit = lock_limit,
        _ => {}
    });
}

fn getrlimit(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [resource, limit, ..] = ctx.args;
    let old = exchange(ctx, &ctx.task.process, resource as u32, None)?;
    uaccess::write(limit, &old)?;
    Ok(0)
}

fn setrlimit(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [resource, limit, ..] = ctx.args;
    let new: Limit = uaccess::read(limit)?;
    exchange(ctx, &ctx.task.process, resource as u32, Some(new))?;
    Ok(0)
}

fn prlimit64(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, resource, new, old, ..] = ctx.args;
    let new: Option<Limit> = if new != 0 { Some(uaccess::read(new)?) } else { None };
    let before = match pid as Pid {
        0 => exchange(ctx, &ctx.task.process, resource as u32, new)?,
        pid => {
            let process = ctx.task.find_process(pid).ok_or(Errno::ESRCH)?;
            let ids = ctx.task.credentials();
            if !ids.is_privileged() && process.uid() != ids.uid {
                return Err(Errno::EPERM);
            }
            exchange(ctx, &process, resource as u32, new)?
        }
    };
    if old != 0 {
        uaccess::write(old, &before)?;
    }
    Ok(0)
}

fn getrusage(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [who, usage, ..] = ctx.args;
    let process = &ctx.task.process;
    let resident = || {
        let usage = ctx.task.space().usage();
        (usage.resident_anon + usage.resident_file + usage.resident_shared) * (foldspace::addr::PAGE_SIZE / 1024)
    };
    let record = match who as i32 {
        RUSAGE_SELF => process.usage().to_record(resident()),
        RUSAGE_THREAD => ctx.task.thread_usage().to_record(resident()),
        RUSAGE_CHILDREN => process.children_usage().to_record(0),
        _ => return Err(Errno::EINVAL),
    };
    uaccess::write(usage, &record)?;
    Ok(0)
}
