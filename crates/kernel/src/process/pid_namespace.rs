//! Namespaces of processes (pid_namespaces(7)): numbers of their own for what is in them.
//!
//! Inside the kernel a [`Pid`] is always the number in the first namespace; those of the others come in and go out where programs say and are told them.
//! What is in a namespace is in all above it as well, up to the first. A number is kept, like the first one, while a thread, a process group or a session goes
//! by it ([`super::tree`]).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use smallvec::SmallVec;
use spin::Once;

use super::credentials::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, Credentials};
use super::namespaces::next_number;
use super::signal::action::Action;
use super::signal::send;
use super::signal::{SigInfo, Signal};
use super::tree::{self, FIRST_AGAIN, INIT, PID_MAX};
use super::user_namespace::UserNamespace;
use super::{Pid, Process, Task};
use crate::errno::Errno;
use crate::sched::WaitQueue;
use crate::sync::Mutex;

/// How deep they go (`MAX_PID_NS_LEVEL` of Linux's `include/linux/pid_namespace.h`).
pub const DEEPEST: usize = 32;

/// A namespace of processes.
pub struct PidNamespace {
    /// `st_ino` of its file.
    pub number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    /// How many are above it.
    level: usize,
    parent: Option<Arc<PidNamespace>>,
    /// Taken under the lock of the tree, or alone. The first one's is not used: its numbers are the tree's.
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    /// What is given out last.
    last: Pid,
    /// Numbers here, and what they are in the first namespace.
    pids: BTreeMap<Pid, Pid>,
    /// The other way round.
    numbers: BTreeMap<Pid, Pid>,
    /// Its first process ends or has ended: nothing begins here any more.
    closed: bool,
}

/// A way up, from a namespace to the one before the first.
fn chain(from: &Arc<PidNamespace>) -> impl Iterator<Item = &Arc<PidNamespace>> {
    core::iter::successors(Some(from), |at| at.parent.as_ref()).take_while(|at| at.parent.is_some())
}

impl PidNamespace {
    /// The number given out last here.
    pub fn last_number(&self) -> Pid {
        if self.is_first() { tree::last_pid() } else { self.numbers.lock().last }
    }

    /// The first one.
    pub fn first() -> &'static Arc<PidNamespace> {
        static FIRST: Once<Arc<PidNamespace>> = Once::new();
        FIRST.call_once(|| {
            // `PROC_PID_INIT_INO` of Linux's `include/linux/proc_ns.h`.
            let owner = UserNamespace::first().clone();
            Arc::new(PidNamespace { number: 0xefff_fffc, owner, level: 0, parent: None, numbers: Mutex::default() })
        })
    }

    /// An empty one of `owner` below `parent`. `ENOSPC`: that is too deep. `EINVAL`: the parent is of somebody else.
    pub fn new(parent: &Arc<PidNamespace>, owner: &Arc<UserNamespace>) -> Result<Arc<PidNamespace>, Errno> {
        if !owner.is_within(&parent.owner) {
            return Err(Errno::EINVAL);
        }
        let level = parent.level + 1;
        if level > DEEPEST {
            return Err(Errno::ENOSPC);
        }
        Ok(Arc::new(PidNamespace {
            number: next_number(),
            owner: owner.clone(),
            level,
            parent: Some(parent.clone()),
            numbers: Mutex::default(),
        }))
    }

    /// The one above.
    pub fn parent(&self) -> Option<&Arc<PidNamespace>> {
        self.parent.as_ref()
    }

    /// How many are above it.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What is `pid` here; 0 if it is not here.
    #[inline]
    pub fn number_of(&self, pid: Pid) -> Pid {
        if self.level == 0 {
            return pid;
        }
        self.numbers.lock().numbers.get(&pid).copied().unwrap_or(0)
    }

    /// What goes by a number here.
    #[inline]
    pub fn pid_of(&self, number: Pid) -> Option<Pid> {
        if self.level == 0 {
            return Some(number);
        }
        self.numbers.lock().pids.get(&number).copied()
    }

    /// Whether it is the machine's own.
    pub fn is_first(&self) -> bool {
        self.parent.is_none()
    }

    /// Its first process, which adopts; none before it has begun and after it has ended.
    pub fn init(&self) -> Option<Pid> {
        self.pid_of(INIT)
    }

    /// Whether it is this one or below it.
    pub fn is_within(self: &Arc<PidNamespace>, above: &Arc<PidNamespace>) -> bool {
        core::iter::successors(Some(self), |at| at.parent.as_ref()).any(|at| Arc::ptr_eq(at, above))
    }

    /// Those from below `self` on down to `inner`, from the outermost; none if `inner` is not within.
    pub fn down_to<'a>(self: &Arc<PidNamespace>, inner: &'a Arc<PidNamespace>) -> SmallVec<[&'a Arc<PidNamespace>; 4]> {
        let mut way: SmallVec<_> = chain(inner).take_while(|at| !Arc::ptr_eq(at, self)).collect();
        way.reverse();
        if inner.is_within(self) { way } else { SmallVec::new() }
    }
}

