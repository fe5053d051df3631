//! mmap: new mappings. Costs the tree's nodes; memory comes with the faults.

use crossbeam_epoch::Guard;

use super::change::whole_pages;
use super::place::Search;
use super::{AddressSpace, Layout, MAX_MAP_COUNT, MapRequest, Placement, retry_after_reclaim};
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Backing, Vma, VmaFlags};

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
        let range = Search::new(self, version, layout, &request.backing, len).place(request.placement)?;
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
        let mut flags = request.flags.difference(VmaFlags::OBJECT);
        if let Backing::Object(object) = &request.backing {
            object.note_mapped();
            flags |= VmaFlags::OBJECT;
        }
        let vma = Vma { range, flags, page_offset: request.page_offset, backing: request.backing.clone(), name: None };
        self.replace(guard, range, Some(vma))?;
        Ok(range.start())
    }
}
