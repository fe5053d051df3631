//! The tracee's side: where it stops, and how it goes on.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::registers::{Registers, TRAP_FLAG};
use super::{CALLS, Manner, Pace, Place, Resumed, TRACED, TRAP, Trace, TraceEvent, TraceStop, Tracer, control, option};
use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::process::exit::ExitStatus;
use crate::process::signal::info::code;
use crate::process::signal::state::Restart;
use crate::process::signal::stop::Stop;
use crate::process::signal::{SigInfo, Signal, fatal_pending, send};
use crate::process::{Pid, Task};

/// `PTRACE_EVENTMSG_SYSCALL_ENTRY`, `_EXIT`.
pub const MESSAGE_CALL_BEGINS: u64 = 1;
/// See above.
pub const MESSAGE_CALL_ENDS: u64 = 2;

/// A stop about to be made.
struct Stopping {
    code: u32,
    info: Option<SigInfo>,
    message: Option<u64>,
    place: Place,
}

/// How a stop ended.
enum Outcome {
    /// Nobody traces it (any more), or it is to die.
    Untraced,
    /// `PTRACE_LISTEN`, and there is something new.
    Listened,
    /// The tracer let it go on.
    Resumed(Resumed),
}

impl Outcome {
    /// The signal that the tracer wants it to have.
    fn signal(&self) -> Option<Signal> {
        match self {
            Outcome::Resumed(resumed) => Signal::new(u64::from(resumed.signal)),
            _ => None,
        }
    }
}

/// Whether a task that rests for its tracer is to give that up and die.
fn is_killed(task: &Task, place: Place) -> bool {
    match place {
        // It dies already, and Linux drops signals to who does.
        Place::Exit => false,
        _ => fatal_pending(task),
    }
}

/// Rests until the tracer lets it go on.
fn stop(task: &Arc<Task>, frame: &mut TrapFrame, what: Stopping) -> Outcome {
    let Stopping { code, info, message, place } = what;
    // Before any lock is taken.
    let mut registers = Box::new(Registers::of(task, frame));
    let tracer = {
        let mut trace = task.trace.lock();
        let Some(tracer) = trace.tracer.clone() else { return Outcome::Untraced };
        if core::mem::take(&mut trace.trap_flag) {
            frame.rflags &= !TRAP_FLAG;
            registers.set_trap_flag(false);
        }
        // Any stop will do for who wanted one.
        task.tracing.fetch_and(!TRAP, Ordering::Relaxed);
        trace.resumed = None;
        trace.message = message.unwrap_or(trace.message);
        trace.stop = Some(TraceStop { code, told: false, info, place, registers, changed: false, listening: false });
        tracer
    };
    let why = if place == Place::Group { code::CLD_STOPPED } else { code::CLD_TRAPPED };
    control::tell(&tracer, task, why, (code & 0x7f) as i32);
    task.process.resume.wait_uninterruptible(|| {
        let news = || task.tracing.load(Ordering::Relaxed) & TRAP != 0 || task.process.group.lock().stop().is_none();
        let goes_on = match &task.trace.lock().stop {
            None => true,
            Some(stop) => stop.listening && news(),
        };
        (goes_on || is_killed(task, place)).then_some(())
    });
    let (outcome, left) = {
        let mut trace = task.trace.lock();
        let left = trace.stop.take();
        let outcome = match trace.resumed.take() {
            Some(resumed) => Outcome::Resumed(resumed),
            None if left.as_ref().is_some_and(|stop| stop.listening) => Outcome::Listened,
            None => Outcome::Untraced,
        };
        (outcome, left)
    };
    drop(left);
    if let Outcome::Resumed(resumed) = &outcome {
        if resumed.changed {
            resumed.registers.restore(task, frame);
            reconsider_restart(task, frame, place);
        }
        let mut trace = task.trace.lock();
        if trace.tracer.is_some() && trace.pace.steps() && frame.rflags & TRAP_FLAG == 0 {
            frame.rflags |= TRAP_FLAG;
            trace.trap_flag = true;
        }
    }
    outcome
}

/// What the registers now say of an interrupted call: a debugger that has put others in their place, for a call of its own, puts these back
/// later and expects the call to go on then.
fn reconsider_restart(task: &Task, frame: &TrapFrame, place: Place) {
    if matches!(place, Place::CallBegins | Place::CallFiltered) {
        return;
    }
    let how = [Errno::ERESTARTSYS, Errno::ERESTARTNOINTR, Errno::ERESTARTNOHAND, Errno::ERESTART_RESTARTBLOCK];
    let how = how.into_iter().find(|how| how.to_result() == frame.rax);
    task.signals.lock().restart = match how {
        Some(how) if frame.orig_rax != TrapFrame::NO_CALL => Some(Restart { number: frame.orig_rax, how }),
        _ => None,
    };
}

