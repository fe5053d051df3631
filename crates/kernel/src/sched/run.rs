//! Switching between threads.

use alloc::sync::Arc;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::Ordering;

use foldspace::AddressSpace;
use spin::Mutex;

use super::idle;
use super::list::{RunLink, TaskList};
use super::thread::{DEAD, READY, RUNNING, Thread, WAITING, WAITING_UNINTERRUPTIBLE, WORK_RESCHEDULE, WORK_SIGNAL};
use crate::arch::{PerCpu, SegmentBases, TrapFrame, switch_context};
use crate::process::{self, Task};
use crate::{mm, time};

/// A processor's part of the scheduler.
pub struct CpuState {
    queue: Mutex<TaskList<RunLink>>,
    /// The thread that runs; none in idle.
    current: UnsafeCell<Option<Arc<Task>>>,
    /// The thread that was switched from, for the one switched to.
    previous: UnsafeCell<Option<Arc<Task>>>,
    /// Stack pointer of the idle context while a thread runs.
    idle_saved: UnsafeCell<u64>,
    /// When the current thread began to run, nanoseconds since boot.
    since: Cell<u64>,
    /// When the timer will interrupt, nanoseconds since boot.
    pub(super) alarm: Cell<u64>,
}

impl CpuState {
    /// A processor that idles.
    pub const fn new() -> CpuState {
        CpuState {
            queue: Mutex::new(TaskList::new()),
            current: UnsafeCell::new(None),
            previous: UnsafeCell::new(None),
            idle_saved: UnsafeCell::new(0),
            since: Cell::new(0),
            alarm: Cell::new(0),
        }
    }
}

/// This processor's part.
fn cpu() -> &'static CpuState {
    &PerCpu::current().sched
}

#[inline(always)]
fn current_ref() -> Option<&'static Arc<Task>> {
    // SAFETY: only this processor changes the cell, in `switch_to`, and the thread that holds this reference runs nothing there before it is
    // the current one again: the reference is good for as long as the thread looks at it.
    unsafe { (*cpu().current.get()).as_ref() }
}

/// The running task.
///
/// # Panics
/// In idle and at boot.
pub fn current() -> Arc<Task> {
    current_ref().expect("no task runs").clone()
}

/// Lets `look` see the running task, without counting a reference.
///
/// # Panics
/// In idle and at boot.
#[inline]
pub fn with_current<R>(look: impl FnOnce(&Arc<Task>) -> R) -> R {
    look(current_ref().expect("no task runs"))
}

/// Like [`with_current`]; `None` in idle and at boot.
#[inline]
pub fn try_with_current<R>(look: impl FnOnce(&Arc<Task>) -> R) -> Option<R> {
    current_ref().map(look)
}

/// Number of the running task, for a panic: nothing that takes a lock.
pub fn current_pid() -> Option<process::Pid> {
    current_ref().map(|task| task.pid)
}

/// Lets `look` see the address space that the current thread runs in; `None` if it has left it.
#[inline]
pub fn with_space<R>(look: impl FnOnce(&AddressSpace) -> R) -> Option<R> {
    let task = current_ref()?;
    // SAFETY: only the thread itself changes the cell, in `set_space` and `leave_space`.
    unsafe { (*task.thread.space.get()).as_deref() }.map(look)
}

/// Makes the current thread run in another address space (exec). Returns the one before.
pub fn set_space(space: Arc<AddressSpace>) -> Option<Arc<AddressSpace>> {
    with_current(|task| {
        mm::load_space(&space);
        // SAFETY: the thread's own cell; no reference into it is alive, since `with_space` lends it to closures only.
        unsafe { (*task.thread.space.get()).replace(space) }
    })
}

/// Makes the current thread leave its address space (exit). Returns it: dropping it unmaps everything if nobody else runs in it.
pub fn leave_space() -> Option<Arc<AddressSpace>> {
    mm::load_kernel_space();
    // SAFETY: as in `set_space`.
    with_current(|task| unsafe { (*task.thread.space.get()).take() })
}

/// How long the current thread has been running since it was switched to, in nanoseconds.
pub(super) fn running_ns() -> u64 {
    time::monotonic_ns().saturating_sub(cpu().since.get())
}

/// Lets a task run for the first time. Its thread has been prepared.
pub fn spawn(task: Arc<Task>) {
    cpu().queue.lock().push_back(task);
}

/// Makes a waiting task ready. Returns whether it was waiting.
pub fn wake(task: &Arc<Task>) -> bool {
    for waiting in [WAITING, WAITING_UNINTERRUPTIBLE] {
        if wake_from(task, waiting) {
            return true;
        }
    }
    false
}

