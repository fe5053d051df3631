//! The threads of a processor that are ready, and which of them is next.
//!
//! Ordinary threads take turns. The others are rare, and cost the ordinary ones a look at one word ([`SPECIAL`]):
//!
//! - **Real-time threads** (`SCHED_FIFO`, `SCHED_RR`) run before all others, on any processor that they may run on: one that has become ready takes the place of
//!   one of lower priority at once ([`super::place::preempt`]), and a processor that looks for its next thread looks at all queues. Among equals they are first in, first out;
//!   with `SCHED_RR` they take turns after [`ROUND_ROBIN_NS`]. Where ordinary threads wait they leave them a twentieth of the time, as on Linux (`sched_rt_runtime_us`).
//! - **Background threads** (`SCHED_IDLE`) run when nobody else is ready, and now and then although somebody is.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::list::{RunLink, TaskList};
use crate::process::Task;

/// How a thread is scheduled: a priority, and how equals take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rank(u8);

impl Rank {
    /// By turns, like most.
    pub const ORDINARY: Rank = Rank(0);
    /// When nobody else is ready.
    pub const BACKGROUND: Rank = Rank(u8::MAX);
    /// Set of real-time ranks whose equals take turns.
    const TURNS: u8 = 0x80;

    /// First in, first out; `priority` is 1 to 99.
    pub const fn fifo(priority: u8) -> Rank {
        Rank(priority)
    }

    /// Equals take turns; `priority` is 1 to 99.
    pub const fn round_robin(priority: u8) -> Rank {
        Rank(priority | Rank::TURNS)
    }

    pub(super) const fn from_bits(bits: u8) -> Rank {
        Rank(bits)
    }

    pub(super) const fn bits(self) -> u8 {
        self.0
    }

    /// Whether equals take turns.
    pub(super) fn takes_turns(self) -> bool {
        self.0 & Rank::TURNS != 0
    }

    /// Higher runs first: 0 for those that are no real-time threads.
    pub(super) fn priority(self) -> u8 {
        if self == Rank::BACKGROUND { 0 } else { self.0 & !Rank::TURNS }
    }
}

/// Where a thread goes among its equals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    /// Its turn is not over: somebody else was more urgent.
    First,
    /// Behind them.
    Last,
}

/// How long a `SCHED_RR` thread runs while others of its priority are ready, nanoseconds (`RR_TIMESLICE`).
pub const ROUND_ROBIN_NS: u64 = 100_000_000;

/// Slices that real-time threads have of those of a processor while ordinary ones wait, and slices that these have then: together a second.
const URGENT_SLICES: u32 = 95;
const OWED_SLICES: u32 = 5;
/// How often others are chosen before a background thread is.
const BACKGROUND_EVERY: u32 = 32;

/// Real-time and background threads in any queue.
static SPECIAL: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any: then [`Queue::pop_special`] is what chooses.
#[inline(always)]
pub(super) fn any_special() -> bool {
    SPECIAL.load(Ordering::Relaxed) != 0
}

/// A processor's queue.
///
/// # Invariants
/// `urgent` is sorted by priority, highest first. [`SPECIAL`] counts the members of `urgent` and `background`.
pub(super) struct Queue {
    pub(super) ordinary: TaskList<RunLink>,
    urgent: TaskList<RunLink>,
    background: TaskList<RunLink>,
    /// Slices that real-time threads had while ordinary ones waited, since one of these ran.
    urgent_slices: u32,
    /// Slices that ordinary threads are to have now.
    owed: u32,
    /// How often others were chosen while background threads waited.
    passed: u32,
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            ordinary: TaskList::new(),
            urgent: TaskList::new(),
            background: TaskList::new(),
            urgent_slices: 0,
            owed: 0,
            passed: 0,
        }
    }

    /// Adds a thread that is not ordinary.
    #[cold]
    pub(super) fn push_special(&mut self, task: Arc<Task>, position: Position) {
        SPECIAL.fetch_add(1, Ordering::SeqCst);
        let rank = task.thread.rank();
        if rank.priority() == 0 {
            return self.background.push_back(task);
        }
        let own = rank.priority();
        self.urgent.insert_before(task, |other| {
            let other = other.thread.rank().priority();
            other < own || other == own && position == Position::First
        });
    }

    /// The highest priority of the real-time threads here that `may` run; 0 for none.
    pub(super) fn urgency(&self, may: impl Fn(&Task) -> bool) -> u8 {
        self.urgent.iter().find(|task| may(task)).map_or(0, |task| task.thread.rank().priority())
    }

    /// The next one where not all are ordinary.
    #[cold]
    pub(super) fn pop_special(&mut self) -> Option<Arc<Task>> {
        if self.owed == 0
            && let Some(task) = self.urgent.pop_front()
        {
            SPECIAL.fetch_sub(1, Ordering::Relaxed);
            return Some(task);
        }
        self.passed += u32::from(!self.background.is_empty());
        if self.passed < BACKGROUND_EVERY
            && let Some(task) = self.ordinary.pop_front()
        {
            return Some(task);
        }
        self.passed = 0;
        let task = self.background.pop_front().or_else(|| self.urgent.pop_front());
        if task.is_some() {
            SPECIAL.fetch_sub(1, Ordering::Relaxed);
        }
        task.or_else(|| self.ordinary.pop_front())
    }

    /// Takes the first that is `wanted`, by urgency.
    pub(super) fn take_first(&mut self, wanted: impl Fn(&Task) -> bool) -> Option<Arc<Task>> {
        if !any_special() {
            return self.ordinary.take_first(wanted);
        }
        self.take_urgent(&wanted).or_else(|| self.ordinary.take_first(&wanted)).or_else(|| {
            let task = self.background.take_first(&wanted);
            SPECIAL.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
            task
        })
    }

    /// Takes the most urgent real-time thread that is `wanted`.
    #[cold]
    pub(super) fn take_urgent(&mut self, wanted: impl Fn(&Task) -> bool) -> Option<Arc<Task>> {
        let task = self.urgent.take_first(wanted);
        SPECIAL.fetch_sub(usize::from(task.is_some()), Ordering::Relaxed);
        task
    }

    /// A slice of a thread of this rank is over and others are ready; it has run for `ran` nanoseconds. Whether one of them is to run now.
    pub(super) fn slice_ends(&mut self, rank: Rank, ran: u64) -> bool {
        let own = rank.priority();
        if own == 0 {
            self.urgent_slices = 0;
            self.owed = self.owed.saturating_sub(1);
            return true;
        }
        if !self.ordinary.is_empty() {
            self.urgent_slices += 1;
            if self.urgent_slices >= URGENT_SLICES {
                self.urgent_slices = 0;
                self.owed = OWED_SLICES;
                return true;
            }
        }
        let waiting = self.urgency(|_| true);
        waiting > own || waiting == own && rank.takes_turns() && ran >= ROUND_ROBIN_NS
    }
}
