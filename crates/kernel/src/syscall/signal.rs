//! Calls about signals.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::time::{Timespec, deadline_after};
use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::signal::action::Action;
use crate::process::signal::frame::leave_handler;
use crate::process::signal::info::code;
use crate::process::signal::send::{self, Target, kill_call, permit};
use crate::process::signal::state::AlternateStack;
use crate::process::signal::{self, SigInfo, SigSet, Signal};
use crate::process::{Pid, Task};
use crate::sched::{Interrupted, WaitQueue};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::rt_sigaction, rt_sigaction),
    (Sysno::rt_sigprocmask, rt_sigprocmask),
    (Sysno::rt_sigpending, rt_sigpending),
    (Sysno::rt_sigsuspend, rt_sigsuspend),
    (Sysno::rt_sigtimedwait, rt_sigtimedwait),
    (Sysno::rt_sigqueueinfo, rt_sigqueueinfo),
    (Sysno::rt_tgsigqueueinfo, rt_tgsigqueueinfo),
    (Sysno::rt_sigreturn, rt_sigreturn),
    (Sysno::sigaltstack, sigaltstack),
    (Sysno::kill, kill),
    (Sysno::tkill, tkill),
    (Sysno::tgkill, tgkill),
    (Sysno::pause, pause),
];

/// Bytes of `sigset_t` as the kernel has it.
const SIGSET_SIZE: u64 = 8;

/// `EINVAL` for a number that is no signal.
fn signal(number: u64) -> Result<Signal, Errno> {
    Signal::new(u64::from(number as u32)).ok_or(Errno::EINVAL)
}

/// For calls where 0 only checks.
fn signal_or_none(number: u64) -> Result<Option<Signal>, Errno> {
    if number as u32 == 0 { Ok(None) } else { signal(number).map(Some) }
}

fn check_size(size: u64) -> Result<(), Errno> {
    if size == SIGSET_SIZE { Ok(()) } else { Err(Errno::EINVAL) }
}

/// A set from the program, without the two that cannot be blocked.
fn read_mask(address: u64) -> Result<SigSet, Errno> {
    Ok(SigSet::from_bits(uaccess::read(address)?).without(SigSet::UNBLOCKABLE))
}

fn rt_sigaction(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [number, new, old, size, ..] = ctx.args;
    check_size(size)?;
    let wanted: Option<Action> = if new != 0 { Some(uaccess::read(new)?) } else { None };
    let signal = signal(number)?;
    if wanted.is_some() && SigSet::UNBLOCKABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let process = &ctx.task.process;
    let before = {
        let mut handlers = process.handlers.lock();
        let before = handlers.get(signal);
        if let Some(action) = wanted {
            handlers.set(signal, action);
        }
        before
    };
    if wanted.is_some_and(|action| action.discards(signal)) {
        // What is ignored does not wait either (POSIX 3.3.1.3).
        let which = SigSet::EMPTY.with(signal);
        process.pending.lock().discard(which);
        let threads = process.threads.lock().clone();
        for thread in &threads {
            thread.signals.lock().pending.discard(which);
        }
    }
    if old != 0 {
        uaccess::write(old, &before)?;
    }
    Ok(0)
}

fn rt_sigprocmask(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [how, new, old, size, ..] = ctx.args;
    check_size(size)?;
    let set = if new != 0 { Some(read_mask(new)?) } else { None };
    let before = {
        let mut signals = ctx.task.signals.lock();
        let before = signals.blocked;
        if let Some(set) = set {
            signals.blocked = match how as u32 {
                raw::SIG_BLOCK => before.union(set),
                raw::SIG_UNBLOCK => before.without(set),
                raw::SIG_SETMASK => set,
                _ => return Err(Errno::EINVAL),
            };
        }
        before
    };
    if set.is_some() {
        if ctx.task.signal_pending() {
            ctx.task.notify();
        }
        send::hand_on(ctx.task);
    }
    if old != 0 {
        uaccess::write(old, &before.bits())?;
    }
    Ok(0)
}

fn rt_sigpending(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [set, size, ..] = ctx.args;
    if size > SIGSET_SIZE {
        return Err(Errno::EINVAL);
    }
    let shared = ctx.task.process.pending.lock().set();
    let pending = {
        let signals = ctx.task.signals.lock();
        signals.pending.set().union(shared).intersection(signals.blocked)
    };
    uaccess::write_bytes(set, &pending.bits().to_le_bytes()[..size as usize])?;
    Ok(0)
}

/// Waits for ever: only a signal ends it.
fn wait_for_signal() -> Errno {
    static NOBODY: WaitQueue = WaitQueue::new();
    match NOBODY.wait_until(|| None::<()>) {
        Ok(()) | Err(Interrupted) => Errno::ERESTARTNOHAND,
    }
}

fn rt_sigsuspend(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [set, size, ..] = ctx.args;
    check_size(size)?;
    let mask = read_mask(set)?;
    {
        let mut signals = ctx.task.signals.lock();
        signals.saved = Some(signals.blocked);
        signals.blocked = mask;
    }
    send::hand_on(ctx.task);
    let error = wait_for_signal();
    // The old mask comes back when the signals are dealt with.
    ctx.task.notify();
    Err(error)
}

fn pause(_ctx: &mut SyscallContext<'_>) -> SysResult {
    Err(wait_for_signal())
}

