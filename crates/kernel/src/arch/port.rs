//! Small devices behind I/O ports.

use x86_64::instructions::port::Port;

/// Where QEMU's isa-debug-exit listens; it exits with status `2 * value + 1`.
const DEBUG_EXIT: u16 = 0xf4;

/// Index and data port of the clock chip.
const CMOS: u16 = 0x70;

/// Ends the machine through QEMU's isa-debug-exit; without one, stops for ever.
pub fn poweroff(code: u32) -> ! {
    // SAFETY: nothing else listens at this port.
    unsafe { Port::<u32>::new(DEBUG_EXIT).write(code) };
    super::halt()
}

/// One register of the clock chip (MC146818).
pub fn read_cmos(register: u8) -> u8 {
    // SAFETY: the chip's ports; reading its registers changes nothing that the kernel relies on. Bit 7 of the index masks NMIs:
    // left clear, they are not masked.
    unsafe {
        Port::<u8>::new(CMOS).write(register & 0x7f);
        Port::<u8>::new(CMOS + 1).read()
    }
}

/// Masks both legacy interrupt controllers: only the local APIC interrupts.
///
/// # Safety
/// Before interrupts are enabled.
pub unsafe fn mask_legacy_interrupts() {
    // SAFETY: the mask registers of a PC's two 8259s; the caller's promise.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}
