//! Who is whose child, which group and session a process belongs to, and what `wait` is to be told: one lock over all of it.
//!
//! A number is taken while a thread, a process group or a session goes by it. A process that has ended stays as a zombie until its parent has
//! waited for it; its children go to the nearest ancestor that wants them, or to the first process.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::sync::{Mutex, MutexGuard};
use linux_raw_sys::general as raw;

use super::credentials::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, Credentials};
use super::exit::ExitStatus;
use super::signal::info::{Child, SigInfo, code};
use super::signal::stop::{GroupState, Stop, StopEnded};
use super::signal::{Signal, send};
use super::usage::Usage;
use super::{Pid, Process, Task};
use crate::errno::Errno;
use crate::fs::poll;

/// The first process.
pub const INIT: Pid = 1;

/// Numbers go up to here and start again (Linux's default `pid_max`).
pub const PID_MAX: Pid = 32_768;

/// Where numbers start again: low ones are left to the system (Linux's `RESERVED_PIDS`).
const FIRST_AGAIN: Pid = 300;

static TREE: Mutex<Tree> = Mutex::new(Tree { entries: BTreeMap::new(), last: 0, stopped: 0 });

/// All processes and threads, by number.
pub struct Tree {
    entries: BTreeMap<Pid, Entry>,
    /// The number given out last.
    last: Pid,
    /// Processes that are stopped: while there are none, nobody need look for orphaned groups.
    stopped: usize,
}

/// What goes by one number.
#[derive(Default)]
struct Entry {
    /// A thread; for a zombie, the process's first thread.
    task: Option<Arc<Task>>,
    /// A process.
    node: Option<Node>,
    /// How many processes are members of the group plus members of the session of this number.
    members: u32,
}

/// A process in the tree.
pub(super) struct Node {
    pub(super) process: Arc<Process>,
    pub(super) children: Vec<Pid>,
    pub(super) state: State,
    /// Went on after a stop, and no parent was told yet.
    pub(super) continued: bool,
    /// What its parent is sent when it ends; `None` for nothing.
    pub(super) exit_signal: Option<Signal>,
    /// It has called exec since it was forked: its parent may no longer move it to another group.
    executed: bool,
}

/// What a process's parent may learn about it.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It runs, or waits for something.
    Running,
    /// It is stopped; `told`: a `wait` has reported it.
    Stopped { signal: Signal, told: bool },
    /// It has ended.
    Zombie { status: ExitStatus, usage: Usage },
}

/// What leaves the tree, to be dropped after its lock.
#[must_use = "dropping it under the lock of the tree would run destructors there"]
pub struct Removed(#[expect(dead_code, reason = "held to be dropped")] Option<(Node, Option<Arc<Task>>)>);

/// Locks the tree.
pub(super) fn lock() -> MutexGuard<'static, Tree> {
    TREE.lock()
}

impl Node {
    /// Whether it is a zombie.
    fn has_ended(&self) -> bool {
        matches!(self.state, State::Zombie { .. })
    }
}

