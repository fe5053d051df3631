//! The program's FS and GS base. While the kernel runs, FS base is still the program's, and its GS base is what `swapgs` put away.

use core::arch::asm;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, KernelGsBase};

use super::cpu::{Features, features};

/// FS base and GS base of a program.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SegmentBases {
    /// Where thread-local storage is.
    pub fs: u64,
    /// Unused by the C libraries.
    pub gs: u64,
}

impl SegmentBases {
    /// What is in the registers now: programs may change them without a system call where FSGSBASE is on.
    pub fn save() -> SegmentBases {
        SegmentBases { fs: read_fs(), gs: KernelGsBase::read().as_u64() }
    }

    /// Puts them into the registers. Both must be canonical.
    pub fn load(self) {
        write_fs(self.fs);
        KernelGsBase::write(VirtAddr::new_truncate(self.gs));
    }
}

fn read_fs() -> u64 {
    if features().contains(Features::FSGSBASE) {
        let base;
        // SAFETY: the processor has the instruction, and CR4 allows it.
        unsafe { asm!("rdfsbase {}", out(reg) base, options(nostack, nomem, preserves_flags)) };
        base
    } else {
        FsBase::read().as_u64()
    }
}

fn write_fs(base: u64) {
    let base = VirtAddr::new_truncate(base);
    if features().contains(Features::FSGSBASE) {
        // SAFETY: as in `read_fs`; the address is canonical; the kernel does not use FS.
        unsafe { asm!("wrfsbase {}", in(reg) base.as_u64(), options(nostack, nomem, preserves_flags)) };
    } else {
        FsBase::write(base);
    }
}
