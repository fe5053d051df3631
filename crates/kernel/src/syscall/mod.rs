//! System calls: from a number in a register to the function that does the work.
//!
//! The tables of the subjects ([`file::FILE_CALLS`] and the `CALLS` of the others) are laid out at compile time into one array indexed by
//! number, so a call costs one bounds check and one indirect jump.

mod advice;
mod class;
pub mod file;
mod futex;
mod identity;
mod io_priority;
pub mod ipc;
mod membarrier;
pub mod memory;
mod nodes;
mod own;
mod pidfd;
mod prctl;
mod process;
mod process_madvise;
mod process_vm;
mod ptrace;
mod resource;
mod scheduling;
mod seccomp;
mod sharing;
pub mod shm;
mod signal;
pub mod system;
pub mod time;
mod timers;
pub mod unknown;
pub mod userfault;

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use syscalls::Sysno;

use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::fs::userfault as userfault_files;
use crate::process::signal::state::Restart;
use crate::process::{Task, ptrace as tracing, seccomp as seccomp_of};
use crate::sched;

/// What a call returns: the value for the result register, or why not.
pub type SysResult = Result<usize, Errno>;

/// One system call in progress.
pub struct SyscallContext<'a> {
    /// The six argument registers: rdi, rsi, rdx, r10, r8, r9.
    pub args: [u64; 6],
    /// The caller's registers.
    pub frame: &'a mut TrapFrame,
    /// The caller.
    pub task: &'a Arc<Task>,
}

/// Does one system call.
pub type Handler = fn(&mut SyscallContext<'_>) -> SysResult;

/// Numbers that Linux has given out, with room to spare.
const NUMBERS: usize = 512;

static TABLE: [Handler; NUMBERS] = table();

const fn table() -> [Handler; NUMBERS] {
    let mut table: [Handler; NUMBERS] = [unknown; NUMBERS];
    let mut taken = [false; NUMBERS];
    let subjects: [&[(Sysno, Handler)]; 27] = [
        advice::CALLS,
        class::CALLS,
        file::FILE_CALLS,
        futex::CALLS,
        identity::CALLS,
        io_priority::CALLS,
        ipc::messages::CALLS,
        ipc::semaphores::CALLS,
        membarrier::CALLS,
        memory::CALLS,
        nodes::CALLS,
        pidfd::CALLS,
        prctl::CALLS,
        process::CALLS,
        process_madvise::CALLS,
        process_vm::CALLS,
        ptrace::CALLS,
        resource::CALLS,
        scheduling::CALLS,
        seccomp::CALLS,
        sharing::CALLS,
        shm::CALLS,
        signal::CALLS,
        system::CALLS,
        time::CALLS,
        timers::CALLS,
        userfault::CALLS,
    ];
    let mut subject = 0;
    while subject < subjects.len() {
        let calls = subjects[subject];
        let mut index = 0;
        while index < calls.len() {
            let (number, handler) = calls[index];
            assert!(!taken[number as usize], "two tables have the same call");
            taken[number as usize] = true;
            table[number as usize] = handler;
            index += 1;
        }
        subject += 1;
    }
    table
}

/// Does the system call whose number and arguments are in the frame; its result is in the frame afterwards.
pub fn dispatch(frame: &mut TrapFrame) {
    sched::with_current(|task| {
        if task.tracing.load(Ordering::Relaxed) & (tracing::CALLS | tracing::FILTERED) != 0 {
            return watched(task, frame);
        }
        perform(task, frame);
    });
}

/// Does the call that the frame says, for as long as it meets memory that somebody else is to fill.
#[cold]
#[inline(never)]
fn perform_again(task: &Arc<Task>, frame: &mut TrapFrame) {
    match userfault_files::retry_call(task, frame) {
        userfault_files::Outcome::Refused => {}
        userfault_files::Outcome::Again => perform(task, frame),
        userfault_files::Outcome::Interrupted => {
            frame.rax = Errno::ERESTARTNOINTR.to_result();
            interrupted(task, frame.orig_rax, Errno::ERESTARTNOINTR);
        }
    }
}

#[inline(always)]
fn perform(task: &Arc<Task>, frame: &mut TrapFrame) {
    let number = frame.orig_rax;
    let args = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    // Of the register only the lower half counts (`do_syscall_64` of Linux's `arch/x86/entry/common.c`).
    let handler = TABLE.get(number as u32 as usize).copied().unwrap_or(unknown);
    let mut context = SyscallContext { args, frame, task };
    let result = handler(&mut context);
    match result {
        Ok(value) => frame.rax = value as u64,
        Err(error) => {
            frame.rax = error.to_result();
            if error.is_restart() {
                interrupted(task, number, error);
            } else if error == Errno::EFAULT && task.awaited_access.load(Ordering::Relaxed) != 0 {
                perform_again(task, frame);
            }
        }
    }
}

/// A call of a thread whose tracer may want to see it begin and end, or that not all calls are permitted.
#[cold]
#[inline(never)]
fn watched(task: &Arc<Task>, frame: &mut TrapFrame) {
    if !seccomp_of::dispatch::permits(task, frame) {
        return;
    }
    let followed = || task.tracing.load(Ordering::Relaxed) & tracing::CALLS != 0;
    if (!followed() || tracing::stops::call_begins(task, frame)) && seccomp_of::permits(task, frame) {
        perform(task, frame);
    }
    if followed() {
        tracing::stops::call_ends(task, frame);
    }
}

/// Leaves it to signal delivery what the program will see.
#[cold]
fn interrupted(task: &Arc<Task>, number: u64, how: Errno) {
    task.signals.lock().restart = Some(Restart { number, how });
    task.notify();
}

#[cold]
fn unknown(context: &mut SyscallContext<'_>) -> SysResult {
    if let Some(handler) = own::handler(context.frame.orig_rax) {
        return handler(context);
    }
    unknown::record(context.frame.orig_rax, context.task.comm());
    Err(Errno::ENOSYS)
}
