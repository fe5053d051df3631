//! New tasks: fork, vfork, clone, clone3.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::arch::cpu::Counter;
use crate::sync::Mutex;
use foldspace::{AddressSpace, VirtAddr};
use linux_raw_sys::general as raw;
use smallvec::SmallVec;

use super::credentials::Credentials;
use super::exit::VforkDone;
use super::namespaces;
use super::ptrace::registers::TRAP_FLAG;
use super::ptrace::{self, TRACED, TraceEvent};
use super::signal::Signal;
use super::signal::action::Handlers;
use super::signal::state::{AlternateStack, TaskSignals};
use super::slot::Slot;
use super::task::Trap;
use super::{Pid, Process, Task, pid_namespace, seccomp, time_namespace, tree};
use crate::arch::{LiveRegisters, TrapFrame};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::OpenFlags;
use crate::fs::pidfd::PidFd;
use crate::fs::userfault::events::Forking;
use crate::mm::uaccess;
use crate::sched::{self, Thread};
use crate::time;

/// `CLONE_CLEAR_SIGHAND`: caught signals get their default back.
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

/// What clone is asked for.
#[derive(Clone, Debug, Default)]
pub struct CloneRequest {
    /// `CLONE_*`, without the exit signal.
    pub flags: u64,
    /// Number of the signal that the parent gets at the end; 0 for none.
    pub exit_signal: u64,
    /// The child's stack pointer; 0 for the parent's.
    pub stack: u64,
    /// Where `CLONE_PARENT_SETTID` writes.
    pub parent_tid: u64,
    /// Where `CLONE_CHILD_SETTID` and `CLONE_CHILD_CLEARTID` write.
    pub child_tid: u64,
    /// Where `CLONE_PIDFD` writes: `clone` has no argument of its own for it.
    pub pidfd: u64,
    /// FS base for `CLONE_SETTLS`.
    pub tls: u64,
    /// The numbers that the child is to have, from that in the innermost namespace; those that are missing may be any.
    pub pids: SmallVec<[i32; 1]>,
}

