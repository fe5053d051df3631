//! Waiting, waking, requeueing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use foldspace::space::Access;
use linux_raw_sys::general as raw;

use super::key::{Key, Place, Scope};
use super::{Sleeper, TABLE, Table, Waiter, place, update_now, with_table, word_now};
use crate::errno::Errno;
use crate::process::Task;

/// One word to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Where.
    pub address: u64,
    /// With whom.
    pub scope: Scope,
    /// Waiting makes sense while the word is this.
    pub expected: u32,
    /// Wake-ups with none of these are for others.
    pub bits: u32,
}

/// Puts a waiter into the table if the word is what it should be: `EAGAIN` if not.
pub(super) fn enqueue(task: &Task, wanted: &Wanted, waiter: &Arc<Waiter>) -> Result<(), Errno> {
    with_table(task, wanted.address, Access::Read, |table| match word_now(task, wanted.address)? {
        word if word != wanted.expected => Some(Err(Errno::EAGAIN)),
        _ => Some(table.push(waiter)),
    })?
}

/// Waits while the word is as expected, until woken or `deadline` (nanoseconds of the monotonic clock).
///
/// # Errors
/// `EAGAIN`: the word is not as expected. `ETIMEDOUT`. `ERESTARTSYS`: a signal. `EINVAL`, `EFAULT`: as for [`super::key::place`].
pub fn wait(task: &Task, wanted: &Wanted, deadline: Option<u64>) -> Result<(), Errno> {
    let sleeper = Sleeper::new();
    let place = place(task, wanted.address, wanted.scope, Access::Read)?;
    let waiter = Arc::new(Waiter::new(task, &sleeper, wanted.bits, place));
    enqueue(task, wanted, &waiter)?;
    let result = sleeper.sleep(deadline);
    // A waker that chose this thread must not be disappointed, whatever else happened.
    if TABLE.lock().forget(&waiter) { result } else { Ok(()) }
}

/// Waits for any of several words (`futex_waitv`). Returns the index of one that was woken.
///
/// # Errors
/// As for [`wait`]; `EAGAIN` if one of the words is not as expected and none was woken meanwhile.
pub fn wait_any(task: &Task, wanted: &[Wanted], deadline: Option<u64>) -> Result<usize, Errno> {
    let sleeper = Sleeper::new();
    let mut waiters: Vec<Arc<Waiter>> = Vec::new();
    waiters.try_reserve_exact(wanted.len()).map_err(|_| Errno::ENOMEM)?;
    for one in wanted {
        let place = place(task, one.address, one.scope, Access::Read)?;
        waiters.push(Arc::new(Waiter::new(task, &sleeper, one.bits, place)));
    }
    let mut result = Ok(());
    let mut queued = 0;
    for (one, waiter) in wanted.iter().zip(&waiters) {
        result = enqueue(task, one, waiter);
        if result.is_err() {
            break;
        }
        queued += 1;
    }
    if result.is_ok() {
        result = sleeper.sleep(deadline);
    }
    let woken = {
        let mut table = TABLE.lock();
        // Each must be taken out, and of several that were woken the last is told, as on Linux.
        let mut woken = None;
        for (index, waiter) in waiters[..queued].iter().enumerate() {
            if !table.forget(waiter) {
                woken = Some(index);
            }
        }
        woken
    };
    match (woken, result) {
        (Some(index), _) => Ok(index),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Err(Errno::EAGAIN),
    }
}

/// Wakes up to `count` (at least one) of those that wait with one of `bits`. Returns how many.
///
/// # Errors
/// `EINVAL`: somebody there waits for a lock that is to be his. `EINVAL`, `EFAULT`: as for [`super::key::place`].
pub fn wake(task: &Task, address: u64, scope: Scope, count: usize, bits: u32) -> Result<usize, Errno> {
    let place = place(task, address, scope, Access::Read)?;
    let (chosen, result) = TABLE.lock().choose(place.key, count.max(1), bits);
    let woken = wake_all(&chosen);
    result.map(|()| woken)
}

/// Wakes whoever waits for the end of a thread (`mm_release` of Linux's `kernel/fork.c`).
pub fn wake_after_exit(task: &Task, address: u64) {
    // A bad address has no waiters.
    let _ = wake(task, address, Scope::Shared, 1, raw::FUTEX_BITSET_MATCH_ANY);
}

pub(super) fn wake_all(chosen: &[Arc<Waiter>]) -> usize {
    for waiter in chosen {
        waiter.sleeper.wake();
    }
    chosen.len()
}

