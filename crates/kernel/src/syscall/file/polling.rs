//! `poll` and `select`.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::descriptor_limit;
use crate::errno::Errno;
use crate::fs::file::Ready;
use crate::fs::poll::{self, Interest};
use crate::fs::reserve;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::signal::state::Continuation;
use crate::process::signal::{SigSet, send};
use crate::syscall::SysResult;
use crate::time::{NANOS_PER_SECOND, monotonic_ns};

/// `struct pollfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: u16,
    ready: u16,
}

const _: () = assert!(size_of::<PollFd>() == size_of::<raw::pollfd>());

/// poll(2). The timeout is in milliseconds, below 0 for none.
pub fn poll(task: &Arc<Task>, address: u64, count: usize, timeout: i32) -> SysResult {
    let deadline = u64::try_from(timeout).ok().map(|millis| monotonic_ns() + millis * 1_000_000);
    poll_until(task, address, count, deadline)
}

/// Until a moment of the monotonic clock; after a signal that no handler runs for, the rest of the time is waited.
pub fn poll_until(task: &Arc<Task>, address: u64, count: usize, deadline: Option<u64>) -> SysResult {
    poll_once(task, address, count, deadline).map_err(|error| {
        if error != Errno::ERESTARTNOHAND {
            return error;
        }
        task.signals.lock().continuation = Some(Continuation::Poll { address, count, deadline });
        Errno::ERESTART_RESTARTBLOCK
    })
}

fn poll_once(task: &Arc<Task>, address: u64, count: usize, deadline: Option<u64>) -> SysResult {
    if count > descriptor_limit(task) {
        return Err(Errno::EINVAL);
    }
    let mut fds: Vec<PollFd> = reserve::room_for(count)?;
    for index in 0..count as u64 {
        fds.push(uaccess::read(address + index * 8)?);
    }
    let interests: Vec<Interest> = {
        let files = task.files.lock();
        fds.iter()
            .map(|fd| Interest { file: files.get(fd.fd).ok(), events: Ready::from_bits_retain(fd.events) })
            .collect()
    };
    let count_ready = |interests: &[Interest]| {
        let mut found = 0;
        for (fd, interest) in fds.iter_mut().zip(interests) {
            // A negative number is to be skipped.
            fd.ready = if fd.fd < 0 { 0 } else { interest.ready().bits() };
            found += usize::from(fd.ready != 0);
        }
        (found > 0).then_some(found)
    };
    let found = poll::wait(&interests, deadline, count_ready)?.unwrap_or(0);
    for (index, fd) in fds.iter().enumerate() {
        uaccess::write(address + index as u64 * 8 + 6, &fd.ready)?;
    }
    Ok(found)
}

/// Seconds and nanoseconds, or microseconds.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Duration {
    seconds: i64,
    fraction: i64,
}

/// A timeout in the caller's memory, and how it is told what is left of it.
pub(super) struct Timeout {
    address: u64,
    /// Nanoseconds in a unit of the fraction.
    unit: u64,
    pub(super) deadline: Option<u64>,
}

impl Timeout {
    /// Address 0 is for ever.
    pub(super) fn read(address: u64, unit: u64) -> Result<Timeout, Errno> {
        let mut timeout = Timeout { address, unit, deadline: None };
        if address != 0 {
            let duration: Duration = uaccess::read(address)?;
            let seconds = u64::try_from(duration.seconds).map_err(|_| Errno::EINVAL)?;
            let fraction = u64::try_from(duration.fraction).map_err(|_| Errno::EINVAL)?;
            // select(2) takes more than a second's worth of microseconds; pselect and ppoll do not.
            if unit == 1 && fraction >= NANOS_PER_SECOND {
                return Err(Errno::EINVAL);
            }
            let nanos = seconds.saturating_mul(NANOS_PER_SECOND).saturating_add(fraction.saturating_mul(unit));
            timeout.deadline = Some(monotonic_ns().saturating_add(nanos));
        }
        Ok(timeout)
    }

    /// Writes back what is left. That this fails is not told, as on Linux.
    fn write_rest(&self) {
        if let Some(deadline) = self.deadline {
            let rest = deadline.saturating_sub(monotonic_ns());
            let seconds = (rest / NANOS_PER_SECOND) as i64;
            let fraction = (rest % NANOS_PER_SECOND / self.unit) as i64;
            let _ = uaccess::write(self.address, &Duration { seconds, fraction });
        }
    }
}

