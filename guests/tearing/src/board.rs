//! What the processes of one case tell each other, in a shared page.

use std::io;

use foldspace_guest_measure::Shared;

/// Readers at a time, at most.
pub const READERS: usize = 8;

/// The page.
pub struct Board(Shared);

/// What a reader counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Count {
    /// The whole window, read.
    Snapshots,
    /// Those of them during which the writer made a change.
    Crossed,
    /// A page was missing that is mapped in all states.
    Gaps,
    /// An address was in two areas, or they were not in order.
    Twice,
    /// Areas of different states, or a line that is made of parts.
    Mixtures,
    /// Questions that were answered.
    Questions,
    /// With something that is in no state.
    Wrong,
    /// A set of bits: the states that were seen.
    States,
}

/// All of them.
pub const COUNTS: usize = Count::States as usize + 1;

const GO: usize = 0;
const STOP: usize = 1;
const CHANGES: usize = 2;
const FAILED: usize = 3;
const FIRST_READER: usize = 16;

impl Board {
    pub fn new() -> io::Result<Board> {
        Shared::new().map(Board)
    }

    /// The writer is ready: everybody may begin.
    pub fn go(&self) {
        self.0.set(GO, 1);
    }

    pub fn has_begun(&self) -> bool {
        self.0.get(GO) != 0
    }

    pub fn stop(&self) {
        self.0.set(STOP, 1);
    }

    pub fn is_over(&self) -> bool {
        self.0.get(STOP) != 0
    }

    /// Changes that the writer has made.
    pub fn changes(&self) -> u64 {
        self.0.get(CHANGES)
    }

    pub fn changed(&self, changes: u64) {
        self.0.set(CHANGES, changes);
    }

    /// Somebody could not do his work.
    pub fn fail(&self) {
        self.0.set(FAILED, 1);
        self.stop();
    }

    pub fn has_failed(&self) -> bool {
        self.0.get(FAILED) != 0
    }

    /// Notes what a reader has counted.
    pub fn report(&self, reader: usize, counts: &[u64; COUNTS]) {
        counts.iter().enumerate().for_each(|(at, count)| self.0.set(FIRST_READER + reader * COUNTS + at, *count));
    }

    /// What a reader has counted.
    pub fn counted(&self, reader: usize) -> [u64; COUNTS] {
        std::array::from_fn(|at| self.0.get(FIRST_READER + reader * COUNTS + at))
    }
}
