//! eventfd(2): a counter that can be waited for.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;

use super::dentry::Dentry;
use super::file::{Body, File, Happened, OpenFlags, Ready};
use super::inode::{Attributes, Inode, Kind};
use super::io::{Sink, Supply};
use super::{poll, superblock};
use crate::errno::Errno;
use crate::sched::WaitQueue;
use crate::syscall::SysResult;

/// What a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// All, and returns how much it was.
    All,
    /// One (`EFD_SEMAPHORE`).
    One,
}

struct EventCounter {
    count: Mutex<u64>,
    takes: Takes,
    changed: WaitQueue,
    /// How often it was added to.
    inputs: AtomicU64,
    /// How often it was read.
    outputs: AtomicU64,
}

/// The highest count; one more is an error.
const MAX: u64 = u64::MAX - 1;

/// Makes one.
pub fn create(initial: u64, takes: Takes, flags: OpenFlags) -> Arc<File> {
    let inode = Inode::new(superblock::anon_inodes(), Kind::Anonymous, Attributes::new(0o600));
    let dentry = Dentry::nowhere(b"anon_inode:[eventfd]".to_vec(), inode);
    let counter = EventCounter {
        count: Mutex::new(initial),
        takes,
        changed: WaitQueue::new(),
        inputs: AtomicU64::new(0),
        outputs: AtomicU64::new(0),
    };
    File::new(dentry, flags | OpenFlags::READ_WRITE, Box::new(counter))
}

impl EventCounter {
    fn try_take(&self) -> Option<u64> {
        let mut count = self.count.lock();
        let taken = match self.takes {
            Takes::All => *count,
            Takes::One => (*count).min(1),
        };
        *count -= taken;
        (taken > 0).then_some(taken)
    }

    fn try_add(&self, added: u64) -> Option<()> {
        let mut count = self.count.lock();
        *count = count.checked_add(added).filter(|&sum| sum <= MAX)?;
        Some(())
    }

    fn announce(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
        self.changed.wake_all();
        poll::notify();
    }
}

impl Body for EventCounter {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        if out.room() < 8 {
            return Err(Errno::EINVAL);
        }
        let taken = match self.try_take() {
            Some(taken) => taken,
            None if file.non_blocking() => return Err(Errno::EAGAIN),
            None => self.changed.wait_until(|| self.try_take())?,
        };
        self.announce(&self.outputs);
        if out.put(&taken.to_le_bytes()) == 8 { Ok(8) } else { Err(Errno::EFAULT) }
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        if from.remaining() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 8];
        if from.take(&mut bytes) < 8 {
            return Err(Errno::EFAULT);
        }
        let added = u64::from_le_bytes(bytes);
        if added == u64::MAX {
            return Err(Errno::EINVAL);
        }
        match self.try_add(added) {
            Some(()) => {}
            None if file.non_blocking() => return Err(Errno::EAGAIN),
            None => self.changed.wait_until(|| self.try_add(added))?,
        }
        self.announce(&self.inputs);
        Ok(8)
    }

    fn ready(&self, _file: &File) -> Ready {
        let count = *self.count.lock();
        let mut ready = Ready::empty();
        ready.set(Ready::READABLE, count > 0);
        ready.set(Ready::WRITABLE, count < MAX);
        ready.set(Ready::ERROR, count == u64::MAX);
        ready
    }
    fn happened(&self, _file: &File) -> Happened {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Happened { input: count(&self.inputs), output: count(&self.outputs) }
    }
}
