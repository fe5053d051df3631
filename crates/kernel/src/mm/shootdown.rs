//! Shootdowns: making other processors forget translations.
//!
//! The kernel runs with interrupts off, so a processor that waits for a lock could not answer an interrupt, and waiting for it while holding that lock
//! would be for ever. It need not answer: the kernel reads and writes programs' memory through the direct map, never by their addresses, so a
//! processor in the kernel uses no translation of a program. It only has to forget before it goes back to user mode.
//!
//! So who shoots writes down what is to be forgotten, then reads where the other is ([`Mode`](crate::arch::percpu::Mode): the way to user mode announces
//! itself first and looks for requests then, so one of the two sees the other):
//!
//! - *in user mode*: it is interrupted, and waited for until it has forgotten or at least entered the kernel. It answers within some instructions,
//!   since interrupts are on there. All processors are asked before any is waited for;
//! - *in the kernel*: no interrupt, no waiting. Two that shoot at each other are both in the kernel, and neither waits;
//! - *elsewhere*: a processor that loads another root forgets everything by that. It stores which root it loads first and looks for requests after,
//!   and who shoots writes first and looks which root it is then. Idle processors run on the kernel's own root: nobody shoots at them.
//!
//! **What is still cached in the kernel.** A processor may walk tables for addresses that it only guesses at, and through upper-level entries that it
//! has cached, also in the kernel, and sets accessed bits in what it finds. No translation that such a walk makes is ever used, but the
//! walked table must not have become something else. Tables are freed after a grace period, and a request that a processor in the kernel
//! has not served yet holds it up: it keeps an epoch pinned on the processor's behalf ([`CpuState::on_behalf`]). What a processor in the kernel does is
//! bounded, and when it waits, it runs something else or idles, which loads another root or goes to user mode: either serves the request.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::sync::Mutex;
use arrayvec::ArrayVec;
use crossbeam_epoch::{Collector, Guard, LocalHandle};
use foldspace::addr::{PAGE_SIZE, PageRange};
use foldspace::platform::{Flush, SpaceId};
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;

use crate::arch::{self, MAX_PROCESSORS, PerCpu};

/// Pages up to which each is invalidated by itself; beyond, everything is (Linux's `tlb_single_page_flush_ceiling`).
const SINGLE_PAGES: u64 = 33;

/// A processor's part of the memory manager.
pub struct CpuState {
    /// What others ask of it.
    requests: Mutex<Requests>,
    /// The number of the last request that it has served.
    served: AtomicU64,
    /// Its own handle to the epochs.
    epoch: UnsafeCell<Option<LocalHandle>>,
    counters: Counters,
    /// How many kernel stacks had been unmapped when it last dropped translations of them.
    pub(super) stacks_seen: AtomicU64,
}

// SAFETY: `epoch` is used by the processor that the structure belongs to only, and the kernel is not preempted.
unsafe impl Sync for CpuState {}

/// What is asked of a processor.
struct Requests {
    /// How many requests there were.
    asked: u64,
    /// Whether one is not served yet.
    waiting: bool,
    flush: Option<Flush>,
    /// What was written to memory may be instructions: none that was fetched before may be executed.
    serialize: bool,
    /// Keeps what dies now from being freed until the request is served, see the module.
    held: Option<Guard>,
    /// A second handle to the epochs, for guards on the processor's behalf. Used by any processor, under the lock.
    on_behalf: Option<LocalHandle>,
}

// SAFETY: a handle and its guards are shared by nothing; they may be used by any processor, one at a time, which the lock sees to.
unsafe impl Send for Requests {}

/// What happened, for `/proc/interrupts` and `/proc/vmstat`.
#[derive(Default)]
struct Counters {
    /// Shootdowns that this processor began and that concerned others.
    shootdowns: AtomicU64,
    /// Interrupts that it sent for them.
    interrupts: AtomicU64,
    /// Processors that it did not have to interrupt, since they were in the kernel.
    spared: AtomicU64,
    /// Requests that it has served.
    served: AtomicU64,
    /// Flushes for its own sake.
    local: AtomicU64,
}

/// Sums of what the processors count.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shootdowns {
    /// Shootdowns that concerned other processors than the one that began them.
    pub remote: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Processors in the kernel, which needed none.
    pub spared: u64,
    /// Shootdowns altogether.
    pub local: u64,
}

impl CpuState {
    pub const fn new() -> CpuState {
        CpuState {
            requests: Mutex::new(Requests {
                asked: 0,
                waiting: false,
                flush: None,
                serialize: false,
                held: None,
                on_behalf: None,
            }),
            served: AtomicU64::new(0),
            epoch: UnsafeCell::new(None),
            counters: Counters {
                shootdowns: AtomicU64::new(0),
                interrupts: AtomicU64::new(0),
                spared: AtomicU64::new(0),
                served: AtomicU64::new(0),
                local: AtomicU64::new(0),
            },
            stacks_seen: AtomicU64::new(0),
        }
    }

