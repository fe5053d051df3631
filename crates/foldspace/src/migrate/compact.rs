//! Compaction: whole blocks of 2 MiB out of fragmented memory, by moving what is in those with the least in them to where most is used already.
//!
//! ```text
//!   before   [x . x . . . x .] [x x . x x x . x] [. . . x . . . .] [T x . x . x x .]        x  content   T  a table: it stays
//!   after    [. . . . . . . .] [x x x x x x x x] [. . . . . . . .] [T x x x x x x .]
//! ```

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::NotMoved;
use super::run::{AT_ONCE, Run, Then};
use crate::frame::{BLOCK_FRAMES, BlockUse, Frame, FrameUse, Memory};

/// What a compaction came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compaction {
    /// Blocks of 2 MiB that are free and were not.
    pub blocks: u32,
    /// Frames of which the content was moved.
    pub moved: u32,
}

/// Frames that have to be free besides those that are needed: others allocate meanwhile.
const MARGIN: u64 = 64;

/// How often frames in a block are looked at again that were busy, or came into use when the block was chosen.
const ROUNDS: usize = 3;

/// How often a grace period is waited for at the end.
const PATIENCE: u32 = 8;

/// A block, and what was in it when all were looked at.
struct Block {
    first: Frame,
    uses: BlockUse,
}

impl Memory {
    /// Makes up to `wanted` free blocks of 2 MiB, as far as that can be done by moving what can be moved: those with the least content first. Programs
    /// run on meanwhile. Free frames of four blocks at most are out of reach while these are emptied. O(frames), and what [`Memory::migrate`] takes of
    /// each that is moved.
    ///
    /// Frames that are left become free after a grace period. It moves the epoch on, and waits for readers within reason; a block of which a frame
    /// comes back later than that is given up, though its frames are free then.
    pub fn compact(self: &Arc<Memory>, wanted: u32) -> Compaction {
        self.reclaim();
        self.drain_all_caches();
        let mut done = Compaction::default();
        let Some(blocks) = self.blocks() else { return done };
        let sources = blocks.iter().filter(|block| block.uses.fixed == 0 && block.uses.movable > 0);
        let mut emptying: Vec<Frame> = Vec::new();
        if emptying.try_reserve(blocks.len()).is_err() {
            return done;
        }
        let mut targets = blocks.iter().rev().map(|block| block.first).peekable();
        for source in sources {
            let asked_for = done.blocks + emptying.len() as u32;
            let room = self.free_in_blocks().saturating_sub(source.uses.free.into());
            if asked_for >= wanted || room < u64::from(source.uses.movable) + MARGIN {
                break;
            }
            if self.begin_emptying(source.first).is_err() {
                done.blocks += self.finish_emptying(&mut emptying);
                if self.begin_emptying(source.first).is_err() {
                    break;
                }
            }
            emptying.push(source.first);
            let mut next_target = || {
                while let Some(target) = targets.peek() {
                    if *target == source.first {
                        return None;
                    }
                    if let Some(frame) = self.take_in_block(*target) {
                        return Some(frame);
                    }
                    targets.next();
                }
                None
            };
            if !self.empty(source.first, &mut next_target, &mut done.moved) {
                self.give_up_emptying(source.first);
                emptying.pop();
                if targets.peek().is_none_or(|target| *target == source.first) {
                    break;
                }
            }
        }
        done.blocks += self.finish_emptying(&mut emptying);
        done
    }

    /// All blocks that are neither empty nor full, those first that have least to move; last come those that cannot be emptied. `None` without heap.
    fn blocks(&self) -> Option<Vec<Block>> {
        let mut blocks = Vec::new();
        blocks.try_reserve_exact((self.frame_numbers() / BLOCK_FRAMES) as usize).ok()?;
        for number in 0..self.frame_numbers() / BLOCK_FRAMES {
            let first = Frame(number * BLOCK_FRAMES);
            let uses = self.block_use(first);
            if uses.free < BLOCK_FRAMES && uses.free > 0 {
                blocks.push(Block { first, uses });
            }
        }
        blocks.sort_unstable_by_key(|block| (block.uses.fixed > 0, block.uses.movable));
        Some(blocks)
    }

    /// Moves out what is in a block; whether all of it will be free.
    fn empty(
        self: &Arc<Memory>,
        first: Frame,
        next_target: &mut dyn FnMut() -> Option<Frame>,
        moved: &mut u32,
    ) -> bool {
        for _ in 0..ROUNDS {
            let mut left = false;
            let mut at = first.0;
            while at < first.0 + BLOCK_FRAMES {
                match self.move_some(&mut at, first.0 + BLOCK_FRAMES, next_target, moved) {
                    Ok(all) => left |= !all,
                    Err(NotMoved::Busy) => left = true,
                    Err(_) => return false,
                }
            }
            if !left {
                return true;
            }
        }
        false
    }

    /// Moves frames from `at` on, those that can go in one run; whether all of them have gone. `Err`: there is one that cannot be moved, or nowhere to
    /// go.
    fn move_some(
        self: &Arc<Memory>,
        at: &mut u32,
        end: u32,
        next_target: &mut dyn FnMut() -> Option<Frame>,
        moved: &mut u32,
    ) -> Result<bool, NotMoved> {
        let mut run = Run::new(self, Then::Free);
        let (mut of, mut pushed) = (None, 0);
        let mut nowhere = false;
        while *at < end && pushed < AT_ONCE {
            let frame = Frame(*at);
            let kind = match self.frame_use(frame) {
                FrameUse::Free | FrameUse::Idle => None,
                FrameUse::Private => Some(None),
                FrameUse::Page => Some(Some(self.object_number(frame))),
                _ => return self.carry_out(run, moved).and(Err(NotMoved::Fixed)),
            };
            if let Some(kind) = kind {
                if pushed > 0 && of != Some(kind) {
                    break;
                }
                let Some(to) = next_target() else {
                    nowhere = true;
                    break;
                };
                of = Some(kind);
                run.push(frame, to);
                pushed += 1;
            }
            *at += 1;
        }
        let all = self.carry_out(run, moved)?;
        if nowhere { Err(NotMoved::OutOfMemory) } else { Ok(all) }
    }

    fn carry_out(self: &Arc<Memory>, mut run: Run<'_>, moved: &mut u32) -> Result<bool, NotMoved> {
        run.carry_out();
        let (mut all, mut ran_out) = (true, false);
        for (to, outcome) in run.outcomes() {
            match outcome {
                Ok(()) => *moved += 1,
                Err(error) => {
                    self.free_frame(to);
                    all &= error == NotMoved::Unused;
                    ran_out |= error == NotMoved::OutOfMemory;
                }
            }
        }
        if ran_out { Err(NotMoved::OutOfMemory) } else { Ok(all) }
    }

    /// Lets frames come back from their grace period, and ends what is empty then; the rest is given up. How many blocks there are.
    fn finish_emptying(self: &Arc<Memory>, emptying: &mut Vec<Frame>) -> u32 {
        let mut made = 0;
        for attempt in 0..PATIENCE {
            self.reclaim();
            made += self.end_emptied();
            if made as usize >= emptying.len() || attempt > 0 && !self.platform().wait_for_readers(attempt) {
                break;
            }
        }
        for first in emptying.drain(..) {
            self.give_up_emptying(first);
        }
        made
    }
}
