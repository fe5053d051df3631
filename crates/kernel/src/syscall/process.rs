//! Calls that begin, end, and wait for processes.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use smallvec::SmallVec;
use syscalls::Sysno;
use zerocopy::FromBytes;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::fs::exec::{open_exec, open_exec_at, open_exec_file};
use crate::fs::path::LastLink;
use crate::mm::uaccess;
use crate::process::Pid;
use crate::process::exec::arguments::Arguments;
use crate::process::exec::execute;
use crate::process::exit::ExitStatus;
use crate::process::fork::{CloneRequest, clone as clone_task};
use crate::process::pid_namespace::DEEPEST;
use crate::process::wait::{Report, WAIT4_OPTIONS, WAITID_OPTIONS, Which, wait};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::fork, fork),
    (Sysno::vfork, vfork),
    (Sysno::clone, clone),
    (Sysno::clone3, clone3),
    (Sysno::execve, execve),
    (Sysno::execveat, execveat),
    (Sysno::exit, exit),
    (Sysno::exit_group, exit_group),
    (Sysno::wait4, wait4),
    (Sysno::waitid, waitid),
    (Sysno::set_tid_address, set_tid_address),
];

/// Longest path, its NUL included.
const PATH_MAX: usize = 4096;
/// Bits of `clone`'s flags that hold the exit signal.
const CSIGNAL: u64 = 0xff;

fn fork(ctx: &mut SyscallContext<'_>) -> SysResult {
    let request = CloneRequest { exit_signal: u64::from(raw::SIGCHLD), ..CloneRequest::default() };
    Ok(clone_task(ctx.task, ctx.frame, &request)? as usize)
}

fn vfork(ctx: &mut SyscallContext<'_>) -> SysResult {
    let request = CloneRequest {
        flags: u64::from(raw::CLONE_VFORK | raw::CLONE_VM),
        exit_signal: u64::from(raw::SIGCHLD),
        ..CloneRequest::default()
    };
    Ok(clone_task(ctx.task, ctx.frame, &request)? as usize)
}

fn clone(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [flags, stack, parent_tid, child_tid, tls, _] = ctx.args;
    // The upper half belongs to clone3.
    let flags = u64::from(flags as u32);
    let (flags, exit_signal) = (flags & !CSIGNAL, flags & CSIGNAL);
    let request = CloneRequest {
        flags,
        exit_signal,
        stack,
        parent_tid,
        child_tid,
        pidfd: parent_tid,
        tls,
        pids: SmallVec::new(),
    };
    Ok(clone_task(ctx.task, ctx.frame, &request)? as usize)
}

/// `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup.
const CLONE_ARGS_WORDS: usize = 11;
/// Its size in the first version.
const CLONE_ARGS_SIZE_VER0: u64 = 64;

fn clone3(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [address, size, ..] = ctx.args;
    let words: [u64; CLONE_ARGS_WORDS] = read_struct(address, size, CLONE_ARGS_SIZE_VER0)?;
    let [flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup] =
        words;
    let pids = wanted_pids(set_tid, set_tid_size)?;
    const INTO_CGROUP: u64 = 1 << 33;
    /// The size with a control group.
    const SIZE_VER2: u64 = 88;
    if flags & INTO_CGROUP != 0 && (cgroup > i32::MAX as u64 || size < SIZE_VER2) {
        return Err(Errno::EINVAL);
    }
    /// Everything that Linux 6.18 knows, `CLONE_CLEAR_SIGHAND` included.
    const KNOWN: u64 = 0x3_ffff_ffff & !CSIGNAL | raw::CLONE_NEWTIME as u64;
    if flags & !KNOWN != 0 || flags & u64::from(raw::CLONE_DETACHED) != 0 {
        return Err(Errno::EINVAL);
    }
    if exit_signal > 64 || flags & u64::from(raw::CLONE_THREAD | raw::CLONE_PARENT) != 0 && exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    if (stack == 0) != (stack_size == 0) {
        return Err(Errno::EINVAL);
    }
    let stack = stack.checked_add(stack_size).ok_or(Errno::EINVAL)?;
    if flags & INTO_CGROUP != 0 {
        // There is no file system of control groups, so that nothing is one.
        return Err(Errno::EBADF);
    }
    let request = CloneRequest { flags, exit_signal, stack, parent_tid, child_tid, pidfd, tls, pids };
    Ok(clone_task(ctx.task, ctx.frame, &request)? as usize)
}

/// The numbers that a child is to have: at most one for each namespace that it is in.
fn wanted_pids(numbers: u64, count: u64) -> Result<SmallVec<[i32; 1]>, Errno> {
    if count > DEEPEST as u64 || (numbers == 0) != (count == 0) {
        return Err(Errno::EINVAL);
    }
    (0..count).map(|index| uaccess::read(numbers.wrapping_add(4 * index))).collect()
}

/// Reads a structure that grows from version to version (`copy_struct_from_user`): what is missing is zero, what is unknown must be.
fn read_struct<const WORDS: usize>(address: u64, size: u64, least: u64) -> Result<[u64; WORDS], Errno> {
    let known = WORDS * 8;
    if size > foldspace::addr::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if size < least {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0u8; 128];
    let len = (size as usize).min(known);
    uaccess::read_bytes(address, &mut bytes[..len])?;
    let mut at = known as u64;
    while at < size {
        let mut rest = [0u8; 64];
        let part = (size - at).min(64) as usize;
        uaccess::read_bytes(address.wrapping_add(at), &mut rest[..part])?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += part as u64;
    }
    let (words, _) = <[u64; WORDS]>::read_from_prefix(&bytes).map_err(|_| Errno::EINVAL)?;
    Ok(words)
}

