//! Calls about processes by descriptor: `pidfd_open`, `pidfd_send_signal`, `pidfd_getfd`, `process_mrelease`.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::inode::Kind;
use crate::fs::pidfd::PidFd;
use crate::fs::poll::{self, Changes};
use crate::process::access::{AccessAs, may_access};
use crate::process::signal::info::code;
use crate::process::signal::send::{self, permit};
use crate::process::signal::{SigInfo, Signal};
use crate::process::{Process, Task, find, tree};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::pidfd_open, pidfd_open),
    (Sysno::pidfd_send_signal, pidfd_send_signal),
    (Sysno::pidfd_getfd, pidfd_getfd),
    (Sysno::process_mrelease, process_mrelease),
];

/// Flags of `pidfd_open` (`linux/pidfd.h`).
const PIDFD_NONBLOCK: u32 = raw::O_NONBLOCK;
const PIDFD_THREAD: u32 = raw::O_EXCL;

/// Flags of `pidfd_send_signal`: to whom, where the descriptor's own kind does not say it.
const SIGNAL_THREAD: u32 = 1 << 0;
const SIGNAL_THREAD_GROUP: u32 = 1 << 1;
const SIGNAL_PROCESS_GROUP: u32 = 1 << 2;

fn pidfd_open(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, flags, ..] = ctx.args;
    let (pid, flags) = (pid as i32, flags as u32);
    if flags & !(PIDFD_NONBLOCK | PIDFD_THREAD) != 0 || pid <= 0 {
        return Err(Errno::EINVAL);
    }
    let task = ctx.task.find(pid as u32).ok_or(Errno::ESRCH)?;
    let means = match flags & PIDFD_THREAD {
        0 if !task.is_leader() => return Err(Errno::ENOENT),
        0 => PidFd::process(task.process.clone()),
        _ => PidFd::thread(&task),
    };
    let file = means.open(OpenFlags::from_user(flags & PIDFD_NONBLOCK));
    let limit = ctx.task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    Ok(ctx.task.files.lock().insert_from(0, limit, file, AtExec::Close)? as usize)
}

/// What a descriptor argument means; the two negative numbers are the caller's thread and process (`PIDFD_SELF_*`). `EBADF`.
pub(super) fn of_descriptor(task: &alloc::sync::Arc<Task>, fd: i32) -> Result<PidFd, Errno> {
    match fd {
        raw::PIDFD_SELF_THREAD => Ok(PidFd::thread(task)),
        raw::PIDFD_SELF_THREAD_GROUP => Ok(PidFd::process(task.process.clone())),
        _ => task.files.lock().get(fd)?.body.pidfd().cloned().ok_or(Errno::EBADF),
    }
}

/// Signals may be sent by an open `/proc/PID`, too. `EBADF`; `ESRCH` if it is gone.
fn of_directory(task: &Task, fd: i32) -> Result<PidFd, Errno> {
    let file = task.files.lock().get(fd)?;
    let pid = match &file.inode().kind {
        Kind::Proc(node) => node.process(),
        _ => None,
    };
    let task = find(pid.ok_or(Errno::EBADF)?).ok_or(Errno::ESRCH)?;
    Ok(PidFd::process(task.process.clone()))
}

