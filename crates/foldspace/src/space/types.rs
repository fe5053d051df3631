//! What goes in and out of the operations of an address space.

use super::{KeySet, Watched};
use crate::addr::VirtAddr;
use crate::vma::{Backing, VmaFlags, Watcher};

/// Linux's default for `vm.max_map_count`.
pub const MAX_MAP_COUNT: u64 = 65_530;

/// Bytes that are kept free below an area that grows down (Linux's `stack_guard_gap`, 256 pages).
pub const STACK_GUARD_GAP: u64 = 256 * crate::addr::PAGE_SIZE;

/// Where a new mapping is to go.
#[derive(Clone, Copy, Debug)]
pub enum Placement {
    /// Highest gap below the mapping base. Private memory of whole 2 MiB pages begins at a multiple of that where there is room.
    Anywhere,
    /// There (rounded up to a page), if it is free, else anywhere.
    Hint(VirtAddr),
    /// There; what is mapped there goes away (MAP_FIXED).
    Fixed(VirtAddr),
    /// There, or [`crate::Error::AlreadyMapped`] (MAP_FIXED_NOREPLACE).
    FixedNoReplace(VirtAddr),
    /// There, if it is free and in the first 2 GiB, else the lowest gap of the second GiB (MAP_32BIT).
    Low(Option<VirtAddr>),
}

/// A mapping to be made.
#[derive(Clone, Debug)]
pub struct MapRequest {
    /// Where.
    pub placement: Placement,
    /// Bytes; rounded up to pages.
    pub len: u64,
    /// Permissions and behaviour.
    pub flags: VmaFlags,
    /// What it shows.
    pub backing: Backing,
    /// Page of the backing at which it starts.
    pub page_offset: u64,
}

/// Addresses with a meaning of their own, set by exec, read by /proc, brk and the search for gaps. Fork copies them.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Gaps are searched downwards from here.
    pub mmap_base: VirtAddr,
    /// First address of the heap.
    pub start_brk: VirtAddr,
    /// Current end of the heap (not page aligned).
    pub brk: VirtAddr,
    /// Initial stack pointer: the VMA that holds it is `[stack]`.
    pub start_stack: VirtAddr,
    /// First byte of the program's code, and one past its last.
    pub code: (VirtAddr, VirtAddr),
    /// First byte of its data, and one past the last.
    pub data: (VirtAddr, VirtAddr),
    /// Argument strings on the stack (start, end): /proc/PID/cmdline.
    pub args: (VirtAddr, VirtAddr),
    /// Environment strings on the stack (start, end).
    pub env: (VirtAddr, VirtAddr),
    /// RLIMIT_STACK, bytes: how far a GROWS_DOWN area may grow.
    pub stack_limit: u64,
    /// RLIMIT_DATA, bytes: private writable memory, and the heap together with the program's data.
    pub data_limit: u64,
    /// The hard limit to it. It counts for private writable memory where `data_limit` is 0, as on Linux, for Valgrind's sake.
    pub data_limit_hard: u64,
    /// RLIMIT_AS, bytes.
    pub address_space_limit: u64,
    /// RLIMIT_MEMLOCK, bytes; `u64::MAX` for who may lock as much as he likes (CAP_IPC_LOCK).
    pub lock_limit: u64,
    /// What new mappings get beside what they ask for: LOCKED and LOCK_ON_FAULT, after mlockall(MCL_FUTURE). Not inherited by fork.
    pub future_lock: VmaFlags,
    /// The protection keys that the program has.
    pub keys: KeySet,
}

impl Default for Layout {
    /// No addresses, and no limits.
    fn default() -> Layout {
        const ZERO: VirtAddr = VirtAddr(0);
        Layout {
            mmap_base: ZERO,
            start_brk: ZERO,
            brk: ZERO,
            start_stack: ZERO,
            code: (ZERO, ZERO),
            data: (ZERO, ZERO),
            args: (ZERO, ZERO),
            env: (ZERO, ZERO),
            stack_limit: u64::MAX,
            data_limit: u64::MAX,
            data_limit_hard: u64::MAX,
            address_space_limit: u64::MAX,
            lock_limit: u64::MAX,
            future_lock: VmaFlags::empty(),
            keys: KeySet::DEFAULT,
        }
    }
}

/// How fork copies page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ForkMode {
    /// Every table is copied at fork, as Linux does.
    Copy = 0,
    /// Last-level tables are shared (the COW PTE series).
    Leaf = 1,
    /// Everything below the root is shared.
    Full = 2,
}

/// An access that faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Instruction fetch.
    Execute,
}

/// Why a fault could not be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No VMA there, or a guard (SIGSEGV, SEGV_MAPERR).
    NotMapped,
    /// The VMA does not allow it (SIGSEGV, SEGV_ACCERR).
    AccessDenied,
    /// Past the end of the object (SIGBUS, BUS_ADRERR).
    PastEnd,
    /// The VMA is watched, and the page is its watcher's to supply ([`super::AddressSpace::watch`]).
    Watched {
        /// Whose.
        watcher: Watcher,
        /// What the page lacks.
        kind: Watched,
    },
    /// The memory that held the page has failed (SIGBUS, BUS_MCEERR_AR).
    Poisoned,
    /// No frame left (SIGKILL by the out-of-memory killer on Linux).
    OutOfMemory,
}

/// Sizes in pages unless said otherwise, derived by a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// All VMAs.
    pub mapped: u64,
    /// Largest that `mapped` has been.
    pub mapped_peak: u64,
    /// mlocked VMAs.
    pub locked: u64,
    /// Private writable, not stack.
    pub data: u64,
    /// Stack.
    pub stack: u64,
    /// Executable and not writable.
    pub executable: u64,
    /// Largest resident size that anyone has asked for so far.
    pub resident_peak: u64,
    /// Resident: private anonymous.
    pub resident_anon: u64,
    /// Resident: of files.
    pub resident_file: u64,
    /// Resident: shared anonymous memory.
    pub resident_shared: u64,
    /// Page-table frames reachable from the root, the root included, tables owned by backings excluded.
    pub tables: u64,
    /// Of `tables`, those that no other address space shares.
    pub tables_exclusive: u64,
}
