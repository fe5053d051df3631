//! What each processor has of its own, reached through its GS base.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::{GsBase, KernelGsBase};
use x86_64::structures::gdt::GlobalDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

use crate::sched;

/// One processor's data. Offsets of the first fields are used by `entry`.
#[repr(C)]
pub struct PerCpu {
    /// Its own address: `mov rax, gs:[0]` makes a pointer of the base.
    this: *const PerCpu,
    /// Top of the current thread's kernel stack.
    pub(super) kernel_stack: UnsafeCell<u64>,
    /// User stack pointer between the first two instructions of a system call.
    pub(super) user_stack: UnsafeCell<u64>,
    /// The current thread's [`sched::Thread::work`], never null.
    pub(super) work: UnsafeCell<*const core::sync::atomic::AtomicU32>,
    /// Top of the stack for exceptions in the kernel.
    pub(super) exception_stack: UnsafeCell<u64>,
    /// What the kernel's MXCSR is to be.
    pub(super) mxcsr: u32,
    /// Small number of this processor.
    pub number: usize,
    /// Identifies the address space whose root is in CR3; `u64::MAX` for the kernel's own.
    pub active_space: AtomicU64,
    /// Run queue, current and previous thread.
    pub sched: sched::CpuState,
    pub(super) tss: UnsafeCell<TaskStateSegment>,
    pub(super) gdt: UnsafeCell<GlobalDescriptorTable<16>>,
}

// SAFETY: the cells are written only by the processor that owns the structure, with interrupts off.
unsafe impl Sync for PerCpu {}

/// Offsets for assembly.
pub(super) const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
pub(super) const USER_STACK: usize = offset_of!(PerCpu, user_stack);
pub(super) const WORK: usize = offset_of!(PerCpu, work);
pub(super) const EXCEPTION_STACK: usize = offset_of!(PerCpu, exception_stack);
pub(super) const MXCSR: usize = offset_of!(PerCpu, mxcsr);

/// MXCSR at reset: all exceptions masked, round to nearest.
const MXCSR_DEFAULT: u32 = 0x1f80;

static NO_WORK: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);

impl PerCpu {
    /// The structure of processor `number`, to be installed by [`PerCpu::install`].
    const fn new(number: usize) -> PerCpu {
        PerCpu {
            this: core::ptr::null(),
            kernel_stack: UnsafeCell::new(0),
            user_stack: UnsafeCell::new(0),
            work: UnsafeCell::new(&raw const NO_WORK),
            exception_stack: UnsafeCell::new(0),
            mxcsr: MXCSR_DEFAULT,
            number,
            active_space: AtomicU64::new(u64::MAX),
            sched: sched::CpuState::new(),
            tss: UnsafeCell::new(TaskStateSegment::new()),
            gdt: UnsafeCell::new(GlobalDescriptorTable::empty()),
        }
    }

    /// The processor that runs this.
    #[inline(always)]
    pub fn current() -> &'static PerCpu {
        let this: *const PerCpu;
        // SAFETY: GS base points to this processor's structure from boot on, and its first word to itself.
        unsafe { asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly)) };
        // SAFETY: the structure lives for ever and is changed through cells and atomics only.
        unsafe { &*this }
    }

    /// Makes a thread's kernel stack and work word those that entries from user mode use.
    ///
    /// # Safety
    /// Both stay valid until the next call on this processor; `stack_top` is the end of a stack with a
    /// [`super::UserContext`] at its top.
    pub unsafe fn set_thread(&self, stack_top: u64, work: *const core::sync::atomic::AtomicU32) {
        // SAFETY: only this processor writes its cells, and interrupts are off in the kernel.
        unsafe {
            *self.kernel_stack.get() = stack_top;
            *self.work.get() = work;
            (*self.tss.get()).privilege_stack_table[0] = VirtAddr::new(stack_top);
        }
    }

    /// Between threads: no work word but the shared empty one.
    pub fn clear_thread(&self) {
        // SAFETY: as in `set_thread`.
        unsafe { *self.work.get() = &raw const NO_WORK };
    }
}

/// Sets up the boot processor's structure and GS base.
///
/// # Safety
/// Once, at boot.
pub(super) unsafe fn init_boot_processor() -> &'static PerCpu {
    static mut BOOT: PerCpu = PerCpu::new(0);
    let boot = &raw mut BOOT;
    // SAFETY: called once, so nobody else refers to it yet.
    unsafe { (*boot).this = boot };
    GsBase::write(VirtAddr::from_ptr(boot));
    KernelGsBase::write(VirtAddr::zero());
    // SAFETY: from now on only shared.
    unsafe { &*boot }
}
