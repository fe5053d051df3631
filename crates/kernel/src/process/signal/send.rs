//! Sending signals: to a thread, a process, a process group.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::pending::{Pending, QueueFull};
use super::{SigInfo, SigSet, Signal, info};
use crate::errno::Errno;
use crate::process::credentials::CAP_KILL;
use crate::process::exit::ExitStatus;
use crate::process::{Pid, Process, Task, ptrace, tree};
use crate::sched;

/// Whether a signal may be refused by its receiver's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    /// It waits to be delivered.
    Queue,
    /// It does nothing and is forgotten.
    Discard,
}

/// Sends `signal` to the process of thread `pid` as the kernel itself (a terminal's Ctrl-C, a broken pipe). A pid that does not exist, or a
/// number that is no signal, is ignored.
pub fn send_signal(pid: Pid, signal: u8) {
    let Some(signal) = Signal::new(u64::from(signal)) else { return };
    if let Some(process) = tree::process_of_thread(pid) {
        // Only real-time signals of programs can find the queue full.
        let _ = to_process(&process, SigInfo::kernel(signal));
    }
}

/// Sends `signal` to every process of a group as the kernel itself (job control of a terminal).
pub fn send_signal_to_group(pgid: Pid, signal: Signal) {
    for process in tree::group(pgid) {
        let _ = to_process(&process, SigInfo::kernel(signal));
    }
}

/// Puts a signal among those that wait.
type Push = fn(&mut Pending, SigInfo) -> Result<(), QueueFull>;

fn push_timer(pending: &mut Pending, info: SigInfo) -> Result<(), QueueFull> {
    pending.push_timer(info);
    Ok(())
}

/// Sends a signal to a process: any of its threads that does not block it takes it.
///
/// # Errors
/// `EAGAIN`: the queue of real-time signals is full.
pub fn to_process(process: &Arc<Process>, info: SigInfo) -> Result<(), Errno> {
    process_with(process, info, Pending::push).map(|_| ())
}

/// Sends the signal of a timer to a process. False if it is ignored.
pub fn timer_to_process(process: &Arc<Process>, info: SigInfo) -> bool {
    process_with(process, info, push_timer) == Ok(Effect::Queue)
}

/// `RLIMIT_SIGPENDING`, which bounds what programs queue (`sigqueue`): `EAGAIN`. Counted for each process and thread, not for a user's all together.
fn check_room(process: &Process, pending: &Pending, info: &SigInfo) -> Result<(), Errno> {
    let queues = info.signal().queues() && info.code == info::code::SI_QUEUE;
    let full = queues && pending.len() as u64 >= process.limits.lock().soft(raw::RLIMIT_SIGPENDING);
    if full { Err(Errno::EAGAIN) } else { Ok(()) }
}

fn process_with(process: &Arc<Process>, info: SigInfo, push: Push) -> Result<Effect, Errno> {
    let signal = info.signal();
    prepare(process, signal);
    // Locked until one of them has been told: a thread that ends meanwhile finds the signal and tells another.
    let threads = process.threads.lock();
    let Some(first) = threads.first() else { return Ok(Effect::Discard) };
    if effect(process, first, &info) == Effect::Discard {
        return Ok(Effect::Discard);
    }
    let info = as_told(first, info);
    {
        let mut pending = process.pending.lock();
        check_room(process, &pending, &info)?;
        push(&mut pending, info).map_err(|_| Errno::EAGAIN)?;
    }
    if signal == Signal::KILL {
        drop(threads);
        kill(process);
        return Ok(Effect::Queue);
    }
    let wants = |task: &&Arc<Task>| {
        let signals = task.signals.lock();
        !signals.blocked.contains(signal) || signals.awaited.contains(signal)
    };
    match threads.iter().find(wants) {
        Some(task) => task.notify(),
        None => crate::fs::signalfd::notify(),
    }
    Ok(Effect::Queue)
}

