//! Cutting pieces out: truncation, and holes.
//!
//! ```text
//!   1 the length becomes smaller, the pages leave the cache        from here on no fault installs them
//!   2 each address space in turn, under its writers' lock:
//!       they leave its tables, shared ones too                     held: their frames are not reused, nor copies of them in place
//!       one shootdown
//!   3 what was held is let go of
//! ```
//!
//! Nothing here needs memory, so a truncation cannot fail. Tables that several address spaces share are changed as they are, not copied first:
//! all who share one see the same object there, and it loses the same pages for all of them. Those who come later in the row find the
//! table empty and still shoot their translations down, before anything that those lead to is released.
//!
//! ```text
//!   fault                                     cut
//!   looks the frame up in the cache
//!                                             takes it out of the cache
//!   locks its table
//!   asks the cache again: no, starts again                                          or: yes, if it asked before, and installs;
//!                                             locks the table, finds nothing, or what was installed, and takes it out
//! ```

use core::ops::Range;

use super::Object;
use super::cache::PastEnd;
use crate::addr::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::frame::{Frame, Garbage, Held};
use crate::sync::atomic::Ordering;
use crate::table::Copies;

const PAGE: usize = PAGE_SIZE as usize;
const ZEROS: [u8; PAGE] = [0; PAGE];

impl Object {
    /// Sets the length in bytes. Pages past the new end leave the cache and every address space, with the copies that private mappings have made
    /// of them; an access there is [`crate::space::Fault::PastEnd`] from then on. The rest of the last page becomes zeros, where
    /// it is no private copy. New bytes read as zeros, or as what mappings have stored past the end of the last page (all as Linux's tmpfs).
    ///
    /// Time: pages in the cache, and, where it is smaller and the object is mapped, address spaces, areas of objects in them, and pages cut
    /// out. Takes the writers' locks of all of them, one at a time.
    ///
    /// # Errors
    ///
    /// None: it needs no memory.
    pub fn set_len(&self, len: u64) -> Result<()> {
        let _one_at_a_time = self.cutting.lock();
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        let mut cache = self.cache.lock();
        // Release: who sees the length sees what the last one to set it did. Acquire: so do we. (Whether a page is past the end is asked again under
        // the lock of the cache.)
        let old = self.len.swap(len, Ordering::AcqRel);
        if len > old {
            return Ok(());
        }
        cache.cut_source(len);
        let kept = len.div_ceil(PAGE_SIZE);
        cache.take(kept..u64::MAX, |frame| self.forget(frame, &mut garbage));
        let tail = (len % PAGE_SIZE) as usize;
        if tail != 0 {
            if let Some(last) = cache.get(len / PAGE_SIZE).filter(|last| !self.memory.record(*last).is_lost()) {
                self.memory.record(last).set_dirty();
                self.memory.write_frame(last, tail, &ZEROS[tail..]);
            }
        }
        drop(cache);
        if kept.saturating_mul(PAGE_SIZE) < old {
            self.take_from_tables(kept..u64::MAX, Copies::Go, &mut garbage);
        }
        garbage.retire(&self.memory, &guard);
        Ok(())
    }

    /// Makes the bytes of `range` zeros and gives their pages back: fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE), and what
    /// madvise(MADV_REMOVE) does. Whole pages leave the cache and all mappings, pages at the edges become zeros in part. Copies that private
    /// mappings have made stay (all as Linux's tmpfs). The length stays.
    ///
    /// Time: as [`Object::set_len`].
    ///
    /// # Errors
    ///
    /// Out of memory, or what the source says, for a page at the edge whose other part is in the source; and for the note that the source does
    /// not count there any more. Nothing has changed, but that the first of these pages may be in memory now. [`Error::Sealed`]:
    /// [`Object::seal`] was called.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<()> {
        let _one_at_a_time = self.cutting.lock();
        // Relaxed: under the lock of cuts.
        if self.sealed.load(Ordering::Relaxed) {
            return Err(Error::Sealed);
        }
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        let whole = range.start.div_ceil(PAGE_SIZE)..range.end / PAGE_SIZE;
        let edges = edges(&range);
        // Stays so: only who cuts adds any.
        self.cache.lock().reserve_hole()?;
        for (index, _) in edges.iter().flatten() {
            // Zeros in a page of zeros are not worth a frame.
            if self.cache.lock().is_in_source_only(*index) {
                self.page(*index, PastEnd::No)?;
            }
        }
        let mut cache = self.cache.lock();
        for (index, bytes) in edges.into_iter().flatten() {
            if let Some(frame) = cache.get(index).filter(|frame| !self.memory.record(*frame).is_lost()) {
                self.memory.record(frame).set_dirty();
                self.memory.write_frame(frame, bytes.start, &ZEROS[bytes]);
            }
        }
        if !whole.is_empty() {
            cache.add_hole(whole.clone());
            cache.take(whole.clone(), |frame| self.forget(frame, &mut garbage));
            drop(cache);
            self.take_from_tables(whole, Copies::Stay, &mut garbage);
        }
        garbage.retire(&self.memory, &guard);
        Ok(())
    }

    /// Its content is sealed (memfd's `F_SEAL_WRITE`, `F_SEAL_FUTURE_WRITE`), for good. From now on [`Object::punch_hole`] is refused, and with it
    /// madvise(MADV_REMOVE) of whoever maps it (`shmem_fallocate` in Linux's `mm/shmem.c`). Whoever maps it, or writes to it by descriptors, asks
    /// [`Object::is_sealed`].
    pub fn seal(&self) {
        let _one_at_a_time = self.cutting.lock();
        // Relaxed: under the lock of cuts.
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Object::seal`] was called: no new shared mapping of it may be written.
    pub fn is_sealed(&self) -> bool {
        // Relaxed: who seals and who maps at the same moment come in either order.
        self.sealed.load(Ordering::Relaxed)
    }

    /// A page that was taken out of the cache.
    fn forget(&self, frame: Frame, garbage: &mut Garbage) {
        self.uncharge_pages(1);
        self.memory.drop_page(frame, garbage);
    }

    fn take_from_tables(&self, lost: Range<u64>, copies: Copies, garbage: &mut Garbage) {
        if !self.was_mapped() {
            return;
        }
        let mut held = Held::new();
        self.take_from_own_tables(&lost, &mut held);
        let _no_restore = self.memory.relinks.cut();
        for space in self.memory.spaces() {
            space.lose(self, &lost, copies, &mut held);
        }
        held.let_go(&self.memory, garbage);
    }
}

/// The pages that `range` covers in part: which, and which bytes of them. Two at most.
fn edges(range: &Range<u64>) -> [Option<(u64, Range<usize>)>; 2] {
    let part = |index: u64| {
        let first = range.start.saturating_sub(index * PAGE_SIZE).min(PAGE_SIZE) as usize;
        let end = range.end.saturating_sub(index * PAGE_SIZE).min(PAGE_SIZE) as usize;
        (first < end && end - first < PAGE).then_some((index, first..end))
    };
    let (first, last) = (range.start / PAGE_SIZE, range.end / PAGE_SIZE);
    [part(first), part(last).filter(|_| last != first)]
}
