//! Switching between threads.

use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::Ordering;

use crate::arch::cpu::Counter;
use foldspace::AddressSpace;

use super::idle;
use super::place;
use super::processor::CpuState;
use super::queue::{Position, ROUND_ROBIN_NS, Rank, any_special};
use super::thread::{
    DEAD, READY, RUNNING, Thread, WAITING, WAITING_UNINTERRUPTIBLE, WORK_BREAKPOINTS, WORK_COUNTER, WORK_RESCHEDULE,
    WORK_SIGNAL, WORK_SWITCHED,
};
use crate::arch::{self, PerCpu, TrapFrame, switch_context};
use crate::process::{self, Task};
use crate::{mm, time};

/// This processor's part.
fn cpu() -> &'static CpuState {
    &PerCpu::current().sched
}

#[inline(always)]
fn current_ref() -> Option<&'static Arc<Task>> {
    // SAFETY: the reference is the running thread's own, which lasts until the thread has ended and another one runs; whoever holds what is returned here is
    // that thread, wherever it goes on after it has waited.
    unsafe { cpu().current.get().as_ref() }
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
    time::monotonic_ns().saturating_sub(cpu().since.load(Ordering::Relaxed))
}

/// Lets a task run for the first time. Its thread has been prepared.
pub fn spawn(task: Arc<Task>) {
    // SAFETY: nobody looks at the cell of a thread that has not run.
    unsafe { *task.thread.own.get() = Some(task.clone()) };
    place::enqueue(task);
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
    let woken = task.thread.state.compare_exchange(waiting, READY, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if woken {
        place::enqueue(task.clone());
    }
    woken
}

/// Makes a task look at its signals: before it next goes to user mode, and at once if it waits interruptibly or is in user mode.
pub fn notify(task: &Arc<Task>) {
    task.thread.work.fetch_or(WORK_SIGNAL, Ordering::SeqCst);
    if !wake_from(task, WAITING) {
        interrupt(&task.thread);
    }
}

/// Makes a thread that runs in user mode on another processor come into the kernel, where it finds its work word, which was written before.
///
/// The thread may be moving from one processor to another; then it goes to user mode there after it has announced where it is and that it does, and looks at its word after
/// both.
fn interrupt(thread: &Thread) {
    if arch::online() == 1 || !thread.on_cpu.load(Ordering::SeqCst) {
        return;
    }
    let number = thread.cpu.load(Ordering::SeqCst);
    let own = PerCpu::current();
    if let Some(cpu) = PerCpu::get(number)
        && number != own.number
        && cpu.mode.is_user()
    {
        place::kick(cpu);
    }
}

/// Lets others run; returns when it is this thread's turn again.
pub fn yield_now() {
    schedule_as(Turn::Given);
}

/// The processors that there are and a task may run on, as bits.
pub fn affinity(task: &Task) -> u64 {
    task.thread.affinity() & arch::existing()
}

/// Says on which processors a thread may run, as bits, one of which is of a processor that there is. A thread that runs elsewhere leaves there before it
/// goes on in user mode.
pub fn set_affinity(task: &Arc<Task>, mask: u64) {
    let thread = &task.thread;
    thread.affinity.store(mask, Ordering::SeqCst);
    thread.work.fetch_or(WORK_RESCHEDULE, Ordering::SeqCst);
    interrupt(thread);
}

/// Says how a thread is scheduled from now on.
pub fn set_rank(task: &Arc<Task>, rank: Rank) {
    let thread = &task.thread;
    let before = thread.rank().priority();
    thread.set_rank(rank);
    // One that waits its turn waits for another one from now on; one that is lowered is the first of its equals, as POSIX wants it.
    let found = PerCpu::all().find_map(|cpu| Some((cpu, cpu.sched.remove(task)?)));
    match found {
        Some((cpu, task)) if (1..before).contains(&rank.priority()) => {
            return cpu.sched.push_special(task, Position::First);
        }
        Some((_, task)) => return place::enqueue(task),
        None => {}
    }
    thread.work.fetch_or(WORK_RESCHEDULE, Ordering::SeqCst);
    interrupt(thread);
}

/// Another processor has interrupted this one, in user mode: perhaps since a thread is more urgent than the current one.
pub fn kicked() {
    if any_special() {
        let own = PerCpu::current();
        with_current(|task| preempt_current(own, task));
    }
}

/// Makes the current thread give the processor up soon if a real-time thread is more urgent.
#[cold]
pub(super) fn preempt_current(own: &PerCpu, task: &Task) {
    let thread = &task.thread;
    let urgency = place::urgency_for(own).max(own.sched.queue.lock().urgency(|_| true));
    if urgency > thread.rank().priority() {
        thread.work.fetch_or(WORK_RESCHEDULE, Ordering::Relaxed);
    }
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
    debug_assert_eq!(
        PerCpu::current().locks.load(Ordering::Relaxed),
        0,
        "a thread on its way to user mode holds no spin lock"
    );
    let work = with_current(|task| task.thread.work.swap(0, Ordering::AcqRel));
    if work & WORK_RESCHEDULE != 0 {
        schedule();
    }
    if work & WORK_SWITCHED != 0 {
        with_current(|task| process::rseq::after_switch(task, frame));
    }
    if work & WORK_SIGNAL != 0 {
        process::deliver_signals(frame);
    }
    // A switch on the way, here above, asks for it again.
    if work & (WORK_BREAKPOINTS | WORK_COUNTER) != 0 {
        with_current(|task| load_rare(&task.thread));
    }
}

/// Puts into the processor what few threads have, and what nobody takes out again.
#[cold]
fn load_rare(thread: &Thread) {
    let breakpoints = thread.breakpoints();
    if breakpoints.on() != 0 {
        breakpoints.load();
    }
    if thread.counter() == Counter::Refused {
        arch::cpu::set_counter(Counter::Refused);
    }
}

/// Ends the current thread's slice if others are ready.
pub(super) fn end_slice() {
    let cpu = cpu();
    if any_special() {
        // One that became ready while this processor was in the kernel.
        kicked();
    }
    if !cpu.has_ready() {
        return;
    }
    with_current(|task| {
        let rank = task.thread.rank();
        if rank == Rank::ORDINARY && !any_special() || cpu.queue.lock().slice_ends(rank, running_ns()) {
            task.thread.work.fetch_or(WORK_RESCHEDULE, Ordering::Relaxed);
        }
    });
}

/// Why a running thread gives the processor up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It wants to.
    Given,
    /// Its slice is over, or somebody is more urgent.
    Taken,
}

