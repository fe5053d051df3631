//! mmap: new mappings. Costs the tree's nodes; memory comes with the faults.

use crossbeam_epoch::Guard;

use super::change::whole_pages;
use super::{AddressSpace, Layout, MAX_MAP_COUNT, MapRequest, Placement, STACK_GUARD_GAP, retry_after_reclaim};
use crate::addr::{PAGE_SIZE, PageRange, USER_END, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{GapRequest, VersionRef, Vma};

/// Addresses below are not given out unless asked for by address (`vm.mmap_min_addr`).
const LOWEST: VirtAddr = VirtAddr(0x1_0000);

impl AddressSpace {
    /// Maps `request` and returns its address. O(log VMAs), more only where it replaces something.
    ///
    /// # Errors
    ///
    /// - [`Error::BadRange`]: no length, or a fixed address that is misaligned or leaves the user half.
    /// - [`Error::AlreadyMapped`]: [`Placement::FixedNoReplace`], and something is there.
    /// - [`Error::NoRoom`]: no gap, or over [`Layout::address_space_limit`].
    /// - [`Error::TooManyVmas`], [`Error::OutOfMemory`].
    pub fn map(&self, request: MapRequest) -> Result<VirtAddr> {
        let len = whole_pages(request.len)?;
        retry_after_reclaim(&self.memory, |guard| self.map_locked(guard, &self.writer.lock(), &request, len))
    }

    /// As [`AddressSpace::map`], for who holds the writers' lock.
    pub(super) fn map_locked(
        &self,
        guard: &Guard,
        layout: &Layout,
        request: &MapRequest,
        len: u64,
    ) -> Result<VirtAddr> {
        let version = self.vmas.load(guard);
        let range = place(version, layout, request.placement, len)?;
        let totals = version.summary().totals;
        if totals.vmas as u64 > MAX_MAP_COUNT {
            return Err(Error::TooManyVmas);
        }
        let replaced: u64 = match request.placement {
            Placement::Fixed(_) => {
                version.range(range).filter_map(|vma| vma.range.intersect(range)).map(|part| part.pages()).sum()
            }
            _ => 0,
        };
        let after = (totals.pages.total - replaced).saturating_mul(PAGE_SIZE).saturating_add(len);
        if after > layout.address_space_limit {
            return Err(Error::NoRoom);
        }
        let vma = Vma {
            range,
            flags: request.flags,
            page_offset: request.page_offset,
            backing: request.backing.clone(),
            name: None,
        };
        self.replace(guard, range, Some(vma))?;
        Ok(range.start())
    }
}

/// Where a mapping of `len` bytes goes.
fn place(version: VersionRef<'_>, layout: &Layout, placement: Placement, len: u64) -> Result<PageRange> {
    let at = |addr: VirtAddr| PageRange::from_len(addr, len);
    let is_free = |range: &PageRange| {
        version.find_at_or_after(range.start()).is_none_or(|vma| {
            let guard = if vma.flags.contains(crate::vma::VmaFlags::GROWS_DOWN) { STACK_GUARD_GAP } else { 0 };
            vma.start().get().saturating_sub(guard) >= range.end().get()
        })
    };
    let gap =
        |low: VirtAddr, high: VirtAddr| GapRequest { stack_guard: STACK_GUARD_GAP, ..GapRequest::new(low, high, len) };
    let anywhere = || {
        version
            .gap_top_down(&gap(LOWEST, layout.mmap_base))
            .or_else(|| version.gap_bottom_up(&gap(VirtAddr(USER_END.get() / 3).page_floor(), USER_END)))
    };
    let start = match placement {
        Placement::Fixed(addr) => return at(addr).ok_or(Error::BadRange),
        Placement::FixedNoReplace(addr) => {
            let range = at(addr).ok_or(Error::BadRange)?;
            return match version.range(range).next() {
                None => Ok(range),
                Some(_) => Err(Error::AlreadyMapped),
            };
        }
        Placement::Hint(addr) => {
            if let Some(range) = addr.page_ceil().filter(|addr| *addr >= LOWEST).and_then(at)
                && is_free(&range)
            {
                return Ok(range);
            }
            anywhere()
        }
        Placement::Low => version.gap_bottom_up(&gap(VirtAddr(0x4000_0000), VirtAddr(0x8000_0000))),
        Placement::Anywhere => anywhere(),
    };
    start.and_then(at).ok_or(Error::NoRoom)
}
