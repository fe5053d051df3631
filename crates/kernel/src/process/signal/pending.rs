//! Signals that wait.

use alloc::vec::Vec;

use super::{SigInfo, SigSet};

/// How many may wait at once, whatever `RLIMIT_SIGPENDING` says: what the kernel's heap can bear.
const QUEUE_LIMIT: usize = 65_536;

/// Signals that were sent and not yet delivered.
#[derive(Default)]
pub struct Pending {
    set: SigSet,
    /// In order of arrival. A signal in `set` without an entry here came when the queue was full.
    queue: Vec<SigInfo>,
}

/// The queue is full (`EAGAIN` for `sigqueue`; `kill` sends the bare signal instead).
#[derive(Debug)]
pub struct QueueFull;

impl Pending {
    /// None.
    pub const fn new() -> Pending {
        Pending { set: SigSet::EMPTY, queue: Vec::new() }
    }

    /// Which signals wait.
    pub fn set(&self) -> SigSet {
        self.set
    }

    /// How many wait, each instance of a real-time signal counted.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The one that came as number `index`, counted from 0.
    pub fn nth(&self, index: usize) -> Option<SigInfo> {
        self.queue.get(index).copied()
    }

    /// Adds one. Standard signals wait once however often they are sent.
    pub fn push(&mut self, info: SigInfo) -> Result<(), QueueFull> {
        let signal = info.signal();
        if !signal.queues() && self.set.contains(signal) {
            return Ok(());
        }
        let room = self.queue.len() < QUEUE_LIMIT && self.queue.try_reserve(1).is_ok();
        if room {
            self.queue.push(info);
        }
        if room || !signal.queues() || info.code >= 0 {
            self.set = self.set.with(signal);
            return Ok(());
        }
        Err(QueueFull)
    }

    /// Adds that of a timer, which waits beside others of its number, and always finds room in the set.
    pub fn push_timer(&mut self, info: SigInfo) {
        if self.queue.try_reserve(1).is_ok() {
            self.queue.push(info);
        }
        self.set = self.set.with(info.signal());
    }

    /// Takes the one to deliver first among those in `wanted`.
    pub fn take(&mut self, wanted: SigSet) -> Option<SigInfo> {
        let signal = self.set.intersection(wanted).first()?;
        let position = self.queue.iter().position(|info| info.signal() == signal);
        let info = match position {
            Some(position) => self.queue.remove(position),
            None => SigInfo::user(signal, super::info::code::SI_USER, 0, 0),
        };
        if !self.queue.iter().any(|info| info.signal() == signal) {
            self.set = self.set.without(SigSet::EMPTY.with(signal));
        }
        Some(info)
    }

    /// Forgets all that are in `which`.
    pub fn discard(&mut self, which: SigSet) {
        if !self.set.intersection(which).is_empty() {
            self.set = self.set.without(which);
            self.queue.retain(|info| !which.contains(info.signal()));
        }
    }
}
