//! What each thread holds, checked against the order of [`Rank`]; and, if it asks for that, what it takes, waits for and writes.

use core::panic::Location;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::thread::panicking;
use std::vec::Vec;

use super::Rank;

/// Ranks that there are.
pub const RANKS: usize = Rank::Nodes as usize + 1;

/// What a thread did while it counted.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Locks taken, by rank.
    pub taken: [u64; RANKS],
    /// Of these, those that somebody else had.
    pub waited: [u64; RANKS],
    /// Faults that had to start over.
    pub again: u64,
    /// Stores to each cache line (64 bytes) of records, tables, locks and counters. Not contents of pages, nor memory that the thread alone knows.
    pub lines: HashMap<usize, u64>,
}

impl Tally {
    const fn line_of(address: usize) -> usize {
        address / 64
    }
}

std::thread_local! {
    static HELD: RefCell<Vec<(Rank, usize)>> = const { RefCell::new(Vec::new()) };
    static COUNTING: Cell<bool> = const { Cell::new(false) };
    static TALLY: RefCell<Option<Tally>> = const { RefCell::new(None) };
}

/// This thread counts from now on.
pub fn begin() {
    TALLY.set(Some(Tally::default()));
    COUNTING.set(true);
}

/// It stops; what it has counted.
pub fn end() -> Tally {
    COUNTING.set(false);
    TALLY.take().unwrap_or_default()
}

fn count(note: impl FnOnce(&mut Tally)) {
    if COUNTING.try_with(Cell::get) == Ok(true) {
        TALLY.with_borrow_mut(|tally| tally.as_mut().map(note));
    }
}

/// Something that others may read was stored at `address`.
pub(crate) fn wrote(address: usize) {
    count(|tally| *tally.lines.entry(Tally::line_of(address)).or_default() += 1);
}

/// A fault starts over.
pub(crate) fn again() {
    count(|tally| tally.again += 1);
}

/// What a shootdown, or a wait for readers, may be called with.
#[track_caller]
pub(crate) fn may_hold_up_to(last: Option<Rank>) {
    let inner = HELD.try_with(|held| held.borrow().iter().map(|(rank, _)| *rank).max()).unwrap_or(None);
    assert!(inner <= last || panicking(), "{inner:?} is held where others are waited for");
}

/// About to wait for a lock.
pub(crate) struct Wait {
    rank: Rank,
    address: usize,
}

/// Held until dropped.
pub(crate) struct Held {
    address: usize,
}

/// About to wait for the lock at `address`.
#[track_caller]
pub(crate) fn wait(rank: Rank, address: usize) -> Wait {
    let _ = HELD.try_with(|held| {
        let held = held.borrow();
        let table = (Rank::Table4..=Rank::Table1).contains(&rank);
        let wrong = held.iter().find(|(other, at)| *other > rank || *other == rank && !(table && *at != address));
        if let Some((other, _)) = wrong {
            if !panicking() {
                panic!("lock order: {rank:?} is waited for under {other:?}, at {}; held: {held:?}", Location::caller());
            }
        }
    });
    Wait { rank, address }
}

impl Wait {
    /// The lock is ours; whether somebody else had it.
    pub(crate) fn over(self, contended: bool) -> Held {
        count(|tally| tally.waited[self.rank as usize] += u64::from(contended));
        took(self.rank, self.address)
    }
}

/// The lock at `address` was taken.
pub(crate) fn took(rank: Rank, address: usize) -> Held {
    let _ = HELD.try_with(|held| held.borrow_mut().push((rank, address)));
    count(|tally| {
        tally.taken[rank as usize] += 1;
        *tally.lines.entry(Tally::line_of(address)).or_default() += 1;
    });
    Held { address }
}

/// The lock at `address` is given up.
pub(crate) fn gave(address: usize) {
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        match held.iter().rposition(|(_, at)| *at == address) {
            Some(position) => drop(held.remove(position)),
            None => assert!(panicking(), "a lock is given up that is not held"),
        }
    });
}

impl Drop for Held {
    fn drop(&mut self) {
        gave(self.address);
    }
}

/// As [`core::sync::atomic`], with a note of each store.
pub mod atomic {
    wrapped_atomics!(load: nothing, store: super::wrote);

    fn nothing(_address: usize) {}
}
