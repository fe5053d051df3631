//! The tracer's side: who begins to trace whom, how tracees are let go on, what becomes of them when their tracer ends.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::{CALLS, FILTERED, Manner, Pace, Resumed, TRACED, TRAP, Trace, TraceStop, Tracer, option};
use crate::errno::Errno;
use crate::process::access::{AccessAs, may_access};
use crate::process::exit::ExitStatus;
use crate::process::signal::info::Child;
use crate::process::signal::{SigInfo, Signal, send};
use crate::process::tree::{self, Tree};
use crate::process::{Process, Task};

/// Tells a tracer about its tracee: `SIGCHLD`, if it wants it, and whoever waits looks again.
pub(super) fn tell(tracer: &Tracer, task: &Task, why: i32, status: i32) {
    let process = &tracer.process;
    let action = process.handlers.lock().get(Signal::CHLD);
    if !action.is_ignore() && !action.has(raw::SA_NOCLDSTOP) {
        // A standard signal always finds room.
        let _ = send::to_process(process, about(process, task, why, status));
    }
    process.children_changed.wake_all();
}

fn about(tracer: &Process, task: &Task, why: i32, status: i32) -> SigInfo {
    let usage = task.thread_usage();
    let child = Child {
        pid: tracer.pid_namespace.number_of(task.pid),
        uid: task.credentials().uid,
        status,
        utime: usage.user_ticks(),
        stime: usage.system_ticks(),
    };
    SigInfo::child(Signal::CHLD, why, child)
}

/// Makes `tracer` the tracer of `target`. The tree is locked.
fn link(tree: &mut Tree, tracer: Tracer, target: &Arc<Task>, manner: Manner, options: u32) -> Result<(), Errno> {
    let mut trace = target.trace.lock();
    // Nor can who is ending be traced any more.
    if trace.tracer.is_some() || target.live_space().is_none() {
        return Err(Errno::EPERM);
    }
    tree.node_mut(tracer.process.pid).ok_or(Errno::EPERM)?.tracees.push(target.pid);
    *trace = Trace { tracer: Some(tracer), manner, options, ..Trace::default() };
    target.tracing.fetch_or(TRACED, Ordering::SeqCst);
    Ok(())
}

/// `PTRACE_TRACEME`: by the thread that made the caller's process.
pub fn trace_me(task: &Arc<Task>) -> Result<(), Errno> {
    let mut tree = tree::lock();
    let parent = tree.node(task.ppid()).ok_or(Errno::EPERM)?.process.clone();
    let tracer = Tracer { thread: task.process.parent_thread.load(Ordering::Relaxed), process: parent };
    link(&mut tree, tracer, task, Manner::Attached, 0)
}

/// `PTRACE_ATTACH` and `PTRACE_SEIZE`.
///
/// # Errors
/// `EPERM`: not allowed, one's own process, or somebody's tracee already.
pub fn attach(task: &Task, target: &Arc<Task>, manner: Manner, options: u32) -> Result<(), Errno> {
    if task.tgid == target.tgid || !may_access(task, target, AccessAs::Real) {
        return Err(Errno::EPERM);
    }
    let tracer = Tracer { thread: task.pid, process: task.process.clone() };
    link(&mut tree::lock(), tracer, target, manner, options)?;
    if manner == Manner::Attached {
        // A standard signal always finds room.
        let _ = send::to_task(target, SigInfo::kernel(Signal::STOP));
    }
    // One that rests with its group rests for its tracer from now on.
    target.process.resume.wake_all();
    Ok(())
}

/// The tracee of that number, at rest, with what its tracer may look at, to be looked at by `look`.
///
/// # Errors
/// `ESRCH`: there is none, it is not `tracer`'s, or it does not rest.
pub fn with_stopped<R>(
    target: &Task,
    tracer: &Task,
    look: impl FnOnce(&mut TraceStop) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let mut trace = target.trace.lock();
    check_tracer(&trace, tracer)?;
    match &mut trace.stop {
        Some(stop) if !stop.listening => look(stop),
        _ => Err(Errno::ESRCH),
    }
}

