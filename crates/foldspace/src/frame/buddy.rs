//! The buddy allocator: free blocks of 2^order frames, linked through their records.

use arrayvec::ArrayVec;

use super::Frame;
use super::record::{Kind, NONE, Record};

/// Orders 0 to 10: blocks of 4 KiB to 4 MiB.
pub(crate) const ORDERS: usize = 11;

/// Heads of the lists of free blocks.
///
/// # Invariants
///
/// A frame is the head of a block in list `o` exactly if its record says `Free` with order `o`; its number is a multiple of `2^o`.
pub(crate) struct Buddy {
    heads: [u32; ORDERS],
    free: u64,
    /// Blocks that are being emptied, and how many of their frames are there already.
    pub(super) emptied: ArrayVec<(Frame, u32), EMPTIED_AT_ONCE>,
}

/// Blocks that can be emptied at the same time. Their free frames are nobody's meanwhile.
pub(super) const EMPTIED_AT_ONCE: usize = 4;

impl Buddy {
    pub(crate) const fn new() -> Buddy {
        Buddy { heads: [NONE; ORDERS], free: 0, emptied: ArrayVec::new_const() }
    }

    /// Free frames.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Hands over the frames `start..end`, in the largest aligned blocks.
    pub(crate) fn add_range(&mut self, records: &[Record], start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let mut order = (at.trailing_zeros() as usize).min(ORDERS - 1);
            while at as u64 + (1 << order) > end as u64 {
                order -= 1;
            }
            self.release(records, Frame(at), order);
            at += 1 << order;
        }
    }

    /// A block of 2^order frames; O(orders).
    pub(crate) fn take(&mut self, records: &[Record], order: usize) -> Option<Frame> {
        let found = (order..ORDERS).find(|o| self.heads[*o] != NONE)?;
        let block = self.heads[found];
        self.unlink(records, block, found);
        for lower in (order..found).rev() {
            self.link(records, block + (1 << lower), lower);
        }
        self.free -= 1 << order;
        records[block as usize].mark(Kind::Idle, 0);
        Some(Frame(block))
    }

    /// Gives a block back and merges it with its buddies; O(orders).
    pub(crate) fn release(&mut self, records: &[Record], block: Frame, order: usize) {
        self.free += 1 << order;
        let mut block = block.0;
        let mut order = order;
        while order < ORDERS - 1 {
            let buddy = block ^ (1 << order);
            let Some(record) = records.get(buddy as usize) else { break };
            if record.kind() != Kind::Free || record.order() as usize != order {
                break;
            }
            self.unlink(records, buddy, order);
            record.mark(Kind::FreeTail, 0);
            records[block as usize].mark(Kind::FreeTail, 0);
            block &= !(1 << order);
            order += 1;
        }
        self.link(records, block, order);
    }

    /// Takes all free frames of the aligned block of 2^order frames at `first` out, and calls `each` with them: they stay counted as free. One
    /// that is larger than that is left alone.
    pub(super) fn isolate(&mut self, records: &[Record], first: Frame, order: usize, mut each: impl FnMut(Frame)) {
        let end = first.0 + (1 << order);
        let mut at = first.0;
        while at < end {
            let record = &records[at as usize];
            if record.kind() != Kind::Free || record.order() as usize > order {
                at += 1;
                continue;
            }
            let size = 1 << record.order();
            self.unlink(records, at, record.order() as usize);
            for frame in at..at + size {
                records[frame as usize].mark(Kind::Isolated, 0);
                each(Frame(frame));
            }
            at += size;
        }
    }

    /// Frames that are in no list, and count as free from now on.
    pub(super) fn count_free(&mut self, frames: u64) {
        self.free += frames;
    }

    /// A frame that was counted as free, but in no list, is in one.
    pub(super) fn put_back(&mut self, records: &[Record], block: Frame, order: usize) {
        self.free -= 1 << order;
        self.release(records, block, order);
    }

    /// A free frame of the aligned block of 2^order frames at `first`, from the smallest piece.
    pub(super) fn take_within(&mut self, records: &[Record], first: Frame, order: usize) -> Option<Frame> {
        let pieces = (first.0..first.0 + (1 << order)).filter(|at| records[*at as usize].kind() == Kind::Free);
        let piece = pieces.min_by_key(|at| records[*at as usize].order())?;
        let order = records[piece as usize].order() as usize;
        self.unlink(records, piece, order);
        for lower in (0..order).rev() {
            self.link(records, piece + (1 << lower), lower);
        }
        self.free -= 1;
        records[piece as usize].mark(Kind::Idle, 0);
        Some(Frame(piece))
    }

    fn link(&mut self, records: &[Record], block: u32, order: usize) {
        let record = &records[block as usize];
        let head = self.heads[order];
        record.mark(Kind::Free, order as u8);
        record.set_prev(NONE);
        record.set_next(head);
        if head != NONE {
            records[head as usize].set_prev(block);
        }
        self.heads[order] = block;
    }

    fn unlink(&mut self, records: &[Record], block: u32, order: usize) {
        let record = &records[block as usize];
        let (prev, next) = (record.prev(), record.next());
        match prev {
            NONE => self.heads[order] = next,
            _ => records[prev as usize].set_next(next),
        }
        if next != NONE {
            records[next as usize].set_prev(prev);
        }
    }
}
