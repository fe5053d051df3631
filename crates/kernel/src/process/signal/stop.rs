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
    /// A thread has taken a signal that stops, and `SIGCONT` has not come since (Linux's `JOBCTL_STOP_DEQUEUED`).
    stop_taken: bool,
    /// Threads that have come to rest in the current stop.
    stopped: usize,
    /// Whether all had.
    complete: bool,
    /// Number of the current stop, or of the last one.
    number: u64,
}

/// A stop, which may have ended meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// What stopped it.
    pub signal: Signal,
    number: u64,
}

impl Stop {
    /// Which of the group's stops it is, counted from 1.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl GroupState {
    /// Whether threads have to look at this before they go on in user mode. One whose tracer let it go on from stop number `passed` does not mind
    /// that one.
    pub fn wants_attention(&self, passed: u64) -> bool {
        self.exit.is_some() || self.sole_survivor.is_some() || self.stop.is_some() && self.number != passed
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

    /// A thread takes a signal that stops by default, from where [`GroupState::end_stop`] discards such signals under the same lock.
    pub fn stop_taken(&mut self) {
        self.stop_taken = true;
    }

    /// The stop that the group is in.
    pub fn stop(&self) -> Option<Stop> {
        self.stop.map(|signal| Stop { signal, number: self.number })
    }

    /// Begins a stop, unless the group is stopping already or ending, or `SIGCONT` has come since the signal was taken.
    pub fn begin_stop(&mut self, signal: Signal) {
        if self.stop.is_none() && self.exit.is_none() && self.stop_taken {
            self.stop = Some(signal);
            self.stopped = 0;
            self.complete = false;
            self.number += 1;
        }
    }

    /// One more thread has come to rest, of `threads`; returns the stop if all have now.
    pub fn thread_stopped(&mut self, threads: usize) -> Option<Stop> {
        self.stopped += 1;
        self.completed(threads)
    }

    /// A thread has ended, and `threads` are left; returns the stop if all of them had come to rest before.
    pub fn thread_left(&mut self, threads: usize) -> Option<Stop> {
        self.completed(threads)
    }

    fn completed(&mut self, threads: usize) -> Option<Stop> {
        let stop = self.stop().filter(|_| !self.complete && threads > 0 && self.stopped >= threads)?;
        self.complete = true;
        Some(stop)
    }

    /// Whether this stop goes on.
    pub fn is_in(&self, stop: &Stop) -> bool {
        self.stop.is_some() && self.number == stop.number
    }

    /// Whether all threads have come to rest in a stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some() && self.complete
    }

    /// Ends a stop, if there is one; says whether every thread had come to rest. What was taken and has not begun a stop yet will not.
    pub fn end_stop(&mut self) -> Option<StopEnded> {
        self.stop_taken = false;
        self.stop.take()?;
        Some(StopEnded { complete: self.complete })
    }
}

/// A stop that `SIGCONT` ended.
#[derive(Clone, Copy, Debug)]
pub struct StopEnded {
    /// Whether it had stopped completely: otherwise the parent was not told yet.
    pub complete: bool,
}
