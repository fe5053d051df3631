//! [`Task`] and [`Process`]: the records.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::sync::Mutex;
use foldspace::AddressSpace;
use linux_raw_sys::general as raw;
use smallvec::SmallVec;
use spin::Once;

use super::credentials::{CAP_IPC_LOCK, Credentials};
use super::exec::Program;
use super::exit::{ExitStatus, VforkDone};
use super::limits::Limits;
use super::namespaces::Namespaces;
use super::pid_namespace::PidNamespace;
use super::policy::{Class, MemoryPolicy};
use super::ptrace::Trace;
use super::restore_point::RestorePoint;
use super::seccomp;
use super::signal::action::Handlers;
use super::signal::pending::Pending;
use super::signal::state::TaskSignals;
use super::signal::stop::{GroupState, Stop};
use super::signal::{self, Signal};
use super::slot::Slot;
use super::timer::RealTimer;
use super::timer::cpu::CpuTimers;
use super::timer::posix::PosixTimers;
use super::usage::Usage;
use crate::fs::{ExecFile, FdTable, FsContext};
use crate::mm;
use crate::sched::{self, Thread, WaitQueue};

/// A process or thread number: 1 to [`super::tree::PID_MAX`].
pub type Pid = u32;

/// Timer slack of the first process, in nanoseconds.
pub const TIMER_SLACK: u64 = 50_000;

/// Bytes of a task's name, its NUL included (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// References to an address space that one task holds: its own and its thread's.
const SPACE_REFERENCES: usize = 2;

/// A thread.
pub struct Task {
    /// Thread id: what `gettid` returns. Equal to `tgid` for a process's first thread.
    pub pid: Pid,
    /// Process id: what `getpid` returns.
    pub tgid: Pid,
    /// The scheduler's part: kernel stack, saved registers, FPU state, segment bases.
    pub thread: Thread,
    /// The thread group.
    pub process: Arc<Process>,
    /// Open files.
    pub files: Slot<FdTable>,
    /// Current directory, root, umask.
    pub fs: Slot<FsContext>,
    /// Blocked and pending signals of this thread.
    pub signals: Mutex<TaskSignals>,
    /// Where to write 0 and wake a futex when the thread ends (`set_tid_address`, `CLONE_CHILD_CLEARTID`); 0 for nowhere.
    pub clear_child_tid: AtomicU64,
    /// What rseq(2) was told.
    pub rseq: Mutex<Option<super::rseq::Registration>>,
    /// `ioprio_set`. Kept and reported.
    pub io_priority: AtomicU32,
    /// How late its sleeps may end, in nanoseconds: now and by default (`PR_SET_TIMERSLACK`). Kept and reported; clocks here are exact.
    pub timer_slack: Mutex<(u64, u64)>,
    /// Head of the list of robust futexes; 0 for none.
    pub robust_list: AtomicU64,
    /// It ends and has let go of its futexes: nobody can wait for it to hand on a lock. Changed under the lock of the futexes.
    pub futexes_released: AtomicBool,
    /// What it sees of the machine.
    pub namespaces: Mutex<Arc<Namespaces>>,
    /// How it asked to be scheduled.
    pub class: Mutex<Class>,
    /// From which nodes it asked its memory to come.
    pub memory_policy: Mutex<MemoryPolicy>,
    /// Who traces it, and at what it has come.
    pub trace: Mutex<Trace>,
    /// What of that is looked at often: bits of [`super::ptrace`].
    pub tracing: AtomicU32,
    /// Which system calls it may make. Of the threads of a process, changed with those locked.
    pub seccomp: Mutex<seccomp::Mode>,
    /// Which of them it is told of instead.
    pub dispatch: Mutex<Option<Box<seccomp::dispatch::Dispatch>>>,
    /// `PR_SET_IO_FLUSHER`. Kept and reported.
    pub writes_back: AtomicBool,
    /// The stop of its group that its tracer let it go on from; 0 for none.
    pub passed_stop: AtomicU64,
    /// The stop of its group in which it was counted as resting.
    pub(super) rested_in: AtomicU64,
    /// An access of the system call in progress that somebody else is to make possible: twice its address, and 1 for a store; 0 for none.
    pub awaited_access: AtomicU64,
    /// Which call that was: of one that went on without it, nothing is left to be done.
    pub awaited_by: AtomicU64,
    pub(super) space: Mutex<Arc<AddressSpace>>,
    pub(super) comm: Mutex<[u8; COMM_LEN]>,
    pub(super) credentials: Mutex<Credentials>,
    pub(super) vfork_done: Mutex<Option<Arc<VforkDone>>>,
    pub(super) last_trap: Mutex<Trap>,
}

