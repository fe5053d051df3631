//! The page that all processes share: what the director wants, and what was done.

use std::io;
use std::time::{Duration, Instant};

use foldspace_guest_measure::Shared;

/// Numbers for all to see.
pub struct Board(Shared, Instant);

/// How much later a failure may be noticed than it happened.
const LATER: Duration = Duration::from_secs(10);

/// The slots.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Slot {
    Stop,
    /// Until when there may be no memory for anybody, milliseconds since the start.
    ScarceUntil,
    Operations,
    Refused,
    /// From here on the process numbers of the children, 0 where there is none.
    Children = 16,
}

/// Children at a time, at most.
pub const CHILDREN: usize = 32;

impl Board {
    /// An empty one, shared with all processes that are forked afterwards.
    pub fn new() -> io::Result<Board> {
        Shared::new().map(|page| Board(page, Instant::now()))
    }

    /// Whether all are to come to their end.
    pub fn is_over(&self) -> bool {
        self.0.get(Slot::Stop as usize) != 0
    }

    /// Says so.
    pub fn end(&self) {
        self.0.set(Slot::Stop as usize, 1);
    }

    /// Whether there may be no memory for anybody.
    pub fn is_scarce(&self) -> bool {
        self.now() < self.0.get(Slot::ScarceUntil as usize)
    }

    /// Says that somebody is about to take nearly all memory, or all of it.
    pub fn memory_goes(&self) {
        self.0.set(Slot::ScarceUntil as usize, u64::MAX);
    }

    /// Says that it is there again. What failed for want of it may be noticed later.
    pub fn memory_is_back(&self) {
        self.0.set(Slot::ScarceUntil as usize, self.now() + LATER.as_millis() as u64);
    }

    fn now(&self) -> u64 {
        self.1.elapsed().as_millis() as u64
    }

    /// Counts work that was done, and calls that were refused for want of memory.
    pub fn count(&self, operations: u64, refused: u64) {
        self.0.add(Slot::Operations as usize, operations);
        self.0.add(Slot::Refused as usize, refused);
    }

    /// What was counted.
    pub fn counted(&self) -> (u64, u64) {
        (self.0.get(Slot::Operations as usize), self.0.get(Slot::Refused as usize))
    }

    /// Notes the process number of a child.
    pub fn set_child(&self, place: usize, pid: i32) {
        self.0.set(Slot::Children as usize + place, pid as u64);
    }

    /// A child's process number.
    pub fn child(&self, place: usize) -> Option<u64> {
        Some(self.0.get(Slot::Children as usize + place)).filter(|pid| *pid != 0)
    }
}