fn rt_sigtimedwait(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [set, info, timeout, size, ..] = ctx.args;
    check_size(size)?;
    let wanted = read_mask(set)?;
    let deadline = match timeout {
        0 => None,
        address => Some(deadline_after(uaccess::read::<Timespec>(address)?.to_nanos()?)),
    };
    let task = ctx.task;
    let take = || signal::take(task, wanted);
    let mut found = take();
    if found.is_none() {
        static SLEEPERS: WaitQueue = WaitQueue::new();
        task.signals.lock().awaited = wanted;
        let result = match deadline {
            Some(deadline) => SLEEPERS.wait_until_deadline(deadline, take),
            None => SLEEPERS.wait_until(take).map(Some),
        };
        task.signals.lock().awaited = SigSet::EMPTY;
        found = match result {
            Ok(Some(info)) => Some(info),
            // One of those waited for may be what ended the wait.
            Ok(None) => Some(take().ok_or(Errno::EAGAIN)?),
            Err(Interrupted) => Some(take().ok_or(Errno::EINTR)?),
        };
    }
    let Some(signal) = found else { return Err(Errno::EAGAIN) };
    if info != 0 {
        uaccess::write_bytes(info, &signal.to_bytes())?;
    }
    Ok(usize::from(signal.signal().number()))
}

/// A positive pid argument.
fn positive(pid: u64) -> Result<Pid, Errno> {
    if (pid as i32) > 0 { Ok(pid as Pid) } else { Err(Errno::EINVAL) }
}

/// Programs may not pretend that the kernel, or `tkill`, sent a signal to somebody else.
fn check_forgery(ctx: &SyscallContext<'_>, info: &SigInfo, receiver: Pid) -> Result<(), Errno> {
    if (info.code >= 0 || info.code == code::SI_TKILL) && ctx.task.pid_of(receiver) != Some(ctx.task.tgid) {
        return Err(Errno::EPERM);
    }
    Ok(())
}

fn rt_sigqueueinfo(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, number, info, ..] = ctx.args;
    let signal = signal_or_none(number)?;
    let info = SigInfo::read(info, signal.unwrap_or(Signal::HUP))?;
    check_forgery(ctx, &info, pid as Pid)?;
    let process = ctx.task.find_process(pid as Pid).ok_or(Errno::ESRCH)?;
    permit(ctx.task, &process, signal)?;
    if signal.is_some() {
        send::to_process(&process, info)?;
    }
    Ok(0)
}

fn rt_tgsigqueueinfo(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [tgid, tid, number, info, ..] = ctx.args;
    let signal = signal_or_none(number)?;
    let info = SigInfo::read(info, signal.unwrap_or(Signal::HUP))?;
    let (tgid, tid) = (positive(tgid)?, positive(tid)?);
    check_forgery(ctx, &info, tgid)?;
    send_to_thread(ctx, Some(tgid), tid, signal, info)
}

fn send_to_thread(
    ctx: &SyscallContext<'_>,
    tgid: Option<Pid>,
    tid: Pid,
    signal: Option<Signal>,
    info: SigInfo,
) -> SysResult {
    let of = |task: &Arc<Task>| tgid.is_none_or(|tgid| ctx.task.number_of(task.tgid) == tgid);
    let task = ctx.task.find(tid).filter(of).ok_or(Errno::ESRCH)?;
    permit(ctx.task, &task.process, signal)?;
    if signal.is_some() {
        send::to_task(&task, info)?;
    }
    Ok(0)
}

fn kill(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [pid, number, ..] = ctx.args;
    let pid = pid as i32;
    if pid == i32::MIN {
        return Err(Errno::ESRCH);
    }
    let target = match pid {
        -1 => Target::All,
        0 => Target::Group(ctx.task.process.pgid()),
        ..-1 => Target::Group(ctx.task.pid_of(pid.unsigned_abs()).ok_or(Errno::ESRCH)?),
        _ => Target::Process(pid as Pid),
    };
    // A bad number is noticed only where there is somebody to get it; with one receiver that order cannot be told apart but for ESRCH.
    match signal_or_none(number) {
        Ok(signal) => kill_call(ctx.task, target, signal)?,
        Err(error) => {
            kill_call(ctx.task, target, None)?;
            return Err(error);
        }
    }
    Ok(0)
}

fn thread_kill(ctx: &SyscallContext<'_>, tgid: Option<Pid>, tid: Pid, number: u64) -> SysResult {
    let signal = signal_or_none(number)?;
    let uid = ctx.task.credentials().uid;
    let info = SigInfo::user(signal.unwrap_or(Signal::HUP), code::SI_TKILL, ctx.task.number_of(ctx.task.tgid), uid);
    send_to_thread(ctx, tgid, tid, signal, info)
}

fn tkill(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [tid, number, ..] = ctx.args;
    thread_kill(ctx, None, positive(tid)?, number)
}

fn tgkill(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [tgid, tid, number, ..] = ctx.args;
    thread_kill(ctx, Some(positive(tgid)?), positive(tid)?, number)
}

fn rt_sigreturn(ctx: &mut SyscallContext<'_>) -> SysResult {
    if leave_handler(ctx.task, ctx.frame).is_err() {
        send::force(ctx.task, SigInfo::kernel(Signal::SEGV));
    }
    send::hand_on(ctx.task);
    // The result register is one of those that were restored.
    Ok(ctx.frame.rax as usize)
}

fn sigaltstack(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [new, old, ..] = ctx.args;
    let wanted: Option<AlternateStack> = if new != 0 { Some(uaccess::read(new)?) } else { None };
    let rsp = ctx.frame.rsp;
    let before = {
        let mut signals = ctx.task.signals.lock();
        let before = signals.alternate;
        if let Some(wanted) = wanted {
            signals.alternate = wanted.checked(&before, rsp)?;
        }
        before.reported(rsp)
    };
    if old != 0 {
        uaccess::write(old, &before)?;
    }
    Ok(0)
}