/// The exception that a signal handler is told about in its context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trap {
    /// Vector.
    pub vector: u64,
    /// The processor's error code.
    pub error_code: u64,
    /// CR2.
    pub address: u64,
}

impl Task {
    /// The address space; an empty one once the task has ended.
    pub fn space(&self) -> Arc<AddressSpace> {
        self.space.lock().clone()
    }

    /// The address space; `None` once the task has ended.
    pub fn live_space(&self) -> Option<Arc<AddressSpace>> {
        let space = self.space();
        (!Arc::ptr_eq(&space, &empty_space())).then_some(space)
    }

    /// Whether another task uses the same address space.
    pub fn shares_space(&self) -> bool {
        Arc::strong_count(&self.space.lock()) > SPACE_REFERENCES
    }

    /// Makes the current task run in another address space.
    pub(super) fn set_space(&self, space: Arc<AddressSpace>) {
        let before = sched::set_space(space.clone());
        let own = core::mem::replace(&mut *self.space.lock(), space);
        drop((before, own));
    }

    /// Makes the current task leave its address space.
    pub(super) fn drop_space(&self) {
        let before = sched::leave_space();
        let own = core::mem::replace(&mut *self.space.lock(), empty_space());
        drop((before, own));
    }

    /// Process id of the parent; 0 for the first process.
    pub fn ppid(&self) -> Pid {
        self.process.ppid.load(Ordering::Relaxed)
    }

    /// The name, up to 15 bytes.
    pub fn comm(&self) -> Vec<u8> {
        let comm = self.comm.lock();
        comm.iter().copied().take_while(|&byte| byte != 0).collect()
    }

    /// Sets the name, cut to 15 bytes.
    pub fn set_comm(&self, name: &[u8]) {
        let mut comm = [0; COMM_LEN];
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len()).min(COMM_LEN - 1);
        comm[..len].copy_from_slice(&name[..len]);
        *self.comm.lock() = comm;
    }

    /// Who the task acts as.
    pub fn credentials(&self) -> Credentials {
        self.credentials.lock().clone()
    }

    /// As what it is shown a user and a group.
    pub fn shown_owner(&self, (uid, gid): (u32, u32)) -> (u32, u32) {
        let credentials = self.credentials.lock();
        if credentials.user_namespace.is_first() {
            return (uid, gid);
        }
        (credentials.shown_user(uid), credentials.shown_group(gid))
    }

    /// Changes who the task acts as. Memory of a process that has become somebody else is not for others of the same user to look at
    /// (`commit_creds` of Linux's `kernel/cred.c`).
    pub fn set_credentials(&self, credentials: Credentials) {
        let before = core::mem::replace(&mut *self.credentials.lock(), credentials.clone());
        if !before.acts_as(&credentials) {
            self.process.dumpable.store(false, Ordering::Relaxed);
        }
        if before.may(CAP_IPC_LOCK) != credentials.may(CAP_IPC_LOCK) {
            let limit = self.lock_limit();
            self.space().update_layout(|layout| layout.lock_limit = limit);
        }
    }

    /// Bytes that it may lock in memory: `RLIMIT_MEMLOCK`, which does not count for who has `CAP_IPC_LOCK`.
    pub fn lock_limit(&self) -> u64 {
        match self.credentials.lock().may(CAP_IPC_LOCK) {
            true => u64::MAX,
            false => self.process.limits.lock().soft(raw::RLIMIT_MEMLOCK),
        }
    }

    /// Whether a signal that is not blocked waits for the task: interruptible waits end then.
    pub fn signal_pending(&self) -> bool {
        signal::deliverable(self)
    }

    /// Makes the task look at its signals.
    pub fn notify(self: &Arc<Task>) {
        sched::notify(self);
    }

    /// Whether the task is its process's first thread.
    pub fn is_leader(&self) -> bool {
        self.pid == self.tgid
    }

    /// The exception that happened to it last.
    pub fn last_trap(&self) -> Trap {
        *self.last_trap.lock()
    }

    /// What the thread has used so far. Time in the kernel is not told apart.
    pub fn thread_usage(&self) -> Usage {
        Usage { user_ns: self.thread.runtime_ns(), ..Usage::default() }
    }

    /// Process id of who traces it; 0 for nobody.
    pub fn tracer_pid(&self) -> Pid {
        self.trace.lock().tracer.as_ref().map_or(0, |tracer| tracer.thread)
    }

    /// The letter that `/proc/PID/stat` shows: R, S, D, T, t or Z.
    pub fn state_letter(&self) -> char {
        match self.thread.state_letter() {
            // It may not have come to rest yet, but its tracer knows that it does.
            'R' | 'D' if self.trace.lock().stop.as_ref().is_some_and(|stop| !stop.listening) => 't',
            'D' if self.process.group.lock().stop_signal().is_some() => 'T',
            letter => letter,
        }
    }
}

