//! Advisory locks: `flock` (owned by an open file description) and the record locks of `fcntl` (owned by a table of descriptors).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;

use crate::errno::Errno;
use crate::sched::WaitQueue;

/// Names a table of descriptors. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableId(u64);

impl TableId {
    /// A new one.
    pub fn next() -> TableId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        TableId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Who holds a lock. The two kinds do not see each other, as on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// `fcntl`.
    Table(TableId),
    /// `flock`: the address of the open file description.
    Description(usize),
}

impl Owner {
    fn same_kind(self, other: Owner) -> bool {
        matches!((self, other), (Owner::Table(_), Owner::Table(_)) | (Owner::Description(_), Owner::Description(_)))
    }
}

/// What others may do meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Others may hold shared ones.
    Shared,
    /// Nobody else.
    Exclusive,
}

/// A locked range of bytes, `start..end` (`u64::MAX` for as far as the file goes).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangeLock {
    /// Who holds it.
    pub owner: Owner,
    /// What others may do.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// What F_GETLK tells of the owner.
    pub pid: u32,
}

impl RangeLock {
    fn conflicts(&self, other: &RangeLock) -> bool {
        self.owner != other.owner
            && self.owner.same_kind(other.owner)
            && self.start < other.end
            && other.start < self.end
            && (self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive)
    }
}

/// What to do about a lock that another owner stands in the way of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnConflict {
    /// `EAGAIN`.
    Fail,
    /// Wait until it is gone, or a signal comes.
    Wait,
}

/// The locks of an inode.
pub struct LockTable {
    held: Mutex<Vec<RangeLock>>,
    released: WaitQueue,
}

impl LockTable {
    /// No locks.
    pub const fn new() -> LockTable {
        LockTable { held: Mutex::new(Vec::new()), released: WaitQueue::new() }
    }

    /// A lock that stands in the way of this one.
    pub fn conflict(&self, wanted: &RangeLock) -> Option<RangeLock> {
        self.held.lock().iter().find(|held| held.conflicts(wanted)).copied()
    }

    /// Takes a lock; what the owner holds in its range is replaced.
    pub fn acquire(&self, wanted: RangeLock, on_conflict: OnConflict) -> Result<(), Errno> {
        if on_conflict == OnConflict::Fail {
            return if self.try_acquire(wanted) { Ok(()) } else { Err(Errno::EAGAIN) };
        }
        if self.try_acquire(wanted) {
            return Ok(());
        }
        Ok(self.released.wait_until(|| self.try_acquire(wanted).then_some(()))?)
    }

    fn try_acquire(&self, wanted: RangeLock) -> bool {
        let mut held = self.held.lock();
        if held.iter().any(|other| other.conflicts(&wanted)) {
            return false;
        }
        cut_out(&mut held, wanted.owner, wanted.start, wanted.end);
        held.push(wanted);
        drop(held);
        // A downgrade may let others in.
        self.released.wake_all();
        true
    }

    /// Gives up what an owner holds in a range.
    pub fn release_range(&self, owner: Owner, start: u64, end: u64) {
        cut_out(&mut self.held.lock(), owner, start, end);
        self.released.wake_all();
    }

    /// Gives up all that an owner holds.
    pub fn release(&self, owner: Owner) {
        let mut held = self.held.lock();
        if !held.is_empty() {
            held.retain(|lock| lock.owner != owner);
            drop(held);
            self.released.wake_all();
        }
    }
}

/// Removes `start..end` from what an owner holds, cutting locks in two where needed.
fn cut_out(held: &mut Vec<RangeLock>, owner: Owner, start: u64, end: u64) {
    let mut tails = Vec::new();
    held.retain_mut(|lock| {
        if lock.owner != owner || lock.end <= start || end <= lock.start {
            return true;
        }
        if lock.end > end {
            tails.push(RangeLock { start: end, ..*lock });
        }
        lock.end = start;
        lock.start < lock.end
    });
    held.append(&mut tails);
}
