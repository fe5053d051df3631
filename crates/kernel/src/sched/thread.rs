//! The scheduler's part of a task.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use foldspace::{AddressSpace, Error};

use super::queue::Rank;
use crate::arch::cpu::Counter;
use crate::arch::{
    self, Breakpoints, ContextPointer, FpuState, LiveRegisters, PerCpu, TrapFrame, UserContext, new_thread_entry,
    vectors,
};
use crate::mm;
use crate::mm::stack::KernelStack;
use crate::process::Task;
use crate::sched;

/// In a run queue, or about to be.
pub(super) const READY: u8 = 0;
/// Runs.
pub(super) const RUNNING: u8 = 1;
/// Waits; signals wake it.
pub(super) const WAITING: u8 = 2;
/// Waits; only what it waits for wakes it.
pub(super) const WAITING_UNINTERRUPTIBLE: u8 = 3;
/// Will never run again.
pub(super) const DEAD: u8 = 4;

/// Bit of [`Thread::work`]: signals are to be looked at.
pub(super) const WORK_SIGNAL: u32 = 1;
/// Bit of [`Thread::work`]: the slice is over.
pub(super) const WORK_RESCHEDULE: u32 = 2;
/// Bit of [`Thread::work`]: it was switched from, and its program wants to know.
pub(super) const WORK_SWITCHED: u32 = 4;

/// In [`Thread::told`]: its program does not want to know where it runs.
const NOT_ASKED: u32 = u32::MAX;
/// In [`Thread::told`]: it wants to, and does not know yet.
const TO_BE_TOLD: u32 = u32::MAX - 1;

/// Bit of [`Thread::work`]: it was switched from, and its breakpoints are to be loaded.
pub(super) const WORK_BREAKPOINTS: u32 = 8;
/// Bit of [`Thread::work`]: it was switched from, and is not to read the time stamp counter.
pub(super) const WORK_COUNTER: u32 = 16;

/// A kernel stack, and what is not on it while the thread does not run.
pub struct Thread {
    /// Taken away when the thread has ended.
    pub(super) stack: UnsafeCell<Option<KernelStack>>,
    pub(super) stack_top: u64,
    /// Stack pointer while it does not run.
    pub(super) saved: UnsafeCell<u64>,
    /// What the kernel leaves in its registers, while it does not run.
    pub(super) live: UnsafeCell<LiveRegisters>,
    /// The address space that it runs in.
    pub(super) space: UnsafeCell<Option<Arc<AddressSpace>>>,
    start: UnsafeCell<fn()>,
    /// What is to be done before it goes to user mode. The exit path looks at it.
    pub(super) work: AtomicU32,
    pub(super) state: AtomicU8,
    /// Whether a processor is still on its stack: [`Thread::cpu`].
    pub(super) on_cpu: AtomicBool,
    /// The processor that it runs on or ran on last.
    pub(super) cpu: AtomicUsize,
    /// The processors that it may run on, as bits.
    pub(super) affinity: AtomicU64,
    /// How it is scheduled: a [`Rank`].
    rank: AtomicU8,
    /// Its reference to itself, from its start to its end: what runs lives.
    pub(super) own: UnsafeCell<Option<Arc<Task>>>,
    /// The processor that its program was told of last (rseq), or one of the two above.
    told: AtomicU32,
    /// What each switch adds to [`Thread::work`]: [`WORK_SWITCHED`], [`WORK_BREAKPOINTS`], [`WORK_COUNTER`].
    after_switch: AtomicU32,
    /// Its breakpoints, if a tracer has given it any. Its own to touch.
    breakpoints: UnsafeCell<Option<Box<Breakpoints>>>,
    /// Nanoseconds that it has run.
    pub(super) runtime: AtomicU64,
    pub(super) run_link: UnsafeCell<Option<Arc<Task>>>,
    pub(super) wait_link: UnsafeCell<Option<Arc<Task>>>,
}

// SAFETY: the cells belong to the thread itself while it runs, to the processor that switches from or to it, or, before `spawn`, to who makes it;
// `on_cpu` keeps two processors apart. The links belong to the lists that the thread is in.
unsafe impl Sync for Thread {}
// SAFETY: as above.
unsafe impl Send for Thread {}

