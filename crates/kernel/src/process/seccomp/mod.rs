//! Which system calls a thread may make (seccomp(2)): four, or those that filters let through. Behaviour follows Linux's `kernel/seccomp.c`.
//!
//! A thread's filters are a list, the newest first, whose tail its relatives share. Each is asked; what counts is the strictest answer, and of equally
//! strict ones the newest filter's.

mod bpf;
pub mod dispatch;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use syscalls::Sysno;

pub use bpf::{Instruction, MOST, Program};

use super::exit::ExitStatus;
use super::ptrace::{self, FILTERED, TraceEvent};
use super::signal::{SigInfo, Signal, fatal_pending, send};
use super::{Pid, Task};
use crate::arch::TrapFrame;
use crate::errno::Errno;

/// What a filter can answer (`SECCOMP_RET_*` of `linux/seccomp.h`): the upper half; the lower is data.
pub mod answer {
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const KILL_THREAD: u32 = 0;
    pub const TRAP: u32 = 0x0003_0000;
    pub const ERRNO: u32 = 0x0005_0000;
    pub const USER_NOTIF: u32 = 0x7fc0_0000;
    pub const TRACE: u32 = 0x7ff0_0000;
    pub const LOG: u32 = 0x7ffc_0000;
    pub const ALLOW: u32 = 0x7fff_0000;
    /// What is not data.
    pub const ACTION: u32 = 0xffff_0000;
    /// Those that there are. None has a listener, so that whoever is to be asked is not there.
    pub const KNOWN: [u32; 8] = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, USER_NOTIF, TRACE, LOG, ALLOW];
}

/// `AUDIT_ARCH_X86_64` (`linux/audit.h`).
const ARCHITECTURE: u32 = 0xc000_003e;
/// Highest errno (`MAX_ERRNO`).
const HIGHEST_ERRNO: u32 = 4095;
/// Instructions that all filters of a thread may have together, each counted as four more (`MAX_INSNS_PER_PATH`).
const MOST_TOGETHER: usize = (1 << 18) / size_of::<Instruction>();

/// What a thread may call.
#[derive(Clone, Default)]
pub enum Mode {
    /// Everything.
    #[default]
    Free,
    /// read, write, exit and rt_sigreturn.
    Strict,
    /// What these let through.
    Filtered(Arc<Filter>),
}

/// One of a thread's filters.
pub struct Filter {
    program: Program,
    /// The next older one.
    before: Option<Arc<Filter>>,
    /// Instructions, older filters' included.
    total: usize,
}

impl Drop for Filter {
    /// One after the other: a list of thousands is too deep for the stack.
    fn drop(&mut self) {
        let mut next = self.before.take();
        while let Some(filter) = next.and_then(Arc::into_inner) {
            next = { filter }.before.take();
        }
    }
}

impl Filter {
    /// This one and the older ones.
    fn all(&self) -> impl Iterator<Item = &Filter> {
        core::iter::successors(Some(self), |filter| filter.before.as_deref())
    }

    /// What all of them say to a call.
    fn answer(&self, call: &bpf::Call) -> u32 {
        let strictness = |answer: u32| (answer & answer::ACTION) as i32;
        let mut strictest = answer::ALLOW;
        for filter in self.all() {
            let answer = filter.program.run(call);
            if strictness(answer) < strictness(strictest) {
                strictest = answer;
            }
        }
        strictest
    }
}

impl Mode {
    /// As `PR_GET_SECCOMP` and `/proc/PID/status` show it.
    pub fn number(&self) -> u32 {
        match self {
            Mode::Free => 0,
            Mode::Strict => 1,
            Mode::Filtered(_) => 2,
        }
    }

    /// How many filters there are.
    pub fn filters(&self) -> usize {
        match self {
            Mode::Filtered(newest) => newest.all().count(),
            _ => 0,
        }
    }

    /// The instructions of the filter that was the `number`th to be added, from 0. `EINVAL`: there are none; `ENOENT`: not so many.
    pub fn program(&self, number: u64) -> Result<Vec<Instruction>, Errno> {
        let Mode::Filtered(newest) = self else { return Err(Errno::EINVAL) };
        let younger = (newest.all().count() as u64).checked_sub(number + 1).ok_or(Errno::ENOENT)?;
        let filter = newest.all().nth(younger as usize).ok_or(Errno::ENOENT)?;
        Ok(filter.program.instructions().to_vec())
    }
}

/// Makes the thread strict. `EINVAL`: it has filters.
pub fn be_strict(task: &Task) -> Result<(), Errno> {
    let mut mode = task.seccomp.lock();
    if matches!(*mode, Mode::Filtered(_)) {
        return Err(Errno::EINVAL);
    }
    *mode = Mode::Strict;
    task.tracing.fetch_or(FILTERED, Ordering::SeqCst);
    Ok(())
}

/// Who gets a new filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whom {
    /// The caller.
    Thread,
    /// All threads of its process.
    Process,
}

