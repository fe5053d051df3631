//! Layouts that make sense for a process of x86-64 Linux.

use foldspace::VirtAddr;
use foldspace::space::{KeySet, Layout};
use foldspace::vma::VmaFlags;

/// Ready-made [`Layout`]s.
pub struct Layouts;

impl Layouts {
    /// What exec gives a static, non-PIE program with Linux's defaults and no randomization: code at 4 MiB, the heap right behind the data, the stack at
    /// the top of the user half, mappings downwards from 8 MiB plus the stack guard gap below it; no limits but the stack's 8 MiB.
    pub fn process() -> Layout {
        Layout {
            mmap_base: VirtAddr(0x7fff_f77f_f000),
            start_brk: VirtAddr(0x60_0000),
            brk: VirtAddr(0x60_0000),
            start_stack: VirtAddr(0x7fff_ffff_dff0),
            code: (VirtAddr(0x40_0000), VirtAddr(0x50_0000)),
            data: (VirtAddr(0x50_0000), VirtAddr(0x60_0000)),
            args: (VirtAddr(0), VirtAddr(0)),
            env: (VirtAddr(0), VirtAddr(0)),
            stack_limit: 8 << 20,
            data_limit: u64::MAX,
            data_limit_hard: u64::MAX,
            address_space_limit: u64::MAX,
            lock_limit: u64::MAX,
            future_lock: VmaFlags::empty(),
            keys: KeySet::DEFAULT,
        }
    }
}
