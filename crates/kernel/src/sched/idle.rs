//! What a processor does when nothing is ready, and its timer.

use core::arch::asm;

use super::run::{end_slice, run_ready};
use super::{SLICE_NS, timer};
use crate::arch::{self, PerCpu};
use crate::fs::tty;
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
    loop {
        run_ready();
        let now = monotonic_ns();
        let longest = if arch::anybody_reads_serial() || tty::any_controlling() { SLICE_NS } else { LONGEST_NS };
        arm(now, now + longest);
        // SAFETY: the handler returns here; it may clobber what a C function may, and more on the stack, which this context has. `sti` takes effect after
        // `hlt` has begun, so no interrupt is missed between them.
        unsafe { asm!("sti", "hlt", "cli", clobber_abi("C")) };
    }
}

/// The timer's interrupt.
pub fn timer_tick(place: TickIn) {
    let now = monotonic_ns();
    timer::expire(now);
    arch::poll_input();
    tty::poll_controlling();
    if place == TickIn::User {
        end_slice();
        arm(now, now + SLICE_NS);
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