/// Why a filter was not added.
pub enum Refused {
    /// As it says.
    Error(Errno),
    /// This thread has filters that the caller does not have.
    Apart(Pid),
}

/// Adds a filter.
///
/// # Errors
/// `EINVAL`: the thread is strict. `ENOMEM`: too many instructions.
pub fn add(task: &Task, program: Program, whom: Whom) -> Result<(), Refused> {
    // New threads copy what their makers have under this lock.
    let threads = task.process.threads.lock();
    let before = match &*task.seccomp.lock() {
        Mode::Strict => return Err(Refused::Error(Errno::EINVAL)),
        Mode::Free => None,
        Mode::Filtered(newest) => Some(newest.clone()),
    };
    let total = program.instructions().len()
        + before.iter().flat_map(|newest| newest.all()).map(|_| 4).sum::<usize>()
        + before.as_ref().map_or(0, |newest| newest.total);
    if total > MOST_TOGETHER {
        return Err(Refused::Error(Errno::ENOMEM));
    }
    let others = || threads.iter().filter(|other| whom == Whom::Process && other.pid != task.pid);
    for other in others() {
        let follows = match &*other.seccomp.lock() {
            Mode::Free => true,
            Mode::Strict => false,
            Mode::Filtered(of) => before.iter().flat_map(|newest| newest.all()).any(|own| core::ptr::eq(own, &**of)),
        };
        if !follows {
            return Err(Refused::Apart(other.pid));
        }
    }
    let total = program.instructions().len() + before.as_ref().map_or(0, |newest| newest.total);
    let filter = Arc::new(Filter { program, before, total });
    for thread in others().map(|other| &**other).chain(core::iter::once(task)) {
        *thread.seccomp.lock() = Mode::Filtered(filter.clone());
        thread.tracing.fetch_or(FILTERED, Ordering::SeqCst);
    }
    Ok(())
}

/// Gives a new thread what its maker has. The threads of its process are locked.
pub(super) fn inherit(maker: &Task, child: &Task) {
    if maker.tracing.load(Ordering::Relaxed) & FILTERED == 0 {
        return;
    }
    let mode = maker.seccomp.lock().clone();
    if mode.number() != 0 {
        *child.seccomp.lock() = mode;
        child.tracing.fetch_or(FILTERED, Ordering::SeqCst);
    }
}

/// Asks whether the call that the frame says may be made. False if not: what the program gets instead is in the frame, or it ends.
pub fn permits(task: &Arc<Task>, frame: &mut TrapFrame) -> bool {
    let mode = task.seccomp.lock().clone();
    match mode {
        Mode::Free => true,
        Mode::Strict => {
            const PERMITTED: [Sysno; 4] = [Sysno::read, Sysno::write, Sysno::exit, Sysno::rt_sigreturn];
            let permitted = PERMITTED.iter().any(|&call| call as u32 == frame.orig_rax as u32);
            if !permitted {
                end_thread(task, Signal::KILL);
            }
            permitted
        }
        Mode::Filtered(filter) => filtered(task, frame, &filter),
    }
}

fn filtered(task: &Arc<Task>, frame: &mut TrapFrame, filter: &Filter) -> bool {
    let mut asked = false;
    loop {
        let call = bpf::Call {
            number: frame.orig_rax as u32,
            architecture: ARCHITECTURE,
            address: frame.rip,
            arguments: [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9],
        };
        let answer = filter.answer(&call);
        let data = answer & !answer::ACTION;
        match answer & answer::ACTION {
            answer::ALLOW | answer::LOG => return true,
            answer::ERRNO => {
                frame.rax = u64::from(data.min(HIGHEST_ERRNO)).wrapping_neg();
                return false;
            }
            answer::TRAP => {
                // As if it had not been called.
                frame.rax = frame.orig_rax;
                send::force(task, SigInfo::refused_call(call.address, call.number, ARCHITECTURE, data));
                return false;
            }
            answer::TRACE if asked => return true,
            answer::TRACE => {
                frame.rax = Errno::ENOSYS.to_result();
                if !ptrace::stops::wants(task, TraceEvent::Seccomp) {
                    return false;
                }
                ptrace::stops::event(task, frame, TraceEvent::Seccomp, data.into());
                // The tracer may have made another call of it, or none.
                if fatal_pending(task) || (frame.orig_rax as i32) < 0 {
                    return false;
                }
                asked = true;
            }
            answer::USER_NOTIF => {
                frame.rax = Errno::ENOSYS.to_result();
                return false;
            }
            answer::KILL_THREAD if task.process.threads.lock().len() > 1 => {
                end_thread(task, Signal::SYS);
                return false;
            }
            _ => {
                frame.rax = frame.orig_rax;
                task.process.begin_exit(ExitStatus::Dumped(Signal::SYS));
                return false;
            }
        }
    }
}

fn end_thread(task: &Arc<Task>, signal: Signal) {
    task.signals.lock().exit = Some(ExitStatus::Killed(signal));
    task.notify();
}
