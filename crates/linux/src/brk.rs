//! brk.

use foldspace::VirtAddr;

use crate::caller::Caller;

/// brk(2) as the kernel has it: moves the end of the heap if that can be, and says where it is then. It never fails.
pub fn brk(caller: &impl Caller, end: u64) -> u64 {
    caller.space().brk(VirtAddr(end)).get()
}