fn wake_from(task: &Arc<Task>, waiting: u8) -> bool {
    let woken = task.thread.state.compare_exchange(waiting, READY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if woken {
        cpu().queue.lock().push_back(task.clone());
    }
    woken
}

/// Makes a task look at its signals: before it next goes to user mode, and at once if it waits interruptibly.
pub fn notify(task: &Arc<Task>) {
    task.thread.work.fetch_or(WORK_SIGNAL, Ordering::AcqRel);
    wake_from(task, WAITING);
}

/// Lets others run; returns when it is this thread's turn again.
pub fn yield_now() {
    schedule();
}

/// Ends the current thread. Its stack is freed by the thread that runs next.
///
/// The caller has dropped everything that its stack holds, and left its address space.
pub fn exit_current() -> ! {
    with_current(|task| task.thread.state.store(DEAD, Ordering::Release));
    schedule();
    unreachable!("a thread that has ended was run again")
}

/// Called on the way to user mode when the current thread's work word is not zero.
pub fn work_before_user(frame: &mut TrapFrame) {
    let work = with_current(|task| task.thread.work.swap(0, Ordering::AcqRel));
    if work & WORK_RESCHEDULE != 0 {
        schedule();
    }
    if work & WORK_SIGNAL != 0 {
        process::deliver_signals(frame);
    }
}

/// Ends the current thread's slice if others are ready.
pub(super) fn end_slice() {
    if !cpu().queue.lock().is_empty() {
        with_current(|task| task.thread.work.fetch_or(WORK_RESCHEDULE, Ordering::Relaxed));
    }
}

/// Gives the processor to the next thread that is ready, or to idle. A running thread goes to the end of the queue; one that waits or has ended is left
/// where it is, and this returns when it has been woken.
pub(super) fn schedule() {
    let cpu = cpu();
    let task = current_ref().expect("idle does not give up the processor");
    let running = task.thread.state.load(Ordering::Acquire) == RUNNING;
    let next = {
        let mut queue = cpu.queue.lock();
        if running {
            if queue.is_empty() {
                return;
            }
            task.thread.state.store(READY, Ordering::Relaxed);
            queue.push_back(task.clone());
        }
        queue.pop_front()
    };
    match next {
        // Woken since it decided to wait.
        Some(next) if Arc::ptr_eq(&next, task) => task.thread.state.store(RUNNING, Ordering::Relaxed),
        next => switch_to(next),
    }
}

/// Runs what is ready, from the idle context; returns when nothing is.
pub(super) fn run_ready() {
    loop {
        let next = cpu().queue.lock().pop_front();
        if next.is_none() {
            return;
        }
        idle::arm_for_thread();
        switch_to(next);
    }
}

/// From the current thread (or idle) to `next` (or idle). Returns when somebody has switched back.
fn switch_to(next: Option<Arc<Task>>) {
    let percpu = PerCpu::current();
    let cpu = &percpu.sched;
    let now = time::monotonic_ns();
    // SAFETY: this processor's own cells, interrupts off. The references into `current` and `previous` that are made here end before either changes.
    unsafe {
        let save = match &*cpu.current.get() {
            Some(task) => {
                let thread = &task.thread;
                thread.runtime.fetch_add(now - cpu.since.get(), Ordering::Relaxed);
                *thread.bases.get() = SegmentBases::save();
                thread.saved.get()
            }
            None => cpu.idle_saved.get(),
        };
        let load = match &next {
            Some(task) => {
                enter_thread(percpu, &task.thread);
                *task.thread.saved.get()
            }
            None => {
                percpu.clear_thread();
                *cpu.idle_saved.get()
            }
        };
        cpu.since.set(now);
        // The one before is finished by `finish_switch`, on the next stack.
        let before = core::mem::replace(&mut *cpu.current.get(), next);
        *cpu.previous.get() = before;
        switch_context(save, load);
    }
    finish_switch();
}

/// # Safety
/// The thread is about to be switched to on this processor.
unsafe fn enter_thread(percpu: &PerCpu, thread: &Thread) {
    // Woken while another processor was still switching away from it.
    while thread.on_cpu.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
    thread.on_cpu.store(true, Ordering::Relaxed);
    thread.state.store(RUNNING, Ordering::Relaxed);
    // SAFETY: the stack and the work word live as long as the thread, which is current until the next call; nobody else touches the cells of a
    // thread that this processor has taken from its queue.
    unsafe {
        percpu.set_thread(thread.stack_top, &raw const thread.work);
        (*thread.bases.get()).load();
        if let Some(space) = &*thread.space.get() {
            mm::load_space(space);
        }
    }
}

/// First thing after a switch, on the new stack: lets go of the thread before.
pub(super) fn finish_switch() {
    // SAFETY: this processor's own cell, interrupts off.
    let Some(previous) = (unsafe { (*cpu().previous.get()).take() }) else { return };
    let thread = &previous.thread;
    if thread.state.load(Ordering::Acquire) == DEAD {
        // SAFETY: nothing runs on a dead thread's stack: this is another.
        let stack = unsafe { (*thread.stack.get()).take() };
        if let Some(stack) = stack {
            stack.release();
        }
    }
    thread.on_cpu.store(false, Ordering::Release);
    // The reference goes last: it may be the last one.
    drop(previous);
}