/// What tasks that have ended have for an address space.
pub fn empty_space() -> Arc<AddressSpace> {
    static EMPTY: Once<Arc<AddressSpace>> = Once::new();
    let make = || {
        let space = AddressSpace::new(mm::memory(), foldspace::space::Layout::default());
        space.expect("made when the first process is, before memory can be scarce")
    };
    EMPTY.call_once(make).clone()
}

/// Makes what ending tasks need while there is memory.
pub(super) fn prepare_exit() {
    drop(empty_space());
}

/// Memory that may be written is not to become executable (`PR_MDWE_REFUSE_EXEC_GAIN`).
pub const EXEC_GAIN_REFUSED: u8 = 1;
/// That is not for children, nor for the next program (`PR_MDWE_NO_INHERIT`).
pub const EXEC_GAIN_NOT_INHERITED: u8 = 2;

/// What a child, or the next program, has of [`Process::exec_gain`].
pub(super) fn inherited_exec_gain(bits: u8) -> u8 {
    if bits & EXEC_GAIN_NOT_INHERITED != 0 { 0 } else { bits }
}

/// A thread group.
pub struct Process {
    /// The process id.
    pub pid: Pid,
    /// The innermost namespace in which it has a number.
    pub pid_namespace: Arc<PidNamespace>,
    /// Process id of the parent (0: none), kept up to date by [`super::tree`].
    pub(super) ppid: AtomicU32,
    /// The thread of the parent that made it, which traces it if it asks to be traced.
    pub(super) parent_thread: AtomicU32,
    /// Process group, kept up to date by [`super::tree`].
    pub(super) pgid: AtomicU32,
    /// Session, kept up to date by [`super::tree`].
    pub(super) sid: AtomicU32,
    /// When it began, nanoseconds since boot.
    pub start_ns: u64,
    /// What each signal does.
    pub handlers: Slot<Handlers>,
    /// Its live threads.
    pub threads: Mutex<SmallVec<[Arc<Task>; 1]>>,
    /// Signals sent to the process as a whole.
    pub pending: Mutex<Pending>,
    /// Its stops and its end.
    pub group: Mutex<GroupState>,
    /// The program that its first thread is to become once it is alone: another thread has called exec.
    pub(super) handed_over: Mutex<Option<Program>>,
    /// Its threads that are stopped, or wait for something that only their death cuts short.
    pub resume: WaitQueue,
    /// Resource limits.
    pub limits: Mutex<Limits>,
    /// Its threads that wait for children.
    pub children_changed: WaitQueue,
    /// `ITIMER_REAL` and `alarm`.
    pub real_timer: Mutex<RealTimer>,
    /// `ITIMER_VIRTUAL`, `ITIMER_PROF` and their like.
    pub cpu_timers: Mutex<CpuTimers>,
    /// Whether ticks of the timer have to look at processor time.
    pub counts_cpu_time: AtomicBool,
    /// `timer_create`'s.
    pub posix_timers: Mutex<PosixTimers>,
    /// The program file; `None` before the first exec and after the end.
    pub exe: Mutex<Option<Arc<ExecFile>>>,
    /// What is to be told when it ends: [`crate::power::AtEnd`].
    pub tells_at_end: AtomicU8,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub subreaper: AtomicBool,
    /// `PR_SET_PDEATHSIG`: a signal's number, 0 for none.
    pub parent_death: AtomicU8,
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privileges: AtomicBool,
    /// `PR_SET_MDWE`: [`EXEC_GAIN_REFUSED`], [`EXEC_GAIN_NOT_INHERITED`]. (Of Linux's address spaces, not processes.)
    pub exec_gain: AtomicU8,
    /// Whether its memory may be dumped (`PR_SET_DUMPABLE`).
    pub dumpable: AtomicBool,
    /// `personality`: how Linux is to be. Of it [`crate::syscall::memory`] heeds `READ_IMPLIES_EXEC`.
    pub personality: AtomicU32,
    /// `oom_score_adj`, -1000 to 1000. Kept and reported.
    pub oom_score_adjustment: AtomicI32,
    /// `nice` value, -20 to 19. Kept and reported.
    pub nice: AtomicI32,
    /// What it has registered for with `membarrier`, as the commands' bits.
    pub membarrier: AtomicU32,
    /// What it can go back to.
    pub(super) restore_point: Mutex<Option<Box<RestorePoint>>>,
    pub(super) accounts: Mutex<Accounts>,
}