impl Table {
    /// Takes out up to `count` of those that wait at `key` with one of `bits`, to be woken once the table is unlocked. `EINVAL` at one that waits
    /// for a lock: those before it are chosen nevertheless.
    fn choose(&mut self, key: Key, count: usize, bits: u32) -> (Vec<Arc<Waiter>>, Result<(), Errno>) {
        let (mut chosen, mut result) = (Vec::new(), Ok(()));
        if self.owned.contains_key(&key) {
            return (chosen, Err(Errno::EINVAL));
        }
        let Some(list) = self.waiters.get_mut(&key) else { return (chosen, result) };
        let mut index = 0;
        while index < list.len() && chosen.len() < count {
            if list[index].target.is_some() {
                result = Err(Errno::EINVAL);
                break;
            }
            if list[index].bits & bits == 0 || chosen.try_reserve(1).is_err() {
                index += 1;
            } else {
                chosen.push(list.remove(index));
            }
        }
        if list.is_empty() {
            self.waiters.remove(&key);
        }
        (chosen, result)
    }

    /// Moves up to `count` of those that wait at `from` to `to`. Returns how many, or `EINVAL` if one of them waits for a lock.
    fn shift(&mut self, from: Key, to: &Place, count: usize) -> Result<usize, Errno> {
        let Some(list) = self.waiters.get_mut(&from) else { return Ok(0) };
        let count = count.min(list.len());
        if list[..count].iter().any(|waiter| waiter.target.is_some()) {
            return Err(Errno::EINVAL);
        }
        if from == to.key {
            return Ok(count);
        }
        let moved: Vec<_> = list.drain(..count).collect();
        if list.is_empty() {
            self.waiters.remove(&from);
        }
        for waiter in &moved {
            *waiter.place.lock() = to.clone();
        }
        if !moved.is_empty() {
            self.waiters.entry(to.key).or_default().extend(moved);
        }
        Ok(count)
    }
}

/// Two words and who may meet at them.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The word whose waiters are looked at first.
    pub from: u64,
    /// The other.
    pub to: u64,
    /// Of both.
    pub scope: Scope,
}

/// `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`: wakes `wake_count` and moves up to `move_count` others to another word. Returns how many of both.
///
/// # Errors
/// `EAGAIN`: the first word is not `expected`. Others as for [`wake`].
pub fn requeue(
    task: &Task,
    pair: Pair,
    (wake_count, move_count): (usize, usize),
    expected: Option<u32>,
) -> Result<usize, Errno> {
    let from = place(task, pair.from, pair.scope, Access::Read)?;
    let to = place(task, pair.to, pair.scope, Access::Read)?;
    let (chosen, moved) = with_table(task, pair.from, Access::Read, |table| {
        if let Some(expected) = expected
            && word_now(task, pair.from)? != expected
        {
            return Some(Err(Errno::EAGAIN));
        }
        let (chosen, result) = table.choose(from.key, wake_count, raw::FUTEX_BITSET_MATCH_ANY);
        let moved = result.and_then(|()| table.shift(from.key, &to, move_count));
        Some(Ok((chosen, moved)))
    })??;
    let woken = wake_all(&chosen);
    Ok(woken + moved?)
}

/// `FUTEX_WAKE_OP`: changes the second word by `change`, wakes up to `counts.0` at the first and, if `compare` likes what the second was, up to
/// `counts.1` there. Returns how many of both.
pub fn wake_op(
    task: &Task,
    pair: Pair,
    counts: (usize, usize),
    change: impl Fn(u32) -> u32,
    compare: impl Fn(u32) -> Result<bool, Errno>,
) -> Result<usize, Errno> {
    let first = place(task, pair.from, pair.scope, Access::Read)?;
    let second = place(task, pair.to, pair.scope, Access::Write)?;
    let (chosen, result) = with_table(task, pair.to, Access::Write, |table| {
        let before = update_now(task, pair.to, |word| Some(change(word)))?;
        let matches = match compare(before) {
            Ok(matches) => matches,
            Err(error) => return Some((Vec::new(), Err(error))),
        };
        let (mut chosen, mut result) = table.choose(first.key, counts.0.max(1), raw::FUTEX_BITSET_MATCH_ANY);
        if matches && result.is_ok() {
            let (more, outcome) = table.choose(second.key, counts.1.max(1), raw::FUTEX_BITSET_MATCH_ANY);
            chosen.extend(more);
            result = outcome;
        }
        Some((chosen, result))
    })?;
    let woken = wake_all(&chosen);
    result.map(|()| woken)
}
