//! mmap: new mappings. Costs the tree's nodes; memory comes with the faults.

use crossbeam_epoch::Guard;

use super::change::whole_pages;
use super::limits::{is_accountable, may_expand, may_lock};
use super::lock::LOCK;
use super::place::{Search, Wanted};
use super::{AddressSpace, Layout, MapRequest, Placement, retry_after_reclaim};
use crate::addr::{PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Overcommit;
use crate::vma::{Backing, Tag, Vma, VmaFlags};

impl AddressSpace {
    /// Maps `request` and returns its address. O(log VMAs), more only where it replaces something.
    ///
    /// # Errors
    ///
    /// - [`Error::BadRange`]: no length, or a fixed address that is misaligned or leaves the user half.
    /// - [`Error::AlreadyMapped`]: [`Placement::FixedNoReplace`], and something is there.
    /// - [`Error::NoRoom`]: no gap, or over [`Layout::address_space_limit`] or, with private writable memory, [`Layout::data_limit`].
    /// - [`Error::LockLimit`]: it would be locked, and that is over [`Layout::lock_limit`].
    /// - [`Error::Sealed`]: [`Placement::Fixed`], and something sealed is there.
    /// - [`Error::CommitLimit`]: private writable memory counts as committed, unless NO_RESERVE is asked for.
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
        let (totals, max_vmas) = (version.summary().totals, self.memory.max_map_count());
        if totals.vmas as u64 > max_vmas {
            return Err(Error::TooManyVmas);
        }
        let wanted = Wanted { backing: &request.backing, page_offset: request.page_offset, len };
        let range = Search::new(self, version, layout, wanted).place(request.placement)?;
        let mut flags = self.new_flags(layout, request.flags.difference(VmaFlags::FILE));
        let pages = range.pages();
        // Also of what cannot be locked.
        may_lock(layout, &totals.pages, flags | layout.future_lock, pages)?;
        let mut replaced = 0;
        if matches!(request.placement, Placement::Fixed(_)) {
            let splits = |vma: &Vma| vma.start() < range.start() && range.end() < vma.end();
            if totals.vmas as u64 == max_vmas && version.find(range.start()).is_some_and(splits) {
                return Err(Error::TooManyVmas);
            }
            self.refuse_sealed(guard, version, range)?;
            replaced = version.range(range).filter_map(|vma| vma.range.intersect(range)).map(PageRange::pages).sum();
        }
        may_expand(layout, &totals.pages, flags, pages - replaced)?;
        match &request.backing {
            Backing::Anonymous => {}
            Backing::Object(object) => {
                object.note_mapped();
                flags |= VmaFlags::OBJECT;
            }
            Backing::Reference(reference) => flags.set(VmaFlags::FILE_OF_ZEROS, reference.file().is_some()),
        }
        let vma = Vma {
            range,
            flags,
            page_offset: request.page_offset,
            backing: request.backing.clone(),
            name: None,
            tag: Tag::NONE,
        };
        self.replace(guard, range, Some(vma))?;
        Ok(range.start())
    }

    /// The flags of a new mapping for which `asked` was asked.
    #[inline]
    pub(super) fn new_flags(&self, layout: &Layout, asked: VmaFlags) -> VmaFlags {
        let mut flags = asked | layout.future_lock;
        if flags.contains(VmaFlags::NO_RESERVE) && self.memory.overcommit() == Overcommit::Never {
            flags.remove(VmaFlags::NO_RESERVE);
        }
        flags.set(VmaFlags::ACCOUNT, is_accountable(flags));
        if flags.contains(VmaFlags::DROPPABLE) {
            flags.remove(LOCK);
        }
        flags
    }
}
