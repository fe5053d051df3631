//! What the memory manager asks of the machine: shootdowns and epochs. And loading CR3.

use core::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use foldspace::AddressSpace;
use foldspace::addr::PAGE_SIZE;
use foldspace::platform::{Flush, Platform, SpaceId};
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::tlb;
use x86_64::registers::control::Cr3;

use super::kernel_map::KernelMap;
use crate::arch::PerCpu;

/// No address space has this number.
const KERNEL_SPACE: u64 = u64::MAX;

/// Pages up to which each is invalidated by itself; beyond, everything is (Linux's `tlb_single_page_flush_ceiling`).
const SINGLE_PAGES: u64 = 33;

/// CR3 of the kernel's own root, which maps nothing in the user half.
static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);

/// Bare metal.
pub(super) struct Machine;

// SAFETY: a translation of a space can be cached only by a processor that has the space's root in CR3, since loading CR3 drops them all and no
// entry of the user half is global; there is one processor, and it invalidates what it is told to. All guards are of one collector.
unsafe impl Platform for Machine {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        if PerCpu::current().active_space.load(Ordering::Relaxed) != space.0 {
            return;
        }
        match flush {
            Flush::Range(range) if range.pages() <= SINGLE_PAGES => {
                for page in 0..range.pages() {
                    tlb::flush(VirtAddr::new(range.start().get() + page * PAGE_SIZE));
                }
            }
            Flush::Range(_) | Flush::All => tlb::flush_all(),
        }
    }

    fn pin(&self) -> Guard {
        epoch_handle().pin()
    }

    fn processor(&self) -> usize {
        PerCpu::current().number
    }
}

/// This processor's handle to the epochs.
fn epoch_handle() -> &'static LocalHandle {
    /// One processor's handle.
    struct Handle(LocalHandle);
    // SAFETY: used only by the processor that registered it; the kernel is not preempted.
    unsafe impl Sync for Handle {}
    // SAFETY: as above.
    unsafe impl Send for Handle {}

    static COLLECTOR: Once<Collector> = Once::new();
    static BOOT_HANDLE: Once<Handle> = Once::new();
    &BOOT_HANDLE.call_once(|| Handle(COLLECTOR.call_once(Collector::new).register())).0
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
    let active = &PerCpu::current().active_space;
    let id = space.id().0;
    if active.load(Ordering::Relaxed) == id {
        return;
    }
    active.store(id, Ordering::Relaxed);
    // SAFETY: every root has the kernel's entries.
    unsafe { write_cr3(space.root().address()) };
}

/// Makes this processor run in the kernel's own address space: the one before may go away.
pub fn load_kernel_space() {
    let active = &PerCpu::current().active_space;
    if active.swap(KERNEL_SPACE, Ordering::Relaxed) != KERNEL_SPACE {
        // SAFETY: the kernel's own root.
        unsafe { write_cr3(KERNEL_ROOT.load(Ordering::Relaxed)) };
    }
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
