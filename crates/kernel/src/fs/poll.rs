//! Waiting for any of several files.

use alloc::sync::Arc;

use super::file::{File, Ready};
use crate::errno::Errno;
use crate::sched::WaitQueue;
use crate::time::monotonic_ns;

/// All tasks in `poll` and its like. One queue for all: they are few, and looking again is cheap.
static POLLERS: WaitQueue = WaitQueue::new();

/// How often files that change without a word are looked at, nanoseconds.
const LOOK_AGAIN: u64 = 10_000_000;

/// Makes those that wait for any file look again. To be called after a file may have become ready for something.
pub fn notify() {
    if POLLERS.has_waiters() {
        POLLERS.wake_all();
    }
}

/// One file that is waited for.
pub struct Interest {
    /// The file; `None` for a number that is not open.
    pub file: Option<Arc<File>>,
    /// For what. Errors and hang-ups are reported in any case.
    pub events: Ready,
}

impl Interest {
    /// What of it there is now.
    pub fn ready(&self) -> Ready {
        match &self.file {
            None => Ready::INVALID,
            Some(file) => file.body.ready(file) & (self.events | Ready::ERROR | Ready::HANG_UP | Ready::INVALID),
        }
    }
}

/// Waits until `look` finds something, or the time (nanoseconds since boot) comes: `None` then.
pub fn wait<T>(
    interests: &[Interest],
    deadline: Option<u64>,
    mut look: impl FnMut(&[Interest]) -> Option<T>,
) -> Result<Option<T>, Errno> {
    let unannounced =
        interests.iter().any(|interest| interest.file.as_ref().is_some_and(|file| file.body.changes_unannounced()));
    let changes = if unannounced { Changes::Unannounced } else { Changes::Announced };
    wait_until(deadline, changes, || look(interests))
}

/// How what is waited for changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// [`notify`] is called.
    Announced,
    /// Some of it without a word.
    Unannounced,
}

/// The same for anything that [`notify`] is called for.
pub fn wait_until<T>(
    deadline: Option<u64>,
    changes: Changes,
    mut look: impl FnMut() -> Option<T>,
) -> Result<Option<T>, Errno> {
    loop {
        if let Some(found) = look() {
            return Ok(Some(found));
        }
        let now = monotonic_ns();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(None);
        }
        let look_again = (changes == Changes::Unannounced).then_some(now + LOOK_AGAIN);
        let until = match (deadline, look_again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let found = match until {
            Some(until) => POLLERS.wait_until_deadline(until, &mut look),
            None => POLLERS.wait_until(&mut look).map(Some),
        };
        if let Some(found) = found.map_err(|_| Errno::ERESTARTNOHAND)? {
            return Ok(Some(found));
        }
    }
}
