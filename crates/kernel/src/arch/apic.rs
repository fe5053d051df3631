//! The local APIC: its timer, as one-shot alarm, and interrupts from one processor to another.

use core::sync::atomic::{AtomicU64, Ordering};

use raw_cpuid::CpuId;
use x2apic::lapic::{LocalApic, LocalApicBuilder, TimerDivide, TimerMode};

use super::PerCpu;
use super::cpu::{Features, features};
use super::exceptions::{ERROR_VECTOR, KICK_VECTOR, SPURIOUS_VECTOR, TIMER_VECTOR};
use super::port::mask_legacy_interrupts;
use crate::mm;

/// Where the registers are unless the firmware moved them, which QEMU's does not.
pub const XAPIC_BASE: u64 = 0xfee0_0000;

/// Timer ticks per second, with divisor 1, of every processor.
static FREQUENCY: AtomicU64 = AtomicU64::new(0);

fn local() -> &'static mut LocalApic {
    // SAFETY: interrupts are off in the kernel, so nothing else on this processor uses it now, and others have their own.
    let local = unsafe { &mut *PerCpu::current().apic.get() };
    local.as_mut().expect("the local APIC is set up at boot")
}

/// What this processor is called before its local APIC is set up.
pub(super) fn initial_id() -> u32 {
    CpuId::new().get_feature_info().map_or(0, |info| u32::from(info.initial_local_apic_id()))
}

/// Enables the local APIC of this processor.
///
/// # Safety
/// Once per processor, after the registers were mapped and the IDT loaded.
pub unsafe fn init() {
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
    // SAFETY: the IDT has these vectors; the cell is this processor's own.
    unsafe {
        apic.enable();
        *PerCpu::current().apic.get() = Some(apic);
    }
}

/// Enables the first processor's local APIC; the timer's frequency is measured by `measure`, which gets a function that reads the free-running counter
/// (downwards) and returns ticks per second.
///
/// # Safety
/// Once, at boot, after the registers were mapped and the IDT loaded.
pub unsafe fn init_timer(measure: impl FnOnce(&dyn Fn() -> u32) -> u64) {
    // SAFETY: boot. The timer counts down from the largest value, which takes seconds; the interrupt is held off by IF until `set_timer`
    // has replaced the count.
    unsafe {
        mask_legacy_interrupts();
        init();
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

/// Interrupts another processor, so that it comes through the kernel (or out of its idle sleep).
pub fn kick(cpu: &PerCpu) {
    send(cpu.apic_id, |apic, destination| {
        // SAFETY: the vector has its handler on every processor.
        unsafe { apic.send_ipi(KICK_VECTOR, destination) };
    });
}

/// Stops another processor at once, wherever it is, for ever. It is an NMI, which nothing holds off; see `exceptions`.
pub(super) fn send_nmi(cpu: &PerCpu) {
    send(cpu.apic_id, |apic, destination| {
        // SAFETY: the handler stops the processor.
        unsafe { apic.send_nmi(destination) };
    });
}

/// Resets a processor that has not been started and makes it run the code in `page` (below 1 MiB, by its number), in real mode. `wait` waits so many microseconds.
///
/// # Safety
/// The page holds such code; the processor is not in use.
pub unsafe fn start_processor(apic_id: u32, page: u8, wait: impl Fn(u64)) {
    // INIT, then SIPI twice (Intel SDM vol. 3, 10.4.4). The pauses of 10 ms and 200 µs there are for processors of the last century: Linux makes none
    // of the first and 10 µs of the second on all since (`smp_quirk_init_udelay`).
    // SAFETY: the caller's promise.
    send(apic_id, |apic, destination| unsafe { apic.send_init_ipi(destination) });
    for _ in 0..2 {
        wait(10);
        // SAFETY: as above. A processor that runs already ignores the second.
        send(apic_id, |apic, destination| unsafe { apic.send_sipi(page, destination) });
    }
}

/// Uses the command register when it is free, with the destination in the form that it takes.
fn send(apic_id: u32, command: impl FnOnce(&mut LocalApic, u32)) {
    let apic = local();
    command(apic, if features().contains(Features::X2APIC) { apic_id } else { apic_id << 24 });
    // SAFETY: reads a register. (In x2APIC mode the bit reads as zero.)
    while unsafe { apic.get_ipi_delivery_status() } {
        core::hint::spin_loop();
    }
}