    /// Registers the processor with the epochs.
    ///
    /// # Safety
    /// Once, before anything else here, with nobody else referring to the structure.
    pub unsafe fn init(&self) {
        static COLLECTOR: Once<Collector> = Once::new();
        let collector = COLLECTOR.call_once(Collector::new);
        self.requests.lock().on_behalf = Some(collector.register());
        // SAFETY: the caller's promise.
        unsafe { *self.epoch.get() = Some(collector.register()) };
    }

    /// Shootdowns that this processor has served for others.
    pub fn served(&self) -> u64 {
        self.counters.served.load(Ordering::Relaxed)
    }
}

/// This processor's handle to the epochs.
#[inline]
pub(super) fn epoch() -> &'static LocalHandle {
    // SAFETY: written once, before its first use, and used by this processor only.
    let handle = unsafe { &*PerCpu::current().memory.epoch.get() };
    handle.as_ref().expect("registered when the processor was set up")
}

/// Hands what this processor has retired to those that may be able to free it, and frees what can be freed. Called before it idles and now and then.
pub fn flush_epoch() {
    // One processor alone hands over when it has enough: nobody else could free it.
    if arch::online() > 1 {
        epoch().pin().flush();
    }
}

/// Hands over what every processor has retired.
///
/// # Safety
/// All others have stopped for ever, outside anything that uses the epochs.
pub unsafe fn flush_epochs_of_all() {
    for cpu in PerCpu::all() {
        let mut requests = cpu.memory.requests.lock();
        requests.held = None;
        // SAFETY: the processor has stopped, so that its handle is nobody's.
        if let Some(handle) = unsafe { &*cpu.memory.epoch.get() } {
            handle.pin().flush();
        }
    }
}

/// Whether this processor is pinned.
pub fn is_epoch_pinned() -> bool {
    epoch().is_pinned()
}

/// What all processors have counted.
pub fn shootdowns() -> Shootdowns {
    let mut sum = Shootdowns::default();
    for cpu in PerCpu::all() {
        let counters = &cpu.memory.counters;
        sum.remote += counters.shootdowns.load(Ordering::Relaxed);
        sum.interrupts += counters.interrupts.load(Ordering::Relaxed);
        sum.spared += counters.spared.load(Ordering::Relaxed);
        sum.local += counters.local.load(Ordering::Relaxed);
    }
    sum
}

/// See [`foldspace::platform::Platform::shootdown`].
pub(super) fn shoot_down(space: SpaceId, flush: Flush) {
    let own = PerCpu::current();
    if own.active_space.load(Ordering::Relaxed) == space.0 {
        count(&own.memory.counters.local);
        forget(flush);
    }
    if arch::online() > 1 {
        shoot_down_others(own, space, flush);
    }
}