/// What is left of threads and children that have ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Accounts {
    threads: Usage,
    children: Usage,
    leader: Option<ExitStatus>,
    uid: u32,
}

impl Process {
    /// A process without threads, that inherits from `parent` what fork inherits. Its parent is given as process and thread.
    pub(super) fn child_of(
        parent: &Process,
        pid: Pid,
        pid_namespace: Arc<PidNamespace>,
        (ppid, parent_thread): (Pid, Pid),
        start_ns: u64,
        handlers: Slot<Handlers>,
    ) -> Process {
        let limits = *parent.limits.lock();
        let copy_flag = |flag: &AtomicBool| AtomicBool::new(flag.load(Ordering::Relaxed));
        Process {
            pid,
            ppid: AtomicU32::new(ppid),
            parent_thread: AtomicU32::new(parent_thread),
            pgid: AtomicU32::new(parent.pgid()),
            sid: AtomicU32::new(parent.sid()),
            start_ns,
            limits: Mutex::new(limits),
            counts_cpu_time: AtomicBool::new(limits.soft(raw::RLIMIT_CPU) != u64::MAX),
            no_new_privileges: copy_flag(&parent.no_new_privileges),
            exec_gain: AtomicU8::new(inherited_exec_gain(parent.exec_gain.load(Ordering::Relaxed))),
            dumpable: copy_flag(&parent.dumpable),
            membarrier: AtomicU32::new(parent.membarrier.load(Ordering::Relaxed)),
            personality: AtomicU32::new(parent.personality.load(Ordering::Relaxed)),
            nice: AtomicI32::new(parent.nice.load(Ordering::Relaxed)),
            oom_score_adjustment: AtomicI32::new(parent.oom_score_adjustment.load(Ordering::Relaxed)),
            ..Process::new(handlers, pid_namespace, parent.exe.lock().clone())
        }
    }

    /// The first process, without threads.
    pub(super) fn first() -> Process {
        Process::new(Slot::new(Handlers::new()), PidNamespace::first().clone(), None)
    }

    #[inline]
    fn new(handlers: Slot<Handlers>, pid_namespace: Arc<PidNamespace>, exe: Option<Arc<ExecFile>>) -> Process {
        Process {
            pid: super::tree::INIT,
            pid_namespace,
            ppid: AtomicU32::new(0),
            parent_thread: AtomicU32::new(0),
            pgid: AtomicU32::new(super::tree::INIT),
            sid: AtomicU32::new(super::tree::INIT),
            start_ns: 0,
            handlers,
            threads: Mutex::new(SmallVec::new()),
            pending: Mutex::new(Pending::new()),
            group: Mutex::new(GroupState::default()),
            handed_over: Mutex::new(None),
            resume: WaitQueue::new(),
            limits: Mutex::new(Limits::new()),
            children_changed: WaitQueue::new(),
            real_timer: Mutex::new(RealTimer::default()),
            cpu_timers: Mutex::default(),
            counts_cpu_time: AtomicBool::new(false),
            posix_timers: Mutex::default(),
            exe: Mutex::new(exe),
            tells_at_end: AtomicU8::new(0),
            subreaper: AtomicBool::new(false),
            parent_death: AtomicU8::new(0),
            no_new_privileges: AtomicBool::new(false),
            exec_gain: AtomicU8::new(0),
            dumpable: AtomicBool::new(true),
            personality: AtomicU32::new(0),
            nice: AtomicI32::new(0),
            oom_score_adjustment: AtomicI32::new(0),
            membarrier: AtomicU32::new(0),
            restore_point: Mutex::new(None),
            accounts: Mutex::new(Accounts::default()),
        }
    }

    /// Process id of the parent; 0 for the first process.
    pub fn ppid(&self) -> Pid {
        self.ppid.load(Ordering::Relaxed)
    }

    /// The process group.
    pub fn pgid(&self) -> Pid {
        self.pgid.load(Ordering::Relaxed)
    }

    /// The session.
    pub fn sid(&self) -> Pid {
        self.sid.load(Ordering::Relaxed)
    }