/// A stop whose information says nothing but itself, as for events and system calls.
fn notification(task: &Task, signal: Signal, code: u32) -> SigInfo {
    SigInfo::user(signal, code as i32, task.own_number(), task.credentials().uid)
}

/// A signal is about to be delivered: the tracer says which one is.
pub fn signal_stop(task: &Arc<Task>, frame: &mut TrapFrame, info: SigInfo) -> Option<SigInfo> {
    let number = info.signal().number();
    let tracer = task.trace.lock().tracer.clone();
    let what = Stopping { code: u32::from(number), info: Some(info), message: None, place: Place::Signal };
    let resumed = match stop(task, frame, what) {
        Outcome::Resumed(resumed) => resumed,
        // Without a tracer it is delivered; who is to die does not mind.
        _ => return Some(info),
    };
    let signal = Signal::new(u64::from(resumed.signal))?;
    let info = match (resumed.info, tracer) {
        (Some(info), _) if info.signo == i32::from(signal.number()) => info,
        (_, Some(tracer)) => {
            let uid = tracer.process.uid();
            SigInfo::user(signal, code::SI_USER, task.number_of(tracer.process.pid), uid)
        }
        _ => SigInfo::kernel(signal),
    };
    if task.signals.lock().blocked.contains(signal) {
        // Standard signals always find room; a real-time one that finds none is lost, as on Linux.
        let _ = send::to_task(task, info);
        return None;
    }
    Some(info)
}

/// A handler is about to be entered: what it returns to must not have the tracer's trap flag.
pub fn entering_handler(task: &Task, frame: &mut TrapFrame) {
    if core::mem::take(&mut task.trace.lock().trap_flag) {
        frame.rflags &= !TRAP_FLAG;
    }
}

/// The handler of a signal has been entered while the tracee goes by single instructions: that counts as one.
pub fn handler_entered(task: &Arc<Task>, frame: &mut TrapFrame) {
    let steps = {
        let trace = task.trace.lock();
        trace.tracer.is_some() && trace.pace.steps()
    };
    if steps {
        notify(task, frame, SIGTRAP, None, Place::Event);
    }
}

/// `SIGTRAP` as a code.
const SIGTRAP: u32 = raw::SIGTRAP;

/// Linux's `ptrace_notify`.
fn notify(task: &Arc<Task>, frame: &mut TrapFrame, code: u32, message: Option<u64>, place: Place) -> Outcome {
    let info = Some(notification(task, Signal::TRAP, code));
    stop(task, frame, Stopping { code, info, message, place })
}

/// Rests with its group, for its tracer to see. Returns whether it is to look at its group's state again, rather than to go on although that rests.
pub fn group_stop(task: &Arc<Task>, frame: &mut TrapFrame, group: Stop) {
    let code = u32::from(group.signal.number());
    let what = match task.trace.lock().manner {
        Manner::Attached => Stopping { code, info: None, message: None, place: Place::Group },
        Manner::Seized => {
            let code = code | (TraceEvent::Stop as u32) << 8;
            let info = Some(notification(task, group.signal, code));
            Stopping { code, info, message: None, place: Place::Group }
        }
    };
    if let Outcome::Resumed(_) = stop(task, frame, what)
        && task.tracing.load(Ordering::Relaxed) & TRACED != 0
    {
        // It was told to go on: what the rest of its group does is no concern of its until the next stop.
        task.passed_stop.store(group.number(), Ordering::Relaxed);
    }
}

/// Stops because the tracer asked for it, or because a stop of the group has ended (seized threads).
pub fn trap(task: &Arc<Task>, frame: &mut TrapFrame) {
    task.tracing.fetch_and(!TRAP, Ordering::Relaxed);
    let signal = task.process.group.lock().stop_signal().unwrap_or(Signal::TRAP);
    let code = u32::from(signal.number()) | (TraceEvent::Stop as u32) << 8;
    let info = Some(notification(task, signal, code));
    stop(task, frame, Stopping { code, info, message: None, place: Place::Group });
}

