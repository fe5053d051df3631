//! Registers that hold a program's values while the kernel runs, which uses none of them: FS base, GS base (which `swapgs` has put away), and the
//! rights to protection keys (PKRU), which concern user pages only.

use core::arch::asm;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::{FsBase, KernelGsBase};

use super::cpu::{Features, features};

/// Those registers of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveRegisters {
    /// FS base: where thread-local storage is.
    pub fs: u64,
    /// GS base: unused by the C libraries.
    pub gs: u64,
    /// PKRU: two bits for each protection key, that its pages cannot be accessed, and that they cannot be written. Ignored by processors without keys.
    pub key_rights: u32,
}

/// What a program begins with, and a signal handler: memory with any key but the default cannot be accessed (Linux's `init_pkru_value`).
pub const FIRST_KEY_RIGHTS: u32 = 0x5555_5554;

impl Default for LiveRegisters {
    /// What a program begins with.
    fn default() -> LiveRegisters {
        LiveRegisters { fs: 0, gs: 0, key_rights: FIRST_KEY_RIGHTS }
    }
}

impl LiveRegisters {
    /// What is in the registers now: programs change them without a system call where they can.
    pub fn save() -> LiveRegisters {
        let features = features();
        let fs = if features.contains(Features::FSGSBASE) { read_fs() } else { FsBase::read().as_u64() };
        let key_rights =
            if features.contains(Features::PROTECTION_KEYS) { read_key_rights() } else { FIRST_KEY_RIGHTS };
        LiveRegisters { fs, gs: KernelGsBase::read().as_u64(), key_rights }
    }

    /// Puts them into the registers. Both bases must be canonical.
    pub fn load(self) {
        let (features, fs) = (features(), VirtAddr::new_truncate(self.fs));
        if features.contains(Features::FSGSBASE) {
            write_fs(fs);
        } else {
            FsBase::write(fs);
        }
        // Mostly the same for all, and to write it costs more than to look.
        if features.contains(Features::PROTECTION_KEYS) && read_key_rights() != self.key_rights {
            write_key_rights(self.key_rights);
        }
        KernelGsBase::write(VirtAddr::new_truncate(self.gs));
    }
}

/// The current program's rights to protection keys; `None` where there are no keys.
pub fn key_rights() -> Option<u32> {
    features().contains(Features::PROTECTION_KEYS).then(read_key_rights)
}

/// Sets them, where there are keys.
pub fn set_key_rights(rights: u32) {
    if features().contains(Features::PROTECTION_KEYS) {
        write_key_rights(rights);
    }
}

/// FSGSBASE is on.
fn read_fs() -> u64 {
    let base;
    // SAFETY: reads a register; the processor has the instruction, and CR4 allows it.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nostack, nomem, preserves_flags)) };
    base
}

/// FSGSBASE is on.
fn write_fs(base: VirtAddr) {
    // SAFETY: as in `read_fs`; the address is canonical; the kernel does not use FS.
    unsafe { asm!("wrfsbase {}", in(reg) base.as_u64(), options(nostack, nomem, preserves_flags)) };
}

/// PROTECTION_KEYS is on.
fn read_key_rights() -> u32 {
    let rights;
    // SAFETY: reads a register; CR4 allows it.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nostack, nomem, preserves_flags)) };
    rights
}

/// PROTECTION_KEYS is on.
fn write_key_rights(rights: u32) {
    // SAFETY: CR4 allows it; the kernel accesses no user pages by their addresses, so no access of its own depends on it.
    unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack, nomem, preserves_flags)) };
}
