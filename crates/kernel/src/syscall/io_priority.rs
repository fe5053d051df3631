//! ioprio_get(2), ioprio_set(2): priorities of input and output, which are kept and reported. Files are in memory.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::process::credentials::CAP_SYS_NICE;
use crate::process::{Task, all, tree};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::ioprio_get, ioprio_get), (Sysno::ioprio_set, ioprio_set)];

/// Whom a call means (`IOPRIO_WHO_*`).
const PROCESS: u32 = 1;
const GROUP: u32 = 2;
const USER: u32 = 3;

/// Classes, from this bit on; the lowest bits are a level, those between are hints.
const CLASS_SHIFT: u32 = 13;
const NONE: u32 = 0;
const REAL_TIME: u32 = 1;
const BEST_EFFORT: u32 = 2;
const IDLE: u32 = 3;
/// Levels of a class.
const LEVELS: u32 = 8;

fn targets(ctx: &SyscallContext<'_>) -> Result<Vec<Arc<Task>>, Errno> {
    let (which, who) = (ctx.args[0] as u32, ctx.args[1] as u32);
    let found: Vec<Arc<Task>> = match (which, who) {
        (PROCESS, 0) => alloc::vec![ctx.task.clone()],
        (PROCESS, pid) => ctx.task.find(pid).into_iter().collect(),
        (GROUP, group) => {
            let group = if group == 0 { Some(ctx.task.process.pgid()) } else { ctx.task.pid_of(group) };
            group.map_or_else(Vec::new, tree::group).iter().filter_map(|process| process.leader()).collect()
        }
        (USER, uid) => {
            let uid = if uid == 0 { ctx.task.credentials().uid } else { uid };
            all().into_iter().filter(|task| task.credentials().uid == uid).collect()
        }
        _ => return Err(Errno::EINVAL),
    };
    if found.is_empty() { Err(Errno::ESRCH) } else { Ok(found) }
}

/// The highest of those that are meant: a lower number, but none at all is the lowest.
fn ioprio_get(ctx: &mut SyscallContext<'_>) -> SysResult {
    let priorities = targets(ctx)?.into_iter().map(|task| task.io_priority.load(Ordering::Relaxed));
    let best = priorities.min_by_key(|&priority| if priority == 0 { u32::MAX } else { priority });
    Ok(best.unwrap_or(0) as usize)
}

fn ioprio_set(ctx: &mut SyscallContext<'_>) -> SysResult {
    let priority = ctx.args[2] as u32;
    let (class, level) = (priority >> CLASS_SHIFT, priority & (LEVELS - 1));
    let own = ctx.task.credentials();
    match class {
        REAL_TIME if !own.may(CAP_SYS_NICE) => return Err(Errno::EPERM),
        REAL_TIME | BEST_EFFORT | IDLE => {}
        NONE if level == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    for task in targets(ctx)? {
        let other = task.credentials();
        if ![own.euid, own.uid].contains(&other.uid) && !own.may(CAP_SYS_NICE) {
            return Err(Errno::EPERM);
        }
        task.io_priority.store(priority, Ordering::Relaxed);
    }
    Ok(0)
}
