//! Waiting for children.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::exit::ExitStatus;
use super::ptrace::TRACED;
use super::signal::info::code;
use super::signal::{SigInfo, Signal, info};
use super::tree::{self, Aftermath, State, Tree};
use super::usage::Usage;
use super::{Pid, Process, Task};
use crate::errno::Errno;

/// `__WNOTHREAD`, `__WALL`, `__WCLONE` (`linux/wait.h`).
const WNOTHREAD: u32 = 0x2000_0000;
const WALL: u32 = 0x4000_0000;
const WCLONE: u32 = 0x8000_0000;

/// Options of `wait4`.
pub const WAIT4_OPTIONS: u32 = raw::WNOHANG | raw::WUNTRACED | raw::WCONTINUED | WNOTHREAD | WALL | WCLONE;
/// Options of `waitid`.
pub const WAITID_OPTIONS: u32 =
    raw::WNOHANG | raw::WNOWAIT | raw::WEXITED | raw::WSTOPPED | raw::WCONTINUED | WNOTHREAD | WALL | WCLONE;

/// Which children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Any.
    Any,
    /// This one.
    Process(Pid),
    /// Those of this process group.
    Group(Pid),
}

/// What happened to a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It ended.
    Ended(ExitStatus),
    /// A signal stopped it.
    Stopped(Signal),
    /// It rests for its tracer, with this code.
    Trapped(u32),
    /// `SIGCONT` made it go on.
    Continued,
}

impl Event {
    /// As `wait4` reports it.
    pub fn to_wait_status(self) -> i32 {
        match self {
            Event::Ended(status) => status.to_wait_status(),
            Event::Stopped(signal) => i32::from(signal.number()) << 8 | 0x7f,
            Event::Trapped(code) => (code << 8 | 0x7f) as i32,
            Event::Continued => 0xffff,
        }
    }

    fn to_siginfo(self) -> (i32, i32) {
        match self {
            Event::Ended(status) => status.to_siginfo(),
            Event::Stopped(signal) => (code::CLD_STOPPED, i32::from(signal.number())),
            Event::Trapped(code) => (code::CLD_TRAPPED, code as i32),
            Event::Continued => (code::CLD_CONTINUED, i32::from(Signal::CONT.number())),
        }
    }
}

/// What `wait` found out.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The child, as the caller counts.
    pub pid: Pid,
    /// Its real user id.
    pub uid: u32,
    /// What happened.
    pub event: Event,
    /// What it and its own waited-for children used.
    pub usage: Usage,
}

impl Report {
    /// As `waitid` reports it. `wait` leaves the times zero.
    pub fn to_siginfo(self) -> SigInfo {
        let (code, status) = self.event.to_siginfo();
        let child = info::Child { pid: self.pid, uid: self.uid, status, utime: 0, stime: 0 };
        SigInfo::child(Signal::CHLD, code, child)
    }
}

/// Waits until something that `options` (`W*`) ask for has happened to one of the caller's children, and takes note of it, unless
/// `WNOWAIT`. `None`: nothing has, and `WNOHANG` is set.
///
/// # Errors
/// `ECHILD`: there is no such child. `ERESTARTSYS`: a signal came first.
pub fn wait(task: &Task, which: Which, options: u32) -> Result<Option<Report>, Errno> {
    let process = &task.process;
    if options & raw::WNOHANG != 0 {
        return look(task, which, options);
    }
    process.children_changed.wait_until(|| look(task, which, options).transpose())?.map(Some)
}

/// As what somebody is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Child,
    Tracee,
}

/// Something to report: of whom, what, and why the caller may know.
type Found = (Pid, Event, Role);

/// One look at the children: a report, nothing yet, or no such child.
fn look(task: &Task, which: Which, options: u32) -> Result<Option<Report>, Errno> {
    let mut after = Aftermath::default();
    let report = {
        let mut tree = tree::lock();
        let Some(found) = find(&tree, task, which, options)? else { return Ok(None) };
        take(&mut tree, &task.process, found, options, &mut after)
    };
    // A pidfd says when its process has been waited for.
    after.settle();
    Ok(Some(report))
}

/// The first child, in order of birth, or tracee that has something to report.
fn find(tree: &Tree, task: &Task, which: Which, options: u32) -> Result<Option<Found>, Errno> {
    let process = &task.process;
    let parent = tree.node(process.pid).ok_or(Errno::ECHILD)?;
    let mut eligible = false;
    let found = match which {
        // Found without looking at its siblings.
        Which::Process(pid) if tree.node(pid).is_some_and(|child| child.process.ppid() == process.pid) => {
            scan(tree, &[pid], process, which, options, &mut eligible)
        }
        Which::Process(_) => None,
        _ => scan(tree, &parent.children, process, which, options, &mut eligible),
    };
    let found = match parent.tracees.is_empty() {
        true => found,
        false => found.or_else(|| scan_tracees(tree, &parent.tracees, task, which, options, &mut eligible)),
    };
    if found.is_none() && !eligible { Err(Errno::ECHILD) } else { Ok(found) }
}

