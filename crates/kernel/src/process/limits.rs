//! Resource limits.

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::signal::Signal;
use crate::errno::Errno;
use crate::sched;

/// `RLIM64_INFINITY`.
pub const INFINITY: u64 = u64::MAX;
/// How many resources there are.
pub const COUNT: usize = raw::RLIM_NLIMITS as usize;
/// Linux's default for the stack, and what `mmap_base` leaves room for.
pub const DEFAULT_STACK: u64 = 8 << 20;
/// Linux's `sysctl_nr_open`: the most that anyone may ask for.
pub const MAX_FILES: u64 = 1 << 20;

/// `struct rlimit64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Limit {
    /// What counts.
    pub soft: u64,
    /// How far the program may raise it.
    pub hard: u64,
}

/// All limits of a process, by `RLIMIT_*`.
#[derive(Clone, Copy, Debug)]
pub struct Limits([Limit; COUNT]);

impl Limits {
    /// What Linux gives the first process (`INIT_RLIMITS`).
    pub fn new() -> Limits {
        const UNLIMITED: Limit = Limit { soft: INFINITY, hard: INFINITY };
        let mut limits = [UNLIMITED; COUNT];
        let mut set = |resource: u32, soft, hard| limits[resource as usize] = Limit { soft, hard };
        set(raw::RLIMIT_STACK, DEFAULT_STACK, INFINITY);
        set(raw::RLIMIT_CORE, 0, INFINITY);
        set(raw::RLIMIT_NPROC, 32_768, 32_768);
        set(raw::RLIMIT_NOFILE, 1024, 4096);
        set(raw::RLIMIT_MEMLOCK, 8 << 20, 8 << 20);
        set(raw::RLIMIT_SIGPENDING, 32_768, 32_768);
        set(raw::RLIMIT_MSGQUEUE, 819_200, 819_200);
        set(raw::RLIMIT_NICE, 0, 0);
        set(raw::RLIMIT_RTPRIO, 0, 0);
        Limits(limits)
    }

    /// The limit of `resource`; `None` if there is no such resource.
    pub fn get(&self, resource: u32) -> Option<Limit> {
        self.0.get(resource as usize).copied()
    }

    /// What counts now for a resource that exists.
    pub fn soft(&self, resource: u32) -> u64 {
        self.0[resource as usize].soft
    }

    /// What a resource that exists may be raised to.
    pub fn hard(&self, resource: u32) -> u64 {
        self.0[resource as usize].hard
    }

    /// Changes one that exists.
    pub fn set(&mut self, resource: u32, limit: Limit) {
        self.0[resource as usize] = limit;
    }
}

/// The longest file that the current process may make (`RLIMIT_FSIZE`), in bytes.
pub fn file_size() -> u64 {
    sched::try_with_current(|task| task.process.limits.lock().soft(raw::RLIMIT_FSIZE)).unwrap_or(INFINITY)
}

/// Whether it may make one of `len` bytes: if not, it is told by `SIGXFSZ`, too.
///
/// # Errors
/// `EFBIG`.
pub fn check_file_size(len: u64) -> Result<(), Errno> {
    if len <= file_size() {
        return Ok(());
    }
    super::send_signal(sched::with_current(|task| task.tgid), Signal::XFSZ.number());
    Err(Errno::EFBIG)
}