impl Thread {
    /// A thread with a stack, to be given a context by [`Thread::prepare`], that may run where the current one may.
    ///
    /// # Errors
    /// No memory for the stack, or so little left that it is needed to end the threads that there are.
    pub fn new() -> Result<Thread, Error> {
        if mm::is_scarce() {
            return Err(Error::OutOfMemory);
        }
        let stack = KernelStack::new()?;
        Ok(Thread {
            stack_top: stack.top(),
            stack: UnsafeCell::new(Some(stack)),
            saved: UnsafeCell::new(0),
            live: UnsafeCell::new(LiveRegisters::default()),
            space: UnsafeCell::new(None),
            start: UnsafeCell::new(|| {}),
            work: AtomicU32::new(0),
            state: AtomicU8::new(READY),
            on_cpu: AtomicBool::new(false),
            cpu: AtomicUsize::new(PerCpu::current().number),
            affinity: AtomicU64::new(sched::try_with_current(|task| task.thread.affinity()).unwrap_or(u64::MAX)),
            rank: AtomicU8::new(Rank::ORDINARY.bits()),
            own: UnsafeCell::new(None),
            told: AtomicU32::new(NOT_ASKED),
            after_switch: AtomicU32::new(0),
            breakpoints: UnsafeCell::new(None),
            runtime: AtomicU64::new(0),
            run_link: UnsafeCell::new(None),
            wait_link: UnsafeCell::new(None),
        })
    }

    /// Says what the thread is to do when it first runs: call `start` in the kernel, then go to user mode in `space` with these registers (which
    /// `start` may change, as a system call may). Call it once, before [`sched::spawn`].
    pub fn prepare(
        &self,
        space: Arc<AddressSpace>,
        frame: &TrapFrame,
        fpu: &FpuState,
        live: LiveRegisters,
        start: fn(),
    ) {
        let context = ContextPointer::at_top_of(self.stack_top);
        // SAFETY: the thread has not been spawned, so its cells and its stack are the caller's.
        unsafe {
            context.as_ptr().write(UserContext::new(*frame, *fpu));
            *self.saved.get() = new_thread_entry(context, first_code);
            *self.space.get() = Some(space);
            *self.live.get() = live;
            *self.start.get() = start;
        }
    }

