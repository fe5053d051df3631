//! Reading and writing as a file.

use alloc::vec::Vec;
use core::ops::Range;

use super::Object;
use super::cache::PastEnd;
use crate::addr::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::sync::atomic::Ordering;

impl Object {
    /// Reads from `offset` up to the end; returns how many bytes.
    ///
    /// # Errors
    ///
    /// Out of memory, or what the source says, if not even one byte could be read.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<usize> {
        let _guard = self.memory.pin();
        let available = self.len().saturating_sub(offset);
        let len = out.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let bytes = (PAGE_SIZE as usize - within).min(len - done);
            match self.frame(at / PAGE_SIZE) {
                Ok(Some(frame)) => self.memory.read_frame(frame, within, &mut out[done..done + bytes]),
                // Cut meanwhile.
                Ok(None) => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += bytes;
        }
        Ok(done)
    }

    /// Writes at `offset`; the length grows as needed. Returns how many bytes there was memory for. Nothing is cut off meanwhile, so what was
    /// written is there, or was cut off afterwards (on Linux both hold the inode's lock).
    ///
    /// # Errors
    ///
    /// Out of memory, or what the source says, if not even one byte could be written; [`Error::BadRange`] if the end would wrap.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let _nothing_is_cut = self.cutting.lock();
        let _guard = self.memory.pin();
        offset.checked_add(bytes.len() as u64).ok_or(Error::BadRange)?;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE) as usize;
            let len = (PAGE_SIZE as usize - within).min(bytes.len() - done);
            match self.page(at / PAGE_SIZE, PastEnd::Yes) {
                Ok(Some(frame)) => {
                    self.memory.record(frame).set_dirty();
                    self.memory.write_frame(frame, within, &bytes[done..done + len]);
                }
                Ok(None) => break,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += len;
            // Release: who sees the length sees the bytes. Acquire: ours may come after those of another.
            self.len.fetch_max(offset + done as u64, Ordering::AcqRel);
        }
        Ok(done)
    }

    /// Brings every page of the bytes of `range` into memory, where it stays, also past the end; the length stays as it is (fallocate). As on
    /// Linux such pages count as written to.
    ///
    /// # Errors
    ///
    /// Out of memory, [`Error::CommitLimit`], or what the source says; pages that were made before that and nobody uses go again.
    pub fn ensure(&self, range: Range<u64>) -> Result<()> {
        let guard = self.memory.pin();
        let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
        let missing = (pages.end.saturating_sub(pages.start)).saturating_sub(self.resident_pages());
        let stats = self.memory.stats();
        if missing > stats.free + stats.deferred {
            return Err(Error::OutOfMemory);
        }
        let mut made = Vec::new();
        let outcome = pages.clone().try_for_each(|index| {
            if self.cache.lock().get(index).is_none() {
                made.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
                made.push(index);
            }
            self.page(index, PastEnd::Yes).map(drop)
        });
        match outcome {
            Ok(()) => self.for_each_page(|index, frame| {
                if pages.contains(&index) {
                    self.memory.record(frame).set_dirty();
                }
            }),
            Err(_) => {
                let mut garbage = Garbage::new();
                let forgotten = self.cache.lock().forget_unused(&self.memory, &made, &mut garbage);
                self.uncharge_pages(forgotten);
                garbage.retire(&self.memory, &guard);
            }
        }
        outcome
    }
}
