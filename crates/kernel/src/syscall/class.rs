//! Classes of scheduling (sched(7)).

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use syscalls::Sysno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::scheduling::target;
use super::time::Timespec;
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::credentials::CAP_SYS_NICE;
use crate::process::policy::Class;
use crate::sched;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::sched_getscheduler, sched_getscheduler),
    (Sysno::sched_setscheduler, sched_setscheduler),
    (Sysno::sched_getparam, sched_getparam),
    (Sysno::sched_setparam, sched_setparam),
    (Sysno::sched_getattr, sched_getattr),
    (Sysno::sched_setattr, sched_setattr),
    (Sysno::sched_get_priority_max, |ctx| priority_limit(ctx.args[0], HIGHEST as usize)),
    (Sysno::sched_get_priority_min, |ctx| priority_limit(ctx.args[0], 1)),
    (Sysno::sched_rr_get_interval, sched_rr_get_interval),
];

/// The highest real-time priority.
const HIGHEST: u32 = 99;

/// `struct sched_attr`, first version.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Its size (`SCHED_ATTR_SIZE_VER0`).
const ATTRIBUTES_SIZE: u32 = 48;

const _: () = assert!(size_of::<Attributes>() == ATTRIBUTES_SIZE as usize);

/// Makes it the class of `task` if it is one and the caller may (`__sched_setscheduler`).
fn change(ctx: &SyscallContext<'_>, task: &Arc<Task>, class: Class) -> SysResult {
    match class.policy {
        raw::SCHED_FIFO | raw::SCHED_RR if (1..=HIGHEST).contains(&class.priority) => {}
        raw::SCHED_NORMAL | raw::SCHED_BATCH | raw::SCHED_IDLE if class.priority == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    let (own, other) = (ctx.task.credentials(), task.credentials());
    let before = *task.class.lock();
    if !own.may(CAP_SYS_NICE) {
        let limit = task.process.limits.lock().soft(raw::RLIMIT_RTPRIO);
        let raises = class.is_real_time()
            && (class.policy != before.policy && limit == 0
                || class.priority > before.priority && u64::from(class.priority) > limit);
        let leaves_idle = before.policy == raw::SCHED_IDLE && class.policy != raw::SCHED_IDLE;
        let foreign = ![other.euid, other.uid].contains(&own.euid);
        if raises || leaves_idle || foreign || before.reset_on_fork && !class.reset_on_fork {
            return Err(Errno::EPERM);
        }
    }
    *task.class.lock() = class;
    sched::set_rank(task, class.rank());
    Ok(0)
}

fn sched_setscheduler(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, policy, parameter, ..] = ctx.args;
    if (policy as i32) < 0 || parameter == 0 || (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = uaccess::read(parameter)?;
    let task = target(ctx)?;
    let reset_on_fork = policy as u32 & raw::SCHED_RESET_ON_FORK != 0;
    change(ctx, &task, Class { policy: policy as u32 & !raw::SCHED_RESET_ON_FORK, priority, reset_on_fork })
}

fn sched_setparam(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, parameter, ..] = ctx.args;
    if parameter == 0 || (pid as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let priority = uaccess::read(parameter)?;
    let task = target(ctx)?;
    let class = *task.class.lock();
    change(ctx, &task, Class { priority, ..class })
}

fn sched_getscheduler(ctx: &mut SyscallContext<'_>) -> SysResult {
    let class = *target(ctx)?.class.lock();
    let reset = if class.reset_on_fork { raw::SCHED_RESET_ON_FORK } else { 0 };
    Ok((class.policy | reset) as usize)
}

fn sched_getparam(ctx: &mut SyscallContext<'_>) -> SysResult {
    if ctx.args[1] == 0 {
        return Err(Errno::EINVAL);
    }
    let priority = target(ctx)?.class.lock().priority;
    uaccess::write(ctx.args[1], &priority)?;
    Ok(0)
}

fn sched_setattr(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, address, flags, ..] = ctx.args;
    if address == 0 || (pid as i32) < 0 || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let size: u32 = uaccess::read(address)?;
    let size = if size == 0 { ATTRIBUTES_SIZE } else { size };
    if !(ATTRIBUTES_SIZE..=foldspace::addr::PAGE_SIZE as u32).contains(&size) {
        uaccess::write(address, &ATTRIBUTES_SIZE)?;
        return Err(Errno::E2BIG);
    }
    let attributes: Attributes = uaccess::read(address)?;
    let task = target(ctx)?;
    let reset_on_fork = attributes.flags & u64::from(raw::SCHED_FLAG_RESET_ON_FORK) != 0;
    // Deadlines cannot be promised: as on a machine where all time is promised already.
    if attributes.policy == raw::SCHED_DEADLINE {
        return Err(Errno::EBUSY);
    }
    change(ctx, &task, Class { policy: attributes.policy, priority: attributes.priority, reset_on_fork })
}

fn sched_getattr(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, address, size, flags, ..] = ctx.args;
    let size = size as u32;
    let sizes = ATTRIBUTES_SIZE..=foldspace::addr::PAGE_SIZE as u32;
    if address == 0 || (pid as i32) < 0 || !sizes.contains(&size) || flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let task = target(ctx)?;
    let class = *task.class.lock();
    let nice = task.process.nice.load(core::sync::atomic::Ordering::Relaxed);
    let attributes = Attributes {
        size: ATTRIBUTES_SIZE,
        policy: class.policy,
        flags: if class.reset_on_fork { u64::from(raw::SCHED_FLAG_RESET_ON_FORK) } else { 0 },
        nice: if class.is_real_time() { 0 } else { nice },
        priority: class.priority,
        runtime: 0,
        deadline: 0,
        period: 0,
    };
    uaccess::write(address, &attributes)?;
    Ok(0)
}

fn priority_limit(policy: u64, real_time: usize) -> SysResult {
    match policy as u32 {
        raw::SCHED_FIFO | raw::SCHED_RR => Ok(real_time),
        raw::SCHED_NORMAL | raw::SCHED_BATCH | raw::SCHED_IDLE | raw::SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

fn sched_rr_get_interval(ctx: &mut SyscallContext<'_>) -> SysResult {
    let nanos = match target(ctx)?.class.lock().policy {
        raw::SCHED_FIFO => 0,
        raw::SCHED_RR => sched::ROUND_ROBIN_NS,
        _ => sched::SLICE_NS,
    };
    uaccess::write(ctx.args[1], &Timespec::from_nanos(nanos))?;
    Ok(0)
}
