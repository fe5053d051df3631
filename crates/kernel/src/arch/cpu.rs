//! Which features the processor has, and turning on those that the kernel wants.

use core::sync::atomic::{AtomicU8, Ordering};

use bitflags::bitflags;
use raw_cpuid::CpuId;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

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
    }
    // SAFETY: each bit is set only if CPUID has the feature; nothing that runs depends on one being clear. The boot tables'
    // identity mapping is supervisor-only, so SMEP and SMAP do not concern it.
    unsafe { Cr4::write(cr4) };
    let mut xcr0 = XCr0Flags::X87 | XCr0Flags::SSE;
    xcr0.set(XCr0Flags::AVX, basic.has_avx());
    // SAFETY: OSXSAVE is on, and AVX only goes with processors that have it.
    unsafe { XCr0::write(xcr0) };
    FEATURES.store(features.bits(), Ordering::Relaxed);
}

/// Components of the vector state that XSAVE saves here, as bits of XCR0.
pub fn xfeatures() -> u64 {
    XCr0::read().bits()
}
