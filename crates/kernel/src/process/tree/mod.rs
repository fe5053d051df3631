//! Who is whose child, which group and session a process belongs to, and what `wait` is to be told: one lock over all of it.
//!
//! A number is taken while a thread, a process group or a session goes by it. A process that has ended stays as a zombie until its parent has
//! waited for it; its children go to the nearest ancestor that wants them, or to the first process.

mod groups;
mod reports;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::exit::ExitStatus;
use super::pid_namespace::{self, PidNamespace};
use super::signal::Signal;
use super::usage::Usage;
use super::{Pid, Process, Task, ptrace};
use crate::errno::Errno;
use crate::fs::poll;
use crate::sync::{Mutex, MutexGuard};

pub use groups::{new_session, set_group};
pub(super) use reports::{Aftermath, process_ended, report_continued, report_stopped};

/// The first process.
pub const INIT: Pid = 1;

/// Numbers go up to here and start again (Linux's default `pid_max`).
pub const PID_MAX: Pid = 32_768;

/// Where numbers start again: low ones are left to the system (Linux's `RESERVED_PIDS`).
pub(super) const FIRST_AGAIN: Pid = 300;

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
    /// The namespace in which it has a number too, if that is not the first.
    namespace: Option<Arc<PidNamespace>>,
    /// How many processes are members of the group plus members of the session of this number.
    members: u32,
}

/// A process in the tree.
pub(super) struct Node {
    pub(super) process: Arc<Process>,
    pub(super) children: Vec<Pid>,
    /// The threads that its threads trace.
    pub(super) tracees: Vec<Pid>,
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
pub struct Removed(#[expect(dead_code, reason = "held to be dropped")] (Option<Node>, Option<Arc<Task>>));

/// Locks the tree.
pub(super) fn lock() -> MutexGuard<'static, Tree> {
    TREE.lock()
}

impl Node {
    /// What its threads have used.
    pub(super) fn usage(&self) -> Usage {
        match self.state {
            State::Zombie { usage, .. } => usage,
            _ => self.process.usage(),
        }
    }

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

    /// Takes this number. `EEXIST`: something goes by it.
    pub(super) fn allocate_exactly(&mut self, pid: Pid) -> Result<Pid, Errno> {
        if self.entries.contains_key(&pid) { Err(Errno::EEXIST) } else { Ok(pid) }
    }

    /// The entry of a new thread.
    #[inline]
    fn entry_of(&mut self, task: &Arc<Task>) -> &mut Entry {
        let entry = self.entries.entry(task.pid).or_default();
        entry.task = Some(task.clone());
        let namespace = &task.process.pid_namespace;
        if namespace.level() > 0 {
            entry.namespace = Some(namespace.clone());
        }
        entry
    }

    /// Takes away the entry of a number that nothing goes by any more.
    fn forget(&mut self, pid: Pid) {
        if let Some(Entry { namespace: Some(namespace), .. }) = self.entries.remove(&pid) {
            pid_namespace::give_back(&namespace, pid);
        }
    }

    /// Adds a process with its first thread, as a child of `parent` (`None` for the first process) and a member of
    /// the group and session that its record names.
    pub(super) fn insert_process(&mut self, task: &Arc<Task>, exit_signal: Option<Signal>) {
        let process = &task.process;
        let node = Node {
            process: process.clone(),
            children: Vec::new(),
            tracees: Vec::new(),
            state: State::Running,
            continued: false,
            exit_signal,
            executed: false,
        };
        self.entry_of(task).node = Some(node);
        self.join(process.pgid());
        self.join(process.sid());
        if let Some(parent) = self.node_mut(process.ppid()) {
            parent.children.push(process.pid);
        }
    }

    /// Adds a further thread of a process.
    pub(super) fn insert_thread(&mut self, task: &Arc<Task>) {
        self.entry_of(task);
    }

    pub(super) fn node(&self, pid: Pid) -> Option<&Node> {
        self.entries.get(&pid)?.node.as_ref()
    }

    pub(super) fn node_mut(&mut self, pid: Pid) -> Option<&mut Node> {
        self.entries.get_mut(&pid)?.node.as_mut()
    }

