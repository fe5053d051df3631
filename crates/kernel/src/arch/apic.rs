//! The local APIC: its timer, as one-shot alarm.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::Once;
use x2apic::lapic::{LocalApic, LocalApicBuilder, TimerDivide, TimerMode};

use super::exceptions::{ERROR_VECTOR, SPURIOUS_VECTOR, TIMER_VECTOR};
use super::port::mask_legacy_interrupts;
use crate::mm;

/// Where the registers are unless the firmware moved them, which QEMU's does not.
pub const XAPIC_BASE: u64 = 0xfee0_0000;

/// The local APIC of this processor. Its registers are at the same address on each, so that one object serves all.
struct Local(UnsafeCell<LocalApic>);

// SAFETY: what differs between processors is behind the registers; the object itself does not change after `init_timer`.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

static LOCAL: Once<Local> = Once::new();

/// Timer ticks per second, with divisor 1.
static FREQUENCY: AtomicU64 = AtomicU64::new(0);

fn local() -> &'static mut LocalApic {
    let local = LOCAL.get().expect("the local APIC is set up at boot");
    // SAFETY: interrupts are off in the kernel, so nothing else on this processor uses it now.
    unsafe { &mut *local.0.get() }
}

/// Enables the local APIC; the timer's frequency is measured by `measure`, which gets a function that reads the free-running counter
/// (downwards) and returns ticks per second.
///
/// # Safety
/// Once, at boot, after the registers were mapped and the IDT loaded.
pub unsafe fn init_timer(measure: impl FnOnce(&dyn Fn() -> u32) -> u64) {
    LOCAL.call_once(|| {
        // SAFETY: boot.
        unsafe { mask_legacy_interrupts() };
        let mut apic = LocalApicBuilder::new()
            .timer_vector(TIMER_VECTOR.into())
            .error_vector(ERROR_VECTOR.into())
            .spurious_vector(SPURIOUS_VECTOR.into())
            .timer_mode(TimerMode::OneShot)
            .timer_divide(TimerDivide::Div1)
            .timer_initial(0)
            .set_xapic_base(mm::phys_to_virt(XAPIC_BASE) as u64)
            .build()
            .expect("all vectors are given");
        // SAFETY: the IDT has these vectors.
        unsafe { apic.enable() };
        Local(UnsafeCell::new(apic))
    });
    // SAFETY: it counts down from the largest value, which takes seconds; the interrupt is held off by IF until `set_timer`
    // has replaced the count.
    unsafe {
        local().set_timer_initial(u32::MAX);
        FREQUENCY.store(measure(&|| local().timer_current()), Ordering::Relaxed);
        local().set_timer_initial(0);
    }
}

/// Interrupts this processor once, in `nanos` (as near as the counter can, at most some seconds; never in less than a microsecond).
/// Replaces what was set before.
pub fn set_timer(nanos: u64) {
    let ticks = u128::from(nanos.max(1000)) * u128::from(FREQUENCY.load(Ordering::Relaxed)) / 1_000_000_000;
    let ticks = u32::try_from(ticks).unwrap_or(u32::MAX).max(1);
    // SAFETY: the vector has its handler.
    unsafe { local().set_timer_initial(ticks) };
}

/// Ends the handling of an interrupt: the next may come.
pub fn ack_interrupt() {
    // SAFETY: called once per interrupt, from its handler.
    unsafe { local().end_of_interrupt() };
}