/// Gives the processor to the next thread that is ready, or to idle. A running thread goes to the end of the queue; one that waits or has ended is left
/// where it is, and this returns when it has been woken.
pub(super) fn schedule() {
    schedule_as(Turn::Taken);
}

fn schedule_as(turn: Turn) {
    debug_assert!(!mm::is_epoch_pinned(), "a thread that gives up the processor takes no epoch with it");
    let percpu = PerCpu::current();
    debug_assert_eq!(
        percpu.locks.load(Ordering::Relaxed),
        0,
        "a thread that gives up the processor holds no spin lock"
    );
    let cpu = &percpu.sched;
    let task = current_ref().expect("idle does not give up the processor");
    let thread = &task.thread;
    let mut stays = true;
    if thread.state.load(Ordering::Acquire) == RUNNING {
        stays = thread.may_run_on(percpu.number);
        if stays && !cpu.has_ready() && !any_special() {
            return;
        }
        thread.state.store(READY, Ordering::Relaxed);
        if thread.rank() == Rank::ORDINARY {
            cpu.push_ordinary(task.clone());
        } else {
            cpu.push_special(task.clone(), position_after(thread.rank(), turn));
        }
    }
    // One that does not stay is moved to where it may run from the idle context, when this stack is not in use any more.
    let next = match if stays { cpu.pop() } else { None } {
        // Woken since it decided to wait.
        Some(next) if Arc::ptr_eq(&next, task) => return thread.state.store(RUNNING, Ordering::Relaxed),
        // One that may not run here: idle knows what to do.
        Some(next) if !next.thread.may_run_on(percpu.number) => {
            cpu.push(next);
            None
        }
        next => next,
    };
    switch_to(next);
}

/// Where a thread that is not ordinary goes among its equals when it gives the processor up: those whose turn it was go on with it, unless equals take turns and it has had
/// its own.
#[cold]
fn position_after(rank: Rank, turn: Turn) -> Position {
    let keeps = turn == Turn::Taken && !(rank.takes_turns() && running_ns() >= ROUND_ROBIN_NS);
    if keeps { Position::First } else { Position::Last }
}

/// A task for this processor, which idles: from its own queue or another one's.
pub(super) fn find_work(percpu: &PerCpu) -> Option<Arc<Task>> {
    loop {
        match percpu.sched.pop() {
            Some(task) if task.thread.may_run_on(percpu.number) => return Some(task),
            Some(task) => place::enqueue(task),
            None => return place::steal(percpu),
        }
    }
}

/// Runs a task, from the idle context, and those that are ready after it; returns when this processor has none left.
pub(super) fn run(task: Arc<Task>) {
    idle::arm_for_thread();
    switch_to(Some(task));
}