/// Takes numbers for a new thread in `namespace` and all above it; those of `wanted`, from the innermost, are as they say. The tree is locked;
/// `outermost` takes the one in the first.
///
/// # Errors
/// `ENOMEM`: the first process of one of them has ended. `EAGAIN`: all numbers are taken. Of wanted ones: `EINVAL`: no number, or not the first
/// process's while there is none; `EPERM`: who may not choose; `EEXIST`.
#[inline]
pub(super) fn take(
    namespace: &Arc<PidNamespace>,
    wanted: &[i32],
    who: &Credentials,
    outermost: impl FnOnce(Option<Pid>) -> Result<Pid, Errno>,
) -> Result<Pid, Errno> {
    // Nearly always.
    if wanted.is_empty() && namespace.level == 0 {
        return outermost(None);
    }
    take_all(namespace, wanted, who, outermost)
}

#[cold]
#[inline(never)]
fn take_all(
    namespace: &Arc<PidNamespace>,
    wanted: &[i32],
    who: &Credentials,
    outermost: impl FnOnce(Option<Pid>) -> Result<Pid, Errno>,
) -> Result<Pid, Errno> {
    if wanted.len() > namespace.level + 1 {
        return Err(Errno::EINVAL);
    }
    let mut chosen = SmallVec::<[Pid; 4]>::new();
    let mut closed = false;
    for (depth, inner) in chain(namespace).enumerate() {
        let numbers = inner.numbers.lock();
        chosen.push(match wanted.get(depth) {
            Some(&number) => {
                let number = choose(number, who, &inner.owner, numbers.pids.contains_key(&INIT))?;
                if numbers.pids.contains_key(&number) {
                    return Err(Errno::EEXIST);
                }
                number
            }
            None => numbers.next()?,
        });
        closed |= numbers.closed;
    }
    let last =
        wanted.get(namespace.level).map(|&number| choose(number, who, UserNamespace::first(), true)).transpose()?;
    if closed {
        return Err(Errno::ENOMEM);
    }
    let pid = outermost(last)?;
    for (inner, number) in chain(namespace).zip(chosen) {
        let mut numbers = inner.numbers.lock();
        numbers.pids.insert(number, pid);
        numbers.numbers.insert(pid, number);
        numbers.last = number;
    }
    Ok(pid)
}

/// Gives back the numbers of `pid` in `namespace` and those above.
pub(super) fn give_back(namespace: &Arc<PidNamespace>, pid: Pid) {
    for inner in chain(namespace) {
        let mut numbers = inner.numbers.lock();
        if let Some(number) = numbers.numbers.remove(&pid) {
            numbers.pids.remove(&number);
        }
    }
}

