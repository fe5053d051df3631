//! A thread's own share of the signal machinery.

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::pending::Pending;
use super::{SigInfo, SigSet};
use crate::errno::Errno;
use crate::process::exit::ExitStatus;
use crate::process::futex::wait::Wanted;

/// `SS_AUTODISARM` (`linux/signal.h`): the alternate stack is forgotten while a handler runs on it.
pub const SS_AUTODISARM: u32 = 1 << 31;

/// `stack_t`: the alternate stack for handlers with `SA_ONSTACK`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct AlternateStack {
    /// Lowest address.
    pub base: u64,
    /// `SS_*`.
    pub flags: u32,
    pad: u32,
    /// Bytes.
    pub size: u64,
}

const _: () = assert!(size_of::<AlternateStack>() == 24);

impl AlternateStack {
    /// There is none.
    pub const DISABLED: AlternateStack = AlternateStack { base: 0, flags: raw::SS_DISABLE, pad: 0, size: 0 };

    /// Whether a stack pointer lies on it.
    pub fn contains(&self, stack_pointer: u64) -> bool {
        self.flags & SS_AUTODISARM == 0 && stack_pointer > self.base && stack_pointer - self.base <= self.size
    }

    /// What `sigaltstack` reports for a thread whose stack pointer is `stack_pointer`.
    pub fn reported(&self, stack_pointer: u64) -> AlternateStack {
        let state = if self.size == 0 {
            raw::SS_DISABLE
        } else if self.contains(stack_pointer) {
            raw::SS_ONSTACK
        } else {
            0
        };
        AlternateStack { flags: state | self.flags & SS_AUTODISARM, ..*self }
    }

    /// Checks a new setting (Linux's `do_sigaltstack`) and returns it in its stored form. One that is too small for a frame is found out when a signal
    /// comes.
    pub fn checked(self, old: &AlternateStack, stack_pointer: u64) -> Result<AlternateStack, Errno> {
        if old.contains(stack_pointer) {
            return Err(Errno::EPERM);
        }
        let mode = self.flags & !SS_AUTODISARM;
        match mode {
            raw::SS_DISABLE => Ok(AlternateStack { base: 0, size: 0, pad: 0, flags: self.flags }),
            0 | raw::SS_ONSTACK if self.size < u64::from(raw::MINSIGSTKSZ) => Err(Errno::ENOMEM),
            0 | raw::SS_ONSTACK => Ok(AlternateStack { pad: 0, ..self }),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// What becomes of a system call that a signal cut short.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// The call's number.
    pub number: u64,
    /// One of the `ERESTART*`.
    pub how: Errno,
}

/// How a call with a relative timeout goes on after it was interrupted (`restart_syscall`): with what is left of its time. Deadlines are
/// nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub enum Continuation {
    /// A sleep, of `clock_nanosleep` and its like.
    Sleep {
        /// When it ends.
        deadline: u64,
        /// Where to write what remained if it is interrupted again; 0 for nowhere.
        remaining: u64,
    },
    /// A wait for a futex.
    Futex {
        /// For which.
        wanted: Wanted,
        /// Until when.
        deadline: u64,
    },
    /// A `poll`: address and number of the records.
    Poll {
        /// Of the records.
        address: u64,
        /// Of records.
        count: usize,
        /// Until when; `None` for ever.
        deadline: Option<u64>,
    },
}

/// Blocked and pending signals of one thread.
pub struct TaskSignals {
    /// Not to be delivered now.
    pub blocked: SigSet,
    /// The mask to go back to once the handler that ends a `sigsuspend`, `ppoll` or `pselect` has been entered.
    pub saved: Option<SigSet>,
    /// Sent to this thread.
    pub pending: Pending,
    /// The alternate stack.
    pub alternate: AlternateStack,
    /// The system call that is being interrupted, if one is.
    pub restart: Option<Restart>,
    /// What `restart_syscall` resumes.
    pub continuation: Option<Continuation>,
    /// Signals that `rt_sigtimedwait` is waiting for: they wake the thread although they are blocked.
    pub awaited: SigSet,
    /// Signals that the running instruction caused: their default applies even to the first process.
    pub forced: SigSet,
    /// The thread itself asked to end.
    pub exit: Option<ExitStatus>,
}

impl TaskSignals {
    /// Nothing pending, nothing but `blocked` blocked.
    pub fn new(blocked: SigSet, alternate: AlternateStack) -> TaskSignals {
        TaskSignals {
            blocked,
            saved: None,
            pending: Pending::new(),
            alternate,
            restart: None,
            continuation: None,
            awaited: SigSet::EMPTY,
            forced: SigSet::EMPTY,
            exit: None,
        }
    }

    /// Adds one sent to this thread.
    pub fn push(&mut self, info: SigInfo) -> Result<(), super::pending::QueueFull> {
        self.pending.push(info)
    }
}