/// Tracees may be threads, and want no option to be waited for.
fn scan_tracees(
    tree: &Tree,
    tracees: &[Pid],
    task: &Task,
    which: Which,
    options: u32,
    eligible: &mut bool,
) -> Option<Found> {
    for &pid in tracees {
        let Some(tracee) = tree.task(pid) else { continue };
        let wanted = match which {
            Which::Any => true,
            Which::Process(wanted) => wanted == pid,
            Which::Group(pgid) => tracee.process.pgid() == pgid,
        };
        let trace = tracee.trace.lock();
        let own = trace.tracer.as_ref().is_some_and(|tracer| tracer.thread == task.pid);
        if !wanted || options & WNOTHREAD != 0 && !own {
            continue;
        }
        *eligible = true;
        let zombie = match tree.node(pid).map(|node| node.state) {
            Some(State::Zombie { status, .. }) => Some(status),
            _ => None,
        };
        let event = match (trace.ended.or(zombie), &trace.stop) {
            (Some(status), _) if options & raw::WEXITED != 0 => Event::Ended(status),
            (None, Some(stop)) if !stop.told => Event::Trapped(stop.code),
            _ => continue,
        };
        return Some((pid, event, Role::Tracee));
    }
    None
}

fn scan(
    tree: &Tree,
    children: &[Pid],
    process: &Process,
    which: Which,
    options: u32,
    eligible: &mut bool,
) -> Option<Found> {
    for &pid in children {
        let Some(child) = tree.node(pid) else { continue };
        if matches!(which, Which::Group(pgid) if child.process.pgid() != pgid) {
            continue;
        }
        // Children that do not end with SIGCHLD want to be asked for (clone(2)).
        let is_clone = child.exit_signal != Some(Signal::CHLD);
        if options & WALL == 0 && is_clone != (options & WCLONE != 0) {
            continue;
        }
        *eligible = true;
        let task = tree.task(pid);
        let tracer = task.filter(|task| task.tracing.load(Ordering::Relaxed) & TRACED != 0);
        let tracer = tracer.and_then(|task| task.trace.lock().tracer.as_ref().map(|tracer| tracer.process.pid));
        // Whoever traces its own child waits for a tracee.
        if tracer == Some(process.pid) {
            continue;
        }
        let event = match child.state {
            State::Zombie { status, .. } if options & raw::WEXITED != 0 && tracer.is_none() => Event::Ended(status),
            State::Stopped { signal, told: false } if options & raw::WSTOPPED != 0 => Event::Stopped(signal),
            State::Running if child.continued && options & raw::WCONTINUED != 0 => Event::Continued,
            _ => continue,
        };
        return Some((pid, event, Role::Child));
    }
    None
}

/// Makes the report, and sees that nobody gets it again.
fn take(tree: &mut Tree, process: &Process, found: Found, options: u32, after: &mut Aftermath) -> Report {
    let (pid, event, role) = found;
    let keep = options & raw::WNOWAIT != 0;
    if role == Role::Tracee {
        return take_from_tracer(tree, process, pid, event, options, after);
    }
    let child = tree.node_mut(pid).expect("found a moment ago under the same lock");
    let (child_process, usage) = match child.state {
        State::Zombie { usage, .. } => (child.process.clone(), usage),
        _ => (child.process.clone(), child.process.usage()),
    };
    if !keep {
        match &mut child.state {
            State::Stopped { told, .. } => *told = true,
            State::Running => child.continued = false,
            State::Zombie { .. } => {}
        }
    }
    let uid = child_process.uid();
    let number = process.pid_namespace.number_of(pid);
    let report = Report { pid: number, uid, event, usage: usage.plus(child_process.children_usage()) };
    if let Event::Ended(_) = event
        && !keep
    {
        process.add_children_usage(report.usage);
        after.remove(tree.reap(pid));
    }
    drop::<Arc<Process>>(child_process);
    report
}

/// The same of a tracee. One that has ended is its parent's to wait for next, if that is somebody else.
fn take_from_tracer(
    tree: &mut Tree,
    process: &Process,
    pid: Pid,
    event: Event,
    options: u32,
    after: &mut Aftermath,
) -> Report {
    let task = tree.task(pid).expect("found a moment ago under the same lock");
    let (usage, own_child) = match tree.node(pid) {
        Some(node) => (node.usage().plus(node.process.children_usage()), node.process.ppid() == process.pid),
        None => (task.thread_usage(), false),
    };
    let number = process.pid_namespace.number_of(pid);
    let report = Report { pid: number, uid: task.credentials().uid, event, usage };
    if options & raw::WNOWAIT != 0 {
        return report;
    }
    match event {
        Event::Ended(_) if own_child => {
            process.add_children_usage(usage);
            after.remove(tree.reap(pid));
        }
        Event::Ended(_) => {
            let ended = task.trace.lock().ended.is_some();
            tree.forget_traced(&task);
            tree.untraced(&task, ended, after);
        }
        _ => {
            if let Some(stop) = &mut task.trace.lock().stop {
                stop.told = true;
            }
        }
    }
    report
}
