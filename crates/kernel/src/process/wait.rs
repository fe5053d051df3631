//! Waiting for children.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::exit::ExitStatus;
use super::signal::info::code;
use super::signal::{SigInfo, Signal, info};
use super::tree::{self, Removed, State, Tree};
use super::usage::Usage;
use super::{Pid, Process, Task};
use crate::errno::Errno;
use crate::fs::poll;

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
    /// `SIGCONT` made it go on.
    Continued,
}

impl Event {
    /// As `wait4` reports it.
    pub fn to_wait_status(self) -> i32 {
        match self {
            Event::Ended(status) => status.to_wait_status(),
            Event::Stopped(signal) => i32::from(signal.number()) << 8 | 0x7f,
            Event::Continued => 0xffff,
        }
    }

    fn to_siginfo(self) -> (i32, i32) {
        match self {
            Event::Ended(status) => status.to_siginfo(),
            Event::Stopped(signal) => (code::CLD_STOPPED, i32::from(signal.number())),
            Event::Continued => (code::CLD_CONTINUED, i32::from(Signal::CONT.number())),
        }
    }
}

/// What `wait` found out.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The child.
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
        return look(process, which, options);
    }
    process.children_changed.wait_until(|| look(process, which, options).transpose())?.map(Some)
}

/// One look at the children: a report, nothing yet, or no such child.
fn look(process: &Process, which: Which, options: u32) -> Result<Option<Report>, Errno> {
    let (report, removed) = {
        let mut tree = tree::lock();
        let Some((pid, event)) = find(&tree, process, which, options)? else { return Ok(None) };
        take(&mut tree, process, pid, event, options)
    };
    if removed.is_some() {
        drop(removed);
        // A pidfd says when its process has been waited for.
        poll::notify();
    }
    Ok(Some(report))
}

/// The first child in order of birth that has something to report.
fn find(tree: &Tree, process: &Process, which: Which, options: u32) -> Result<Option<(Pid, Event)>, Errno> {
    let parent = tree.node(process.pid).ok_or(Errno::ECHILD)?;
    let mut eligible = false;
    let found = match which {
        // Found without looking at its siblings.
        Which::Process(pid) if tree.node(pid).is_some_and(|child| child.process.ppid() == process.pid) => {
            scan(tree, &[pid], which, options, &mut eligible)
        }
        Which::Process(_) => None,
        _ => scan(tree, &parent.children, which, options, &mut eligible),
    };
    if found.is_none() && !eligible { Err(Errno::ECHILD) } else { Ok(found) }
}

fn scan(tree: &Tree, children: &[Pid], which: Which, options: u32, eligible: &mut bool) -> Option<(Pid, Event)> {
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
        let event = match child.state {
            State::Zombie { status, .. } if options & raw::WEXITED != 0 => Event::Ended(status),
            State::Stopped { signal, told: false } if options & raw::WSTOPPED != 0 => Event::Stopped(signal),
            State::Running if child.continued && options & raw::WCONTINUED != 0 => Event::Continued,
            _ => continue,
        };
        return Some((pid, event));
    }
    None
}

/// Makes the report, and sees that nobody gets it again.
fn take(tree: &mut Tree, process: &Process, pid: Pid, event: Event, options: u32) -> (Report, Option<Removed>) {
    let keep = options & raw::WNOWAIT != 0;
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
    let report = Report { pid, uid, event, usage: usage.plus(child_process.children_usage()) };
    let removed = match event {
        Event::Ended(_) if !keep => {
            process.add_children_usage(report.usage);
            Some(tree.reap(pid))
        }
        _ => None,
    };
    drop::<Arc<Process>>(child_process);
    (report, removed)
}