    /// The thread of that number.
    pub(super) fn task(&self, pid: Pid) -> Option<Arc<Task>> {
        self.entries.get(&pid)?.task.clone()
    }

    /// Takes `pid` from those that threads of `tracer` trace.
    pub(super) fn forget_tracee(&mut self, tracer: Pid, pid: Pid) {
        if let Some(node) = self.node_mut(tracer) {
            node.tracees.retain(|&tracee| tracee != pid);
        }
    }

    /// Ends the tracing of a thread that has ended.
    pub(super) fn forget_traced(&mut self, task: &Task) {
        let tracer = task.trace.lock().tracer.clone();
        if let Some(tracer) = tracer {
            self.forget_tracee(tracer.process.pid, task.pid);
            ptrace::control::release_ended(task);
        }
    }

    /// Takes a zombie out for good, or a thread that only its tracer waits for.
    pub(super) fn reap(&mut self, pid: Pid) -> Removed {
        let Some(entry) = self.entries.get_mut(&pid) else { return Removed((None, None)) };
        let task = entry.task.take();
        let node = entry.node.take();
        if entry.members == 0 {
            self.forget(pid);
        }
        if let Some(task) = &task {
            self.forget_traced(task);
        }
        let Some(node) = node else { return Removed((None, task)) };
        if let Some(parent) = self.node_mut(node.process.ppid())
            && let Some(position) = parent.children.iter().position(|&child| child == pid)
        {
            parent.children.remove(position);
        }
        self.leave(node.process.pgid());
        self.leave(node.process.sid());
        Removed((Some(node), task))
    }

    fn join(&mut self, id: Pid) {
        self.entries.entry(id).or_default().members += 1;
    }

    fn leave(&mut self, id: Pid) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.members -= 1;
        if entry.members == 0 && entry.task.is_none() && entry.node.is_none() {
            self.forget(id);
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

    /// Who adopts the children of `process`: the nearest ancestor in the same namespace that asked for it, else the namespace's first process.
    fn reaper(&self, process: &Process) -> Pid {
        let namespace = &process.pid_namespace;
        let mut at = process.ppid();
        while let Some(node) = self.node(at) {
            let parent = &node.process;
            if !Arc::ptr_eq(&parent.pid_namespace, namespace) {
                break;
            }
            if parent.subreaper.load(Ordering::Relaxed) && !node.has_ended() {
                return at;
            }
            at = parent.ppid();
        }
        namespace.init().filter(|&init| init != process.pid).unwrap_or(INIT)
    }
}

/// Something has ended, or has left the tree: whoever waits for that looks again.
fn something_went() {
    poll::notify();
    pid_namespace::something_went();
}

/// Takes away the children of `process` that have ended and that nobody traces.
pub(super) fn reap_children(process: &Process) {
    let mut after = Aftermath::default();
    {
        let mut tree = lock();
        let children = tree.node(process.pid).map(|node| node.children.clone()).unwrap_or_default();
        for pid in children {
            let ended = tree.node(pid).is_some_and(Node::has_ended);
            if ended && tree.task(pid).is_none_or(|task| task.trace.lock().tracer.is_none()) {
                after.remove(tree.reap(pid));
            }
        }
    }
    after.settle();
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

/// The process of the lowest number that is not below `from`. Needs no memory.
pub fn next_process(from: Pid) -> Option<Arc<Process>> {
    lock().entries.range(from..).find_map(|(_, entry)| Some(entry.node.as_ref()?.process.clone()))
}

/// The members of a process group, zombies included. O(processes).
pub fn group(pgid: Pid) -> Vec<Arc<Process>> {
    lock().nodes().filter(|node| node.process.pgid() == pgid).map(|node| node.process.clone()).collect()
}

/// The children that `task`'s process has and did not wait for; all count as the first thread's.
pub fn children(task: &Task) -> Vec<Pid> {
    let tree = lock();
    let node = if task.is_leader() { tree.node(task.pid) } else { None };
    node.map(|node| node.children.clone()).unwrap_or_default()
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
        tree.forget(pid);
    }
    drop(tree);
    drop(task);
    something_went();
}