/// Whether it has a tracer that wants to be told of such events.
pub fn wants(task: &Task, event: TraceEvent) -> bool {
    task.tracing.load(Ordering::Relaxed) & TRACED != 0 && task.trace.lock().wants(event)
}

/// Stops for an event, if the tracer wants to be told.
pub fn event(task: &Arc<Task>, frame: &mut TrapFrame, event: TraceEvent, message: u64) {
    if !wants(task, event) {
        return;
    }
    let place = match event {
        TraceEvent::Exit => Place::Exit,
        TraceEvent::Seccomp => Place::CallFiltered,
        _ => Place::Event,
    };
    notify(task, frame, SIGTRAP | (event as u32) << 8, Some(message), place);
}

/// A thread is about to end.
pub fn ending(task: &Arc<Task>, frame: &mut TrapFrame, status: ExitStatus) {
    event(task, frame, TraceEvent::Exit, status.to_wait_status() as u64);
}

/// exec is done; `before` is the number that the thread went by.
pub fn executed(task: &Arc<Task>, frame: &mut TrapFrame, before: Pid) {
    if task.tracing.load(Ordering::Relaxed) & TRACED == 0 {
        return;
    }
    let (wants, manner) = {
        let trace = task.trace.lock();
        (trace.wants(TraceEvent::Exec), trace.manner)
    };
    match (wants, manner) {
        (true, _) => event(task, frame, TraceEvent::Exec, u64::from(before)),
        (false, Manner::Seized) => {}
        (false, Manner::Attached) => {
            // A standard signal always finds room.
            let _ = send::to_task(
                task,
                SigInfo::user(Signal::TRAP, code::SI_USER, task.number_of(task.tgid), task.credentials().uid),
            );
        }
    }
}

/// A system call begins. False if it is not to be done.
pub fn call_begins(task: &Arc<Task>, frame: &mut TrapFrame) -> bool {
    let (pace, code) = {
        let trace = task.trace.lock();
        (trace.pace, call_code(&trace))
    };
    if !matches!(pace, Pace::Call | Pace::Emulate | Pace::EmulateStep) {
        return true;
    }
    frame.rax = Errno::ENOSYS.to_result();
    let outcome = notify(task, frame, code, Some(MESSAGE_CALL_BEGINS), Place::CallBegins);
    inject(task, &outcome);
    pace == Pace::Call && frame.orig_rax != TrapFrame::NO_CALL && !fatal_pending(task)
}

/// A system call is over; its result is in the frame.
pub fn call_ends(task: &Arc<Task>, frame: &mut TrapFrame) {
    let (pace, code) = {
        let trace = task.trace.lock();
        (trace.pace, call_code(&trace))
    };
    let ending = task.signals.lock().exit.is_some() || task.process.group.lock().must_exit(task.pid).is_some();
    if ending || task.tracing.load(Ordering::Relaxed) & CALLS == 0 {
        return;
    }
    match pace {
        Pace::Call => {
            let outcome = notify(task, frame, code, Some(MESSAGE_CALL_ENDS), Place::CallEnds);
            inject(task, &outcome);
        }
        Pace::Step => send::force(task, SigInfo::fault(Signal::TRAP, code::TRAP_BRKPT, frame.rip)),
        _ => {}
    }
}

fn call_code(trace: &Trace) -> u32 {
    SIGTRAP | if trace.options & option::TRACESYSGOOD != 0 { 0x80 } else { 0 }
}

/// The signal that the tracer gave at a system call's stop is sent.
fn inject(task: &Arc<Task>, outcome: &Outcome) {
    if let Some(signal) = outcome.signal() {
        let _ = send::to_task(
            task,
            SigInfo::user(signal, code::SI_USER, task.number_of(task.tgid), task.credentials().uid),
        );
    }
}

/// What of its parent's being traced a new thread inherits. Called with the tree locked, before the child runs.
pub fn inherit(tracer: &Tracer, parent: &Trace, child: &Arc<Task>) {
    {
        let mut trace = child.trace.lock();
        trace.tracer = Some(tracer.clone());
        trace.options = parent.options;
        trace.manner = parent.manner;
    }
    let trap = if parent.manner == Manner::Seized { TRAP } else { 0 };
    child.tracing.fetch_or(TRACED | trap, Ordering::Relaxed);
    if parent.manner == Manner::Attached {
        // A standard signal always finds room.
        let _ = child.signals.lock().push(SigInfo::user(Signal::STOP, code::SI_USER, 0, 0));
    }
    child.notify();
}