impl CloneRequest {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }

    /// What a tracer may want to be told of.
    fn event(&self) -> Option<TraceEvent> {
        if self.has(raw::CLONE_UNTRACED) {
            None
        } else if self.has(raw::CLONE_VFORK) {
            Some(TraceEvent::Vfork)
        } else if self.exit_signal == u64::from(raw::SIGCHLD) {
            Some(TraceEvent::Fork)
        } else {
            Some(TraceEvent::Clone)
        }
    }

    /// Linux's checks (`copy_process`).
    fn check(&self) -> Result<(), Errno> {
        // Of the two that `clone` has one argument for only one is possible, and of an old flag nothing else is.
        let pidfd_alone =
            raw::CLONE_DETACHED | if self.pidfd == self.parent_tid { raw::CLONE_PARENT_SETTID } else { 0 };
        let bad = self.has(raw::CLONE_NEWIPC) && self.has(raw::CLONE_SYSVSEM)
            || self.has(raw::CLONE_NEWNS | raw::CLONE_NEWUSER) && self.has(raw::CLONE_FS)
            || self.has(raw::CLONE_PIDFD) && self.has(pidfd_alone)
            || self.has(raw::CLONE_THREAD) && !self.has(raw::CLONE_SIGHAND)
            || self.has(raw::CLONE_SIGHAND) && !self.has(raw::CLONE_VM)
            || self.has(raw::CLONE_SIGHAND) && self.flags & CLONE_CLEAR_SIGHAND != 0
            || self.exit_signal > 64;
        if bad { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

/// Makes a task that goes on as the caller does, with 0 as the call's result. Returns its number; after a vfork, only when the child has
/// called exec or ended.
///
/// # Errors
/// `EINVAL`: flags that contradict each other or are not supported. `ENOMEM`, `EAGAIN`: no memory, no number.
pub fn clone(task: &Arc<Task>, frame: &mut TrapFrame, request: &CloneRequest) -> Result<Pid, Errno> {
    request.check()?;
    // Bit 7 of the flags is part of clone's exit signal, and only clone3 has it as CLONE_NEWTIME.
    let wanted = request.flags as u32 & namespaces::KNOWN;
    if request.has(raw::CLONE_THREAD) {
        // Threads of one process are in the same namespaces of processes and users.
        let for_children = task.namespaces.lock().pid.clone();
        let apart = !Arc::ptr_eq(&for_children, &task.process.pid_namespace);
        if apart || request.has(raw::CLONE_NEWPID | raw::CLONE_NEWUSER) {
            return Err(Errno::EINVAL);
        }
    }
    let credentials = namespaces::prepare(wanted, task)?;
    if request.has(raw::CLONE_PARENT) && task.process.is_namespace_init() {
        return Err(Errno::EINVAL);
    }
    let vfork = request.has(raw::CLONE_VFORK).then(|| VforkDone::new(task.process.clone()));
    let pidfd = request.has(raw::CLONE_PIDFD).then(|| Announced::new(task, request.pidfd)).transpose()?;
    let mut forking = None;
    let child = match make(task, frame, request, (credentials, vfork.clone()), &mut forking) {
        Ok(child) => child,
        Err(error) => {
            if let Some(pidfd) = pidfd {
                pidfd.withdraw(task);
            }
            return Err(error);
        }
    };
    if let Some(pidfd) = pidfd {
        pidfd.fulfil(task, &child, request);
    }
    let pid = task.number_of(child.pid);
    let event = request.event();
    // A tracer learns its own number of it.
    let told = match task.tracing.load(Ordering::Relaxed) & TRACED {
        0 => 0,
        _ => task.trace.lock().tracer.as_ref().map_or(0, |tracer| tracer.process.pid_namespace.number_of(child.pid)),
    };
    if request.has(raw::CLONE_PARENT_SETTID) {
        // A bad address is the program's own loss, as on Linux.
        let _ = uaccess::write(request.parent_tid, &pid);
    }
    sched::spawn(child);
    if let Some(forking) = forking {
        forking.done(task);
    }
    if let Some(event) = event {
        ptrace::stops::event(task, frame, event, u64::from(told));
    }
    if let Some(vfork) = vfork {
        vfork.wait(task);
        ptrace::stops::event(task, frame, TraceEvent::VforkDone, u64::from(told));
    }
    Ok(pid)
}

/// The descriptor that `CLONE_PIDFD` promised: the program is told its number before there is a child, so that nothing can fail once there is.
struct Announced(i32);

impl Announced {
    fn new(task: &Arc<Task>, address: u64) -> Result<Announced, Errno> {
        let limit = task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
        let stand_in = PidFd::process(task.process.clone()).open(OpenFlags::empty());
        let announced = Announced(task.files.lock().insert_from(0, limit, stand_in, AtExec::Close)?);
        match uaccess::write(address, &announced.0) {
            Ok(()) => Ok(announced),
            Err(error) => {
                announced.withdraw(task);
                Err(error)
            }
        }
    }

    fn withdraw(self, task: &Task) {
        let removed = task.files.lock().remove(self.0);
        drop(removed);
    }

    /// Makes it the child's. A table of the child's own does not have it.
    fn fulfil(self, task: &Task, child: &Arc<Task>, request: &CloneRequest) {
        let means = match request.has(raw::CLONE_THREAD) {
            true => PidFd::thread(child),
            false => PidFd::process(child.process.clone()),
        };
        let stand_in = task.files.lock().replace(self.0, means.open(OpenFlags::empty()), AtExec::Close);
        drop(stand_in);
        if !request.has(raw::CLONE_FILES) {
            let inherited = child.files.lock().remove(self.0);
            drop(inherited);
        }
    }
}

fn make(
    task: &Arc<Task>,
    frame: &TrapFrame,
    request: &CloneRequest,
    (credentials, vfork_done): (Option<Credentials>, Option<Arc<VforkDone>>),
    forking: &mut Option<Forking>,
) -> Result<Arc<Task>, Errno> {
    let thread = Thread::new()?;
    let space = match request.has(raw::CLONE_VM) {
        true => task.space(),
        false => sched::with_space(|space| fork_space(space, forking)).ok_or(Errno::EFAULT)??,
    };
    let mut frame = *frame;
    frame.rax = 0;
    if task.trace.lock().trap_flag {
        frame.rflags &= !TRAP_FLAG;
    }
    if request.stack != 0 {
        frame.rsp = request.stack;
    }
    let mut live: LiveRegisters = task.thread.live_registers();
    if request.has(raw::CLONE_SETTLS) {
        if request.tls >= foldspace::addr::USER_END.get() {
            return Err(Errno::EPERM);
        }
        live.fs = request.tls;
    }
    thread.prepare(space.clone(), &frame, task.thread.fpu(), live, || {});

    let signals = {
        let parent = task.signals.lock();
        // A child that shares memory but is no vfork must not use the same alternate stack.
        let keeps_stack = !request.has(raw::CLONE_VM) || request.has(raw::CLONE_VFORK);
        TaskSignals::new(parent.blocked, if keeps_stack { parent.alternate } else { AlternateStack::DISABLED })
    };
    let handlers = || inherit_handlers(&task.process, request);
    let share = |flag: u32| request.has(flag);
    let (files, fs) = (
        if share(raw::CLONE_FILES) { task.files.share() } else { task.files.copy() },
        if share(raw::CLONE_FS) { task.fs.share() } else { task.fs.copy() },
    );
    // The child of a fork has the area at the same address; a thread has to say where its own is.
    let rseq = if share(raw::CLONE_VM) { None } else { *task.rseq.lock() };
    if rseq.is_some() {
        thread.inherit_watch(&task.thread);
    }
    let clear_child_tid = if share(raw::CLONE_CHILD_CLEARTID) { request.child_tid } else { 0 };
    let (class, memory_policy) = (task.class.lock().inherited(), *task.memory_policy.lock());
    thread.set_rank(class.rank());
    if task.thread.counter() == Counter::Refused {
        thread.set_counter(Counter::Refused);
    }
    let slack = task.timer_slack.lock().0;
    let comm = *task.comm.lock();
    let credentials = credentials.unwrap_or_else(|| task.credentials());
    let mut namespaces = task.namespaces.lock().clone();
    if request.has(namespaces::KNOWN) {
        // The child's alone, as new mounts ask for.
        let mut context = fs.lock().clone();
        namespaces = namespaces.with_new(
            request.flags as u32 & namespaces::KNOWN,
            task,
            &credentials.user_namespace,
            &mut context,
        )?;
        if request.has(raw::CLONE_NEWNS) {
            drop(fs.replace(context));
        }
    }
    // Who shares memory with its maker is where that is until its next program.
    if !request.has(raw::CLONE_VM)
        && let Some(moved) = time_namespace::moved(&namespaces)
    {
        namespaces = moved;
    }
    let start_ns = time::monotonic_ns();

    let child = {
        let mut tree = tree::lock();
        let pid = pid_namespace::take(&namespaces.pid, &request.pids, &credentials, |chosen| match chosen {
            Some(pid) => tree.allocate_exactly(pid),
            None => tree.allocate(),
        })?;
        let process = match share(raw::CLONE_THREAD) {
            true => task.process.clone(),
            false => {
                let parent = match share(raw::CLONE_PARENT) {
                    true => (task.ppid(), task.process.parent_thread.load(Ordering::Relaxed)),
                    false => (task.tgid, task.pid),
                };
                let within = namespaces.pid.clone();
                Arc::new(Process::child_of(&task.process, pid, within, parent, start_ns, handlers()))
            }
        };
        let child = Arc::new(Task {
            pid,
            tgid: process.pid,
            thread,
            process: process.clone(),
            files,
            fs,
            signals: Mutex::new(signals),
            clear_child_tid: AtomicU64::new(clear_child_tid),
            rseq: Mutex::new(rseq),
            io_priority: AtomicU32::new(task.io_priority.load(Ordering::Relaxed)),
            timer_slack: Mutex::new((slack, slack)),
            robust_list: AtomicU64::new(0),
            futexes_released: AtomicBool::new(false),
            namespaces: Mutex::new(namespaces),
            class: Mutex::new(class),
            memory_policy: Mutex::new(memory_policy),
            space: Mutex::new(space.clone()),
            comm: Mutex::new(comm),
            credentials: Mutex::new(credentials),
            vfork_done: Mutex::new(vfork_done),
            trace: Mutex::default(),
            tracing: AtomicU32::new(0),
            seccomp: Mutex::default(),
            dispatch: Mutex::default(),
            writes_back: AtomicBool::new(task.writes_back.load(Ordering::Relaxed)),
            passed_stop: AtomicU64::new(0),
            rested_in: AtomicU64::new(0),
            awaited_access: AtomicU64::new(0),
            awaited_by: AtomicU64::new(0),
            last_trap: Mutex::new(Trap::default()),
        });
        {
            // Locked: what all threads of a process get, a new one gets by its maker or as one of them.
            let mut threads = process.threads.lock();
            seccomp::inherit(task, &child);
            threads.push(child.clone());
        }
        if share(raw::CLONE_THREAD) {
            tree.insert_thread(&child);
        } else {
            let exit_signal =
                if share(raw::CLONE_PARENT) { Some(Signal::CHLD) } else { Signal::new(request.exit_signal) };
            tree.insert_process(&child, exit_signal);
        }
        if task.tracing.load(Ordering::Relaxed) & TRACED != 0 {
            let trace = task.trace.lock();
            let wanted = request.event().is_some_and(|event| trace.wants(event));
            if let Some(tracer) = trace.tracer.clone()
                && (wanted || share(raw::CLONE_PTRACE))
                && let Some(node) = tree.node_mut(tracer.process.pid)
            {
                node.tracees.push(pid);
                ptrace::stops::inherit(&tracer, &trace, &child);
            }
        }
        child
    };
    if share(raw::CLONE_CHILD_SETTID) {
        // The child itself would do this first of all, with nobody to tell of a failure.
        space.write(VirtAddr(request.child_tid), &child.own_number().to_le_bytes());
    }
    // A group that ends or stops while a thread is being added takes it along.
    if task.process.group.lock().wants_attention(0) && share(raw::CLONE_THREAD) {
        child.notify();
    }
    Ok(child)
}

/// The child's memory, watched where the parent's watchers want that.
fn fork_space(space: &AddressSpace, forking: &mut Option<Forking>) -> Result<Arc<AddressSpace>, foldspace::Error> {
    *forking = Forking::begin(space);
    match forking {
        None => space.fork(),
        Some(forking) => {
            let child = space.fork_watched(&|watcher| forking.heir(watcher))?;
            forking.made(&child);
            Ok(child)
        }
    }
}

fn inherit_handlers(parent: &Process, request: &CloneRequest) -> Slot<Handlers> {
    if request.has(raw::CLONE_SIGHAND) {
        return parent.handlers.share();
    }
    if request.flags & CLONE_CLEAR_SIGHAND != 0 {
        return Slot::new(parent.handlers.lock().cleared());
    }
    parent.handlers.copy()
}
