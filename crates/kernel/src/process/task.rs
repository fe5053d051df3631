//! [`Task`] and [`Process`]: the records.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use foldspace::AddressSpace;
use spin::Mutex;

use super::credentials::Credentials;
use super::exit::VforkDone;
use super::limits::Limits;
use super::signal::action::Handlers;
use super::signal::pending::Pending;
use super::signal::state::TaskSignals;
use super::slot::Slot;
use super::timer::RealTimer;
use crate::fs::{FdTable, FsContext};
use crate::sched::{Thread, WaitQueue};

/// A process or thread number: 1 to [`super::tree::PID_MAX`].
pub type Pid = u32;

/// Bytes of a task's name, its NUL included (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// A thread.
pub struct Task {
    /// Thread id: what `gettid` returns. Equal to `tgid` for a process's first thread.
    pub pid: Pid,
    /// Process id: what `getpid` returns.
    pub tgid: Pid,
    /// The scheduler's part: kernel stack, saved registers, FPU state, FS base.
    pub thread: Thread,
    /// The thread group.
    pub process: Arc<Process>,
    /// Open files.
    pub files: Slot<FdTable>,
    /// Current directory, root, umask.
    pub fs: Slot<FsContext>,
    /// What each signal does.
    pub handlers: Slot<Handlers>,
    /// Whether something is to be done before the task returns to user mode (a signal, a stop, the end of its group). Never false when
    /// there is; may be true when there is not.
    pub work: AtomicBool,
    /// Blocked and pending signals of this thread.
    pub signals: Mutex<TaskSignals>,
    /// Where to write 0 and wake a futex when the thread ends (`set_tid_address`, `CLONE_CHILD_CLEARTID`); 0 for nowhere.
    pub clear_child_tid: AtomicU64,
    /// Head of the list of robust futexes; 0 for none.
    pub robust_list: AtomicU64,
    pub(super) space: Mutex<Arc<AddressSpace>>,
    pub(super) comm: Mutex<[u8; COMM_LEN]>,
    pub(super) credentials: Mutex<Credentials>,
    pub(super) vfork_done: Mutex<Option<Arc<VforkDone>>>,
}

impl Task {
    /// The address space; an empty one once the task has ended.
    pub fn space(&self) -> Arc<AddressSpace> {
        self.space.lock().clone()
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

    /// Whether a signal that is not blocked waits for the task: interruptible waits end then.
    pub fn signal_pending(&self) -> bool {
        self.work.load(Ordering::Relaxed) && super::signal::deliverable(self)
    }

    /// Whether the task is its process's first thread.
    pub fn is_leader(&self) -> bool {
        self.pid == self.tgid
    }
}

/// A thread group.
pub struct Process {
    /// The process id.
    pub pid: Pid,
    /// Process id of the parent (0: none), kept up to date by [`super::tree`].
    pub ppid: AtomicU32,
    /// Process group, kept up to date by [`super::tree`].
    pub pgid: AtomicU32,
    /// Session, kept up to date by [`super::tree`].
    pub sid: AtomicU32,
    /// When it began, nanoseconds since boot.
    pub start_ns: u64,
    /// Its live threads.
    pub threads: Mutex<Vec<Weak<Task>>>,
    /// Signals sent to the process as a whole.
    pub pending: Mutex<Pending>,
    /// Resource limits.
    pub limits: Mutex<Limits>,
    /// Its threads that wait for children.
    pub children_changed: WaitQueue,
    /// `ITIMER_REAL` and `alarm`.
    pub real_timer: Mutex<RealTimer>,
    /// Path of the program file.
    pub exe: Mutex<Arc<[u8]>>,
    /// Processor time, and more that `getrusage` reports.
    pub usage: Mutex<super::wait::Usage>,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub subreaper: AtomicBool,
}