fn pidfd_send_signal(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, number, info, flags, ..] = ctx.args;
    let (number, flags) = (number as i32, flags as u32);
    const SCOPES: u32 = SIGNAL_THREAD | SIGNAL_THREAD_GROUP | SIGNAL_PROCESS_GROUP;
    if flags & !SCOPES != 0 || flags.count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    let target = of_descriptor(ctx.task, fd as i32).or_else(|_| of_directory(ctx.task, fd as i32))?;
    // Only what one sees can be sent to (`access_pidfd_pidns`).
    if !target.of().pid_namespace.is_within(&ctx.task.process.pid_namespace) {
        return Err(Errno::EINVAL);
    }
    let scope = match flags {
        0 if target.is_thread() => SIGNAL_THREAD,
        0 => SIGNAL_THREAD_GROUP,
        scope => scope,
    };
    let signal = match number {
        0 => None,
        number => Some(Signal::new(u64::from(number as u32)).ok_or(Errno::EINVAL)),
    };
    let info = match info {
        0 => {
            let how = if scope == SIGNAL_THREAD { code::SI_TKILL } else { code::SI_USER };
            let known = signal.and_then(Result::ok).unwrap_or(Signal::HUP);
            SigInfo::user(known, how, ctx.task.number_of(ctx.task.tgid), ctx.task.credentials().uid)
        }
        address => {
            let (said, info) = SigInfo::read_with_number(address, signal.and_then(Result::ok).unwrap_or(Signal::HUP))?;
            if said != number {
                return Err(Errno::EINVAL);
            }
            let own = target.number() == Some(ctx.task.pid) && scope != SIGNAL_PROCESS_GROUP;
            if !own && (info.code >= 0 || info.code == code::SI_TKILL) {
                return Err(Errno::EPERM);
            }
            info
        }
    };
    let signal = signal.transpose()?;
    if scope == SIGNAL_PROCESS_GROUP {
        return to_group(ctx, target.number().ok_or(Errno::ESRCH)?, signal, info);
    }
    if target.life() == tree::Life::Gone {
        return Err(Errno::ESRCH);
    }
    permit(ctx.task, target.of(), signal)?;
    if signal.is_some() {
        match scope {
            // A thread that has ended takes nothing any more.
            SIGNAL_THREAD => {
                if let Ok(task) = target.task() {
                    send::to_task(&task, info)?;
                }
            }
            _ => send::to_process(target.of(), info)?,
        }
    }
    Ok(0)
}

/// To the members of the process group of that number.
fn to_group(ctx: &SyscallContext<'_>, pgid: u32, signal: Option<Signal>, info: SigInfo) -> SysResult {
    let mut result = Err(Errno::ESRCH);
    for process in tree::group(pgid) {
        let sent = permit(ctx.task, &process, signal).and_then(|()| match signal {
            Some(_) => send::to_process(&process, info),
            None => Ok(()),
        });
        // One that was reached is a success; else the last reason counts.
        match (sent, &result) {
            (Ok(()), _) => result = Ok(0),
            (Err(error), Err(_)) => result = Err(error),
            (Err(_), Ok(_)) => {}
        }
    }
    result
}

/// pidfd_getfd(2): what another process has open.
fn pidfd_getfd(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, wanted, flags, ..] = ctx.args;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let target = of_descriptor(ctx.task, fd as i32)?.task()?;
    if !may_access(ctx.task, &target, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    let file = target.files.lock().get(wanted as i32)?;
    let limit = ctx.task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
    Ok(ctx.task.files.lock().insert_from(0, limit, file, AtExec::Close)? as usize)
}

/// process_mrelease(2): returns when the memory of a process that is dying has been given up. It is given up by the process itself: one that is killed waits
/// for nothing.
fn process_mrelease(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [fd, flags, ..] = ctx.args;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let target = of_descriptor(ctx.task, fd as i32)?;
    if target.task().is_err() {
        return Err(Errno::ESRCH);
    }
    let ends = |process: &Process| process.group.lock().exit_status().is_some();
    if !ends(target.of()) {
        return Err(Errno::EINVAL);
    }
    // Nor is it given up if somebody else goes on to use it (`task_will_free_mem`).
    if let Some(space) = target.of().leader().and_then(|leader| leader.live_space()) {
        let uses = |process: &Process| process.leader().is_some_and(|leader| Arc::ptr_eq(&leader.space(), &space));
        let others = tree::processes().into_iter().filter(|process| !Arc::ptr_eq(process, target.of()));
        if others.into_iter().any(|process| uses(&process) && !ends(&process)) {
            return Err(Errno::EINVAL);
        }
    }
    let given_up = || target.of().threads.lock().iter().all(|thread| thread.live_space().is_none()).then_some(());
    poll::wait_until(None, Changes::Unannounced, given_up).map_err(|_| Errno::ERESTARTNOINTR)?;
    Ok(0)
}
