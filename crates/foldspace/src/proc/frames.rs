//! Who maps what, from the frames' side: `/proc/kpagecount`, `/proc/kpageflags` (Linux's `fs/proc/page.c`), and a listing of all frames.

use alloc::sync::Arc;
use alloc::vec::Vec;

use bitflags::bitflags;

use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::backing::Object;
use crate::error::{Error, Result};
use crate::frame::{Frame, FrameUse, Memory};
use crate::space::AddressSpace;

bitflags! {
    /// What `/proc/kpageflags` says of a frame, as far as it means something here (`uapi/linux/kernel-page-flags.h`).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct KpageFlags: u64 {
        /// Its content is what it should be.
        const UPTODATE = 1 << 3;
        /// A page of an object that was written to, as far as its record knows.
        const DIRTY = 1 << 4;
        /// Content that could be moved: Linux has such pages in its lists of what may be reclaimed.
        const LRU = 1 << 5;
        /// Free.
        const BUDDY = 1 << 10;
        /// Mapped.
        const MMAP = 1 << 11;
        /// Private memory.
        const ANON = 1 << 12;
        /// No file on a disk has it: true of all content here.
        const SWAPBACKED = 1 << 14;
        /// The memory has failed.
        const HWPOISON = 1 << 19;
        /// There is no such frame, or it is none of the manager's.
        const NOPAGE = 1 << 20;
        /// The zero page.
        const ZERO_PAGE = 1 << 24;
        /// A page table.
        const PGTABLE = 1 << 26;
    }
}

/// Frames in a row that are used alike.
#[derive(Clone)]
pub struct FrameRun {
    /// The first.
    pub first: Frame,
    /// How many.
    pub frames: u32,
    /// What for.
    pub used: FrameUse,
    /// The object of which they are pages in a row, and which page the first is.
    pub page: Option<(Arc<Object>, u64)>,
    /// Where the first is mapped; the others at the addresses after it. Each address space with its places upwards.
    pub places: Vec<(Arc<AddressSpace>, VirtAddr)>,
}

impl FrameRun {
    /// Whether another run goes on where this one ends.
    fn continues_with(&self, next: &FrameRun) -> bool {
        let page = |run: &FrameRun| run.page.as_ref().map(|(object, page)| (Arc::as_ptr(object), *page));
        let after = page(self).map(|(object, page)| (object, page + u64::from(self.frames)));
        let bytes = u64::from(self.frames) * PAGE_SIZE;
        self.used == next.used
            && self.first.0 + self.frames == next.first.0
            && after == page(next)
            && self.places.len() == next.places.len()
            && self
                .places
                .iter()
                .zip(&next.places)
                .all(|((space, at), (other, next))| Arc::ptr_eq(space, other) && at.get() + bytes == next.get())
    }
}

impl Memory {
    /// How often a frame is mapped: the pairs of an address space and an address that lead to it. 0 for what is not tracked. Time:
    /// [`Memory::mappings`].
    ///
    /// # Errors
    ///
    /// As [`Memory::mappings`].
    pub fn map_count(&self, frame: Frame) -> Result<u64> {
        if !self.frame_use(frame).is_movable() {
            return Ok(0);
        }
        let mut count = 0;
        self.mappings(frame, |_, _| count += 1)?;
        Ok(count)
    }

    /// What `/proc/kpageflags` says of a frame.
    pub fn kpage_flags(&self, frame: Frame) -> KpageFlags {
        const CONTENT: KpageFlags = KpageFlags::UPTODATE.union(KpageFlags::LRU).union(KpageFlags::SWAPBACKED);
        let if_is = |flag: KpageFlags, is: bool| if is { flag } else { KpageFlags::empty() };
        let record = self.records().get(frame.0 as usize);
        let slots = record.map_or(0, |record| record.refs().saturating_sub(record.pins()));
        match self.frame_use(frame) {
            FrameUse::Absent => KpageFlags::NOPAGE,
            FrameUse::Free => KpageFlags::BUDDY,
            FrameUse::Private => CONTENT | KpageFlags::ANON | if_is(KpageFlags::MMAP, slots > 0),
            FrameUse::Page => {
                let dirty = record.is_some_and(|record| record.is_dirty());
                CONTENT | if_is(KpageFlags::MMAP, slots > 0) | if_is(KpageFlags::DIRTY, dirty)
            }
            FrameUse::Table(_) => KpageFlags::PGTABLE,
            FrameUse::Reference => if_is(KpageFlags::ZERO_PAGE, frame == self.zero().page),
            FrameUse::Poisoned => KpageFlags::HWPOISON,
            FrameUse::Idle | FrameUse::Reserved => KpageFlags::empty(),
        }
    }

    /// Calls `visit` with all frames that the manager was given, upwards, in runs that are used alike. Each frame is looked at once, and those with
    /// content as [`Memory::mappings`] does: what changes meanwhile is seen before or after. Where others change what leads to a frame again and
    /// again, it is shown as if nobody mapped it. O(frames and their mappings).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] without heap for the places of one frame.
    pub fn frame_runs(&self, mut visit: impl FnMut(&FrameRun)) -> Result<()> {
        let mut run: Option<FrameRun> = None;
        for number in 0..self.frame_numbers() {
            let next = self.frame_run(Frame(number))?;
            match &mut run {
                Some(run) if run.continues_with(&next) => run.frames += 1,
                run => {
                    if let Some(ended) = run.replace(next).filter(|ended| ended.used != FrameUse::Absent) {
                        visit(&ended);
                    }
                }
            }
        }
        if let Some(last) = run.filter(|last| last.used != FrameUse::Absent) {
            visit(&last);
        }
        Ok(())
    }

    fn frame_run(&self, frame: Frame) -> Result<FrameRun> {
        let used = self.frame_use(frame);
        let mut run = FrameRun { first: frame, frames: 1, used, page: None, places: Vec::new() };
        if !used.is_movable() {
            return Ok(run);
        }
        run.page = self.object_of(frame);
        let mut full = false;
        let mapped = self.mappings(frame, |space, at| match run.places.try_reserve(1) {
            Ok(()) => run.places.push((Arc::clone(space), at)),
            Err(_) => full = true,
        });
        if full || mapped == Err(Error::OutOfMemory) {
            return Err(Error::OutOfMemory);
        }
        run.places.sort_unstable_by_key(|(space, at)| (space.id(), *at));
        Ok(run)
    }
}
