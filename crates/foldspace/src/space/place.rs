//! Where new mappings go: Linux's `get_unmapped_area` (`mm/mmap.c`, `arch/x86/kernel/sys_x86_64.c`), top-down.

use super::{AddressSpace, Layout, Placement, STACK_GUARD_GAP};
use crate::addr::{Level, PAGE_SHIFT, PAGE_SIZE, PageRange, USER_END, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Backing, GapRequest, VersionRef, VmaFlags};

/// `MAP_32BIT` looks from here on,
const LOW_START: VirtAddr = VirtAddr(0x4000_0000);
/// and up to here.
const LOW_END: VirtAddr = VirtAddr(0x8000_0000);
/// Where the search starts upwards when there is no room below the mapping base (`TASK_UNMAPPED_BASE`).
const UPWARDS_START: VirtAddr = VirtAddr(USER_END.get() / 3).page_floor();

impl AddressSpace {
    /// Where [`AddressSpace::map`] would put the first `len` bytes (a multiple of the page size) of `backing` now. Changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`AddressSpace::map`] that are about the place.
    pub fn find_place(&self, placement: Placement, len: u64, backing: &Backing) -> Result<VirtAddr> {
        let layout = self.writer.lock();
        let guard = self.memory.pin();
        let search = Search::new(self, self.vmas.load(&guard), &layout, Wanted { backing, page_offset: 0, len });
        search.place(placement).map(PageRange::start)
    }
}

/// What room is searched for.
pub(super) struct Wanted<'b> {
    pub(super) backing: &'b Backing,
    /// First page of the backing.
    pub(super) page_offset: u64,
    /// Bytes.
    pub(super) len: u64,
}

/// A search for room for `len` bytes.
pub(super) struct Search<'t> {
    version: VersionRef<'t>,
    base: VirtAddr,
    lowest: VirtAddr,
    len: u64,
    /// What it begins at should be as far from a multiple of this
    align: u64,
    /// as this.
    offset: u64,
}

impl<'t> Search<'t> {
    /// Private memory of whole huge pages begins at one, unless asked for elsewhere: Linux does so whenever it is built for transparent huge pages,
    /// whether they are used or not (`__get_unmapped_area`, since 6.7). A file that says so, of which a whole huge page is mapped, is placed so that this could
    /// be one.
    pub(super) fn new(
        space: &AddressSpace,
        version: VersionRef<'t>,
        layout: &Layout,
        wanted: Wanted<'_>,
    ) -> Search<'t> {
        const HUGE: u64 = Level::L2.entry_span();
        let (len, mut offset) = (wanted.len, 0);
        let align = match wanted.backing {
            Backing::Object(object) if len >= HUGE && object.is_placed_by_tables() => {
                offset = (wanted.page_offset << PAGE_SHIFT) & (HUGE - 1);
                // Up to the first whole one, and that.
                if len >= (HUGE - offset) % HUGE + HUGE { HUGE } else { PAGE_SIZE }
            }
            backing if len % HUGE == 0 && !backing.has_offsets() => HUGE,
            _ => PAGE_SIZE,
        };
        Search { version, base: layout.mmap_base, lowest: space.memory.lowest_address(), len, align, offset }
    }

    /// The range that a mapping takes.
    pub(super) fn place(&self, placement: Placement) -> Result<PageRange> {
        let start = match placement {
            Placement::Fixed(addr) => return self.at(addr).ok_or(Error::BadRange),
            Placement::FixedNoReplace(addr) => {
                let range = self.at(addr).ok_or(Error::BadRange)?;
                return match self.version.range(range).next() {
                    None => Ok(range),
                    Some(_) => Err(Error::AlreadyMapped),
                };
            }
            Placement::Hint(hint) => {
                if let Some(range) = self.hinted(hint) {
                    return Ok(range);
                }
                self.highest(self.len)
            }
            Placement::Low(Some(hint)) => {
                if let Some(range) = self.hinted(hint).filter(|range| range.end() <= LOW_END) {
                    return Ok(range);
                }
                self.low(self.len)
            }
            Placement::Low(None) => self.aligned(|len| self.low(len)),
            Placement::Anywhere => self.aligned(|len| self.highest(len)),
        };
        start.and_then(|start| self.at(start)).ok_or(Error::NoRoom)
    }

    fn at(&self, addr: VirtAddr) -> Option<PageRange> {
        PageRange::from_len(addr, self.len)
    }

    /// What a hint asks for, if that is free.
    fn hinted(&self, hint: VirtAddr) -> Option<PageRange> {
        let range = hint.page_ceil().filter(|addr| *addr >= self.lowest).and_then(|addr| self.at(addr))?;
        let free = self.version.find_at_or_after(range.start()).is_none_or(|vma| {
            let guard = if vma.flags.contains(VmaFlags::GROWS_DOWN) { STACK_GUARD_GAP } else { 0 };
            vma.start().get().saturating_sub(guard) >= range.end().get()
        });
        free.then_some(range)
    }

    /// As `search` finds room, but aligned where there is room for that (`thp_get_unmapped_area_vmflags`: the search is for one huge page more, so
    /// a hole that fits exactly is not found).
    fn aligned(&self, search: impl Fn(u64) -> Option<VirtAddr>) -> Option<VirtAddr> {
        if self.align > PAGE_SIZE {
            if let Some(start) = search(self.len + self.align) {
                // Upwards, by a whole huge page if it happens to lie right.
                let up = self.offset.wrapping_sub(start.get()) & (self.align - 1);
                return Some(VirtAddr(start.get() + if up == 0 { self.align } else { up }));
            }
        }
        search(self.len)
    }

    fn gap(&self, low: VirtAddr, high: VirtAddr, len: u64) -> GapRequest {
        GapRequest { stack_guard: STACK_GUARD_GAP, ..GapRequest::new(low, high, len) }
    }

    fn highest(&self, len: u64) -> Option<VirtAddr> {
        let down = self.version.gap_top_down(&self.gap(self.lowest, self.base, len));
        down.or_else(|| self.version.gap_bottom_up(&self.gap(UPWARDS_START, USER_END, len)))
    }

    fn low(&self, len: u64) -> Option<VirtAddr> {
        self.version.gap_bottom_up(&self.gap(LOW_START, LOW_END, len))
    }
}
