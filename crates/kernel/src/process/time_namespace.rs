//! Namespaces of time (time_namespaces(7)): how far the clocks that count from boot are off there. Who makes one stays where he is; his next children,
//! or his next program, are in it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use spin::Once;

use super::Task;
use super::credentials::{CAP_SYS_TIME, Credentials};
use super::namespaces::{Namespaces, next_number};
use super::user_namespace::UserNamespace;
use crate::errno::Errno;
use crate::sched;
use crate::sync::Mutex;
use crate::time::{NANOS_PER_SECOND, monotonic_ns};

/// Clocks that count from boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// `CLOCK_MONOTONIC` and its like.
    Monotonic,
    /// `CLOCK_BOOTTIME` and its like; the machine never sleeps, so that they differ by what is said here only.
    Boottime,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// How much later it is here, in nanoseconds.
    monotonic: i64,
    boottime: i64,
    /// Somebody is in it: it does not change any more.
    entered: bool,
}

/// A namespace of time.
pub struct TimeNamespace {
    /// `st_ino` of its file.
    pub number: u64,
    /// Whose it is: capabilities there count for it.
    pub owner: Arc<UserNamespace>,
    state: Mutex<State>,
}

/// Whether there is more than the first.
static SEVERAL: AtomicBool = AtomicBool::new(false);

impl TimeNamespace {
    /// The first, with Linux's `PROC_TIME_INIT_INO`.
    pub fn first() -> &'static Arc<TimeNamespace> {
        static FIRST: Once<Arc<TimeNamespace>> = Once::new();
        FIRST.call_once(|| {
            let state = Mutex::new(State { entered: true, ..State::default() });
            Arc::new(TimeNamespace { number: 0xefff_fffa, owner: UserNamespace::first().clone(), state })
        })
    }

    /// One of `owner` with the same offsets.
    pub fn copy(&self, owner: &Arc<UserNamespace>) -> Arc<TimeNamespace> {
        SEVERAL.store(true, Ordering::Relaxed);
        let state = State { entered: false, ..*self.state.lock() };
        Arc::new(TimeNamespace { number: next_number(), owner: owner.clone(), state: Mutex::new(state) })
    }

    /// Somebody is in it from now on.
    pub fn enter(&self) {
        self.state.lock().entered = true;
    }

    fn offset(&self, counter: Counter) -> i64 {
        let state = self.state.lock();
        match counter {
            Counter::Monotonic => state.monotonic,
            Counter::Boottime => state.boottime,
        }
    }

    /// The offsets of both clocks: seconds, rounded down, and nanoseconds.
    pub fn offsets(&self) -> [(&'static str, i64, i64); 2] {
        let parts = |offset: i64| (offset.div_euclid(SECOND), offset.rem_euclid(SECOND));
        let (monotonic, boottime) = (parts(self.offset(Counter::Monotonic)), parts(self.offset(Counter::Boottime)));
        [("monotonic", monotonic.0, monotonic.1), ("boottime", boottime.0, boottime.1)]
    }

    /// Takes offsets as lines of clock, seconds and nanoseconds (`proc_timens_set_offset` of Linux's `kernel/time/namespace.c`).
    ///
    /// # Errors
    /// `EINVAL`; `EPERM`; `ERANGE`: before boot, or too far on; `EACCES`: somebody is in it.
    pub fn set_offsets(&self, text: &[u8], who: &Credentials) -> Result<(), Errno> {
        let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let mut wanted = Vec::new();
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let &[clock, seconds, nanos] = &words[..] else { return Err(Errno::EINVAL) };
            let counter = match clock {
                "monotonic" | "1" => Counter::Monotonic,
                "boottime" | "7" => Counter::Boottime,
                _ => return Err(Errno::EINVAL),
            };
            let seconds: i64 = seconds.parse().map_err(|_| Errno::EINVAL)?;
            let nanos: i64 = nanos.parse().map_err(|_| Errno::EINVAL)?;
            if !(0..SECOND).contains(&nanos) || wanted.len() == 2 {
                return Err(Errno::EINVAL);
            }
            wanted.push((counter, seconds, nanos));
        }
        if !who.may_in(&self.owner, CAP_SYS_TIME) {
            return Err(Errno::EPERM);
        }
        let mut state = self.state.lock();
        let mut new = *state;
        for (counter, seconds, nanos) in wanted {
            let offset =
                seconds.checked_mul(SECOND).and_then(|offset| offset.checked_add(nanos)).ok_or(Errno::ERANGE)?;
            let then = offset.checked_add(monotonic_ns() as i64).ok_or(Errno::ERANGE)?;
            // Not before boot, and with room for as long again (`KTIME_SEC_MAX / 2`).
            if !(0..=i64::MAX / 2).contains(&then) {
                return Err(Errno::ERANGE);
            }
            match counter {
                Counter::Monotonic => new.monotonic = offset,
                Counter::Boottime => new.boottime = offset,
            }
        }
        if state.entered {
            return Err(Errno::EACCES);
        }
        *state = new;
        Ok(())
    }
}

const SECOND: i64 = NANOS_PER_SECOND as i64;

/// How much later it is for the current task.
fn offset(counter: Counter) -> i64 {
    if !SEVERAL.load(Ordering::Relaxed) {
        return 0;
    }
    let namespace = sched::try_with_current(|task| task.namespaces.lock().time.clone());
    namespace.map_or(0, |namespace| namespace.offset(counter))
}

/// What a moment of the machine's clock is to the current task.
pub fn shown(counter: Counter, nanos: u64) -> u64 {
    nanos.saturating_add_signed(offset(counter))
}

/// Which moment of the machine's clock the current task means.
pub fn meant(counter: Counter, nanos: u64) -> u64 {
    match offset(counter) {
        0 => nanos,
        offset => nanos.saturating_add_signed(offset.saturating_neg()),
    }
}

/// A new program, or a child with memory of its own, is where the next children of whoever made it are to be.
#[must_use]
#[inline]
pub fn moved(namespaces: &Arc<Namespaces>) -> Option<Arc<Namespaces>> {
    let apart = SEVERAL.load(Ordering::Relaxed) && !Arc::ptr_eq(&namespaces.time, &namespaces.time_for_children);
    if apart { Some(moved_to_children(namespaces)) } else { None }
}

#[cold]
#[inline(never)]
fn moved_to_children(namespaces: &Arc<Namespaces>) -> Arc<Namespaces> {
    let mut new = Namespaces::clone(namespaces);
    new.time = new.time_for_children.clone();
    new.time.enter();
    Arc::new(new)
}

/// The current task's next program begins.
pub fn executed(task: &Task) {
    let now = task.namespaces.lock().clone();
    if let Some(new) = moved(&now) {
        let before = core::mem::replace(&mut *task.namespaces.lock(), new);
        drop(before);
    }
}
