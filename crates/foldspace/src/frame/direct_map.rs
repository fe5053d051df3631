//! Frames as memory: the only place that turns a frame number into a pointer.
//!
//! Tables are seen as arrays of atomics, for other processors and their page walkers read and write them at any time. Data frames
//! are copied with raw pointers: programs may write them meanwhile, as on any machine, and whoever reads bytes that are being
//! written gets some mixture of old and new, never a reference into them.

use core::ptr::NonNull;

use super::Frame;
use super::record::Record;
use crate::addr::{ENTRIES, PAGE_SIZE};
use crate::sync::atomic::AtomicU64;
use crate::sync::point;

const PAGE: usize = PAGE_SIZE as usize;

/// All frames `0..frames`, mapped one after the other at `base`, and their records.
///
/// # Invariants
///
/// 1. `base .. base + frames * 4096` stays mapped; the frames that the manager was given are readable, writable and used by nobody else
///    (promised to [`super::Memory::new`]).
/// 2. `records` points to `frames` initialised records inside it that are never freed.
/// 3. Only numbers of frames that the manager was given come in (checked to lie below `frames`).
pub(super) struct DirectMap {
    base: NonNull<u8>,
    records: NonNull<Record>,
    frames: u32,
}

// SAFETY: invariants 1 and 2: the memory is owned for ever and not tied to a thread; all access goes through atomics, or raw copies.
unsafe impl Send for DirectMap {}
// SAFETY: as above.
unsafe impl Sync for DirectMap {}

impl DirectMap {
    /// Builds the map and zeroes the records, `records_at` on.
    ///
    /// # Safety
    ///
    /// Invariant 1 holds; the frames from `records_at` on that `frames` records need are the manager's and unused.
    pub(super) unsafe fn new(base: NonNull<u8>, frames: u32, records_at: Frame) -> DirectMap {
        // SAFETY: by the caller, this lies inside the map.
        let records = unsafe { base.add(records_at.0 as usize * PAGE) }.cast::<Record>();
        // SAFETY: by the caller, these bytes are mapped and ours; all-zero bytes are valid records (`Kind::Absent`), which are only atomics.
        unsafe { records.write_bytes(0, frames as usize) };
        DirectMap { base, records, frames }
    }

    #[inline]
    pub(super) fn records(&self) -> &[Record] {
        // SAFETY: invariant 2.
        unsafe { core::slice::from_raw_parts(self.records.as_ptr(), self.frames as usize) }
    }

    #[inline]
    pub(super) fn ptr(&self, frame: Frame) -> NonNull<u8> {
        assert!(frame.0 < self.frames, "frame number out of range");
        // SAFETY: invariant 1: within the map.
        unsafe { self.base.add(frame.0 as usize * PAGE) }
    }

    /// The frame as a table's entries.
    #[inline]
    pub(super) fn entries(&self, frame: Frame) -> &[AtomicU64; ENTRIES] {
        // SAFETY: invariants 1 and 3: 4096 mapped bytes, aligned to a page; any bytes are valid for atomics.
        unsafe { self.ptr(frame).cast::<[AtomicU64; ENTRIES]>().as_ref() }
    }

    /// The aligned 32-bit word at an offset in a frame: a program's, not one of the manager's own, and so always `core`'s.
    ///
    /// # Panics
    /// If the offset is not a multiple of 4 below the size of a page.
    #[inline]
    pub(super) fn word(&self, frame: Frame, offset: usize) -> &core::sync::atomic::AtomicU32 {
        assert!(offset < PAGE && offset % 4 == 0, "no word lies there");
        // SAFETY: invariants 1 and 3: checked to lie inside the frame and to be aligned; any bytes are valid for atomics, and all others who
        // look at the frame do so with raw copies, or are processors.
        unsafe { self.ptr(frame).add(offset).cast::<core::sync::atomic::AtomicU32>().as_ref() }
    }

    /// Fills a frame with zeros.
    #[inline]
    pub(super) fn clear(&self, frame: Frame) {
        self.fill(frame, 0);
    }

    /// Fills a frame with a byte.
    #[inline]
    pub(super) fn fill(&self, frame: Frame, byte: u8) {
        point();
        // SAFETY: invariant 1: 4096 bytes that the manager owns.
        unsafe { self.ptr(frame).write_bytes(byte, PAGE) };
    }

    /// Copies a whole frame.
    #[inline]
    pub(super) fn copy(&self, from: Frame, to: Frame) {
        assert!(from != to, "a frame is not copied onto itself");
        point();
        // SAFETY: invariant 1; two different frames do not overlap.
        unsafe { self.ptr(to).copy_from_nonoverlapping(self.ptr(from), PAGE) };
    }

    /// Copies bytes from a frame to a frame, which may be the same; both must have all of them.
    pub(super) fn move_bytes(&self, (from, at): (Frame, usize), (to, offset): (Frame, usize), len: usize) {
        assert!(at + len <= PAGE && offset + len <= PAGE, "copied past the end of a frame");
        point();
        // SAFETY: invariant 1; both lie inside their frames, and may overlap.
        unsafe { self.ptr(to).add(offset).copy_from(self.ptr(from).add(at), len) };
    }

    /// Copies bytes out of a frame; both must lie inside it.
    pub(super) fn read(&self, frame: Frame, offset: usize, out: &mut [u8]) {
        assert!(offset + out.len() <= PAGE, "read past the end of a frame");
        let len = out.len();
        point();
        // SAFETY: checked to lie inside the frame; `out` is a Rust buffer, and no frame ever is.
        unsafe { self.ptr(frame).add(offset).copy_to_nonoverlapping(NonNull::from(out).cast(), len) };
    }

    /// Copies bytes into a frame; both must lie inside it.
    pub(super) fn write(&self, frame: Frame, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE, "write past the end of a frame");
        point();
        // SAFETY: as for `read`.
        unsafe { self.ptr(frame).add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }
}
