//! Making pages present before anyone touches them: MADV_POPULATE_READ and _WRITE, MAP_POPULATE, mlock.

use crossbeam_epoch::Guard;

use super::fault::Attempt;
use super::{Access, AddressSpace, Fault, retry_while};
use crate::addr::{PAGE_SIZE, PageRange, VirtAddr};
use crate::sync::hint::spin_loop;
use crate::table::{Entry, Stretch};
use crate::vma::{VersionRef, Vma, VmaFlags};

/// Why populating stopped. What came before is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PopulateError {
    /// Part of the range is not mapped (ENOMEM).
    NotMapped,
    /// A VMA does not allow the access, or is [`VmaFlags::SECRET`] (EINVAL).
    AccessDenied,
    /// An access would be a signal although the VMA allows it: past the end of an object, or a guard (EFAULT).
    Faulted(Fault),
    /// No frame left (ENOMEM).
    OutOfMemory,
    /// The caller did not want to go on (EINTR).
    Interrupted,
}

/// What to do about a VMA that cannot be populated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failures {
    /// Say why, and leave the rest as it is (mlock).
    Stop,
    /// Go on with the next VMA (MAP_POPULATE, mlockall).
    Skip,
}

/// Pages that are looked at before the tree is looked at again.
const AT_ONCE: u64 = 512;

/// The accesses that pages are made ready for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ready {
    Load,
    Store,
}

impl AddressSpace {
    /// Makes every page of `range` present as if it had been loaded from or stored to (`access`; executing is loading here), upwards, until
    /// something is in the way (`madvise_populate` in Linux's `mm/madvise.c`). `interrupted` is asked before each page.
    ///
    /// One look at the tree for 512 pages; what one link shows is passed over at once.
    ///
    /// # Errors
    ///
    /// [`PopulateError`]: what comes before stays populated.
    pub fn populate(
        &self,
        range: PageRange,
        access: Access,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), PopulateError> {
        let choose = |vma: &Vma| match access {
            _ if vma.flags.contains(VmaFlags::SECRET) => Err(PopulateError::AccessDenied),
            Access::Write if vma.flags.contains(VmaFlags::WRITE) => Ok(Some(Ready::Store)),
            Access::Read | Access::Execute if vma.flags.contains(VmaFlags::READ) => Ok(Some(Ready::Load)),
            _ => Err(PopulateError::AccessDenied),
        };
        let mut at = range.start();
        while let Some(rest) = PageRange::new(at, range.end()) {
            at = self.populate_some(rest, &choose, interrupted)?;
        }
        Ok(())
    }

    /// Makes what is mapped in `range` present: writable private memory as if it had been stored to, everything else as if it had been loaded from
    /// (`populate_vma_page_range` in Linux's `mm/gup.c`). Holes are passed over, and so are VMAs that are locked only as they are touched.
    ///
    /// # Errors
    ///
    /// [`PopulateError`], never `NotMapped`; with [`Failures::Skip`] only `Interrupted`. What comes before stays populated.
    pub fn populate_mapped(
        &self,
        range: PageRange,
        failures: Failures,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), PopulateError> {
        let choose = |vma: &Vma| {
            if vma.flags.contains(VmaFlags::LOCK_ON_FAULT) {
                Ok(None)
            } else if vma.flags.contains(VmaFlags::SECRET) || !vma.flags.intersects(VmaFlags::ACCESS) {
                Err(PopulateError::AccessDenied)
            } else if vma.flags.contains(VmaFlags::WRITE) && !vma.flags.contains(VmaFlags::SHARED) {
                Ok(Some(Ready::Store))
            } else {
                Ok(Some(Ready::Load))
            }
        };
        let mut at = range.start();
        while let Some(rest) = PageRange::new(at, range.end()) {
            let populated = self.populate_some(rest, &choose, interrupted);
            at = match populated {
                Ok(reached) => reached,
                Err(PopulateError::NotMapped) => self.next_mapped(at).unwrap_or(range.end()),
                Err(error) if failures == Failures::Stop || error == PopulateError::Interrupted => return Err(error),
                Err(_) => self.end_of_vma(at),
            };
        }
        Ok(())
    }