/// From the current thread (or idle) to `next` (or idle). Returns when somebody has switched back, maybe on another processor.
#[inline(always)]
fn switch_to(next: Option<Arc<Task>>) {
    let percpu = PerCpu::current();
    let cpu = &percpu.sched;
    let now = time::monotonic_ns();
    // SAFETY: this processor's own cells, interrupts off; the reference into `current` is the thread's own.
    unsafe {
        let save = match cpu.current.get().as_ref() {
            Some(task) => {
                let thread = &task.thread;
                let ran = now.saturating_sub(cpu.since.load(Ordering::Relaxed));
                thread.runtime.store(thread.runtime.load(Ordering::Relaxed) + ran, Ordering::Relaxed);
                cpu.busy.store(cpu.busy.load(Ordering::Relaxed) + ran, Ordering::Relaxed);
                thread.keep_registers();
                thread.saved.get()
            }
            None => cpu.idle_saved.get(),
        };
        let (current, load) = match next {
            Some(task) => {
                enter_thread(percpu, &task.thread);
                // From now on the thread keeps itself alive; the queue's reference ends here.
                let own = (*task.thread.own.get()).as_ref().map_or(ptr::null(), ptr::from_ref);
                (own, *task.thread.saved.get())
            }
            None => {
                percpu.clear_thread();
                // Nobody shoots at a processor that idles.
                mm::load_kernel_space();
                (ptr::null(), *cpu.idle_saved.get())
            }
        };
        cpu.since.store(if current.is_null() { 0 } else { now }, Ordering::Relaxed);
        // The one before is finished by `finish_switch`, on the next stack.
        cpu.previous.set(cpu.current.replace(current));
        switch_context(save, load);
    }
    finish_switch();
}

/// Whether the root that is loaded lives as long as what runs here.
fn is_space_kept() -> bool {
    // SAFETY: the running thread's own cell, or one that nobody else looks at: see `with_space`.
    let own = current_ref().and_then(|task| unsafe { (*task.thread.space.get()).as_deref() });
    mm::is_loaded(own)
}

/// # Safety
/// The thread is about to be switched to on this processor.
unsafe fn enter_thread(percpu: &PerCpu, thread: &Thread) {
    debug_assert!(!thread.on_cpu.load(Ordering::Relaxed), "no other processor is on the stack of a thread in a queue");
    mm::stack::forget_old();
    // Where it is comes before that it is, for `interrupt`; both come before it goes to user mode, which is a full barrier.
    thread.cpu.store(percpu.number, Ordering::Relaxed);
    thread.on_cpu.store(true, Ordering::Release);
    thread.state.store(RUNNING, Ordering::Relaxed);
    thread.expect_switch();
    // SAFETY: the stack and the work word live as long as the thread, which is current until the next call; nobody else touches the cells of a
    // thread that this processor has taken from its queue.
    unsafe {
        percpu.set_thread(thread.stack_top, &raw const thread.work);
        thread.load_registers();
        match &*thread.space.get() {
            Some(space) => mm::load_space(space),
            // It is ending.
            None => mm::load_kernel_space(),
        }
    }
}

/// First thing after a switch, on the new stack: lets go of the thread before.
///
/// From then on that thread may end elsewhere, and its address space, root and all, go with it. So the root that is loaded here must be another by now, which
/// whoever runs now keeps alive, or the kernel's own.
pub(super) fn finish_switch() {
    debug_assert!(is_space_kept(), "whoever runs has the loaded root's address space, or the root is the kernel's own");
    // SAFETY: this processor's own cell, interrupts off; the thread is alive until its own reference is dropped below.
    let Some(previous) = (unsafe { cpu().previous.replace(ptr::null()).as_ref() }) else { return };
    let thread = &previous.thread;
    let state = thread.state.load(Ordering::Acquire);
    if state != DEAD {
        let allowed = thread.affinity.load(Ordering::Relaxed);
        // It may be run elsewhere from here on, and is not to be touched here any more.
        thread.on_cpu.store(false, Ordering::SeqCst);
        if state == READY {
            place::offer(allowed);
        }
        return;
    }
    // SAFETY: nothing runs on a dead thread's stack: this is another. Nobody else looks at the cells of a dead thread.
    let (stack, own) = unsafe { ((*thread.stack.get()).take(), (*thread.own.get()).take()) };
    thread.on_cpu.store(false, Ordering::Release);
    if let Some(stack) = stack {
        stack.release();
    }
    // The reference goes last: it may be the last one.
    drop(own);
}
