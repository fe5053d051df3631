//! What happens to pending signals on the way back to user mode.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use syscalls::Sysno;

use super::action::Action;
use super::set::DefaultAction;
use super::state::Restart;
use super::{SigInfo, SigSet, Signal, frame};
use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::process::exit::{ExitStatus, exit_thread};
use crate::process::ptrace::{TRACED, TRAP};
use crate::process::{Task, exec, fault, ptrace, rseq, timer, tree};
use crate::sched;

/// Bytes of the instruction `syscall`.
const SYSCALL_LEN: u64 = 2;

/// Does what waits for the current task before it goes back to user mode: stops, ends, or is sent into a handler. Called when the task
/// has been notified; returns at once if there is nothing.
pub fn deliver_signals(frame: &mut TrapFrame) {
    // Nothing that is to be dropped may be alive on this stack when the thread ends.
    let exit = {
        let task = sched::current();
        let exit = work(&task, frame);
        if let Some(status) = exit {
            ptrace::stops::ending(&task, frame, status);
        }
        exit
    };
    if let Some(status) = exit {
        exit_thread(status);
    }
}

/// The work itself; returns the status if the thread is to end.
fn work(task: &Arc<Task>, frame: &mut TrapFrame) -> Option<ExitStatus> {
    let mut handled = false;
    loop {
        if let Some(status) = settle_group(task, frame) {
            return Some(status);
        }
        let Some(mut info) = next(task) else { break };
        if task.tracing.load(Ordering::Relaxed) & TRACED != 0 && info.signal() != Signal::KILL {
            let Some(wanted) = ptrace::stops::signal_stop(task, frame, info) else { continue };
            info = wanted;
        }
        let signal = info.signal();
        let action = take_action(task, signal);
        if action.is_ignore() {
            continue;
        }
        if action.is_default() {
            default(task, &info);
            continue;
        }
        prepare_restart(task, frame, Some(&action));
        if task.tracing.load(Ordering::Relaxed) & TRACED != 0 {
            ptrace::stops::entering_handler(task, frame);
        }
        handle(task, frame, &action, &info);
        handled = true;
        if task.tracing.load(Ordering::Relaxed) & TRACED != 0 {
            ptrace::stops::handler_entered(task, frame);
        }
    }
    if !handled {
        prepare_restart(task, frame, None);
        let mut signals = task.signals.lock();
        if let Some(mask) = signals.saved.take() {
            signals.blocked = mask;
            drop(signals);
            // The old mask may let something through that the temporary one held back.
            task.notify();
        }
    }
    None
}

/// Rests while the group is stopped; becomes the program that another thread has called exec for. Returns the status with which the thread has to end, if it has to.
fn settle_group(task: &Arc<Task>, frame: &mut TrapFrame) -> Option<ExitStatus> {
    let process = &task.process;
    loop {
        let own = task.signals.lock().exit;
        let exit = own.or(process.group.lock().must_exit(task.pid));
        if exit.is_some() {
            return exit;
        }
        if task.is_leader()
            && let Some(program) = process.take_over()
        {
            exec::commit(task, frame, program);
            continue;
        }
        let passed = task.passed_stop.load(Ordering::Relaxed);
        let (stop, complete) = {
            let mut group = process.group.lock();
            if group.must_exit(task.pid).is_some() {
                continue;
            }
            match group.stop().filter(|stop| stop.number() != passed) {
                // One that has come to rest before, and was attached to then, is counted once.
                Some(stop) if task.rested_in.swap(stop.number(), Ordering::Relaxed) == stop.number() => {
                    (Some(stop), None)
                }
                Some(stop) => (Some(stop), group.thread_stopped(process.threads.lock().len())),
                None => (None, None),
            }
        };
        if let Some(stop) = complete {
            tree::report_stopped(process, stop);
        }
        let tracing = || task.tracing.load(Ordering::SeqCst);
        match stop {
            Some(stop) if tracing() & TRACED != 0 => ptrace::stops::group_stop(task, frame, stop),
            // The end of this stop: if another has begun by the time this thread looks, it has to come to rest in that one too.
            Some(stop) => process.resume.wait_uninterruptible(|| {
                let group = process.group.lock();
                let ended = !group.is_in(&stop) || group.must_exit(task.pid).is_some();
                (ended || tracing() & TRACED != 0).then_some(())
            }),
            None if tracing() & TRAP != 0 => ptrace::stops::trap(task, frame),
            None => return None,
        }
    }
}

