//! What the memory manager asks of the machine: shootdowns and epochs. And loading CR3.

use core::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::Guard;
use foldspace::AddressSpace;
use foldspace::platform::{Flush, Platform, SpaceId};
use x86_64::registers::control::Cr3;

use super::kernel_map::KernelMap;
use super::shootdown;
use crate::arch::PerCpu;

/// No address space has this number.
const KERNEL_SPACE: u64 = u64::MAX;

/// CR3 of the kernel's own root, which maps nothing in the user half.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Bare metal.
pub(super) struct Machine;

// SAFETY: a translation of a space can be cached only by a processor that has the space's root in CR3, since loading CR3 drops them all and no
// entry of the user half is global; those processors have forgotten it, or will before they use it (see `shootdown`). All guards are of one collector.
unsafe impl Platform for Machine {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        shootdown::shoot_down(space, flush);
    }

    fn pin(&self) -> Guard {
        shootdown::epoch().pin()
    }

    /// A reader on another processor is not preempted, so a short while is enough for it to end; one on this processor is the caller.
    fn wait_for_readers(&self, attempt: u32) -> bool {
        /// Turns of the loop, some tens of microseconds.
        const TURNS: u32 = 10_000;
        const ATTEMPTS: u32 = 10;
        if crate::arch::online() == 1 || attempt > ATTEMPTS {
            return false;
        }
        for _ in 0..TURNS {
            core::hint::spin_loop();
        }
        true
    }

    fn processor(&self) -> usize {
        PerCpu::current().number
    }
}

/// Makes the kernel run on its own tables.
///
/// # Safety
/// They map everything that the kernel uses.
pub unsafe fn load_kernel_map(map: KernelMap) {
    KERNEL_ROOT.store(map.root(), Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { write_cr3(map.root()) };
    // The boot tables had no global entries, and were all dropped by that.
}

/// Makes this processor run in an address space, which must stay alive until another is loaded.
#[inline]
pub fn load_space(space: &AddressSpace) {
    let cpu = PerCpu::current();
    let id = space.id().0;
    if cpu.active_space.load(Ordering::Relaxed) != id {
        switch(cpu, id, space.root().address());
    }
}

/// Makes this processor run in the kernel's own address space: the one before may go away.
pub fn load_kernel_space() {
    let cpu = PerCpu::current();
    if cpu.active_space.load(Ordering::Relaxed) != KERNEL_SPACE {
        switch(cpu, KERNEL_SPACE, KERNEL_ROOT.load(Ordering::Relaxed));
    }
}

/// Whether this processor runs in an address space; in the kernel's own if `None`.
pub fn is_loaded(space: Option<&AddressSpace>) -> bool {
    PerCpu::current().active_space.load(Ordering::Relaxed) == space.map_or(KERNEL_SPACE, |space| space.id().0)
}

/// Announces which root is about to be loaded, loads it, and looks for requests that came before: see `shootdown`.
fn switch(cpu: &PerCpu, space: u64, root: u64) {
    cpu.active_space.swap(space, Ordering::SeqCst);
    // SAFETY: every root has the kernel's entries.
    unsafe { write_cr3(root) };
    if cpu.mode.wants_attention() {
        shootdown::serve();
    }
}

/// Physical address of the kernel's own root.
pub fn kernel_root() -> u64 {
    KERNEL_ROOT.load(Ordering::Relaxed)
}

/// # Safety
/// `root` is the physical address of a root with the kernel's entries.
unsafe fn write_cr3(root: u64) {
    use x86_64::PhysAddr;
    use x86_64::registers::control::Cr3Flags;
    use x86_64::structures::paging::PhysFrame;
    let frame = PhysFrame::containing_address(PhysAddr::new(root));
    // SAFETY: the caller's promise.
    unsafe { Cr3::write(frame, Cr3Flags::empty()) };
}
