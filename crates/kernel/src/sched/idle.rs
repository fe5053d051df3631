//! What a processor does when nothing is ready, and its timer.

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::run::{end_slice, find_work, run, with_current};
use super::{SLICE_NS, place, timer};
use crate::arch::{self, PerCpu};
use crate::fs::tty;
use crate::mm;
use crate::process::timer::cpu;
use crate::time::monotonic_ns;

/// Where the timer interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TickIn {
    /// A program.
    User,
    /// Idle.
    Idle,
}

/// Longest sleep without a look at the timers: well within the range of the local APIC's counter.
const LONGEST_NS: u64 = 1_000_000_000;

/// The processor's own context: runs threads while there are any, else waits for an interrupt.
pub fn idle() -> ! {
    let percpu = PerCpu::current();
    loop {
        if let Some(task) = find_work(percpu) {
            run(task);
            continue;
        }
        mm::flush_epoch();
        arch::park_if_told();
        place::going_to_sleep(percpu);
        if let Some(task) = find_work(percpu) {
            place::awake(percpu);
            run(task);
            continue;
        }
        let now = monotonic_ns();
        arm(now, now + if polls(percpu) { SLICE_NS } else { LONGEST_NS });
        // SAFETY: the handler returns here; it may clobber what a C function may, and more on the stack, which this context has. `sti` takes effect after
        // `hlt` has begun, so no interrupt is missed between them.
        unsafe { asm!("sti", "hlt", "cli", clobber_abi("C")) };
        place::awake(percpu);
    }
}

/// The timer's interrupt.
pub fn timer_tick(place: TickIn) {
    let now = monotonic_ns();
    let percpu = PerCpu::current();
    percpu.sched.count_tick();
    timer::expire(now);
    if polls(percpu) {
        arch::poll_input();
        tty::poll_controlling();
    }
    if place == TickIn::User {
        mm::flush_epoch();
        with_current(cpu::tick);
        end_slice();
        arm(now, now + SLICE_NS);
    }
}

/// Nobody looks for input.
const NOBODY: usize = usize::MAX;

/// The processor that looks for input, which interrupts nobody: the first that finds that somebody waits for some.
static POLLER: AtomicUsize = AtomicUsize::new(NOBODY);

/// Whether this processor is to look for input every [`SLICE_NS`].
fn polls(percpu: &PerCpu) -> bool {
    let own = percpu.number;
    let wanted = arch::anybody_reads_serial() || tty::any_controlling();
    match (POLLER.load(Ordering::Relaxed), wanted) {
        (NOBODY, true) => POLLER.compare_exchange(NOBODY, own, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
        (poller, true) => poller == own,
        (poller, false) => {
            if poller == own {
                POLLER.store(NOBODY, Ordering::Relaxed);
            }
            false
        }
    }
}

/// Makes sure that the timer ends a thread's slice in time.
pub(super) fn arm_for_thread() {
    let now = monotonic_ns();
    let alarm = PerCpu::current().sched.alarm.get();
    if alarm <= now || alarm > now + SLICE_NS {
        arm(now, now + SLICE_NS);
    }
}

/// Makes the timer interrupt at `deadline` if it would later.
pub(super) fn arm_no_later_than(deadline: u64) {
    let alarm = &PerCpu::current().sched.alarm;
    if deadline < alarm.get() {
        alarm.set(deadline);
        arch::set_timer(deadline.saturating_sub(monotonic_ns()));
    }
}

/// Sets the timer to the first of `latest` and what sleepers asked for.
fn arm(now: u64, latest: u64) {
    let alarm = timer::first_deadline().map_or(latest, |deadline| deadline.min(latest));
    PerCpu::current().sched.alarm.set(alarm);
    arch::set_timer(alarm.saturating_sub(now));
}
