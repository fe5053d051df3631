//! What parents are told: a child has ended, stopped, goes on.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;
use smallvec::SmallVec;

use super::{Node, Removed, State, Tree, lock, something_went};
use crate::process::exit::ExitStatus;
use crate::process::signal::info::{Child, SigInfo, code};
use crate::process::signal::stop::{GroupState, Stop, StopEnded};
use crate::process::signal::{Signal, send};
use crate::process::usage::Usage;
use crate::process::{Pid, Process, Task};

/// Something to be sent once the lock is released.
struct Notice {
    to: Arc<Process>,
    /// A signal, if one is wanted; whoever waits is woken anyway.
    info: Option<SigInfo>,
}

impl Notice {
    fn deliver(self) {
        if let Some(info) = self.info {
            // Standard signals always find room.
            let _ = send::to_process(&self.to, info);
        }
        self.to.children_changed.wake_all();
    }
}

/// What follows from a change of the tree once its lock is released.
#[derive(Default)]
pub struct Aftermath {
    notices: SmallVec<[Notice; 2]>,
    removed: Vec<Removed>,
}

impl Aftermath {
    /// Sends what is to be sent, and drops what has left the tree.
    pub fn settle(self) {
        for notice in self.notices {
            notice.deliver();
        }
        let any = !self.removed.is_empty();
        drop(self.removed);
        if any {
            something_went();
        }
    }

    /// Something has left the tree.
    pub fn remove(&mut self, removed: Removed) {
        self.removed.push(removed);
    }
}

impl Tree {
    /// Nobody traces `task` any more: if it has ended, whoever has waited for that so long is told. `ended`: it is a thread that only its tracer
    /// waited for.
    pub fn untraced(&mut self, task: &Task, ended: bool, after: &mut Aftermath) {
        if ended {
            after.removed.push(self.reap(task.pid));
        } else if task.is_leader() && self.node(task.pid).is_some_and(Node::has_ended) {
            after.removed.extend(tell_parent(self, task.pid, &mut after.notices));
        }
    }
}

/// Makes a process that has no threads left a zombie, hands on its children, tells its parent.
pub(in crate::process) fn process_ended(process: &Arc<Process>, status: ExitStatus, usage: Usage) {
    let mut after = Aftermath::default();
    {
        let Aftermath { notices, removed } = &mut after;
        let mut tree = lock();
        tree.set_state(process.pid, State::Zombie { status, usage });
        let children = tree.node_mut(process.pid).map(|node| core::mem::take(&mut node.children)).unwrap_or_default();
        if !children.is_empty() {
            adopt(&mut tree, process, children, notices, removed);
        }
        if tree.stopped > 0 {
            // Our end may have orphaned our own group: it was we who had a parent outside.
            hang_up_if_orphaned(&tree, process.pgid(), Some(process.pid), notices);
        }
        removed.extend(tell_parent(&mut tree, process.pid, notices));
    }
    after.settle();
    something_went();
}

/// Gives the children of an ending process to another.
fn adopt(
    tree: &mut Tree,
    process: &Process,
    children: Vec<Pid>,
    notices: &mut SmallVec<[Notice; 2]>,
    removed: &mut Vec<Removed>,
) {
    let reaper = tree.reaper(process);
    for &pid in &children {
        let Some(child) = tree.node_mut(pid) else { continue };
        child.process.ppid.store(reaper, Ordering::Relaxed);
        child.process.parent_thread.store(reaper, Ordering::Relaxed);
        let ended = matches!(child.state, State::Zombie { .. });
        let child = child.process.clone();
        if let Some(signal) = child.parent_death_signal() {
            notices.push(Notice { to: child.clone(), info: Some(SigInfo::kernel(signal)) });
        }
        if let Some(parent) = tree.node_mut(reaper) {
            parent.children.push(pid);
        }
        if ended {
            removed.extend(tell_parent(tree, pid, notices));
        } else if tree.stopped > 0 && child.pgid() != process.pgid() && child.sid() == process.sid() {
            hang_up_if_orphaned(tree, child.pgid(), None, notices);
        }
    }
}

