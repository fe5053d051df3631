//! Addresses, page ranges, levels and indices as types: a number of one kind is never taken for another.

use core::fmt;

/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page and in a frame.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Entries in a table of any level.
pub const ENTRIES: usize = 512;
/// First address above the user half that a program may map: Linux's `TASK_SIZE_MAX` for four-level tables
/// (`arch/x86/include/asm/page_64.h`): the last page below the hole is left out.
pub const USER_END: VirtAddr = VirtAddr(0x7fff_ffff_f000);

/// A virtual address. Any value: whether it is mapped, aligned or canonical is for the operation to say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(pub u64);

impl VirtAddr {
    /// The address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// Rounded down to its page's first byte.
    pub const fn page_floor(self) -> VirtAddr {
        VirtAddr(self.0 & !(PAGE_SIZE - 1))
    }
    /// Rounded up to a page boundary; `None` if that wraps.
    pub const fn page_ceil(self) -> Option<VirtAddr> {
        match self.0.checked_add(PAGE_SIZE - 1) {
            Some(sum) => Some(VirtAddr(sum & !(PAGE_SIZE - 1))),
            None => None,
        }
    }
    /// Whether it is a page's first byte.
    pub const fn is_page_aligned(self) -> bool {
        self.0 & (PAGE_SIZE - 1) == 0
    }
    /// Offset within its page, in bytes.
    pub const fn page_offset(self) -> usize {
        (self.0 & (PAGE_SIZE - 1)) as usize
    }
    /// The entry that translates this address in a table of `level`.
    pub const fn index(self, level: Level) -> Index {
        Index(((self.0 >> level.entry_shift()) & 0x1ff) as u16)
    }
    /// `self + bytes`; `None` if that wraps.
    pub const fn checked_add(self, bytes: u64) -> Option<VirtAddr> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(VirtAddr(sum)),
            None => None,
        }
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A level of the page table: the level of a table says what its entries refer to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum Level {
    /// Last level: entries refer to data frames; a table spans 2 MiB.
    L1 = 1,
    /// A table spans 1 GiB.
    L2 = 2,
    /// A table spans 512 GiB.
    L3 = 3,
    /// The root.
    L4 = 4,
}

impl Level {
    /// Bits below the part of an address that picks an entry at this level.
    pub const fn entry_shift(self) -> u32 {
        PAGE_SHIFT + 9 * (self as u32 - 1)
    }
    /// Bytes that one entry of a table of this level spans.
    pub const fn entry_span(self) -> u64 {
        1 << self.entry_shift()
    }
    /// Bytes that a whole table of this level spans.
    pub const fn table_span(self) -> u64 {
        1 << (self.entry_shift() + 9)
    }
    /// The level below; `None` below [`Level::L1`], whose entries refer to data.
    pub const fn below(self) -> Option<Level> {
        match self {
            Level::L1 => None,
            Level::L2 => Some(Level::L1),
            Level::L3 => Some(Level::L2),
            Level::L4 => Some(Level::L3),
        }
    }
}

/// Index of an entry in a table: below [`ENTRIES`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Index(u16);

impl Index {
    /// `None` unless `index < 512`.
    pub const fn new(index: usize) -> Option<Index> {
        if index < ENTRIES { Some(Index(index as u16)) } else { None }
    }
    /// As a number below 512.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
    /// Every index, upwards.
    pub fn all() -> impl Iterator<Item = Index> {
        (0..ENTRIES as u16).map(Index)
    }
    /// From the low nine bits of a number.
    #[inline]
    pub(crate) const fn truncate(bits: u64) -> Index {
        Index((bits & 0x1ff) as u16)
    }
}

/// Page-aligned addresses `start..end`, not empty, below or at [`USER_END`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageRange {
    start: VirtAddr,
    end: VirtAddr,
}

impl PageRange {
    /// `None` unless both ends are page aligned, `start < end` and `end <= USER_END`.
    pub const fn new(start: VirtAddr, end: VirtAddr) -> Option<PageRange> {
        if start.is_page_aligned() && end.is_page_aligned() && start.0 < end.0 && end.0 <= USER_END.0 {
            Some(PageRange { start, end })
        } else {
            None
        }
    }
    /// `bytes` from `start`; the length is not rounded.
    pub const fn from_len(start: VirtAddr, bytes: u64) -> Option<PageRange> {
        match start.checked_add(bytes) {
            Some(end) => PageRange::new(start, end),
            None => None,
        }
    }
    /// The page that holds `addr`; `None` above the user half.
    pub const fn page_of(addr: VirtAddr) -> Option<PageRange> {
        PageRange::from_len(addr.page_floor(), PAGE_SIZE)
    }
    /// First byte.
    pub const fn start(self) -> VirtAddr {
        self.start
    }
    /// One past the last byte.
    pub const fn end(self) -> VirtAddr {
        self.end
    }
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u64 {
        self.end.0 - self.start.0
    }
    /// Length in pages.
    pub const fn pages(self) -> u64 {
        self.len() >> PAGE_SHIFT
    }
    /// Whether `addr` lies inside.
    pub const fn contains(self, addr: VirtAddr) -> bool {
        self.start.0 <= addr.0 && addr.0 < self.end.0
    }
    /// What both have in common.
    pub fn intersect(self, other: PageRange) -> Option<PageRange> {
        PageRange::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.start.0, self.end.0)
    }
}