/// Runs a wait with another signal mask. If a signal ends it, the mask stays until its handler has been entered; signal delivery restores it.
pub(super) fn with_mask(task: &Arc<Task>, mask: (u64, usize), wait: impl FnOnce() -> SysResult) -> SysResult {
    let (address, size) = mask;
    if address == 0 {
        return wait();
    }
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let new = SigSet::from_bits(uaccess::read(address)?).without(SigSet::UNBLOCKABLE);
    let old = {
        let mut signals = task.signals.lock();
        core::mem::replace(&mut signals.blocked, new)
    };
    // What was blocked may be deliverable now.
    task.notify();
    send::hand_on(task);
    let result = wait();
    let interrupted = matches!(result, Err(error) if error.is_restart() || error == Errno::EINTR);
    {
        let mut signals = task.signals.lock();
        if interrupted {
            signals.saved = Some(old);
        } else {
            signals.blocked = old;
        }
    }
    task.notify();
    send::hand_on(task);
    result
}

/// ppoll(2)
pub fn ppoll(task: &Arc<Task>, address: u64, count: usize, timeout: u64, mask: (u64, usize)) -> SysResult {
    let timeout = Timeout::read(timeout, 1)?;
    let result = with_mask(task, mask, || poll_once(task, address, count, timeout.deadline));
    timeout.write_rest();
    result
}

/// Bits of readiness that put a descriptor in each of select's sets (`POLLIN_SET` and its like of `fs/select.c`).
const SETS: [(Ready, Ready); 3] = [
    (Ready::READABLE, Ready::READABLE.union(Ready::HANG_UP).union(Ready::ERROR)),
    (Ready::WRITABLE, Ready::WRITABLE.union(Ready::ERROR)),
    (Ready::PRIORITY, Ready::PRIORITY),
];

/// Sets of descriptors as bits.
type Sets = [Vec<u64>; 3];

fn read_sets(addresses: [u64; 3], words: usize) -> Result<Sets, Errno> {
    let mut sets: Sets = Default::default();
    for (set, address) in sets.iter_mut().zip(addresses) {
        *set = reserve::room_for(words)?;
        for index in 0..words as u64 {
            set.push(if address == 0 { 0 } else { uaccess::read(address + index * 8)? });
        }
    }
    Ok(sets)
}

fn select_until(task: &Arc<Task>, count: i32, addresses: [u64; 3], deadline: Option<u64>) -> SysResult {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?.min(task.files.lock().size());
    let sets = read_sets(addresses, count.div_ceil(64))?;
    let mut numbers = Vec::new();
    let mut interests = Vec::new();
    for fd in 0..count {
        let is_in = |set: &Vec<u64>| set[fd / 64] >> (fd % 64) & 1 != 0;
        let wanted = sets.iter().zip(SETS).filter(|(set, _)| is_in(set));
        let events = wanted.map(|(_, (events, _))| events).fold(Ready::empty(), Ready::union);
        if !events.is_empty() {
            let file = task.files.lock().get(fd as i32)?;
            numbers.push(fd);
            interests.push(Interest { file: Some(file), events });
        }
    }
    let mut result: Sets = Default::default();
    let mut look = |interests: &[Interest]| {
        result = core::array::from_fn(|_| alloc::vec![0; count.div_ceil(64)]);
        let mut found = 0;
        for (&fd, interest) in numbers.iter().zip(interests) {
            let ready = interest.ready();
            for (index, (_, counts)) in SETS.iter().enumerate() {
                let bit = 1 << (fd % 64);
                if sets[index][fd / 64] & bit != 0 && ready.intersects(*counts) {
                    result[index][fd / 64] |= bit;
                    found += 1;
                }
            }
        }
        (found > 0).then_some(found)
    };
    let found = poll::wait(&interests, deadline, &mut look)?.unwrap_or(0);
    for (set, address) in result.iter().zip(addresses).filter(|(_, address)| *address != 0) {
        for (index, word) in set.iter().enumerate() {
            uaccess::write(address + index as u64 * 8, word)?;
        }
    }
    Ok(found)
}

/// select(2)
pub fn select(task: &Arc<Task>, count: i32, sets: [u64; 3], timeout: u64) -> SysResult {
    let timeout = Timeout::read(timeout, 1000)?;
    let result = select_until(task, count, sets, timeout.deadline);
    timeout.write_rest();
    result
}

/// pselect6(2). The last argument is the address of the mask's address and size.
pub fn pselect6(task: &Arc<Task>, count: i32, sets: [u64; 3], timeout: u64, mask: u64) -> SysResult {
    let timeout = Timeout::read(timeout, 1)?;
    let mask = if mask == 0 {
        (0, 0)
    } else {
        let [address, size]: [u64; 2] = uaccess::read(mask)?;
        (address, size as usize)
    };
    let result = with_mask(task, mask, || select_until(task, count, sets, timeout.deadline));
    timeout.write_rest();
    result
}