/// A stopped group that nobody can continue any more gets `SIGHUP` and `SIGCONT`.
fn hang_up_if_orphaned(tree: &Tree, pgid: Pid, without: Option<Pid>, notices: &mut SmallVec<[Notice; 2]>) {
    if !tree.has_stopped_member(pgid) || !tree.is_orphaned(pgid, without) {
        return;
    }
    for node in tree.nodes().filter(|node| node.process.pgid() == pgid) {
        for signal in [Signal::HUP, Signal::CONT] {
            notices.push(Notice { to: node.process.clone(), info: Some(SigInfo::kernel(signal)) });
        }
    }
}

/// Tells the parent that process `pid` is a zombie; takes the zombie away at once if the parent does not want it.
fn tell_parent(tree: &mut Tree, pid: Pid, notices: &mut SmallVec<[Notice; 2]>) -> Option<Removed> {
    let node = tree.node(pid)?;
    let State::Zombie { status, usage } = node.state else { return None };
    let process = node.process.clone();
    let (mut signal, mut parent) = (node.exit_signal, process.ppid());
    // Its tracer comes first, and its parent when that has waited for it or lets go of it.
    let traced = tree.task(pid).and_then(|task| task.trace.lock().tracer.clone());
    if let Some(tracer) = traced.filter(|tracer| tracer.process.pid != parent) {
        (signal, parent) = (Some(Signal::CHLD), tracer.process.pid);
    }
    let reparented = parent != process.ppid();
    let parent = tree.node(parent)?.process.clone();
    let mut unwanted = false;
    if signal == Some(Signal::CHLD) {
        let action = parent.handlers.lock().get(Signal::CHLD);
        unwanted = action.is_ignore() || action.has(raw::SA_NOCLDWAIT);
        if action.is_ignore() {
            signal = None;
        }
    }
    let info = signal.map(|signal| {
        let (code, value) = status.to_siginfo();
        SigInfo::child(signal, code, child_info(&parent, &process, value, &usage))
    });
    notices.push(Notice { to: parent, info });
    if unwanted && reparented {
        if let Some(task) = tree.task(pid) {
            tree.forget_traced(&task);
        }
        return tell_parent(tree, pid, notices);
    }
    unwanted.then(|| tree.reap(pid))
}

fn child_info(parent: &Process, process: &Process, status: i32, usage: &Usage) -> Child {
    let pid = parent.pid_namespace.number_of(process.pid);
    Child { pid, uid: process.uid(), status, utime: usage.user_ticks(), stime: usage.system_ticks() }
}

/// Tells the parent that a process has come to rest.
pub(in crate::process) fn report_stopped(process: &Arc<Process>, stop: Stop) {
    let state = State::Stopped { signal: stop.signal, told: false };
    report_change(process, state, code::CLD_STOPPED, stop.signal, |group| group.is_in(&stop));
}

/// Tells the parent that a process goes on after a stop.
pub(in crate::process) fn report_continued(process: &Arc<Process>, ended: StopEnded) {
    if ended.complete {
        report_change(process, State::Running, code::CLD_CONTINUED, Signal::CONT, |group| !group.is_stopped());
    }
}

/// Reports, unless what is to be reported is not so any more when it is its turn: then something newer is being reported.
fn report_change(
    process: &Arc<Process>,
    state: State,
    code: i32,
    status: Signal,
    is_still_so: impl FnOnce(&GroupState) -> bool,
) {
    let notice = {
        let mut tree = lock();
        if !is_still_so(&process.group.lock()) || tree.node(process.pid).is_none_or(Node::has_ended) {
            return;
        }
        tree.set_state(process.pid, state);
        let Some(node) = tree.node_mut(process.pid) else { return };
        node.continued = matches!(state, State::Running);
        let Some(parent) = tree.node(process.ppid()) else { return };
        let parent = parent.process.clone();
        let action = parent.handlers.lock().get(Signal::CHLD);
        let wanted = !action.is_ignore() && !action.has(raw::SA_NOCLDSTOP);
        let child = child_info(&parent, process, i32::from(status.number()), &process.usage());
        Notice { to: parent, info: wanted.then(|| SigInfo::child(Signal::CHLD, code, child)) }
    };
    notice.deliver();
}