impl Tree {
    /// Takes a number that nothing goes by.
    ///
    /// # Errors
    /// `EAGAIN`: all are taken.
    pub(super) fn allocate(&mut self) -> Result<Pid, Errno> {
        let mut candidate = self.last;
        for _ in 0..PID_MAX {
            candidate = if candidate + 1 >= PID_MAX { FIRST_AGAIN } else { candidate + 1 };
            if !self.entries.contains_key(&candidate) {
                self.last = candidate;
                return Ok(candidate);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Takes this number for somebody who acts as `who` (`alloc_pid` of Linux's `kernel/pid.c`).
    ///
    /// # Errors
    /// `EINVAL`: it is no number. `EPERM`: who may not choose. `EEXIST`: something goes by it.
    pub(super) fn allocate_exactly(&mut self, number: i32, who: &Credentials) -> Result<Pid, Errno> {
        let pid = Pid::try_from(number).ok().filter(|pid| (1..PID_MAX).contains(pid)).ok_or(Errno::EINVAL)?;
        if !who.may(CAP_CHECKPOINT_RESTORE) && !who.may(CAP_SYS_ADMIN) {
            return Err(Errno::EPERM);
        }
        if self.entries.contains_key(&pid) { Err(Errno::EEXIST) } else { Ok(pid) }
    }

    /// Adds a process with its first thread, as a child of `parent` (`None` for the first process) and a member of
    /// the group and session that its record names.
    pub(super) fn insert_process(&mut self, task: &Arc<Task>, exit_signal: Option<Signal>) {
        let process = &task.process;
        let node = Node {
            process: process.clone(),
            children: Vec::new(),
            state: State::Running,
            continued: false,
            exit_signal,
            executed: false,
        };
        let entry = self.entries.entry(process.pid).or_default();
        entry.task = Some(task.clone());
        entry.node = Some(node);
        self.join(process.pgid());
        self.join(process.sid());
        if let Some(parent) = self.node_mut(process.ppid()) {
            parent.children.push(process.pid);
        }
    }

    /// Adds a further thread of a process.
    pub(super) fn insert_thread(&mut self, task: &Arc<Task>) {
        self.entries.entry(task.pid).or_default().task = Some(task.clone());
    }

    pub(super) fn node(&self, pid: Pid) -> Option<&Node> {
        self.entries.get(&pid)?.node.as_ref()
    }

    pub(super) fn node_mut(&mut self, pid: Pid) -> Option<&mut Node> {
        self.entries.get_mut(&pid)?.node.as_mut()
    }

    /// Takes a zombie out for good.
    pub(super) fn reap(&mut self, pid: Pid) -> Removed {
        let Some(entry) = self.entries.get_mut(&pid) else { return Removed(None) };
        let task = entry.task.take();
        let Some(node) = entry.node.take() else { return Removed(None) };
        if entry.members == 0 {
            self.entries.remove(&pid);
        }
        if let Some(parent) = self.node_mut(node.process.ppid())
            && let Some(position) = parent.children.iter().position(|&child| child == pid)
        {
            parent.children.remove(position);
        }
        self.leave(node.process.pgid());
        self.leave(node.process.sid());
        Removed(Some((node, task)))
    }

    fn join(&mut self, id: Pid) {
        self.entries.entry(id).or_default().members += 1;
    }

    fn leave(&mut self, id: Pid) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.members -= 1;
        if entry.members == 0 && entry.task.is_none() && entry.node.is_none() {
            self.entries.remove(&id);
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.entries.values().filter_map(|entry| entry.node.as_ref())
    }

    /// Changes what the parent may learn, and keeps count of stopped processes.
    fn set_state(&mut self, pid: Pid, state: State) {
        let Some(node) = self.node_mut(pid) else { return };
        let before = core::mem::replace(&mut node.state, state);
        self.stopped -= usize::from(matches!(before, State::Stopped { .. }));
        self.stopped += usize::from(matches!(state, State::Stopped { .. }));
    }

    /// Whether no member of the group has a parent in the same session but another group (POSIX's orphaned process group), `without` counted as
    /// gone already.
    fn is_orphaned(&self, pgid: Pid, without: Option<Pid>) -> bool {
        !self.nodes().any(|node| {
            let process = &node.process;
            process.pgid() == pgid
                && Some(process.pid) != without
                && !matches!(node.state, State::Zombie { .. })
                && self.node(process.ppid()).is_some_and(|parent| {
                    parent.process.pid != INIT && parent.process.pgid() != pgid && parent.process.sid() == process.sid()
                })
        })
    }

    fn has_stopped_member(&self, pgid: Pid) -> bool {
        self.nodes().any(|node| node.process.pgid() == pgid && matches!(node.state, State::Stopped { .. }))
    }

    /// Who adopts the children of `pid`: the nearest ancestor that asked for it, else the first process.
    fn reaper(&self, pid: Pid) -> Pid {
        let mut at = pid;
        while let Some(parent) = self.node(at).map(|node| node.process.ppid()) {
            match self.node(parent) {
                Some(node)
                    if node.process.subreaper.load(Ordering::Relaxed)
                        && !matches!(node.state, State::Zombie { .. }) =>
                {
                    return parent;
                }
                _ => at = parent,
            }
        }
        INIT
    }
}

/// Every thread, zombies' first threads included, by number.
pub fn all() -> Vec<Arc<Task>> {
    lock().entries.values().filter_map(|entry| entry.task.clone()).collect()
}

/// The thread of that number.
pub fn find(pid: Pid) -> Option<Arc<Task>> {
    lock().entries.get(&pid)?.task.clone()
}

/// The process that has a thread of that number (`kill` takes either).
pub fn process_of_thread(pid: Pid) -> Option<Arc<Process>> {
    Some(lock().entries.get(&pid)?.task.as_ref()?.process.clone())
}

/// Every process, zombies included.
pub fn processes() -> Vec<Arc<Process>> {
    lock().nodes().map(|node| node.process.clone()).collect()
}

/// The members of a process group, zombies included. O(processes).
pub fn group(pgid: Pid) -> Vec<Arc<Process>> {
    lock().nodes().filter(|node| node.process.pgid() == pgid).map(|node| node.process.clone()).collect()
}

/// How many threads and processes there are.
pub fn count() -> usize {
    lock().entries.values().filter(|entry| entry.task.is_some()).count()
}

/// The number given out last (`/proc/loadavg` shows it).
pub fn last_pid() -> Pid {
    lock().last
}

/// Whether a group is orphaned: its members do not stop for a terminal. O(processes).
pub fn is_orphaned_group(pgid: Pid) -> bool {
    lock().is_orphaned(pgid, None)
}

/// Whether a process has ended and waits to be waited for.
pub fn is_zombie(pid: Pid) -> bool {
    lock().node(pid).is_some_and(|node| matches!(node.state, State::Zombie { .. }))
}

/// How far a process has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It has threads.
    Running,
    /// It has ended, and nobody has waited for it.
    Zombie,
    /// Nothing goes by its number any more, or something else does.
    Gone,
}

/// How far `process` has come.
pub fn life(process: &Arc<Process>) -> Life {
    match lock().node(process.pid) {
        Some(node) if Arc::ptr_eq(&node.process, process) => match node.state {
            State::Zombie { .. } => Life::Zombie,
            _ => Life::Running,
        },
        _ => Life::Gone,
    }
}

/// Notes that a process has called exec.
pub(super) fn executed(pid: Pid) {
    if let Some(node) = lock().node_mut(pid) {
        node.executed = true;
        node.exit_signal = Some(Signal::CHLD);
    }
}

/// Takes a thread that is not its process's first out of the tree.
pub(super) fn remove_thread(pid: Pid) {
    let mut tree = lock();
    let Some(entry) = tree.entries.get_mut(&pid) else { return };
    let task = entry.task.take();
    if entry.members == 0 && entry.node.is_none() {
        tree.entries.remove(&pid);
    }
    drop(tree);
    drop(task);
    poll::notify();
}

/// `setpgid`: moves process `pid` to group `pgid` on behalf of `caller`. Errors in Linux's order.
pub fn set_group(caller: &Process, pid: Pid, pgid: Pid) -> Result<(), Errno> {
    let mut tree = lock();
    let node = tree.node(pid).ok_or(Errno::ESRCH)?;
    let process = node.process.clone();
    if process.ppid() == caller.pid {
        if process.sid() != caller.sid() {
            return Err(Errno::EPERM);
        }
        if node.executed {
            return Err(Errno::EACCES);
        }
    } else if process.pid != caller.pid {
        return Err(Errno::ESRCH);
    }
    if process.sid() == process.pid {
        return Err(Errno::EPERM);
    }
    if pgid != pid && !tree.nodes().any(|node| node.process.pgid() == pgid && node.process.sid() == caller.sid()) {
        return Err(Errno::EPERM);
    }
    if process.pgid() != pgid {
        tree.join(pgid);
        let old = process.pgid.swap(pgid, Ordering::Relaxed);
        tree.leave(old);
    }
    Ok(())
}

/// `setsid`: makes `process` the leader of a new session and group.
pub fn new_session(process: &Process) -> Result<Pid, Errno> {
    let mut tree = lock();
    let pid = process.pid;
    if process.sid() == pid || tree.entries.get(&pid).is_some_and(|entry| entry.members > 0) {
        return Err(Errno::EPERM);
    }
    tree.join(pid);
    tree.join(pid);
    let old_group = process.pgid.swap(pid, Ordering::Relaxed);
    let old_session = process.sid.swap(pid, Ordering::Relaxed);
    tree.leave(old_group);
    tree.leave(old_session);
    Ok(pid)
}

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

/// Makes a process that has no threads left a zombie, hands on its children, tells its parent.
pub(super) fn process_ended(process: &Arc<Process>, status: ExitStatus, usage: Usage) {
    let mut notices: smallvec::SmallVec<[Notice; 2]> = smallvec::SmallVec::new();
    let mut removed: Vec<Removed> = Vec::new();
    {
        let mut tree = lock();
        tree.set_state(process.pid, State::Zombie { status, usage });
        let children = tree.node_mut(process.pid).map(|node| core::mem::take(&mut node.children)).unwrap_or_default();
        if !children.is_empty() {
            adopt(&mut tree, process, children, &mut notices, &mut removed);
        }
        if tree.stopped > 0 {
            // Our end may have orphaned our own group: it was we who had a parent outside.
            hang_up_if_orphaned(&tree, process.pgid(), Some(process.pid), &mut notices);
        }
        removed.extend(tell_parent(&mut tree, process.pid, &mut notices));
    }
    for notice in notices {
        notice.deliver();
    }
    drop(removed);
    poll::notify();
}

/// Gives the children of an ending process to another.
fn adopt(
    tree: &mut Tree,
    process: &Process,
    children: Vec<Pid>,
    notices: &mut smallvec::SmallVec<[Notice; 2]>,
    removed: &mut Vec<Removed>,
) {
    let reaper = tree.reaper(process.pid);
    for &pid in &children {
        let Some(child) = tree.node_mut(pid) else { continue };
        child.process.ppid.store(reaper, Ordering::Relaxed);
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
fn hang_up_if_orphaned(tree: &Tree, pgid: Pid, without: Option<Pid>, notices: &mut smallvec::SmallVec<[Notice; 2]>) {
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
fn tell_parent(tree: &mut Tree, pid: Pid, notices: &mut smallvec::SmallVec<[Notice; 2]>) -> Option<Removed> {
    let node = tree.node(pid)?;
    let State::Zombie { status, usage } = node.state else { return None };
    let parent = tree.node(node.process.ppid())?.process.clone();
    let mut signal = node.exit_signal;
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
        SigInfo::child(signal, code, child_info(&node.process, value, &usage))
    });
    notices.push(Notice { to: parent, info });
    unwanted.then(|| tree.reap(pid))
}

fn child_info(process: &Process, status: i32, usage: &Usage) -> Child {
    Child { pid: process.pid, uid: process.uid(), status, utime: usage.user_ticks(), stime: usage.system_ticks() }
}

/// Tells the parent that a process has come to rest.
pub(super) fn report_stopped(process: &Arc<Process>, stop: Stop) {
    let state = State::Stopped { signal: stop.signal, told: false };
    report_change(process, state, code::CLD_STOPPED, stop.signal, |group| group.is_in(&stop));
}

/// Tells the parent that a process goes on after a stop.
pub(super) fn report_continued(process: &Arc<Process>, ended: StopEnded) {
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
        let child = child_info(process, i32::from(status.number()), &process.usage());
        Notice { to: parent, info: wanted.then(|| SigInfo::child(Signal::CHLD, code, child)) }
    };
    notice.deliver();
}
