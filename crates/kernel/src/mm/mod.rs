//! The kernel's own memory, and its side of the memory manager `foldspace`.
//!
//! ```text
//! 0000000000000000 ..  00007fffffffffff  programs: a tree of the manager per address space
//! ffff888000000000 .. +64 TiB            direct map: all RAM at its physical address
//! ffffc90000000000 .. +512 GiB           kernel stacks, a guard page below each
//! ffffffff80100000 ..                    the kernel's image
//! ```

pub mod frames;
mod heap;
pub mod kernel_map;
pub mod objects;
mod platform;
mod shootdown;
pub mod stack;
pub mod uaccess;

use foldspace::VirtAddr;
use foldspace::space::Access;

pub use frames::memory;
pub use heap::{
    heap_frames, idle_heap_frames, init_early as init_early_heap, init_reserve as init_heap_reserve, is_scarce,
    trim as trim_heap,
};
pub use platform::{is_loaded, kernel_root, load_kernel_map, load_kernel_space, load_space};
pub use shootdown::{
    Barrier, CpuState, barrier, flush_epoch, flush_epochs_of_all, is_epoch_pinned, serve as serve_shootdowns,
    shootdowns,
};

use crate::arch::exceptions::{FAULT_FETCH, FAULT_KEY, FAULT_USER, FAULT_WRITE};
use crate::sched;

/// Where physical address 0 is mapped.
pub const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// The root's entry for it.
pub const DIRECT_MAP_SLOT: usize = (DIRECT_MAP >> 39) as usize & 511;
/// What is added to the physical address of the kernel's image.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

unsafe extern "C" {
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_end: u8;
    static __image_end: u8;
}

/// Where parts of the kernel's image begin and end.
#[derive(Clone, Copy)]
pub struct Image {
    /// First byte of the code.
    pub text_start: u64,
    /// First byte of constants.
    pub text_end: u64,
    /// First byte of variables.
    pub rodata_end: u64,
    /// One past the last byte.
    pub end: u64,
}

/// The kernel's image.
pub fn image() -> Image {
    Image {
        text_start: &raw const __text_start as u64,
        text_end: &raw const __text_end as u64,
        rodata_end: &raw const __rodata_end as u64,
        end: &raw const __image_end as u64,
    }
}

/// Where RAM (or a device mapped at boot) at a physical address can be reached.
pub fn phys_to_virt(physical: u64) -> *mut u8 {
    (DIRECT_MAP + physical) as *mut u8
}

/// Whether an address lies in the kernel's code.
pub fn is_kernel_text(address: u64) -> bool {
    let image = image();
    (image.text_start..image.text_end).contains(&address)
}

/// Whether two words at `address` lie in a stack that the kernel runs on.
pub fn is_kernel_stack(address: u64) -> bool {
    let image = image();
    address.is_multiple_of(8)
        && ((image.rodata_end..image.end - 16).contains(&address) || stack::is_mapped_stack(address))
}

/// A page fault of a program, at `address`: true if the access may be tried again.
///
/// Not the program's own access if the processor says that it was a supervisor's (on a program's behalf it reads descriptor tables, which a program
/// has no business to make it fault on; QEMU 7.2 takes the stack of a program's `iret` for one, and would fault for ever).
pub fn resolve_user_fault(address: u64, error_code: u64) -> bool {
    if error_code & (FAULT_USER | FAULT_KEY) != FAULT_USER {
        return false;
    }
    let access = if error_code & FAULT_WRITE != 0 {
        Access::Write
    } else if error_code & FAULT_FETCH != 0 {
        Access::Execute
    } else {
        Access::Read
    };
    sched::with_space(|space| space.fault(VirtAddr(address), access).is_ok()).unwrap_or(false)
}
