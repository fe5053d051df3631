//! Moving what is in a frame to another one, whoever uses it meanwhile.
//!
//! ```text
//!   1 freeze    under the locks of all tables on all paths to the frame (a picture): the write bits of its slots go, and the one who moves it takes a
//!               reference. A store from now on finds a frame that others have too: it copies a private page, as after a fork, and waits for
//!               an object's.
//!   2 a shootdown of each address space in the picture: nobody writes it any more
//!   3 copy
//!   4 switch    a second picture: every slot refers to the new frame from now on, all at once; the object's cache too
//!   5 a shootdown of each address space in that picture: nobody reads the old frame any more
//!   6 the old frame has no reference left, the new one is no more held back
//! ```
//!
//! So to everybody else a migration is a relative who comes and goes: nothing in a fault, a fork or an exit knows of it, but that a store to an object's
//! page asks whether that is on its way. What needs memory (the new frame, the pictures) is had before slots change; without it the write bits come
//! back with the next stores, and nothing else has happened.
//!
//! Kernel's copies through the direct map: whoever stores holds the lock of a root, which the first picture waits for; whoever reads is pinned, so the old
//! frame stays what it was until he is done.

mod compact;
mod poison;
mod run;

use alloc::sync::Arc;
use core::fmt;

use crate::error::Error;
use crate::frame::{Frame, Kind, Memory};
use crate::reverse::in_earnest;
pub use compact::Compaction;
pub use poison::Lost;
use run::{Run, Then};

/// Why the content of a frame stays where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotMoved {
    /// Nobody uses it (any more).
    Unused,
    /// It is a page table, the embedder's, or a reference page: nothing finds all who know its place.
    Fixed,
    /// Others were changing what leads to it again and again, or are moving it themselves (EBUSY).
    Busy,
    /// No frame, or no heap.
    OutOfMemory,
}

impl fmt::Display for NotMoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotMoved::Unused => "nobody uses the frame",
            NotMoved::Fixed => "what is in the frame cannot be moved",
            NotMoved::Busy => "others were changing what leads to the frame again and again",
            NotMoved::OutOfMemory => "out of memory",
        })
    }
}

impl core::error::Error for NotMoved {}

impl From<Error> for NotMoved {
    fn from(error: Error) -> NotMoved {
        match error {
            Error::OutOfMemory => NotMoved::OutOfMemory,
            _ => NotMoved::Busy,
        }
    }
}

impl Memory {
    /// Moves the content of `frame` to another frame, and everybody who maps it, or has it in a cache, with it. Programs and their kernel may use it
    /// meanwhile. Returns where it is now. Time: what [`Memory::mappings`] takes, twice; two shootdowns of each address space that maps it, one if
    /// several share the page copy-on-write.
    ///
    /// # Errors
    ///
    /// [`NotMoved`]; nothing has changed then.
    pub fn migrate(self: &Arc<Memory>, frame: Frame) -> Result<Frame, NotMoved> {
        self.migrate_with(frame, Then::Free)
    }

    fn migrate_with(self: &Arc<Memory>, frame: Frame, then: Then) -> Result<Frame, NotMoved> {
        let mut attempt = 0;
        loop {
            let outcome = in_earnest(NotMoved::Busy, || self.migrate_once(frame, then));
            if outcome != Err(NotMoved::OutOfMemory) || !self.reclaim_for(attempt) {
                return outcome;
            }
            attempt += 1;
        }
    }

    fn migrate_once(self: &Arc<Memory>, frame: Frame, then: Then) -> Result<Frame, NotMoved> {
        self.may_move(frame)?;
        let to = self.alloc_frame()?;
        let mut run = Run::new(self, then);
        run.push(frame, to);
        run.carry_out();
        match run.outcomes().next() {
            Some((_, Ok(()))) => Ok(to),
            Some((_, Err(error))) => {
                self.free_frame(to);
                Err(error)
            }
            None => Err(NotMoved::Unused),
        }
    }

    /// The number of the object that `frame` is a page of: pages of one can be moved together.
    fn object_number(&self, frame: Frame) -> u32 {
        self.record(frame).owner().0
    }

    /// What can be said about moving `frame` without looking further.
    pub(crate) fn may_move(&self, frame: Frame) -> Result<(), NotMoved> {
        match self.records().get(frame.0 as usize).map(|record| record.kind()) {
            Some(Kind::Anon | Kind::Object) if !self.record(frame).is_lost() => Ok(()),
            None | Some(Kind::Absent | Kind::Free | Kind::FreeTail | Kind::Idle | Kind::Isolated) => {
                Err(NotMoved::Unused)
            }
            Some(_) => Err(NotMoved::Fixed),
        }
    }
}