/// Tells other threads of signals to the process that `task`, which was to take them, blocks now (Linux's `retarget_shared_pending`).
pub fn hand_on(task: &Task) {
    let process = &task.process;
    let waiting = process.pending.lock().set();
    if waiting.is_empty() {
        return;
    }
    for other in process.threads.lock().iter().filter(|other| other.pid != task.pid) {
        let blocked = other.signals.lock().blocked;
        if !waiting.without(blocked).is_empty() {
            other.notify();
        }
    }
}

/// Sends a signal to one thread.
///
/// # Errors
/// `EAGAIN`: the queue of real-time signals is full.
pub fn to_task(task: &Arc<Task>, info: SigInfo) -> Result<(), Errno> {
    task_with(task, info, Pending::push).map(|_| ())
}

/// Sends the signal of a timer to a thread. False if it is ignored.
pub fn timer_to_task(task: &Arc<Task>, info: SigInfo) -> bool {
    task_with(task, info, push_timer) == Ok(Effect::Queue)
}

fn task_with(task: &Arc<Task>, info: SigInfo, push: Push) -> Result<Effect, Errno> {
    let signal = info.signal();
    prepare(&task.process, signal);
    if effect(&task.process, task, &info) == Effect::Discard {
        return Ok(Effect::Discard);
    }
    let info = as_told(task, info);
    let wanted = {
        let mut signals = task.signals.lock();
        check_room(&task.process, &signals.pending, &info)?;
        push(&mut signals.pending, info).map_err(|_| Errno::EAGAIN)?;
        !signals.blocked.contains(signal) || signals.awaited.contains(signal)
    };
    if signal == Signal::KILL {
        kill(&task.process);
    } else if wanted {
        task.notify();
    } else {
        crate::fs::signalfd::notify();
    }
    Ok(Effect::Queue)
}

/// Sends a signal that the current instruction caused: it cannot be blocked or ignored; if it is, the program gets the default.
pub fn force(task: &Arc<Task>, info: SigInfo) {
    let signal = info.signal();
    {
        let mut signals = task.signals.lock();
        let was_blocked = signals.blocked.contains(signal);
        signals.blocked = signals.blocked.without(SigSet::EMPTY.with(signal));
        let mut handlers = task.process.handlers.lock();
        let action = handlers.get(signal);
        if was_blocked || action.is_ignore() {
            handlers.set(signal, super::action::Action::default());
        }
        signals.forced = signals.forced.with(signal);
        // Standard signals always find room for the bare signal.
        let _ = signals.push(info);
    }
    task.notify();
}

/// Begins the end of a whole process and wakes everything in it, stopped threads too.
pub fn kill(process: &Arc<Process>) {
    // Even from its own threads, nothing but its own exit ends the first process.
    if process.pid != tree::INIT {
        process.begin_exit(ExitStatus::Killed(Signal::KILL));
    }
}

/// Whether a signal would be kept. A blocked one always is, since its action may change before it is unblocked, and one that a tracer may want to
/// know of.
fn effect(process: &Process, receiver: &Task, info: &SigInfo) -> Effect {
    let signal = info.signal();
    let action = process.handlers.lock().get(signal);
    // Of what nobody can refuse, the first process of a namespace gets what comes from above it.
    let unkillable = action.is_default()
        && process.is_namespace_init()
        && !(process.pid != tree::INIT && SigSet::UNBLOCKABLE.contains(signal) && comes_from_above(process, info));
    if unkillable && SigSet::UNBLOCKABLE.contains(signal) {
        return Effect::Discard;
    }
    let signals = receiver.signals.lock();
    let traced = receiver.tracing.load(Ordering::Relaxed) & ptrace::TRACED != 0 && signal != Signal::KILL;
    if traced || signals.blocked.contains(signal) || signals.awaited.contains(signal) {
        return Effect::Queue;
    }
    if unkillable || action.discards(signal) { Effect::Discard } else { Effect::Queue }
}

/// Whether the kernel sends it, or a process that the receiver cannot see.
fn comes_from_above(process: &Process, info: &SigInfo) -> bool {
    info.code == info::code::SI_KERNEL || info.names_sender() && is_unseen(process)
}

