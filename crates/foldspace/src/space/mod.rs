//! skeleton: Address spaces: one operation a file.
use crate::addr::{PageRange, VirtAddr};
use crate::error::Result;
use crate::frame::{Frame, Memory};
use crate::platform::SpaceId;
use crate::vma::{Backing, VmaFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Linux's default for `vm.max_map_count`.
pub const MAX_MAP_COUNT: u64 = 65_530;

/// Where a new mapping is to go.
#[derive(Clone, Copy, Debug)]
pub enum Placement {
    /// Highest gap below the mapping base.
    Anywhere,
    /// There (rounded up to a page), if it is free, else anywhere.
    Hint(VirtAddr),
    /// There; what is mapped there goes away (MAP_FIXED).
    Fixed(VirtAddr),
    /// There, or [`crate::Error::AlreadyMapped`] (MAP_FIXED_NOREPLACE).
    FixedNoReplace(VirtAddr),
    /// Lowest gap in the first 2 GiB (MAP_32BIT).
    Low,
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
#[derive(Clone, Copy, Debug, Default)]
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
    /// RLIMIT_DATA for brk, bytes.
    pub data_limit: u64,
    /// RLIMIT_AS, bytes.
    pub address_space_limit: u64,
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
    /// No VMA there (SIGSEGV, SEGV_MAPERR).
    NotMapped,
    /// The VMA does not allow it (SIGSEGV, SEGV_ACCERR).
    AccessDenied,
    /// Past the end of the object (SIGBUS, BUS_ADRERR).
    PastEnd,
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

/// An address space: a page table and the VMAs that say what belongs in it.
pub struct AddressSpace {}

impl AddressSpace {
    /// An empty one.
    pub fn new(memory: &Arc<Memory>, layout: Layout) -> Result<AddressSpace> {
        let _ = (memory, layout);
        todo!()
    }
    /// Its name to the platform.
    pub fn id(&self) -> SpaceId {
        todo!()
    }
    /// The frame of its root table: what CR3 is loaded with.
    pub fn root(&self) -> Frame {
        todo!()
    }
    /// Addresses with a meaning.
    pub fn layout(&self) -> Layout {
        todo!()
    }
    /// Changes them (exec, limits).
    pub fn update_layout(&self, change: impl FnOnce(&mut Layout)) {
        let _ = change;
        todo!()
    }
    /// mmap: returns the address.
    pub fn map(&self, request: MapRequest) -> Result<VirtAddr> {
        let _ = request;
        todo!()
    }
    /// munmap. Holes are fine.
    pub fn unmap(&self, range: PageRange) -> Result<()> {
        let _ = range;
        todo!()
    }
    /// mprotect: `access` is a subset of READ, WRITE, EXEC.
    pub fn protect(&self, range: PageRange, access: VmaFlags) -> Result<()> {
        let _ = (range, access);
        todo!()
    }
    /// brk: moves the end of the heap if that can be; returns where it is now.
    pub fn brk(&self, end: VirtAddr) -> VirtAddr {
        let _ = end;
        todo!()
    }
    /// Resolves a page fault: afterwards the access succeeds (or faults again, harmlessly).
    pub fn fault(&self, addr: VirtAddr, access: Access) -> core::result::Result<(), Fault> {
        let _ = (addr, access);
        todo!()
    }
    /// An address space with the same content, in constant time in mode [`ForkMode::Full`].
    pub fn fork(&self) -> Result<AddressSpace> {
        todo!()
    }
    /// The mode of the next fork; inherited by children.
    pub fn fork_mode(&self) -> ForkMode {
        todo!()
    }
    /// Sets it.
    pub fn set_fork_mode(&self, mode: ForkMode) {
        let _ = mode;
        todo!()
    }
    /// Unmaps everything. Dropping the address space does this too.
    pub fn clear(&self) {
        todo!()
    }
    /// Copies bytes out, faulting pages in as a load would. Returns how many came before the first that could not be read.
    pub fn read(&self, from: VirtAddr, out: &mut [u8]) -> usize {
        let _ = (from, out);
        todo!()
    }
    /// Copies bytes in, faulting pages in as a store would. Returns how many.
    pub fn write(&self, to: VirtAddr, bytes: &[u8]) -> usize {
        let _ = (to, bytes);
        todo!()
    }
    /// Like [`AddressSpace::write`], where the VMA need not be writable (loading a program's read-only segments).
    pub fn write_forced(&self, to: VirtAddr, bytes: &[u8]) -> usize {
        let _ = (to, bytes);
        todo!()
    }
    /// Sizes now.
    pub fn usage(&self) -> Usage {
        todo!()
    }
    /// What `/proc/PID/maps` shows, of one instant: see [`crate::proc::Maps`].
    pub fn maps(&self) -> crate::proc::Maps {
        todo!()
    }
    /// Appends the memory lines of `/proc/PID/status` (VmPeak … VmSwap), each with its newline.
    pub fn status_lines(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }
}