    /// Where the next VMA above a hole at `at` begins.
    fn next_mapped(&self, at: VirtAddr) -> Option<VirtAddr> {
        self.vmas().view().find_at_or_after(at).map(|vma| vma.start().max(at))
    }

    /// Where the VMA at `at` ends.
    fn end_of_vma(&self, at: VirtAddr) -> VirtAddr {
        let next_page = VirtAddr(at.get().saturating_add(PAGE_SIZE));
        self.vmas().view().find(at).map_or(next_page, Vma::end)
    }

    /// Populates the start of `range`: what lies in one VMA, or less. Returns how far it came. `choose` says what a VMA's
    /// pages are made ready for; `None` passes it over.
    fn populate_some(
        &self,
        range: PageRange,
        choose: &dyn Fn(&Vma) -> Result<Option<Ready>, PopulateError>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<VirtAddr, PopulateError> {
        let mut at = range.start();
        let once = |guard: &Guard| {
            let before = at;
            let outcome = self.populate_pinned(guard, range, &mut at, choose, interrupted);
            // Some progress: the next page may be reclaimed for once more.
            if at > before && outcome == Err(PopulateError::OutOfMemory) { Ok(()) } else { outcome }
        };
        retry_while(&self.memory, once, |outcome| *outcome == Err(PopulateError::OutOfMemory))?;
        Ok(at)
    }

    fn populate_pinned(
        &self,
        guard: &Guard,
        range: PageRange,
        at: &mut VirtAddr,
        choose: &dyn Fn(&Vma) -> Result<Option<Ready>, PopulateError>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), PopulateError> {
        let version = self.vmas.load(guard);
        let Some(vma) = version.find(*at) else {
            // A change in flight must never look like a hole: its writer has the lock until it is done.
            drop(self.writer.lock());
            return if self.vmas.same(version) { Err(PopulateError::NotMapped) } else { Ok(()) };
        };
        let end = vma.end().min(range.end());
        let Some(ready) = choose(vma)? else {
            *at = end;
            return Ok(());
        };
        // Unpinned from time to time: what others free meanwhile waits for us.
        for _ in 0..AT_ONCE {
            let Some(rest) = PageRange::new(*at, end) else { break };
            if interrupted() {
                return Err(PopulateError::Interrupted);
            }
            if let Some(next) = self.ready_until(rest, ready) {
                *at = next;
                continue;
            }
            match self.populate_page(guard, version, vma, *at, ready) {
                // One page. A link to zeros may have made more ready: that is looked at.
                Ok(Attempt::Done) if ready == Ready::Store || vma.backing.has_offsets() => {
                    *at = VirtAddr(at.get().saturating_add(PAGE_SIZE));
                }
                Ok(Attempt::Done) => {}
                Ok(Attempt::Again) if self.vmas.same(version) => spin_loop(),
                Ok(Attempt::Again) => return Ok(()),
                Err(Fault::OutOfMemory) => return Err(PopulateError::OutOfMemory),
                Err(fault) => return Err(PopulateError::Faulted(fault)),
            }
        }
        Ok(())
    }

    fn populate_page(
        &self,
        guard: &Guard,
        version: VersionRef<'_>,
        vma: &Vma,
        addr: VirtAddr,
        ready: Ready,
    ) -> Result<Attempt, Fault> {
        match ready {
            Ready::Store => self.write_fault(guard, version, vma, addr),
            Ready::Load => self.read_fault(guard, version, vma, addr, Access::Read),
        }
    }

    /// If the first page of `range` is ready, the end of what is known to be so with it: that page, or all that one link to zeros shows of the range.
    fn ready_until(&self, range: PageRange, ready: Ready) -> Option<VirtAddr> {
        let addr = range.start();
        let leaf = self.tables().look(addr);
        let is_ready = match ready {
            Ready::Load => leaf.entry.is_present(),
            Ready::Store => leaf.rights.write() && leaf.entry.is_dirty(),
        };
        // A page that is there counts as accessed, too (FOLL_TOUCH).
        if !is_ready || !leaf.entry.is_present() || !self.tables().mark(&leaf, addr, Entry::ACCESSED) {
            return None;
        }
        if leaf.entry.is_reference() {
            if let (end, Stretch::Reference(_)) = self.tables().stretch(range) {
                return Some(end);
            }
        }
        addr.checked_add(PAGE_SIZE)
    }
}
