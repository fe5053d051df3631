//! The frames of a hosted machine: one anonymous mapping of the host, and the few ways in which a processor touches it.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use foldspace::Frame;
use foldspace::addr::{Index, PAGE_SIZE};
use memmap2::{MmapMut, MmapOptions};

use crate::sync;

const PAGE_BYTES: usize = PAGE_SIZE as usize;

/// Frames in an anonymous mapping of the host: frame 0 at its base. The host supplies its pages when they are first touched.
///
/// # Invariants
/// 1. `base` is the mapping's first byte, `frames * 4096` bytes from there are readable and writable until the arena is dropped.
/// 2. The arena itself touches frames with atomic operations only: the manager and other processors touch them at the same time.
pub struct Arena {
    base: NonNull<u8>,
    frames: u32,
    /// Unmaps on drop; never accessed through.
    _mapping: MmapMut,
}

// SAFETY: by invariant 1 the pointer is valid in every thread, and by invariant 2 all access through a shared reference is atomic.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `bytes`, rounded up to frames.
    ///
    /// # Errors
    /// The host's, if it has no room; [`io::ErrorKind::InvalidInput`] for no bytes, or more than a [`Frame`] can number.
    pub fn new(bytes: u64) -> io::Result<Arena> {
        let frames = u32::try_from(bytes.div_ceil(PAGE_SIZE)).map_err(|_| io::ErrorKind::InvalidInput)?;
        if frames == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut mapping = MmapOptions::new().len(frames as usize * PAGE_BYTES).no_reserve_swap().map_anon()?;
        let base = NonNull::new(mapping.as_mut_ptr()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Arena { base, frames, _mapping: mapping })
    }

    /// How many frames it has.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Where frame 0 is.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// An entry of the table in `table`; `None` outside the arena.
    pub(crate) fn entry(&self, table: Frame, index: Index) -> Option<&sync::AtomicU64> {
        let page = self.frame(table)?;
        // SAFETY: `page` has 4096 bytes (invariant 1) and `index` is below 512; frames are aligned to 4096 bytes; every access to an entry is atomic,
        // here and in the manager; `sync`'s atomic is, or wraps, that of the standard library.
        Some(unsafe { page.cast::<sync::AtomicU64>().add(index.get()).as_ref() })
    }

    /// Loads `N` bytes at a multiple of `N`: 1, 2, 4 or 8 at once, 16 in two. `None` for other sizes, and outside the arena.
    #[inline(always)]
    pub(crate) fn load_word<const N: usize>(&self, frame: Frame, offset: usize) -> Option<[u8; N]> {
        let place = self.word(frame, offset, N)?;
        let mut bytes = [0; N];
        // SAFETY: `place` has `N` bytes of a frame, at a multiple of `N`; any bytes are valid for atomics, and all access to guests' pages is by such,
        // or races as a processor's would (see `pieces`).
        unsafe {
            match N {
                1 => bytes.fill(place.cast::<AtomicU8>().as_ref().load(Ordering::Relaxed)),
                2 => bytes.copy_from_slice(&place.cast::<AtomicU16>().as_ref().load(Ordering::Relaxed).to_ne_bytes()),
                4 => bytes.copy_from_slice(&place.cast::<AtomicU32>().as_ref().load(Ordering::Relaxed).to_ne_bytes()),
                8 => bytes.copy_from_slice(&place.cast::<AtomicU64>().as_ref().load(Ordering::Relaxed).to_ne_bytes()),
                16 => {
                    let words = place.cast::<[AtomicU64; 2]>().as_ref();
                    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
                        to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
                    }
                }
                _ => return None,
            }
        }
        Some(bytes)
    }

    /// Stores them, as [`Arena::load_word`].
    #[inline(always)]
    pub(crate) fn store_word<const N: usize>(&self, frame: Frame, offset: usize, value: [u8; N]) -> Option<()> {
        let place = self.word(frame, offset, N)?;
        // SAFETY: as for `load_word`.
        unsafe {
            match *value.as_slice() {
                [byte] => place.cast::<AtomicU8>().as_ref().store(byte, Ordering::Relaxed),
                [a, b] => place.cast::<AtomicU16>().as_ref().store(u16::from_ne_bytes([a, b]), Ordering::Relaxed),
                [a, b, c, d] => {
                    place.cast::<AtomicU32>().as_ref().store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed);
                }
                _ if N == 8 || N == 16 => {
                    for (at, word) in value.chunks_exact(8).enumerate() {
                        let word = word.try_into().map_or(0, u64::from_ne_bytes);
                        place.cast::<AtomicU64>().add(at).as_ref().store(word, Ordering::Relaxed);
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// `len` bytes from `offset` of a frame, which is a multiple of `len`.
    #[inline(always)]
    fn word(&self, frame: Frame, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let fits = offset % len == 0 && offset + len <= PAGE_BYTES;
        // SAFETY: within the frame.
        if fits { self.frame(frame).map(|page| unsafe { page.add(offset) }) } else { None }
    }

    /// Copies bytes of a frame out, as a processor's loads do: eight at a time where both ends are aligned, without any order among them.
    /// `None` outside the arena, or across the frame's end.
    pub(crate) fn load(&self, frame: Frame, offset: usize, out: &mut [u8]) -> Option<()> {
        let (bytes, words, rest) = self.pieces(frame, offset, out.len())?;
        sync::point();
        let (head, tail) = out.split_at_mut(bytes.len());
        let (middle, tail) = tail.split_at_mut(words.len() * 8);
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = from.load(Ordering::Relaxed);
        }
        for (to, from) in middle.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        for (to, from) in tail.iter_mut().zip(rest) {
            *to = from.load(Ordering::Relaxed);
        }
        Some(())
    }

    /// Copies bytes into a frame, as a processor's stores do.
    /// `None` outside the arena, or across the frame's end.
    pub(crate) fn store(&self, frame: Frame, offset: usize, data: &[u8]) -> Option<()> {
        let (bytes, words, rest) = self.pieces(frame, offset, data.len())?;
        sync::point();
        let (head, tail) = data.split_at(bytes.len());
        let (middle, tail) = tail.split_at(words.len() * 8);
        for (from, to) in head.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        for (from, to) in middle.chunks_exact(8).zip(words) {
            let mut word = [0; 8];
            word.copy_from_slice(from);
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        for (from, to) in tail.iter().zip(rest) {
            to.store(*from, Ordering::Relaxed);
        }
        Some(())
    }

    /// `len` bytes from `offset` of a frame, as bytes up to the first multiple of eight, words, and what is left.
    fn pieces(&self, frame: Frame, offset: usize, len: usize) -> Option<(&[AtomicU8], &[AtomicU64], &[AtomicU8])> {
        if len > PAGE_BYTES || offset > PAGE_BYTES - len {
            return None;
        }
        let page = self.frame(frame)?;
        let head = (offset.next_multiple_of(8) - offset).min(len);
        let words = (len - head) / 8;
        let tail = len - head - words * 8;
        // SAFETY:
        // 1. `offset + len <= 4096`, so all three slices lie in the frame, which lives as long as `self` (invariant 1).
        // 2. The words begin at a multiple of eight of a frame, unless there are none, and then any aligned pointer would do: `offset + head` is
        //    a multiple of eight whenever `words > 0`; otherwise the frame's own address is taken.
        // 3. Bytes and words of the arena are valid as atomics whatever they hold. The manager writes a data frame without atomics only while no
        //    translation to it exists, or under the same race that a processor's accesses to it would be.
        unsafe {
            let start = page.as_ptr().add(offset);
            let middle = if words > 0 { start.add(head) } else { page.as_ptr() };
            Some((
                core::slice::from_raw_parts(start.cast(), head),
                core::slice::from_raw_parts(middle.cast(), words),
                core::slice::from_raw_parts(start.add(head + words * 8).cast(), tail),
            ))
        }
    }

    /// Where a frame is; `None` outside the arena.
    fn frame(&self, frame: Frame) -> Option<NonNull<u8>> {
        // SAFETY: inside the mapping by the check and invariant 1.
        (frame.0 < self.frames).then(|| unsafe { self.base.add(frame.0 as usize * PAGE_BYTES) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_whatever_the_alignment() {
        let arena = Arena::new(3 * PAGE_SIZE).unwrap();
        for offset in [0, 1, 7, 8, 9, 4000, 4090] {
            for len in [0, 1, 5, 8, 9, 23, 64, 96] {
                let data: Vec<u8> = (0..len).map(|i| (i * 7 + offset) as u8 | 1).collect();
                let fits = offset + len <= 4096;
                assert_eq!(arena.store(Frame(1), offset, &data).is_some(), fits, "{offset} {len}");
                if fits {
                    let mut seen = vec![0; len];
                    arena.load(Frame(1), offset, &mut seen).unwrap();
                    assert_eq!(seen, data, "{offset} {len}");
                }
            }
        }
        let mut neighbours = vec![1; 4096];
        arena.load(Frame(0), 0, &mut neighbours).unwrap();
        assert!(neighbours.iter().all(|&byte| byte == 0));
        arena.load(Frame(2), 0, &mut neighbours).unwrap();
        assert!(neighbours.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn nothing_outside_is_touched() {
        let arena = Arena::new(PAGE_SIZE).unwrap();
        assert!(arena.load(Frame(1), 0, &mut [0]).is_none());
        assert!(arena.store(Frame(0), 4096, &[0]).is_none());
        assert!(arena.entry(Frame(1), Index::new(0).unwrap()).is_none());
        assert!(Arena::new(0).is_err());
    }
}
