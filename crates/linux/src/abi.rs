//! Numbers of the ABI (`asm-generic/mman.h`, `linux/mman.h` and x86's `asm/mman.h`), as wide as the registers that carry them: some calls look at all 64 bits.

use linux_raw_sys::general as raw;

macro_rules! wide {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: u64 = raw::$name as u64;
        )*
    };
}

wide! {
    PROT_NONE PROT_READ PROT_WRITE PROT_EXEC PROT_SEM PROT_GROWSDOWN PROT_GROWSUP
    MAP_TYPE MAP_SHARED MAP_PRIVATE MAP_SHARED_VALIDATE MAP_DROPPABLE MAP_FIXED MAP_ANONYMOUS MAP_32BIT MAP_ABOVE4G MAP_GROWSDOWN MAP_DENYWRITE
    MAP_EXECUTABLE MAP_LOCKED MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_STACK MAP_HUGETLB MAP_SYNC MAP_FIXED_NOREPLACE
    MREMAP_MAYMOVE MREMAP_FIXED MREMAP_DONTUNMAP
    MCL_CURRENT MCL_FUTURE MCL_ONFAULT MLOCK_ONFAULT
    MS_ASYNC MS_INVALIDATE MS_SYNC
}

/// Ours: the mapping shows, over and over, the page whose address is in place of the offset, until it is written. Linux ignores the bit.
pub const MAP_REFPAGE: u64 = 0x20_0000;
/// Where the size of a huge page is in the flags of `mmap`, as a logarithm.
pub const MAP_HUGE_SHIFT: u32 = 26;
/// How wide it is.
pub const MAP_HUGE_MASK: u64 = 0x3f;
/// Flags of `mmap` that are older than `MAP_SHARED_VALIDATE` (`LEGACY_MAP_MASK` in `linux/mman.h`). `MAP_HUGE_2MB` and `MAP_HUGE_1GB` are among them.
pub const LEGACY_MAP_MASK: u64 = MAP_SHARED
    | MAP_PRIVATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_32BIT
    | MAP_ABOVE4G
    | (21 << MAP_HUGE_SHIFT)
    | (30 << MAP_HUGE_SHIFT);
