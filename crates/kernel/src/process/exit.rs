//! How threads and processes end.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::futex::{self, Leaving};
use super::signal::info::code;
use super::signal::{Signal, fatal_pending};
use super::{Process, Task, pid_namespace, ptrace, restore_point, timer, tree};
use crate::fs::tty;
use crate::mm::uaccess;
use crate::sched;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// It called exit with this code.
    Exited(u8),
    /// This signal killed it.
    Killed(Signal),
    /// This signal killed it, and one that by default leaves a core file. (None is written.)
    Dumped(Signal),
}

impl ExitStatus {
    /// As `wait4` reports it. The flag for a written core file is never set.
    pub fn to_wait_status(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => i32::from(code) << 8,
            ExitStatus::Killed(signal) | ExitStatus::Dumped(signal) => i32::from(signal.number()),
        }
    }

    /// `si_code` and `si_status`.
    pub fn to_siginfo(self) -> (i32, i32) {
        match self {
            ExitStatus::Exited(status) => (code::CLD_EXITED, i32::from(status)),
            ExitStatus::Killed(signal) | ExitStatus::Dumped(signal) => (code::CLD_KILLED, i32::from(signal.number())),
        }
    }
}

/// What a parent that called `vfork` waits for: its child no longer uses its address space.
pub struct VforkDone {
    done: AtomicBool,
    parent: Arc<Process>,
}

impl VforkDone {
    /// Not done yet; `parent` waits.
    pub fn new(parent: Arc<Process>) -> Arc<VforkDone> {
        Arc::new(VforkDone { done: AtomicBool::new(false), parent })
    }

    fn complete(&self) {
        self.done.store(true, Ordering::Release);
        self.parent.resume.wake_all();
    }

    /// Waits until the child has called exec or ended, or `task`, which is of the parent's, is to die.
    pub fn wait(&self, task: &Task) {
        self.parent
            .resume
            .wait_uninterruptible(|| (self.done.load(Ordering::Acquire) || fatal_pending(task)).then_some(()));
    }
}

/// Tells those who wait for a thread to let go of its address space that it does: the parent of a vfork, and whoever joins the
/// thread (Linux's `mm_release`). The address space must still be loaded.
pub(super) fn release_memory(task: &Task, leaving: Leaving) {
    futex::release(task, leaving);
    let clear_tid = task.clear_child_tid.swap(0, Ordering::Relaxed);
    // A process alone in its address space has nobody to tell, and may have been given a bad address.
    if clear_tid != 0 && task.shares_space() && uaccess::write(clear_tid, &0u32).is_ok() {
        futex::wait::wake_after_exit(task, clear_tid);
    }
    let vfork = task.vfork_done.lock().take();
    if let Some(vfork) = vfork {
        vfork.complete();
    }
}

/// Ends the current thread; the last one ends its process with the group's status, if the group is ending, or its first thread's.
pub fn exit_thread(status: ExitStatus) -> ! {
    {
        let task = sched::current();
        leave(&task, status);
    }
    sched::exit_current()
}

fn leave(task: &Arc<Task>, status: ExitStatus) {
    release_memory(task, Leaving::End);
    match task.process.tells_at_end.swap(0, Ordering::Relaxed) {
        0 => {}
        wanted => crate::power::program_ends(wanted),
    }
    task.drop_space();
    task.files.release();

    let process = &task.process;
    if task.is_leader() {
        process.set_leader_status(status);
    }
    let (last, stop) = process.thread_ended(task);
    if let Some(stop) = stop {
        tree::report_stopped(process, stop);
    }
    ptrace::control::tracer_ended(task);
    if !task.is_leader() && !ptrace::control::thread_ended(task, status) {
        tree::remove_thread(task.pid);
    }
    if !last {
        // Whoever calls exec waits to be alone; whoever stops counts threads.
        process.resume.wake_all();
        return;
    }
    process.real_timer.lock().disarm();
    timer::posix::delete_all(process);
    crate::syscall::ipc::semaphores::process_ended(process.pid);
    let program = process.exe.lock().take();
    drop(program);
    if process.sid() == process.pid {
        tty::leader_leaves(process.pid, tty::Leaving::End);
    }
    restore_point::forget(task);
    let never_run = process.handed_over.lock().take();
    drop(never_run);
    if process.pid == tree::INIT {
        crate::power::first_process_ended(process.final_status());
    } else if process.is_namespace_init() {
        pid_namespace::first_process_ends(process);
    }
    tree::process_ended(process, process.final_status(), process.usage());
}
