//! Where a thread that has become ready runs.
//!
//! On the processor that it ran on last if that idles, else on another one that does, else it waits its turn where it ran last. A processor
//! without work takes what waits elsewhere before it sleeps.
//!
//! **No thread waits while a processor that may run it sleeps.** A processor that is about to sleep first says so ([`IDLE`]), then looks at all
//! queues; whoever queues a thread queues it first, then looks who sleeps, and wakes one. Interrupts are off until the sleep has begun, so a
//! kick that comes before it ends it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use super::run::{preempt_current, try_with_current};
use crate::arch::{self, PerCpu};
use crate::process::Task;

/// The processors that sleep or are about to, as bits.
static IDLE: AtomicU64 = AtomicU64::new(0);

/// Puts a task that is ready into a queue, and sees that somebody runs it soon.
pub(super) fn enqueue(task: Arc<Task>) {
    let own = PerCpu::current();
    let thread = &task.thread;
    if thread.rank().priority() != 0 {
        return enqueue_urgent(own, task);
    }
    if arch::online() == 1 {
        return own.sched.push(task);
    }
    enqueue_anywhere(own, task);
}

/// The same of a real-time thread: somebody less urgent is to make place for it at once.
#[cold]
fn enqueue_urgent(own: &PerCpu, task: Arc<Task>) {
    let allowed = task.thread.affinity.load(Ordering::Relaxed);
    if arch::online() == 1 {
        own.sched.push(task);
    } else {
        enqueue_anywhere(own, task);
        // Each finds out by itself whether it is more urgent than what runs there.
        for cpu in own.others().filter(|cpu| allowed & 1 << cpu.number != 0 && cpu.mode.is_user()) {
            kick(cpu);
        }
    }
    try_with_current(|current| preempt_current(own, current));
}

/// Takes a real-time thread from another processor's queue that is more urgent than `than`, the most urgent there.
pub(super) fn take_more_urgent(own: &PerCpu, than: u8) -> Option<Arc<Task>> {
    let urgency = |cpu: &&PerCpu| cpu.sched.urgency_for(own.number);
    let from = own.others().max_by_key(urgency)?;
    from.sched.take_urgent_for(own.number, than)
}

/// The highest priority of the real-time threads that wait elsewhere and could run on this processor; 0 for none.
pub(super) fn urgency_for(own: &PerCpu) -> u8 {
    own.others().map(|cpu| cpu.sched.urgency_for(own.number)).max().unwrap_or(0)
}

fn enqueue_anywhere(own: &PerCpu, task: Arc<Task>) {
    let thread = &task.thread;
    let allowed = thread.affinity.load(Ordering::Relaxed);
    let last = thread.cpu.load(Ordering::Relaxed);
    if thread.on_cpu.load(Ordering::Acquire) {
        // Only that processor may touch it until it has switched to another.
        if let Some(cpu) = PerCpu::get(last) {
            cpu.sched.push(task);
            return wake_sleeper(1 << last, allowed);
        }
    }
    let sleeper = claim_idle(allowed & 1 << last).or_else(|| claim_idle(allowed));
    let number = sleeper.unwrap_or_else(|| match allowed {
        _ if allowed & 1 << last != 0 => last,
        _ if allowed & 1 << own.number != 0 => own.number,
        // The first; at least one exists.
        _ => allowed.trailing_zeros() as usize,
    });
    let cpu = PerCpu::get(number).unwrap_or(own);
    cpu.sched.push(task);
    match sleeper {
        Some(_) if number != own.number => kick(cpu),
        Some(_) => {}
        // One that went to sleep meanwhile has looked at the queues too early.
        None => wake_sleeper(1 << number, allowed),
    }
}

/// Wakes a processor that sleeps, if one does, so that it looks at the queues: the first choice, or one of the others.
fn wake_sleeper(first: u64, others: u64) {
    if let Some(sleeper) = claim_idle(first).or_else(|| claim_idle(others)).and_then(PerCpu::get) {
        kick(sleeper);
    }
}

/// A thread that waits in this processor's queue can now be taken by one of `allowed`.
pub(super) fn offer(allowed: u64) {
    if IDLE.load(Ordering::Relaxed) & allowed != 0 {
        wake_sleeper(0, allowed);
    }
}

/// One of `candidates` that sleeps, which is not taken for asleep any more.
fn claim_idle(candidates: u64) -> Option<usize> {
    loop {
        let sleeping = IDLE.load(Ordering::SeqCst) & candidates;
        if sleeping == 0 {
            return None;
        }
        let number = sleeping.trailing_zeros() as usize;
        if IDLE.fetch_and(!(1 << number), Ordering::SeqCst) & 1 << number != 0 {
            return Some(number);
        }
    }
}

/// Says that this processor is about to sleep. It looks for work once more after this.
pub(super) fn going_to_sleep(cpu: &PerCpu) {
    IDLE.fetch_or(1 << cpu.number, Ordering::SeqCst);
}

/// Says that this processor is awake.
pub(super) fn awake(cpu: &PerCpu) {
    let bit = 1 << cpu.number;
    if IDLE.load(Ordering::Relaxed) & bit != 0 {
        IDLE.fetch_and(!bit, Ordering::SeqCst);
    }
}

/// Takes a task from another processor's queue.
pub(super) fn steal(cpu: &PerCpu) -> Option<Arc<Task>> {
    let count = arch::online();
    let after = (1..count).map(|distance| (cpu.number + distance) % count);
    after.filter_map(PerCpu::get).find_map(|other| other.sched.steal_for(cpu.number))
}

/// Interrupts a processor so that it looks at its queue and at its thread's work word.
pub(super) fn kick(cpu: &PerCpu) {
    cpu.sched.count_kick();
    arch::kick(cpu);
}
