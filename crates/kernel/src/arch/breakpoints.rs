//! Breakpoints of the processor: four addresses at which it stops a program (Intel SDM vol. 3, chapter 17).
//!
//! They belong to a thread, and are loaded when it next goes to user mode after a switch. Whoever runs on that processor later does not take them out
//! (most threads have none, and a switch is to cost them nothing): if it comes by one of these addresses, it is stopped, nobody is found who wanted that, and then they are off. The
//! kernel uses no user addresses, so none of its own accesses can be stopped at.

use core::arch::asm;

use x86_64::registers::debug::{DebugAddressRegister, Dr0, Dr1, Dr2, Dr3, Dr6, Dr7};

/// How many there are.
pub const COUNT: usize = 4;

/// Bit of the status: the trap flag stopped the program.
pub const STATUS_STEP: u64 = 1 << 14;
/// Bits of the status: the breakpoints that stopped it.
pub const STATUS_HIT: u64 = 0xf;
/// What DR6 holds after a reset.
const STATUS_IDLE: u64 = 0xffff_0ff0;
/// The bit of DR7 that is always one.
const CONTROL_FIXED: u64 = 1 << 10;
/// Bits of DR7 that concern more than the breakpoints of a program (Linux's `DR_CONTROL_RESERVED`).
const CONTROL_RESERVED: u64 = 0xffff_ffff_0000_fc00;

/// A thread's breakpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// DR0 to DR3, addresses of the user half.
    pub addresses: [u64; COUNT],
    /// What stopped it last: [`STATUS_STEP`], [`STATUS_HIT`]; or what its tracer has put there.
    pub status: u64,
    /// DR7: which are on, for what accesses and how many bytes. Bits that concern more than that have no effect.
    pub control: u64,
}

impl Breakpoints {
    /// Whether breakpoint `index` is on.
    pub fn is_on(&self, index: usize) -> bool {
        self.control >> (2 * index) & 3 != 0
    }

    /// Those that are on, as bits.
    pub fn on(&self) -> u64 {
        (0..COUNT).filter(|&index| self.is_on(index)).fold(0, |bits, index| bits | 1 << index)
    }

    /// Whether breakpoint `index` is for execution.
    pub fn is_for_execution(&self, index: usize) -> bool {
        self.control >> (16 + 4 * index) & 3 == 0
    }

    /// Puts them into this processor's registers.
    pub fn load(&self) {
        let [first, second, third, fourth] = self.addresses;
        Dr0::write(first);
        Dr1::write(second);
        Dr2::write(third);
        Dr3::write(fourth);
        Dr7::write_raw(self.control & !CONTROL_RESERVED | CONTROL_FIXED);
    }
}

/// Switches this processor's breakpoints off.
pub fn switch_off() {
    Dr7::write_raw(CONTROL_FIXED);
}

/// What has stopped the program, which this processor forgets: it never clears it by itself.
pub fn take_status() -> u64 {
    let status = Dr6::read_raw() & (STATUS_STEP | STATUS_HIT);
    // SAFETY: the register only reports.
    unsafe { asm!("mov dr6, {}", in(reg) STATUS_IDLE, options(nomem, nostack, preserves_flags)) };
    status
}