/// Checks a number that somebody wants (`alloc_pid` of Linux's `kernel/pid.c`).
fn choose(number: i32, who: &Credentials, owner: &UserNamespace, has_init: bool) -> Result<Pid, Errno> {
    let pid = Pid::try_from(number).ok().filter(|pid| (1..PID_MAX).contains(pid)).ok_or(Errno::EINVAL)?;
    if pid != INIT && !has_init {
        return Err(Errno::EINVAL);
    }
    let may = who.may_in(owner, CAP_CHECKPOINT_RESTORE) || who.may_in(owner, CAP_SYS_ADMIN);
    if may { Ok(pid) } else { Err(Errno::EPERM) }
}

impl Numbers {
    fn next(&self) -> Result<Pid, Errno> {
        let mut candidate = self.last;
        for _ in 0..PID_MAX {
            candidate = if candidate + 1 >= PID_MAX { FIRST_AGAIN } else { candidate + 1 };
            if !self.pids.contains_key(&candidate) {
                return Ok(candidate);
            }
        }
        Err(Errno::EAGAIN)
    }
}

impl Task {
    /// The number by which it knows a thread, process, process group or session; 0 for what is not in its namespace.
    pub fn number_of(&self, pid: Pid) -> Pid {
        self.process.pid_namespace.number_of(pid)
    }

    /// Its own number, as it is told.
    pub fn own_number(&self) -> Pid {
        self.number_of(self.pid)
    }

    /// What a number that it says means.
    pub fn pid_of(&self, number: Pid) -> Option<Pid> {
        self.process.pid_namespace.pid_of(number)
    }

    /// The thread of a number that it says.
    pub fn find(&self, number: Pid) -> Option<Arc<Task>> {
        tree::find(self.pid_of(number)?)
    }

    /// The process that has a thread of a number that it says.
    pub fn find_process(&self, number: Pid) -> Option<Arc<Process>> {
        tree::process_of_thread(self.pid_of(number)?)
    }

    /// The members of a process group by a number that it says.
    pub fn find_group(&self, number: Pid) -> Vec<Arc<Process>> {
        self.pid_of(number).map_or_else(Vec::new, tree::group)
    }
}

impl Process {
    /// Whether what its own namespace's processes send it is kept from it where it has no handler: it is the first one of it.
    pub fn is_namespace_init(&self) -> bool {
        self.pid_namespace.init() == Some(self.pid)
    }
}

/// First processes of namespaces that wait for the others to be gone, and how often something has gone meanwhile.
static ENDING: AtomicUsize = AtomicUsize::new(0);
static GONE: AtomicU64 = AtomicU64::new(0);
static WAITING: WaitQueue = WaitQueue::new();

/// Something has ended or left the tree.
pub(super) fn something_went() {
    if ENDING.load(Ordering::SeqCst) > 0 {
        GONE.fetch_add(1, Ordering::SeqCst);
        WAITING.wake_all();
    }
}

/// The first process of a namespace ends: all others there are killed, and it waits until they are gone (`zap_pid_ns_processes` of Linux's
/// `kernel/pid_namespace.c`).
pub(super) fn first_process_ends(process: &Arc<Process>) {
    let namespace = &process.pid_namespace;
    namespace.numbers.lock().closed = true;
    // Children that end from now on are not waited for.
    process.handlers.lock().set(Signal::CHLD, Action::ignored());
    ENDING.fetch_add(1, Ordering::SeqCst);
    let others = || -> Vec<Pid> {
        let pids: Vec<Pid> = namespace.numbers.lock().numbers.keys().copied().collect();
        let tree = tree::lock();
        pids.into_iter().filter(|&pid| tree.task(pid).is_some_and(|task| task.tgid != process.pid)).collect()
    };
    for other in others() {
        if let Some(other) = tree::process_of_thread(other) {
            // A standard signal always finds room.
            let _ = send::to_process(&other, SigInfo::kernel(Signal::KILL));
        }
    }
    loop {
        let seen = GONE.load(Ordering::SeqCst);
        tree::reap_children(process);
        if others().is_empty() {
            break;
        }
        WAITING.wait_uninterruptible(|| (GONE.load(Ordering::SeqCst) != seen).then_some(()));
    }
    ENDING.fetch_sub(1, Ordering::SeqCst);
}