    /// The registers with which the current thread will go to user mode.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn frame(&self) -> &mut TrapFrame {
        &mut self.context().frame
    }

    /// The vector registers with which the current thread will go to user mode, all of them.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn fpu(&self) -> &FpuState {
        let fpu = &mut self.context().fpu;
        // SAFETY: the current thread's context.
        unsafe { vectors::save_rest(fpu) };
        fpu
    }

    /// Sets them.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn set_fpu(&self, new: &FpuState) {
        let fpu = &mut self.context().fpu;
        *fpu = *new;
        // SAFETY: the current thread's context.
        unsafe { vectors::load_rest(fpu) };
    }

    /// Keeps what the kernel leaves in the processor's registers, which another thread gets next.
    ///
    /// # Safety
    /// It is the current thread, and the next thing is a switch.
    pub(super) unsafe fn keep_registers(&self) {
        // SAFETY: the cell belongs to the thread while it runs, and so does its context.
        unsafe {
            *self.live.get() = LiveRegisters::save();
            vectors::save_rest(&raw mut (*ContextPointer::at_top_of(self.stack_top).as_ptr()).fpu);
        }
    }

    /// Gives the processor's registers back what was kept of them.
    ///
    /// # Safety
    /// It is about to be switched to, and no other processor runs it.
    pub(super) unsafe fn load_registers(&self) {
        // SAFETY: nobody else touches the cells or the context of such a thread.
        unsafe {
            (*self.live.get()).load();
            vectors::load_rest(&raw const (*ContextPointer::at_top_of(self.stack_top).as_ptr()).fpu);
        }
    }

    #[expect(clippy::mut_from_ref, reason = "the context belongs to the running thread, on whose stack it is")]
    fn context(&self) -> &mut UserContext {
        assert!(self.is_current(), "only the running thread's registers can be reached");
        // SAFETY: the current thread's context is complete, since this runs below it. Callers keep to one use at a time, as
        // with the frame that handlers are given.
        unsafe { &mut *ContextPointer::at_top_of(self.stack_top).as_ptr() }
    }

    /// FS and GS base of the current thread, and its rights to protection keys.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn live_registers(&self) -> LiveRegisters {
        assert!(self.is_current(), "only the running thread's registers can be reached");
        LiveRegisters::save()
    }

    /// Sets them: `arch_prctl`, exec, a tracer.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn set_live_registers(&self, live: LiveRegisters) {
        assert!(self.is_current(), "only the running thread's registers can be reached");
        live.load();
    }

    /// Processor time that it has used so far (a thread that runs on another processor: up to its last switch), in nanoseconds.
    pub fn runtime_ns(&self) -> u64 {
        let slice = if self.is_current() { sched::run::running_ns() } else { 0 };
        self.runtime.load(Ordering::Relaxed) + slice
    }

    /// The letter that `/proc/PID/stat` shows: R, S or D; Z once it has ended.
    pub fn state_letter(&self) -> char {
        match self.state.load(Ordering::Relaxed) {
            READY | RUNNING => 'R',
            WAITING => 'S',
            WAITING_UNINTERRUPTIBLE => 'D',
            _ => 'Z',
        }
    }

    /// How it is scheduled.
    pub fn rank(&self) -> Rank {
        Rank::from_bits(self.rank.load(Ordering::Relaxed))
    }

    /// Says how it is to be scheduled; of a thread that has been spawned that is [`sched::set_rank`]'s to say.
    pub fn set_rank(&self, rank: Rank) {
        self.rank.store(rank.bits(), Ordering::Relaxed);
    }

    /// The processors that it may run on, as bits; those that do not exist may be among them.
    pub fn affinity(&self) -> u64 {
        self.affinity.load(Ordering::Relaxed)
    }

    /// Whether it may run on a processor.
    pub(super) fn may_run_on(&self, number: usize) -> bool {
        self.affinity() & 1 << number != 0
    }

    /// The processor that it runs on or ran on last.
    pub fn processor(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// From now on, and first of all before the current thread goes to user mode, [`crate::process::rseq`] is asked after each switch.
    pub fn watch_switches(&self) {
        self.told.store(TO_BE_TOLD, Ordering::Relaxed);
        self.after_switch.fetch_or(WORK_SWITCHED, Ordering::Relaxed);
        self.work.fetch_or(WORK_SWITCHED, Ordering::Relaxed);
    }

    /// The end of that.
    pub fn ignore_switches(&self) {
        self.told.store(NOT_ASKED, Ordering::Relaxed);
        self.after_switch.fetch_and(!WORK_SWITCHED, Ordering::Relaxed);
    }

    /// The same as for `other`, whose memory this one has a copy of. Before it is spawned.
    pub fn inherit_watch(&self, other: &Thread) {
        self.told.store(other.told.load(Ordering::Relaxed), Ordering::Relaxed);
        self.after_switch.fetch_or(other.after_switch.load(Ordering::Relaxed) & WORK_SWITCHED, Ordering::Relaxed);
    }

    /// Whether it may read the time stamp counter.
    pub fn counter(&self) -> Counter {
        if self.after_switch.load(Ordering::Relaxed) & WORK_COUNTER != 0 { Counter::Refused } else { Counter::Readable }
    }

    /// Says so for the current thread, or for one that has not been spawned. Like breakpoints, this is not taken back when another thread runs on the processor: one that
    /// finds the counter refused, and may read it, makes it readable.
    pub fn set_counter(&self, counter: Counter) {
        match counter {
            Counter::Refused => {
                self.after_switch.fetch_or(WORK_COUNTER, Ordering::Relaxed);
                self.work.fetch_or(WORK_COUNTER, Ordering::Relaxed);
            }
            Counter::Readable => {
                self.after_switch.fetch_and(!WORK_COUNTER, Ordering::Relaxed);
            }
        }
    }

    /// The processor that its program was told of last.
    pub fn processor_told(&self) -> Option<u32> {
        match self.told.load(Ordering::Relaxed) {
            NOT_ASKED | TO_BE_TOLD => None,
            told => Some(told),
        }
    }

    /// Notes what its program was told.
    pub fn set_processor_told(&self, number: u32) {
        self.told.store(number, Ordering::Relaxed);
    }

    /// The next time that it goes to user mode counts as after a switch.
    pub fn expect_switch(&self) {
        let wanted = self.after_switch.load(Ordering::Relaxed);
        if wanted != 0 {
            self.work.fetch_or(wanted, Ordering::SeqCst);
        }
    }

    /// The current thread's breakpoints; none if it was never given any.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn breakpoints(&self) -> Breakpoints {
        self.own_breakpoints().as_deref().copied().unwrap_or_default()
    }

    /// Sets them.
    ///
    /// # Panics
    /// For a thread that is not the current one.
    pub fn set_breakpoints(&self, new: Breakpoints) {
        let own = self.own_breakpoints();
        if new == Breakpoints::default() && own.is_none() {
            return;
        }
        *own = Some(Box::new(new));
        if new.on() == 0 {
            self.after_switch.fetch_and(!WORK_BREAKPOINTS, Ordering::Relaxed);
            arch::breakpoints::switch_off();
        } else {
            self.after_switch.fetch_or(WORK_BREAKPOINTS, Ordering::Relaxed);
            self.work.fetch_or(WORK_BREAKPOINTS, Ordering::Relaxed);
        }
    }

    #[expect(clippy::mut_from_ref, reason = "they are the running thread's own")]
    fn own_breakpoints(&self) -> &mut Option<Box<Breakpoints>> {
        assert!(self.is_current(), "only the running thread's registers can be reached");
        // SAFETY: nobody but the running thread touches the cell; callers keep to one use at a time.
        unsafe { &mut *self.breakpoints.get() }
    }

    fn is_current(&self) -> bool {
        sched::try_with_current(|task| core::ptr::eq(&task.thread, self)).unwrap_or(false)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A thread that was never spawned still has its stack.
        if let Some(stack) = self.stack.get_mut().take() {
            stack.release();
        }
    }
}

/// Where a new thread comes out of its first switch.
extern "C" fn first_code() {
    sched::run::finish_switch();
    // SAFETY: set before the thread was spawned.
    let start = sched::with_current(|task| unsafe { *task.thread.start.get() });
    start();
}
