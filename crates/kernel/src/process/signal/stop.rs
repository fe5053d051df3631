//! What concerns a whole thread group at once: its end, its stops.

use super::Signal;
use crate::process::exit::ExitStatus;

/// The state of a thread group. Whoever changes it notifies all of its threads.
#[derive(Default)]
pub struct GroupState {
    exit: Option<ExitStatus>,
    /// The thread that lives on when exec ends all others.
    sole_survivor: Option<u32>,
    stop: Option<Signal>,
    /// Threads that have come to rest in the current stop.
    stopped: usize,
}

impl GroupState {
    /// Whether threads have to look at this before they go on in user mode.
    pub fn wants_attention(&self) -> bool {
        self.exit.is_some() || self.stop.is_some() || self.sole_survivor.is_some()
    }

    /// How the group is ending, if it is.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.exit
    }

    /// Begins the end of the group; the first reason counts. Returns the one that does.
    pub fn begin_exit(&mut self, status: ExitStatus) -> ExitStatus {
        self.stop = None;
        *self.exit.get_or_insert(status)
    }

    /// Asks all threads but `survivor` to end (exec). False if somebody else already did, or the group is ending.
    pub fn begin_exec(&mut self, survivor: u32) -> bool {
        if self.exit.is_some() || self.sole_survivor.is_some() {
            return false;
        }
        self.sole_survivor = Some(survivor);
        true
    }

    /// The survivor is alone.
    pub fn end_exec(&mut self) {
        self.sole_survivor = None;
    }

    /// Whether thread `pid` has to end, and with what status.
    pub fn must_exit(&self, pid: u32) -> Option<ExitStatus> {
        match (self.exit, self.sole_survivor) {
            (Some(status), _) => Some(status),
            (None, Some(survivor)) if survivor != pid => Some(ExitStatus::Exited(0)),
            _ => None,
        }
    }

    /// The signal that stops or has stopped the group.
    pub fn stop_signal(&self) -> Option<Signal> {
        self.stop
    }

    /// Begins a stop, unless the group is stopping already or ending.
    pub fn begin_stop(&mut self, signal: Signal) {
        if self.stop.is_none() && self.exit.is_none() {
            self.stop = Some(signal);
            self.stopped = 0;
        }
    }

    /// One more thread has come to rest; true if all `threads` have.
    pub fn thread_stopped(&mut self, threads: usize) -> bool {
        self.stopped += 1;
        self.stopped == threads
    }

    /// Ends a stop, if there is one; says whether every one of `threads` had come to rest.
    pub fn end_stop(&mut self, threads: usize) -> Option<StopEnded> {
        self.stop.take()?;
        Some(StopEnded { complete: self.stopped >= threads })
    }
}

/// A stop that `SIGCONT` ended.
#[derive(Clone, Copy, Debug)]
pub struct StopEnded {
    /// Whether it had stopped completely: otherwise the parent was not told yet.
    pub complete: bool,
}