fn check_tracer(trace: &Trace, tracer: &Task) -> Result<(), Errno> {
    match &trace.tracer {
        Some(by) if by.thread == tracer.pid => Ok(()),
        _ => Err(Errno::ESRCH),
    }
}

/// Lets a tracee go on.
///
/// # Errors
/// `ESRCH` as above; `EIO`: no such signal.
pub fn resume(target: &Arc<Task>, tracer: &Task, pace: Pace, signal: u64) -> Result<(), Errno> {
    {
        let mut trace = target.trace.lock();
        check_tracer(&trace, tracer)?;
        check_at_rest(&trace)?;
        let signal = checked_signal(signal)?;
        let calls = if pace == Pace::Run { 0 } else { CALLS };
        target.tracing.fetch_and(!CALLS, Ordering::Relaxed);
        target.tracing.fetch_or(calls, Ordering::Relaxed);
        trace.pace = pace;
        let_go(&mut trace, signal);
    }
    target.process.resume.wake_all();
    Ok(())
}

fn check_at_rest(trace: &Trace) -> Result<(), Errno> {
    match &trace.stop {
        Some(stop) if !stop.listening => Ok(()),
        _ => Err(Errno::ESRCH),
    }
}

fn checked_signal(signal: u64) -> Result<u8, Errno> {
    u8::try_from(signal).ok().filter(|&signal| signal <= 64).ok_or(Errno::EIO)
}

fn let_go(trace: &mut Trace, signal: u8) {
    if let Some(stop) = trace.stop.take() {
        let TraceStop { info, registers, changed, .. } = stop;
        trace.resumed = Some(Resumed { signal, info, registers, changed });
    }
}

/// Ends the tracing of `target`, which goes on. The caller has taken it from its tracer's list, and wakes it.
fn release(target: &Task, signal: u8) {
    let mut trace = target.trace.lock();
    let_go(&mut trace, signal);
    let Trace { resumed, trap_flag, .. } = core::mem::take(&mut *trace);
    trace.resumed = resumed;
    trace.trap_flag = trap_flag;
    target.tracing.fetch_and(FILTERED, Ordering::SeqCst);
    target.passed_stop.store(0, Ordering::Relaxed);
}

/// `PTRACE_DETACH`.
pub fn detach(target: &Arc<Task>, tracer: &Task, signal: u64) -> Result<(), Errno> {
    {
        let mut tree = tree::lock();
        {
            let trace = target.trace.lock();
            check_tracer(&trace, tracer)?;
            check_at_rest(&trace)?;
        }
        let signal = checked_signal(signal)?;
        tree.forget_tracee(tracer.tgid, target.pid);
        release(target, signal);
    }
    target.notify();
    target.process.resume.wake_all();
    Ok(())
}

/// `PTRACE_INTERRUPT`: `EIO` for threads that were not seized.
pub fn interrupt(target: &Arc<Task>, tracer: &Task) -> Result<(), Errno> {
    {
        let trace = target.trace.lock();
        check_tracer(&trace, tracer)?;
        if trace.manner != Manner::Seized {
            return Err(Errno::EIO);
        }
        target.tracing.fetch_or(TRAP, Ordering::SeqCst);
    }
    target.notify();
    target.process.resume.wake_all();
    Ok(())
}

/// `PTRACE_LISTEN`: `EIO` unless it was seized and its group is stopped.
pub fn listen(target: &Arc<Task>, tracer: &Task) -> Result<(), Errno> {
    {
        let mut trace = target.trace.lock();
        check_tracer(&trace, tracer)?;
        check_at_rest(&trace)?;
        let seized = trace.manner == Manner::Seized;
        let stop = trace.stop.as_mut().ok_or(Errno::ESRCH)?;
        if !seized || stop.code >> 8 != super::TraceEvent::Stop as u32 {
            return Err(Errno::EIO);
        }
        stop.listening = true;
    }
    target.process.resume.wake_all();
    Ok(())
}

