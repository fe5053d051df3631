//! What children do: one file for each kind of work.

mod compacting;
mod execs;
mod files;
mod futexes;
mod hungry;
mod readers;
mod signals;
mod storm;
mod tree;

use std::io;
use std::time::{Duration, Instant};

use foldspace_guest_measure::statistics::XorShift;

use crate::board::Board;

/// A kind of work.
pub struct Kind {
    pub name: &'static str,
    /// What a child of this kind does, given a seed.
    pub work: fn(&Board, u64) -> Result<(), String>,
    /// Whether it takes all memory that there is.
    pub takes_memory: bool,
}

const fn kind(name: &'static str, work: fn(&Board, u64) -> Result<(), String>) -> Kind {
    Kind { name, work, takes_memory: false }
}

/// All there are.
pub const KINDS: [Kind; 9] = [
    kind("storm", storm::work),
    kind("tree", tree::work),
    kind("readers", readers::work),
    kind("files", files::work),
    kind("signals", signals::work),
    kind("futexes", futexes::work),
    Kind { takes_memory: true, ..kind("hungry", hungry::work) },
    kind("execs", execs::work),
    kind("compacting", compacting::work),
];

/// The exit status of who finds no memory where nothing can be done but end, as if killed for that.
pub const NO_MEMORY: i32 = 9;

/// How long a child goes on, and its dice.
struct Life<'a> {
    board: &'a Board,
    random: XorShift,
    until: Instant,
}

impl<'a> Life<'a> {
    /// Between one and four seconds.
    fn new(board: &'a Board, seed: u64) -> Life<'a> {
        let mut random = XorShift::new(seed);
        (0..8).for_each(|_| _ = random.next_number());
        let until = Instant::now() + Duration::from_millis(1000 + random.next_number() % 3000);
        Life { board, random, until }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.until && !self.board.is_over()
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: usize) -> usize {
        ((self.random.next_number() >> 16) % sides as u64) as usize
    }
}

/// What a call that may be refused for want of memory has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Done {
    Yes,
    Refused,
}

/// Counts refusals; any other error is a failure.
fn tried(what: &str, result: io::Result<()>) -> Result<Done, String> {
    match result {
        Ok(()) => Ok(Done::Yes),
        Err(error) if out_of_memory(&error) => Ok(Done::Refused),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn out_of_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN | libc::ENFILE | libc::ENOSPC))
}
