//! The one [`Memory`] that holds all frames, and the kernel's entries in every root.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;
use core::ptr::NonNull;

use foldspace::Memory;
use foldspace::frame::MemoryConfig;
use spin::Once;

use super::phys_to_virt;
use super::platform::Machine;
use crate::arch::cpu::{self, Features};

static MEMORY: Once<Arc<Memory>> = Once::new();

/// All frames of the machine.
///
/// # Panics
/// Before [`init`].
pub fn memory() -> &'static Arc<Memory> {
    MEMORY.get().expect("frames are handed over at boot")
}

/// The same, `None` early at boot.
pub fn memory_if_ready() -> Option<&'static Arc<Memory>> {
    MEMORY.get()
}

/// Hands the frames over to the manager.
///
/// # Safety
/// `usable` are frames that the direct map maps and nobody uses; `kernel_entries` are the kernel's own mappings.
pub unsafe fn init(usable: &[Range<u32>], kernel_entries: &[(usize, u64)]) {
    let direct_map = NonNull::new(phys_to_virt(0)).expect("the direct map is not at 0");
    let config = MemoryConfig { direct_map, usable, kernel_entries, platform: Box::new(Machine) };
    // SAFETY: the caller's promise.
    let memory = unsafe { Memory::new(config) }.expect("the machine has too little memory for the kernel");
    if cpu::features().contains(Features::PROTECTION_KEYS) {
        memory.set_protection_keys();
    }
    MEMORY.call_once(|| memory);
}
