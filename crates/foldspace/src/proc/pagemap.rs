//! `/proc/PID/pagemap` (proc_pid_pagemap(5), `pte_to_pagemap_entry` in Linux's `fs/proc/task_mmu.c`): eight bytes for each page.

use super::mapcount::Mapcounts;
use crate::addr::{PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::space::AddressSpace;
use crate::table::{Entry, Stretch};
use crate::vma::VmaFlags;

/// Whether a reader may know where in memory a page is (CAP_SYS_ADMIN).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameNumbers {
    /// Zero in their place.
    Hidden,
    /// As they are.
    Shown,
}

/// What is said of one page, as a program reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct PagemapEntry(pub u64);

impl PagemapEntry {
    /// Mapped once: by one address space at one address.
    pub const EXCLUSIVE: u64 = 1 << 56;
    /// Stores to it are watched (`UFFDIO_WRITEPROTECT`).
    pub const WATCHED: u64 = 1 << 57;
    /// A guard.
    pub const GUARD: u64 = 1 << 58;
    /// A page of a file, or of shared anonymous memory.
    pub const FILE: u64 = 1 << 61;
    /// Not in memory and not empty either: here, guards, and what was lost with its memory.
    pub const SWAPPED: u64 = 1 << 62;
    /// In memory. Zero and reference pages are.
    pub const PRESENT: u64 = 1 << 63;

    /// The frame number, or zero.
    pub const fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }

    /// What Linux shows in place of a guard's frame number: its swap entry, of type 31 (`SWP_PTE_MARKER`) and offset 4 (`PTE_MARKER_GUARD`).
    const MARKER: u64 = 31 | 4 << 5;

    fn guard(numbers: FrameNumbers) -> PagemapEntry {
        let marker = PagemapEntry(PagemapEntry::SWAPPED | PagemapEntry::GUARD);
        match numbers {
            FrameNumbers::Hidden => marker,
            FrameNumbers::Shown => PagemapEntry(marker.0 | PagemapEntry::MARKER),
        }
    }

    fn present(frame: Frame, numbers: FrameNumbers) -> PagemapEntry {
        match numbers {
            FrameNumbers::Hidden => PagemapEntry(PagemapEntry::PRESENT),
            FrameNumbers::Shown => PagemapEntry(PagemapEntry::PRESENT | frame.0 as u64),
        }
    }
}

impl AddressSpace {
    /// Fills `out` with the entries of the pages of `range`: as many as it has. O(tables), and the pages.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] if the lengths differ; [`Error::OutOfMemory`].
    pub fn pagemap(&self, range: PageRange, numbers: FrameNumbers, out: &mut [PagemapEntry]) -> Result<()> {
        if out.len() as u64 != range.pages() {
            return Err(Error::BadRange);
        }
        let _guard = self.memory().pin();
        let mut counts = Mapcounts::new(self.memory());
        self.tables().try_for_each_stretch(range, |part, stretch| {
            let first = ((part.start().get() - range.start().get()) >> PAGE_SHIFT) as usize;
            let out = &mut out[first..first + part.pages() as usize];
            match stretch {
                Stretch::Hole => out.fill(PagemapEntry::default()),
                Stretch::Reference(page) => out.fill(PagemapEntry::present(page, numbers)),
                Stretch::Pages(pages) => {
                    let Some(table) = pages.path.last().copied() else { return Ok(()) };
                    let paths = counts.of_table(&pages.path)?;
                    for ((index, entry), out) in pages.iter().zip(out) {
                        *out = describe(entry, numbers);
                        if is_page(entry) && counts.of_page(entry, table, index, paths)? == 1 {
                            out.0 |= PagemapEntry::EXCLUSIVE;
                        }
                    }
                }
            }
            Ok(())
        })?;
        // Marks of one who has watched before stay until the next store.
        let version = self.vmas();
        for (number, entry) in out.iter_mut().enumerate().filter(|(_, entry)| entry.0 & PagemapEntry::WATCHED != 0) {
            let at = VirtAddr(range.start().get() + ((number as u64) << PAGE_SHIFT));
            if !version.view().find(at).is_some_and(|vma| vma.flags.contains(VmaFlags::WATCH_WRITES)) {
                entry.0 &= !PagemapEntry::WATCHED;
            }
        }
        Ok(())
    }
}

/// Whether it refers to a page that somebody owns.
fn is_page(entry: Entry) -> bool {
    entry.is_present() && !entry.is_reference()
}

/// All but how often the page is mapped.
fn describe(entry: Entry, numbers: FrameNumbers) -> PagemapEntry {
    if entry.is_guard() {
        return PagemapEntry::guard(numbers);
    }
    if entry.is_poison() {
        // As Linux's swap entry of a frame that has failed (`SWP_HWPOISON`).
        return PagemapEntry(PagemapEntry::SWAPPED);
    }
    if !entry.is_present() {
        return PagemapEntry::default();
    }
    let mut described = PagemapEntry::present(entry.frame(), numbers);
    if is_page(entry) && entry.is_object() {
        described.0 |= PagemapEntry::FILE;
    }
    if entry.is_marked() {
        described.0 |= PagemapEntry::WATCHED;
    }
    described
}