/// Whether whoever runs is no process of the receiver's namespace.
fn is_unseen(process: &Process) -> bool {
    sched::try_with_current(|task| process.pid_namespace.number_of(task.pid) == 0).unwrap_or(false)
}

/// What the receiver is told: of a sender that it does not see, no number.
fn as_told(receiver: &Task, info: SigInfo) -> SigInfo {
    let process = &receiver.process;
    if !info.names_sender() {
        return info;
    }
    let info = match process.pid_namespace.level() > 0 && is_unseen(process) {
        true => info.without_sender(),
        false => info,
    };
    // Users are shown to the receiver as its own namespace has them.
    match info.code {
        info::code::SI_QUEUE => info,
        _ => info.with_user(|uid| receiver.shown_owner((uid, 0)).0),
    }
}

/// What sending does at once, whether or not the signal is blocked or ignored: `SIGCONT` ends a stop and forgets signals that would begin
/// one, and the other way round (Linux's `prepare_signal`).
fn prepare(process: &Arc<Process>, signal: Signal) {
    let discard = match signal {
        Signal::CONT => SigSet::STOPPING,
        _ if SigSet::STOPPING.contains(signal) => SigSet::EMPTY.with(Signal::CONT),
        _ => return,
    };
    let ended = {
        let mut group = process.group.lock();
        for task in process.threads.lock().iter() {
            task.signals.lock().pending.discard(discard);
        }
        process.pending.lock().discard(discard);
        if signal == Signal::CONT { group.end_stop() } else { None }
    };
    if let Some(ended) = ended {
        let threads = process.threads.lock().clone();
        for task in &threads {
            ptrace::control::group_continues(task);
        }
        process.resume.wake_all();
        tree::report_continued(process, ended);
    }
}

/// Which processes `kill(pid, …)` means.
pub enum Target {
    /// One process, by the sender's number.
    Process(Pid),
    /// All of a group.
    Group(Pid),
    /// All but the first one and the caller.
    All,
}

/// The `kill` system call. `signal` 0 only checks.
pub fn kill_call(sender: &Task, target: Target, signal: Option<Signal>) -> Result<(), Errno> {
    let uid = sender.credentials().uid;
    let deliver = |process: &Arc<Process>| -> Result<(), Errno> {
        permit(sender, process, signal)?;
        match signal {
            Some(signal) => {
                to_process(process, SigInfo::user(signal, info::code::SI_USER, sender.number_of(sender.tgid), uid))
            }
            None => Ok(()),
        }
    };
    match target {
        Target::Process(pid) => deliver(&sender.find_process(pid).ok_or(Errno::ESRCH)?),
        Target::Group(pgid) => {
            let (mut reached, mut result) = (false, Errno::ESRCH);
            for process in tree::group(pgid) {
                match deliver(&process) {
                    Ok(()) => reached = true,
                    Err(error) => result = error,
                }
            }
            if reached { Ok(()) } else { Err(result) }
        }
        Target::All => {
            let (mut count, mut result) = (0, Ok(()));
            for process in tree::processes() {
                if sender.number_of(process.pid) <= tree::INIT || process.pid == sender.tgid {
                    continue;
                }
                count += 1;
                match deliver(&process) {
                    Err(Errno::EPERM) => {}
                    other => result = other,
                }
            }
            if count == 0 { Err(Errno::ESRCH) } else { result }
        }
    }
}

/// Whether `sender` may send to `receiver` (kill(2)): root, one of two matching user ids, or `SIGCONT` within a session.
pub fn permit(sender: &Task, receiver: &Process, signal: Option<Signal>) -> Result<(), Errno> {
    let from = sender.credentials();
    if receiver.pid == sender.tgid {
        return Ok(());
    }
    let Some(to) = receiver.leader().map(|task| task.credentials()) else { return Ok(()) };
    if from.may_in(&to.user_namespace, CAP_KILL) {
        return Ok(());
    }
    let matches = [from.euid, from.uid].iter().any(|uid| [to.uid, to.suid].contains(uid));
    let same_session = signal == Some(Signal::CONT) && receiver.sid() == sender.process.sid();
    if matches || same_session { Ok(()) } else { Err(Errno::EPERM) }
}