    /// One of its live threads, the first if that is alive.
    pub fn leader(&self) -> Option<Arc<Task>> {
        self.threads.lock().first().cloned()
    }

    /// Lets every thread look at the state of the group, also those that are stopped.
    fn notify_all(&self) {
        let threads = self.threads.lock().clone();
        for task in &threads {
            task.notify();
        }
        self.resume.wake_all();
    }

    /// Begins the end of all threads; the first reason given counts.
    pub fn begin_exit(&self, status: ExitStatus) {
        self.group.lock().begin_exit(status);
        self.notify_all();
    }

    /// Begins a stop of all threads.
    pub fn begin_stop(&self, signal: Signal) {
        self.group.lock().begin_stop(signal);
        self.notify_all();
    }

    /// Ends all threads but `survivor`, and waits until they are gone (exec). False if the group is ending.
    pub(super) fn become_single_threaded(&self, survivor: &Task) -> bool {
        if self.threads.lock().len() == 1 {
            return self.group.lock().exit_status().is_none();
        }
        if !self.group.lock().begin_exec(survivor.pid) {
            return false;
        }
        self.notify_all();
        self.resume.wait_uninterruptible(|| self.is_alone_or_ending().then_some(()));
        let mut group = self.group.lock();
        group.end_exec();
        group.exit_status().is_none()
    }

    /// What whoever has called exec waits for.
    fn is_alone_or_ending(&self) -> bool {
        let ending = self.group.lock().exit_status().is_some();
        ending || self.threads.lock().len() == 1
    }

    /// Makes all threads but the first end, and that one become `program`. False if the group is ending already.
    pub(super) fn hand_over(&self, program: Program) -> bool {
        if !self.group.lock().begin_exec(self.pid) {
            return false;
        }
        *self.handed_over.lock() = Some(program);
        self.notify_all();
        true
    }

    /// The program that the first thread, which calls this, is to become, if there is one: when all others have ended. `None` too if the whole
    /// group is to end.
    pub(super) fn take_over(&self) -> Option<Program> {
        if self.handed_over.lock().is_none() {
            return None;
        }
        self.resume.wait_uninterruptible(|| self.is_alone_or_ending().then_some(()));
        let program = self.handed_over.lock().take();
        let mut group = self.group.lock();
        group.end_exec();
        program.filter(|_| group.exit_status().is_none())
    }

    /// What its parent's death sends it.
    pub(super) fn parent_death_signal(&self) -> Option<Signal> {
        Signal::new(u64::from(self.parent_death.load(Ordering::Relaxed)))
    }

    pub(super) fn set_leader_status(&self, status: ExitStatus) {
        self.accounts.lock().leader = Some(status);
    }

    /// Takes over what an ending thread leaves: its account, signals that it was to take, its part in a stop. Says whether it was the last, and
    /// which stop is complete without it.
    pub(super) fn thread_ended(&self, task: &Task) -> (bool, Option<Stop>) {
        let uid = task.credentials.lock().uid;
        let mut group = self.group.lock();
        let mut threads = self.threads.lock();
        {
            let mut accounts = self.accounts.lock();
            accounts.threads = accounts.threads.plus(task.thread_usage());
            accounts.uid = uid;
        }
        threads.retain(|thread| thread.pid != task.pid);
        if !self.pending.lock().set().is_empty() {
            for other in threads.iter() {
                other.notify();
            }
        }
        (threads.is_empty(), group.thread_left(threads.len()))
    }

    /// How the process has ended: all threads have.
    pub(super) fn final_status(&self) -> ExitStatus {
        let whole = self.group.lock().exit_status();
        whole.or(self.accounts.lock().leader).unwrap_or(ExitStatus::Exited(0))
    }

    /// Real user id of a process, also when it has ended.
    pub fn uid(&self) -> u32 {
        match self.leader() {
            Some(task) => task.credentials.lock().uid,
            None => self.accounts.lock().uid,
        }
    }

    /// What its threads have used, ended ones included.
    pub fn usage(&self) -> Usage {
        // In this order a thread that ends meanwhile is counted once.
        let threads = self.threads.lock();
        let ended = self.accounts.lock().threads;
        threads.iter().fold(ended, |sum, task| sum.plus(task.thread_usage()))
    }

    /// What children that it has waited for had used.
    pub fn children_usage(&self) -> Usage {
        self.accounts.lock().children
    }

    pub(super) fn add_children_usage(&self, usage: Usage) {
        let mut accounts = self.accounts.lock();
        accounts.children = accounts.children.plus(usage);
    }
}
