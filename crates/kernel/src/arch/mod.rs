//! The processor and the few devices that the kernel itself needs.
//!
//! Interrupts are enabled only in user mode and in [`idle`](crate::sched); nothing preempts the kernel. Every entry from user mode
//! saves all registers in a [`UserContext`] at the top of the thread's kernel stack, vector registers included, because compiled
//! Rust uses them: what runs in the kernel may clobber anything, and what is in the context when the kernel is left is
//! what the program sees.

mod apic;
pub mod context;
pub mod cpu;
mod entry;
pub mod exceptions;
mod gdt;
mod memory_functions;
pub mod percpu;
mod port;
mod segment_base;
mod serial;

pub use apic::{XAPIC_BASE, init_timer, set_timer};
pub use context::{FpuState, TrapFrame, UserContext};
pub use entry::{ContextPointer, new_thread_entry, switch_context};
pub use exceptions::Exception;
pub use gdt::{USER_CODE, USER_DATA};
pub use percpu::PerCpu;
pub use port::{poweroff, read_cmos};
pub use segment_base::SegmentBases;
pub use serial::{Serial, anybody_reads_serial, poll_input, serial};

/// Brings this processor into the state that everything else assumes: features on, descriptor tables, `syscall` entry.
///
/// # Safety
/// Once per processor, before interrupts are enabled.
pub unsafe fn init_processor() {
    // SAFETY: the caller's promise.
    unsafe {
        let percpu = percpu::init_boot_processor();
        gdt::init(percpu);
        exceptions::init();
        cpu::enable_features();
        entry::init();
    }
}
