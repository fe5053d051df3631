//! The page that all processes share: what the director wants, and what was done.

use std::io;

use foldspace_guest_measure::Shared;

/// Numbers for all to see.
pub struct Board(Shared);

/// The slots.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Slot {
    Stop,
    /// Whether somebody has taken, or is taking, nearly all memory.
    Scarce,
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
        Shared::new().map(Board)
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
        self.0.get(Slot::Scarce as usize) != 0
    }

    /// Says whether.
    pub fn set_scarce(&self, scarce: u64) {
        self.0.set(Slot::Scarce as usize, scarce);
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
