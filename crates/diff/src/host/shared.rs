//! The memory that the command, the helper and the processes of a sequence share: operations go in, a log comes out.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::io;

use super::system;
use crate::Op;
use crate::window::PROCESSES;

/// Most operations of one sequence.
pub const MAX_OPS: usize = 4096;
const LOG_BYTES: usize = 48 << 20;

/// Where things are, and whose turn it is.
#[repr(C)]
pub struct Header {
    /// The operation that is done now: only the process that it names may do anything. A futex.
    pub turn: AtomicU32,
    /// How many operations there are.
    pub count: AtomicU32,
    /// Bit `n` for each process `n` that exists.
    pub alive: AtomicU32,
    /// 1 when the sequence is over, whether it came to its end or not.
    pub over: AtomicU32,
    /// Wait status of a process that ended otherwise than asked to.
    pub crash: AtomicU32,
    /// Sequences asked for. A futex.
    pub asked: AtomicU32,
    /// Sequences done. A futex.
    pub answered: AtomicU32,
    /// Bytes of log.
    pub logged: AtomicU64,
    /// The process ID of each process.
    pub pids: [AtomicU32; PROCESSES],
}

/// A handle to the shared memory; copies are of the same.
#[derive(Clone, Copy)]
pub struct Shared {
    at: *mut u8,
}

// SAFETY: what is reached through it is atomic, or written by one process at a time: operations by the command before it asks, the log by the process
// whose turn it is.
unsafe impl Send for Shared {}

const OPS_AT: usize = 4096;
const LOG_AT: usize = (OPS_AT + MAX_OPS * size_of::<Op>()).next_multiple_of(4096);

impl Shared {
    /// Memory for one helper. It is never given back: a helper lives as long as the command.
    pub fn new() -> io::Result<Shared> {
        let at = system::map_shared(LOG_AT + LOG_BYTES)?;
        Ok(Shared { at })
    }

    pub fn header(&self) -> &Header {
        // SAFETY: mapped, zeroed, aligned to a page, and never unmapped; all of it is atomic.
        unsafe { &*self.at.cast::<Header>() }
    }

    pub fn op(&self, index: u32) -> Op {
        assert!((index as usize) < MAX_OPS);
        // SAFETY: written by `set_ops` of this very program before `count` was, which whoever asks has read.
        unsafe { self.at.add(OPS_AT).cast::<Op>().add(index as usize).read() }
    }

    /// To be called while no sequence runs.
    pub fn set_ops(&self, ops: &[Op]) {
        assert!(ops.len() <= MAX_OPS);
        // SAFETY: there is room, and nobody reads operations between sequences.
        unsafe { self.at.add(OPS_AT).cast::<Op>().copy_from_nonoverlapping(ops.as_ptr(), ops.len()) };
        self.header().count.store(ops.len() as u32, Ordering::Release);
    }

    /// Appends to the log as many bytes as `fill` says that it has written. For the process whose turn it is.
    pub fn append(&self, fill: impl FnOnce(&mut [u8]) -> usize) {
        let logged = &self.header().logged;
        let used = logged.load(Ordering::Relaxed) as usize;
        // SAFETY: only the process whose turn it is calls this, and it does not call it within `fill`.
        let bytes = fill(unsafe { core::slice::from_raw_parts_mut(self.at.add(LOG_AT + used), LOG_BYTES - used) });
        logged.store((used + bytes) as u64, Ordering::Release);
    }

    /// The log, when the sequence is over.
    pub fn log(&self) -> &[u8] {
        let used = self.header().logged.load(Ordering::Acquire) as usize;
        // SAFETY: written, and not to be changed before the next sequence.
        unsafe { core::slice::from_raw_parts(self.at.add(LOG_AT), used) }
    }
}
