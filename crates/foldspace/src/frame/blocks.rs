//! Blocks of 2 MiB: what is in each, and emptying one.
//!
//! A block is emptied in three steps, of which the manager's other half ([`crate::migrate`]) does the second:
//!
//! 1. its free frames are set apart: no longer in the buddy lists, still counted as free;
//! 2. what is in its other frames moves elsewhere; as each comes back from its grace period it is set apart too, instead of going to a cache;
//! 3. when all 512 are there they are one free block; or somebody gives up, and they are free frames as others.

use super::buddy::ORDERS;
use super::record::{Kind, NONE};
use super::{Frame, FrameUse, Memory};
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;

/// Frames of a block of 2 MiB.
pub const BLOCK_FRAMES: u32 = 1 << BLOCK_ORDER;
const BLOCK_ORDER: usize = 9;

/// What the frames of a block of 2 MiB are used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockUse {
    /// Free; frames in processors' caches, and those that wait for a grace period, included.
    pub free: u32,
    /// With content that [`Memory::migrate`] can move.
    pub movable: u32,
    /// Page tables, reference pages, and the embedder's; those that the manager was not given.
    pub fixed: u32,
}

impl Memory {
    /// Frame numbers that there are: all frames that the manager was given are below.
    pub fn frame_numbers(&self) -> u32 {
        self.records().len() as u32
    }

    /// What the block of 2 MiB is used for that begins at `first`, a multiple of [`BLOCK_FRAMES`]; another moment it may be something else.
    /// O([`BLOCK_FRAMES`]).
    pub fn block_use(&self, first: Frame) -> BlockUse {
        let mut uses = BlockUse::default();
        let end = first.0.saturating_add(BLOCK_FRAMES);
        let mut at = first.0;
        while at < end {
            let frame = Frame(at);
            // A free block is as good as its head.
            let record = self.records().get(at as usize);
            if let Some(record) = record.filter(|record| record.kind() == Kind::Free) {
                let size = (1 << record.order().min(ORDERS as u8)).min(end - at);
                uses.free += size;
                at += size;
                continue;
            }
            match self.frame_use(frame) {
                FrameUse::Free | FrameUse::Idle => uses.free += 1,
                FrameUse::Private | FrameUse::Page => uses.movable += 1,
                _ => uses.fixed += 1,
            }
            at += 1;
        }
        uses
    }

    /// Gives everything in processors' caches to the buddy lists, so that it is known where it is.
    pub(crate) fn drain_all_caches(&self) {
        while self.drain_caches() {}
    }

    /// Frames in the buddy lists.
    pub(crate) fn free_in_blocks(&self) -> u64 {
        self.buddy.lock().free()
    }

    /// Step 1 of emptying the block at `first`.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if as many are being emptied as can be.
    pub(crate) fn begin_emptying(&self, first: Frame) -> Result<()> {
        let mut buddy = self.buddy.lock();
        if buddy.emptied.is_full() || buddy.emptied.iter().any(|(other, _)| *other == first) {
            return Err(Error::Busy);
        }
        let mut there = 0;
        buddy.isolate(self.records(), first, BLOCK_ORDER, |_| there += 1);
        buddy.emptied.push((first, there));
        self.counters.emptying.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether what is freed may be in a block that is being emptied.
    #[inline]
    pub(super) fn is_emptying_blocks(&self) -> bool {
        self.counters.emptying.load(Ordering::Relaxed) != 0
    }

    /// Step 2: takes those frames out of a chain of idle ones that are in a block that is being emptied; `taken` is told how many. Returns the chain of
    /// the others.
    #[cold]
    pub(super) fn collect(&self, head: u32, taken: impl FnOnce(u64)) -> u32 {
        let (mut rest, mut at, mut count) = (NONE, head, 0);
        let mut buddy = self.buddy.lock();
        while at != NONE {
            let record = self.record(Frame(at));
            let next = record.next();
            let block = Frame(at & !(BLOCK_FRAMES - 1));
            match buddy.emptied.iter_mut().find(|(first, _)| *first == block) {
                Some((_, there)) => {
                    *there += 1;
                    record.mark(Kind::Isolated, 0);
                    count += 1;
                }
                None => {
                    record.set_next(rest);
                    rest = at;
                }
            }
            at = next;
        }
        buddy.count_free(count);
        drop(buddy);
        taken(count);
        rest
    }

    /// Step 3: how many blocks that are being emptied are empty; they are free blocks now.
    pub(crate) fn end_emptied(&self) -> u32 {
        let mut buddy = self.buddy.lock();
        let mut ended = 0;
        while let Some(at) = buddy.emptied.iter().position(|(_, there)| *there == BLOCK_FRAMES) {
            let (first, _) = buddy.emptied.swap_remove(at);
            for tail in first.0 + 1..first.0 + BLOCK_FRAMES {
                self.record(Frame(tail)).mark(Kind::FreeTail, 0);
            }
            buddy.put_back(self.records(), first, BLOCK_ORDER);
            self.counters.emptying.fetch_sub(1, Ordering::Relaxed);
            ended += 1;
        }
        ended
    }

    /// Gives up emptying the block at `first`, if that goes on: what was set apart is free as it was.
    pub(crate) fn give_up_emptying(&self, first: Frame) {
        let mut buddy = self.buddy.lock();
        let Some(at) = buddy.emptied.iter().position(|(other, _)| *other == first) else { return };
        buddy.emptied.swap_remove(at);
        self.counters.emptying.fetch_sub(1, Ordering::Relaxed);
        for frame in (first.0..first.0 + BLOCK_FRAMES).map(Frame) {
            if self.record(frame).kind() == Kind::Isolated {
                buddy.put_back(self.records(), frame, 0);
            }
        }
    }

    /// A free frame of the block at `first`, for what is moved there; idle until its record begins.
    pub(crate) fn take_in_block(&self, first: Frame) -> Option<Frame> {
        self.spend_allowance().ok()?;
        self.buddy.lock().take_within(self.records(), first, BLOCK_ORDER)
    }
}