/// Processors to be waited for, with the numbers of the requests to them.
type Waiting = ArrayVec<(&'static PerCpu, u64), MAX_PROCESSORS>;

fn shoot_down_others(own: &PerCpu, space: SpaceId, flush: Flush) {
    // The tables were changed before this, and which roots are loaded is read after it.
    fence(Ordering::SeqCst);
    let mut waiting = Waiting::new();
    let mut reached = false;
    for cpu in own.others().filter(|cpu| cpu.active_space.load(Ordering::Relaxed) == space.0) {
        match request(cpu, Some(space), Wanted::Flush(flush)) {
            Outcome::Elsewhere => continue,
            Outcome::InKernel => count(&own.memory.counters.spared),
            Outcome::InUser(number) => {
                arch::kick(cpu);
                count(&own.memory.counters.interrupts);
                waiting.push((cpu, number));
            }
        }
        reached = true;
    }
    if reached {
        count(&own.memory.counters.shootdowns);
    }
    for (cpu, number) in waiting {
        wait_for(cpu, number);
    }
}

/// Where a request found a processor.
enum Outcome {
    /// It has loaded another root, and so forgotten everything.
    Elsewhere,
    /// It serves the request before it leaves the kernel.
    InKernel,
    /// It is to be interrupted, and waited for until it has served the request of this number.
    InUser(u64),
}

/// What a processor is asked for.
#[derive(Clone, Copy)]
enum Wanted {
    /// To forget translations.
    Flush(Flush),
    /// To come through the kernel once, which is a full barrier.
    Barrier,
    /// That, and to execute no instruction fetched before.
    Serialize,
}

/// Writes a request down: for a processor that runs `space`, if one is given.
fn request(cpu: &PerCpu, space: Option<SpaceId>, wanted: Wanted) -> Outcome {
    let mut requests = cpu.memory.requests.lock();
    let is_first = !requests.waiting;
    requests.waiting = true;
    match wanted {
        Wanted::Flush(flush) => {
            requests.flush = Some(requests.flush.take().map_or(flush, |other| both(other, flush)));
        }
        Wanted::Barrier => {}
        Wanted::Serialize => requests.serialize = true,
    }
    let in_user = cpu.mode.want_attention();
    if space.is_some_and(|space| cpu.active_space.load(Ordering::SeqCst) != space.0) {
        // It may have looked for requests already, and then would serve this one nobody knows when.
        if is_first {
            (requests.waiting, requests.flush, requests.serialize) = (false, None, false);
            cpu.mode.attended();
        }
        return Outcome::Elsewhere;
    }
    requests.asked += 1;
    if in_user {
        return Outcome::InUser(requests.asked);
    }
    if matches!(wanted, Wanted::Flush(_)) {
        requests.hold();
    }
    Outcome::InKernel
}

/// Which processors a memory barrier is for.
#[derive(Clone, Copy)]
pub enum Barrier {
    /// All.
    Everywhere,
    /// Those that run this address space.
    Within(SpaceId),
    /// The same, and instructions that were written are to be seen.
    WithinForCode(SpaceId),
}

/// Makes every processor that `barrier` is for execute a full barrier between the beginning of this call and its end, as far as programs can see (membarrier(2)).
///
/// One that is in the kernel does so on its way to user mode, and what its program did before it entered is seen by whoever sees that it has.
pub fn barrier(barrier: Barrier) {
    fence(Ordering::SeqCst);
    let own = PerCpu::current();
    let (space, wanted) = match barrier {
        Barrier::Everywhere => (None, Wanted::Barrier),
        Barrier::Within(space) => (Some(space), Wanted::Barrier),
        Barrier::WithinForCode(space) => (Some(space), Wanted::Serialize),
    };
    let mut waiting = Waiting::new();
    for cpu in own.others() {
        let concerned = space.is_none_or(|space| cpu.active_space.load(Ordering::SeqCst) == space.0);
        if concerned && let Outcome::InUser(number) = request(cpu, space, wanted) {
            arch::kick(cpu);
            waiting.push((cpu, number));
        }
    }
    for (cpu, number) in waiting {
        wait_for(cpu, number);
    }
    fence(Ordering::SeqCst);
}

impl Requests {
    /// Keeps what dies from now on until the request is served.
    fn hold(&mut self) {
        if self.held.is_none() {
            self.held = self.on_behalf.as_ref().map(LocalHandle::pin);
        }
    }
}

/// Waits until a processor that was in user mode has served a request, or has entered the kernel and will.
fn wait_for(cpu: &PerCpu, number: u64) {
    let memory = &cpu.memory;
    loop {
        if memory.served.load(Ordering::Acquire) >= number {
            return;
        }
        if !cpu.mode.is_user() {
            let mut requests = memory.requests.lock();
            if memory.served.load(Ordering::Acquire) < number {
                requests.hold();
            }
            return;
        }
        core::hint::spin_loop();
    }
}

/// Serves what others have asked this processor for.
#[cold]
pub fn serve() {
    let cpu = PerCpu::current();
    let memory = &cpu.memory;
    let mut requests = memory.requests.lock();
    cpu.mode.attended();
    requests.waiting = false;
    if let Some(flush) = requests.flush.take() {
        forget(flush);
        count(&memory.counters.served);
    }
    if core::mem::take(&mut requests.serialize) {
        // Intel SDM vol. 3, 9.3: CPUID serializes.
        core::arch::x86_64::__cpuid(0);
    }
    memory.served.store(requests.asked, Ordering::Release);
    requests.held = None;
}

/// One flush that does what both do.
fn both(one: Flush, other: Flush) -> Flush {
    match (one, other) {
        (Flush::Range(one), Flush::Range(other)) => {
            let (start, end) = (one.start().min(other.start()), one.end().max(other.end()));
            PageRange::new(start, end).map_or(Flush::All, Flush::Range)
        }
        _ => Flush::All,
    }
}

/// Forgets translations of this processor.
fn forget(flush: Flush) {
    match flush {
        Flush::Range(range) if range.pages() <= SINGLE_PAGES => {
            for page in 0..range.pages() {
                tlb::flush(VirtAddr::new(range.start().get() + page * PAGE_SIZE));
            }
        }
        Flush::Range(_) | Flush::All => tlb::flush_all(),
    }
}

/// One more. Only this processor counts.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}
