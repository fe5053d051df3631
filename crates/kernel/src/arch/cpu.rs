//! Which features the processor has, and turning on those that the kernel wants.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use bitflags::bitflags;
use raw_cpuid::CpuId;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

use super::live_registers::{FIRST_KEY_RIGHTS, set_key_rights};

bitflags! {
    /// Features that are used where they exist.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Features: u8 {
        /// `rdfsbase` and its like.
        const FSGSBASE = 1;
        /// Pages of 1 GiB.
        const PAGES_1G = 1 << 1;
        /// `rdrand`.
        const RDRAND = 1 << 2;
        /// AVX registers.
        const AVX = 1 << 3;
        /// The local APIC has registers for 32-bit numbers of processors, and is in that mode.
        const X2APIC = 1 << 4;
        /// Protection keys of user pages, and PKRU.
        const PROTECTION_KEYS = 1 << 5;
    }
}

static FEATURES: AtomicU8 = AtomicU8::new(0);

/// Components of the vector state that are saved: x87, SSE, AVX. Bits that XCR0 lacks are ignored by the processor.
pub const XSTATE_MASK: u32 = 7;

/// What the first processor has (all are alike).
pub fn features() -> Features {
    Features::from_bits_truncate(FEATURES.load(Ordering::Relaxed))
}

/// Turns on what the processor has. XSAVE is indispensable (every x86-64 processor since 2008 has it).
///
/// # Safety
/// Once per processor, at boot, before user mode is entered.
///
/// # Panics
/// Without XSAVE.
pub unsafe fn enable_features() {
    let cpuid = CpuId::new();
    let basic = cpuid.get_feature_info().expect("CPUID leaf 1");
    let extended = cpuid.get_extended_feature_info();
    let amd = cpuid.get_extended_processor_and_feature_identifiers();
    assert!(basic.has_xsave(), "this processor has no XSAVE: use a newer one (QEMU: -cpu max)");

    let mut features = Features::empty();
    features.set(Features::RDRAND, basic.has_rdrand());
    features.set(Features::AVX, basic.has_avx());
    features.set(Features::X2APIC, basic.has_x2apic());
    features.set(Features::PAGES_1G, amd.is_some_and(|leaf| leaf.has_1gib_pages()));

    let mut cr4 = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION
        | Cr4Flags::OSFXSR
        | Cr4Flags::OSXMMEXCPT_ENABLE
        | Cr4Flags::OSXSAVE
        | Cr4Flags::PAGE_GLOBAL;
    if let Some(extended) = extended {
        features.set(Features::FSGSBASE, extended.has_fsgsbase());
        cr4.set(Cr4Flags::FSGSBASE, extended.has_fsgsbase());
        cr4.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, extended.has_smep());
        cr4.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, extended.has_smap());
        cr4.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, extended.has_umip());
        features.set(Features::PROTECTION_KEYS, extended.has_pku());
        cr4.set(Cr4Flags::PROTECTION_KEY_USER, extended.has_pku());
    }
    // SAFETY: each bit is set only if CPUID has the feature; nothing that runs depends on one being clear. The boot tables'
    // identity mapping is supervisor-only, so SMEP and SMAP do not concern it.
    unsafe { Cr4::write(cr4) };
    let mut xcr0 = XCr0Flags::X87 | XCr0Flags::SSE;
    xcr0.set(XCr0Flags::AVX, basic.has_avx());
    xcr0.set(XCr0Flags::MPK, features.contains(Features::PROTECTION_KEYS));
    // SAFETY: OSXSAVE is on, and what is set has just been found there.
    unsafe { XCr0::write(xcr0) };
    FEATURES.store(features.bits(), Ordering::Relaxed);
    set_key_rights(FIRST_KEY_RIGHTS);
}

/// Components of the state that programs find in signal frames, as bits of XCR0.
pub fn xfeatures() -> u64 {
    XCr0::read().bits()
}

/// Component of the rights to protection keys in an XSAVE area, as a bit of its header, and the bytes that it takes: the first four are PKRU.
pub const KEY_RIGHTS_COMPONENT: u64 = 1 << 9;
pub const KEY_RIGHTS_SIZE: usize = 8;

/// Where PKRU is in an XSAVE area of the standard format; `None` without protection keys.
pub fn key_rights_offset() -> Option<usize> {
    /// Bit of XCR0.
    const PKRU: u32 = 9;
    /// `CPUID` takes its time, in virtual machines above all. 0: not asked yet.
    static OFFSET: AtomicU32 = AtomicU32::new(0);
    if !features().contains(Features::PROTECTION_KEYS) {
        return None;
    }
    if OFFSET.load(Ordering::Relaxed) == 0 {
        let state = CpuId::new().get_extended_state_info()?;
        let offset = state.iter().find(|component| component.subleaf == PKRU)?.offset();
        OFFSET.store(offset, Ordering::Relaxed);
    }
    Some(OFFSET.load(Ordering::Relaxed) as usize)
}

/// Whether programs may read the time stamp counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// They may.
    Readable,
    /// It is a general protection fault.
    Refused,
}

/// Says whether the program that this processor runs may read the time stamp counter.
pub fn set_counter(counter: Counter) {
    let mut flags = Cr4::read();
    flags.set(Cr4Flags::TIMESTAMP_DISABLE, counter == Counter::Refused);
    // SAFETY: the bit concerns user mode only.
    unsafe { Cr4::write(flags) };
}

/// What was said last, for whoever ran here then.
pub fn counter() -> Counter {
    if Cr4::read().contains(Cr4Flags::TIMESTAMP_DISABLE) { Counter::Refused } else { Counter::Readable }
}