fn execve(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [path, argv, envp, ..] = ctx.args;
    let filename = uaccess::read_cstr(path, PATH_MAX)?;
    let context = ctx.task.fs.lock().clone();
    let file = open_exec(&context, &filename)?;
    let arguments = Arguments::read(argv, envp, &filename, stack_limit(ctx))?;
    execute(ctx.task, ctx.frame, file, &filename, arguments)?;
    Ok(0)
}

fn execveat(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [directory, path, argv, envp, flags, _] = ctx.args;
    let (directory, flags) = (directory as i32, flags as u32);
    if flags & !(raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = uaccess::read_cstr(path, PATH_MAX)?;
    let context = ctx.task.fs.lock().clone();
    let opened = match directory {
        raw::AT_FDCWD => None,
        _ if path.starts_with(b"/") => None,
        fd => Some(ctx.task.files.lock().get(fd)?),
    };
    let last_link = if flags & raw::AT_SYMLINK_NOFOLLOW != 0 { LastLink::Keep } else { LastLink::Follow };
    let (file, filename) = match &opened {
        Some(opened) if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 => {
            (open_exec_file(opened)?, alloc::format!("/dev/fd/{directory}").into_bytes())
        }
        Some(opened) => {
            let mut filename = alloc::format!("/dev/fd/{directory}/").into_bytes();
            filename.extend_from_slice(&path);
            (open_exec_at(&context, &opened.dentry, &path, last_link)?, filename)
        }
        None => (open_exec_at(&context, &context.cwd, &path, last_link)?, path),
    };
    drop(opened);
    let arguments = Arguments::read(argv, envp, &filename, stack_limit(ctx))?;
    execute(ctx.task, ctx.frame, file, &filename, arguments)?;
    Ok(0)
}

fn stack_limit(ctx: &SyscallContext<'_>) -> u64 {
    ctx.task.process.limits.lock().soft(raw::RLIMIT_STACK)
}

/// The thread ends on its way back to user mode, where nothing of this call is left on its stack.
fn exit(ctx: &mut SyscallContext<'_>) -> SysResult {
    ctx.task.signals.lock().exit = Some(ExitStatus::Exited(ctx.args[0] as u8));
    ctx.task.notify();
    Ok(0)
}

fn exit_group(ctx: &mut SyscallContext<'_>) -> SysResult {
    ctx.task.process.begin_exit(ExitStatus::Exited(ctx.args[0] as u8));
    Ok(0)
}

fn set_tid_address(ctx: &mut SyscallContext<'_>) -> SysResult {
    ctx.task.clear_child_tid.store(ctx.args[0], Ordering::Relaxed);
    Ok(ctx.task.own_number() as usize)
}

/// What the caller's number means; 0, which nobody has, where it means nothing.
fn known(ctx: &SyscallContext<'_>, number: Pid) -> Pid {
    ctx.task.pid_of(number).unwrap_or(0)
}

fn wait4(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, status, options, usage, ..] = ctx.args;
    let (pid, options) = (pid as i32, options as u32);
    if options & !WAIT4_OPTIONS != 0 {
        return Err(Errno::EINVAL);
    }
    if pid == i32::MIN {
        return Err(Errno::ESRCH);
    }
    let which = match pid {
        -1 => Which::Any,
        0 => Which::Group(ctx.task.process.pgid()),
        ..-1 => Which::Group(known(ctx, pid.unsigned_abs())),
        _ => Which::Process(known(ctx, pid as Pid)),
    };
    let Some(report) = wait(ctx.task, which, options | raw::WEXITED)? else { return Ok(0) };
    if usage != 0 {
        uaccess::write(usage, &report.usage.to_record(0))?;
    }
    if status != 0 {
        uaccess::write(status, &report.event.to_wait_status())?;
    }
    Ok(report.pid as usize)
}

fn waitid(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [kind, id, info, options, usage, _] = ctx.args;
    let (kind, id, mut options) = (kind as u32, id as i32, options as u32);
    let mut would_wait = Ok(());
    if options & !WAITID_OPTIONS != 0 || options & (raw::WEXITED | raw::WSTOPPED | raw::WCONTINUED) == 0 {
        return Err(Errno::EINVAL);
    }
    let which = match kind {
        raw::P_ALL => Which::Any,
        raw::P_PID if id > 0 => Which::Process(known(ctx, id as Pid)),
        raw::P_PGID if id == 0 => Which::Group(ctx.task.process.pgid()),
        raw::P_PGID if id > 0 => Which::Group(known(ctx, id as Pid)),
        raw::P_PIDFD if id >= 0 => {
            let file = ctx.task.files.lock().get(id)?;
            let target = file.body.pidfd().ok_or(Errno::EBADF)?;
            // Without a number it has been waited for.
            let child = target.number().ok_or(Errno::ECHILD)?;
            if file.non_blocking() && options & raw::WNOHANG == 0 {
                options |= raw::WNOHANG;
                would_wait = Err(Errno::EAGAIN);
            }
            Which::Process(child)
        }
        _ => return Err(Errno::EINVAL),
    };
    let report = wait(ctx.task, which, options)?;
    if report.is_none() {
        would_wait?;
    }
    if let Some(report) = &report
        && usage != 0
    {
        uaccess::write(usage, &report.usage.to_record(0))?;
    }
    if info != 0 {
        // Linux writes the fields that concern children and leaves the rest; zero if there is nothing to report.
        match report {
            Some(report) => uaccess::write(
                info,
                &Report { uid: ctx.task.credentials().shown_user(report.uid), ..report }.to_siginfo(),
            )?,
            None => uaccess::write(info, &[0u64; 4])?,
        }
    }
    Ok(0)
}