/// Takes the signal to deal with now.
fn next(task: &Task) -> Option<SigInfo> {
    let mut info = {
        // With the group locked, a SIGCONT comes either before a stopping signal is taken, and forgets it, or after it was noted that it was.
        let mut group = task.process.group.lock();
        let mut signals = task.signals.lock();
        let wanted = SigSet::from_bits(!signals.blocked.bits());
        // What the program did itself comes before what others sent.
        let own = match signals.pending.set().intersection(wanted).intersection(SigSet::SYNCHRONOUS) {
            set if set.is_empty() => wanted,
            set => set,
        };
        let info = signals.pending.take(own).or_else(|| task.process.pending.lock().take(wanted))?;
        if SigSet::STOPPING.contains(info.signal()) {
            group.stop_taken();
        }
        info
    };
    timer::posix::delivered(&task.process, &mut info);
    Some(info)
}

/// What the program wants; a handler with `SA_RESETHAND` is used up by this.
fn take_action(task: &Task, signal: Signal) -> Action {
    let mut handlers = task.process.handlers.lock();
    let action = handlers.get(signal);
    if action.has(raw::SA_RESETHAND) && !action.is_default() && !action.is_ignore() {
        handlers.set(signal, Action { handler: Action::default().handler, ..action });
    }
    action
}

/// Does what the signal does when the program said nothing.
fn default(task: &Arc<Task>, info: &SigInfo) {
    let signal = info.signal();
    let forced = {
        let mut signals = task.signals.lock();
        let forced = signals.forced.contains(signal);
        signals.forced = signals.forced.without(SigSet::EMPTY.with(signal));
        forced
    };
    let process = &task.process;
    if process.is_namespace_init() && !forced && !(process.pid != tree::INIT && signal == Signal::STOP) {
        return;
    }
    match signal.default_action() {
        DefaultAction::Ignore | DefaultAction::Continue => {}
        DefaultAction::Stop => {
            // Nobody could continue an orphaned group that a terminal stops (POSIX).
            if signal == Signal::STOP || !tree::is_orphaned_group(process.pgid()) {
                process.begin_stop(signal);
            }
        }
        // The loop in `work` finds the group ending.
        DefaultAction::Terminate => process.begin_exit(ExitStatus::Killed(signal)),
        DefaultAction::Core => {
            fault::report_fatal(task, info);
            process.begin_exit(ExitStatus::Dumped(signal));
        }
    }
}

/// Sends the task into a handler.
fn handle(task: &Arc<Task>, frame: &mut TrapFrame, action: &Action, info: &SigInfo) {
    let signal = info.signal();
    rseq::before_handler(task, frame);
    let mask = {
        let mut signals = task.signals.lock();
        signals.forced = signals.forced.without(SigSet::EMPTY.with(signal));
        signals.saved.take().unwrap_or(signals.blocked)
    };
    if frame::enter_handler(task, frame, action, info, mask).is_err() {
        // No stack to run a handler on: the end, unless another signal has a stack of its own (Linux's `signal_setup_done`).
        if signal == Signal::SEGV {
            task.process.handlers.lock().set(Signal::SEGV, Action::default());
        }
        super::send::force(task, SigInfo::kernel(Signal::SEGV));
        return;
    }
    let mut signals = task.signals.lock();
    let mut blocked = signals.blocked.union(SigSet::from_bits(action.mask));
    if !action.has(raw::SA_NODEFER) {
        blocked = blocked.with(signal);
    }
    signals.blocked = blocked.without(SigSet::UNBLOCKABLE);
    drop(signals);
    super::send::hand_on(task);
}

/// Decides what an interrupted system call returns, or whether it starts again: `action` is the handler that is about to run, if one is.
fn prepare_restart(task: &Task, frame: &mut TrapFrame, action: Option<&Action>) {
    let Some(Restart { number, how }) = task.signals.lock().restart.take() else { return };
    let again = match action {
        Some(action) => match how {
            Errno::ERESTARTNOINTR => true,
            Errno::ERESTARTSYS => action.has(raw::SA_RESTART),
            _ => false,
        },
        None => true,
    };
    if !again {
        frame.rax = Errno::EINTR.to_result();
        return;
    }
    frame.rax = if how == Errno::ERESTART_RESTARTBLOCK { Sysno::restart_syscall as u64 } else { number };
    frame.rip = frame.rip.wrapping_sub(SYSCALL_LEN);
}