/// `PTRACE_KILL`: as Linux does it, nothing unless the tracee rests.
pub fn kill(target: &Arc<Task>, tracer: &Task) -> Result<(), Errno> {
    check_tracer(&target.trace.lock(), tracer)?;
    match resume(target, tracer, Pace::Run, u64::from(raw::SIGKILL)) {
        Err(Errno::ESRCH) => Ok(()),
        other => other,
    }
}

/// The signal that a tracee rests for, if its tracer has not looked: it is delivered as if there had been no tracer.
fn unseen_signal(target: &Task) -> u8 {
    match &target.trace.lock().stop {
        Some(TraceStop { told: false, place: super::Place::Signal, code, .. }) => *code as u8,
        _ => 0,
    }
}

/// A thread that traces others ends: they go on by themselves, or are killed if it asked for that.
pub(in crate::process) fn tracer_ended(task: &Task) {
    if tree::lock().node(task.tgid).is_none_or(|node| node.tracees.is_empty()) {
        return;
    }
    let mut freed: Vec<(Arc<Task>, bool)> = Vec::new();
    let mut after = tree::Aftermath::default();
    {
        let mut tree = tree::lock();
        let tracees = tree.node(task.tgid).map(|node| node.tracees.clone()).unwrap_or_default();
        for pid in tracees {
            let Some(target) = tree.task(pid) else { continue };
            let (own, killed, ended) = {
                let trace = target.trace.lock();
                let own = trace.tracer.as_ref().is_some_and(|tracer| tracer.thread == task.pid);
                (own, trace.options & option::EXITKILL != 0, trace.ended.is_some())
            };
            if !own {
                continue;
            }
            tree.forget_tracee(task.tgid, pid);
            release(&target, unseen_signal(&target));
            tree.untraced(&target, ended, &mut after);
            freed.push((target, killed));
        }
    }
    after.settle();
    for (target, killed) in freed {
        if killed {
            send::kill(&target.process);
        }
        target.notify();
        target.process.resume.wake_all();
    }
}

/// A tracer has waited for a tracee that has ended: it is not traced any more. The tree is locked.
pub(in crate::process) fn release_ended(target: &Task) {
    release(target, 0);
}

/// A thread that is not its process's first has ended: its tracer is told. True if it is kept until that has waited for it.
pub(in crate::process) fn thread_ended(task: &Task, status: ExitStatus) -> bool {
    if task.tracing.load(Ordering::Relaxed) & TRACED == 0 {
        return false;
    }
    let tracer = {
        let _tree = tree::lock();
        let mut trace = task.trace.lock();
        let Some(tracer) = trace.tracer.clone() else { return false };
        trace.ended = Some(status);
        tracer
    };
    let action = tracer.process.handlers.lock().get(Signal::CHLD);
    let unwanted = action.is_ignore() || action.has(raw::SA_NOCLDWAIT);
    if unwanted {
        let mut tree = tree::lock();
        tree.forget_tracee(tracer.process.pid, task.pid);
        release(task, 0);
    }
    if !action.is_ignore() {
        let (why, value) = status.to_siginfo();
        // A standard signal always finds room.
        let _ = send::to_process(&tracer.process, about(&tracer.process, task, why, value));
    }
    tracer.process.children_changed.wake_all();
    !unwanted
}

/// A stop of the group has ended: seized threads say so.
pub(in crate::process) fn group_continues(task: &Arc<Task>) {
    if task.tracing.load(Ordering::Relaxed) & TRACED != 0 && task.trace.lock().manner == Manner::Seized {
        task.tracing.fetch_or(TRAP, Ordering::SeqCst);
        task.notify();
    }
}
