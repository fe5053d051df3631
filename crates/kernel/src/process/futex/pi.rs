//! Futexes whose word names the thread that owns a lock, handed on by the kernel: `FUTEX_LOCK_PI` and its like (futex(2), "Priority-inheritance
//! futexes"; Linux's `kernel/futex/pi.c` and `requeue.c`).
//!
//! ```text
//!   word: 0                      free
//!         tid                    owned; locked and unlocked without the kernel
//!         tid | WAITERS          somebody waits: the owner must ask the kernel to unlock, which names the next
//!         ... | OWNER_DIED       an owner ended with it
//! ```
//!
//! Every thread runs with the same priority here, so there is none to inherit: those who wait get the lock in the order in which they came.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use foldspace::space::Access;
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};

use super::key::{Place, Scope};
use super::wait::{Pair, Wanted, enqueue, wake_all};
use super::{Leaving, Sleeper, TABLE, Table, Waiter, place, update_now, with_table, word_now};
use crate::errno::Errno;
use crate::process::{Pid, Task, find};

/// A lock that somebody waits for.
pub(super) struct Owned {
    /// Keeps the key meaning the same.
    #[expect(dead_code, reason = "held so that no other object gets the address in the key")]
    place: Place,
    owner: Pid,
    waiters: VecDeque<Arc<Waiter>>,
    /// The owner before ended; the present one has still to write itself into the word.
    inherited: bool,
}

/// What to do if the lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// `EAGAIN`.
    None,
    /// Wait, until a moment (nanoseconds of the monotonic clock) if one is given.
    Until(Option<u64>),
}

/// A look at a lock.
enum Look {
    /// It is the caller's now.
    Taken,
    /// It belongs to this thread; the word says that somebody waits.
    Held(Pid),
}

/// Tries to make `claimant` the owner of the lock at `address`; the word gets `mark` too then. `None`: the word is not there now.
///
/// # Errors
/// `EDEADLK`: it owns it already. `ESRCH`: whoever the word names does not exist any more. `EINVAL`: there are those who wait as for a plain futex.
fn take(
    table: &Table,
    task: &Task,
    address: u64,
    place: &Place,
    (claimant, mark): (&Waiter, u32),
) -> Option<Result<Look, Errno>> {
    let waited_for = table.owned.get(&place.key);
    let mut error = None;
    let pid = claimant.pid;
    let owner_ended = |owner: Pid| find(owner).is_none_or(|task| task.futexes_released.load(Ordering::Relaxed));
    let mut look = Look::Taken;
    update_now(task, address, |word| {
        error = None;
        let number = word & FUTEX_TID_MASK;
        let owner = task.pid_of(number).unwrap_or(0);
        look = Look::Held(owner);
        if owner == pid || waited_for.is_some_and(|owned| owned.owner == pid) {
            error = Some(Errno::EDEADLK);
            None
        } else if waited_for.is_some() {
            Some(word | FUTEX_WAITERS)
        } else if number == 0 {
            look = Look::Taken;
            Some(word & FUTEX_OWNER_DIED | claimant.number | mark)
        } else if owner_ended(owner) {
            error = Some(Errno::ESRCH);
            None
        } else {
            Some(word | FUTEX_WAITERS)
        }
    })?;
    Some(match error {
        Some(error) => Err(error),
        None => Ok(look),
    })
}

impl Table {
    /// Adds a waiter to the lock, which belongs to `owner` unless others wait for it already.
    fn wait_for_lock(&mut self, owner: Pid, place: &Place, waiter: Arc<Waiter>) {
        let fresh = || Owned { place: place.clone(), owner, waiters: VecDeque::new(), inherited: false };
        *waiter.place.lock() = place.clone();
        self.owned.entry(place.key).or_insert_with(fresh).waiters.push_back(waiter);
    }

    /// Takes a waiter out of a lock's; false if it was given the lock.
    fn stop_waiting(&mut self, waiter: &Arc<Waiter>) -> bool {
        if waiter.granted.load(Ordering::Relaxed) {
            return false;
        }
        let key = waiter.key();
        if let Some(owned) = self.owned.get_mut(&key) {
            owned.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
            if owned.waiters.is_empty() && !owned.inherited {
                self.owned.remove(&key);
            }
        }
        true
    }
}

/// `FUTEX_LOCK_PI` and `FUTEX_TRYLOCK_PI`.
///
/// # Errors
/// `EAGAIN`, `ETIMEDOUT`; `ERESTARTNOINTR`: a signal; `EDEADLK`, `ESRCH`, `EINVAL`, `EFAULT`.
pub fn lock(task: &Task, address: u64, scope: Scope, patience: Patience) -> Result<(), Errno> {
    let place = place(task, address, scope, Access::Write)?;
    let sleeper = Sleeper::new();
    let waiter = Arc::new(Waiter::new(task, &sleeper, 0, place.clone()));
    let look = with_table(task, address, Access::Write, |table| {
        let look = take(table, task, address, &place, (&waiter, 0))?;
        if let (Ok(Look::Held(owner)), Patience::Until(_)) = (&look, patience) {
            table.wait_for_lock(*owner, &place, waiter.clone());
        }
        Some(look)
    })??;
    match (look, patience) {
        (Look::Taken, _) => Ok(()),
        (Look::Held(_), Patience::None) => Err(Errno::EAGAIN),
        (Look::Held(_), Patience::Until(deadline)) => {
            let slept = sleeper.sleep(deadline);
            finish(task, address, &waiter, slept).map_err(|error| match error {
                Errno::ERESTARTSYS => Errno::ERESTARTNOINTR,
                error => error,
            })
        }
    }
}

/// After a wait for a lock: whoever was given it has it, whatever else happened.
fn finish(task: &Task, address: u64, waiter: &Arc<Waiter>, slept: Result<(), Errno>) -> Result<(), Errno> {
    if TABLE.lock().stop_waiting(waiter) {
        return slept;
    }
    let key = waiter.key();
    with_table(task, address, Access::Write, |table| {
        let Some(owned) = table.owned.get_mut(&key).filter(|owned| owned.inherited && owned.owner == task.pid) else {
            return Some(());
        };
        update_now(task, address, |_| Some(waiter.number | FUTEX_WAITERS | FUTEX_OWNER_DIED))?;
        owned.inherited = false;
        if owned.waiters.is_empty() {
            table.owned.remove(&key);
        }
        Some(())
    })
}

/// `FUTEX_UNLOCK_PI`.
///
/// # Errors
/// `EPERM`: the caller does not own it. `EINVAL`, `EFAULT`.
pub fn unlock(task: &Task, address: u64, scope: Scope) -> Result<(), Errno> {
    // Ownership is looked at first of all (`futex_unlock_pi`).
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let word = with_table(task, address, Access::Read, |_| word_now(task, address))?;
    if word & FUTEX_TID_MASK != task.own_number() {
        return Err(Errno::EPERM);
    }
    let place = place(task, address, scope, Access::Write)?;
    let next = with_table(task, address, Access::Write, |table| {
        let next = table.owned.get(&place.key).and_then(|owned| owned.waiters.front().cloned());
        let new = next.as_ref().map_or(0, |next| next.number | FUTEX_WAITERS);
        update_now(task, address, |_| Some(new))?;
        if let Some(owned) = table.owned.get_mut(&place.key) {
            owned.hand_on();
            if owned.waiters.is_empty() {
                table.owned.remove(&place.key);
            }
        }
        Some(next)
    })?;
    if let Some(next) = next {
        next.sleeper.wake();
    }
    Ok(())
}

impl Owned {
    /// Makes the first that waits the owner; to be woken once the table is unlocked.
    fn hand_on(&mut self) -> Option<Arc<Waiter>> {
        let next = self.waiters.pop_front()?;
        self.owner = next.pid;
        next.granted.store(true, Ordering::Relaxed);
        Some(next)
    }
}

/// Hands on the locks that an ending thread owns and others wait for (`exit_pi_state_list`).
pub(super) fn owner_died(task: &Task, leaving: Leaving) {
    let mut next: Vec<Arc<Waiter>> = Vec::new();
    {
        let mut table = TABLE.lock();
        if leaving == Leaving::End {
            // From now on nobody can wait for it.
            task.futexes_released.store(true, Ordering::Relaxed);
        }
        if !table.owned.is_empty() {
            table.owned.retain(|_, owned| {
                if owned.owner != task.pid {
                    return true;
                }
                let heir = owned.hand_on();
                owned.inherited = heir.is_some();
                next.extend(heir);
                owned.inherited
            });
        }
    }
    wake_all(&next);
}

/// `FUTEX_WAIT_REQUEUE_PI`: waits at a plain word, is moved to a lock, and goes on as its owner.
///
/// # Errors
/// As for [`super::wait::wait`]; a signal before it is moved is `ERESTARTNOINTR`, afterwards `EAGAIN`. `EINVAL`: both words are the same.
pub fn wait_requeue(task: &Task, wanted: &Wanted, lock: u64, deadline: Option<u64>) -> Result<(), Errno> {
    if wanted.address == lock {
        return Err(Errno::EINVAL);
    }
    let target = place(task, lock, wanted.scope, Access::Write)?;
    let place = place(task, wanted.address, wanted.scope, Access::Read)?;
    if place.key == target.key {
        return Err(Errno::EINVAL);
    }
    let sleeper = Sleeper::new();
    let waiter = Arc::new(Waiter { target: Some(target.key), ..Waiter::new(task, &sleeper, wanted.bits, place) });
    enqueue(task, wanted, &waiter)?;
    let slept = sleeper.sleep(deadline);
    if TABLE.lock().forget(&waiter) {
        return slept.map_err(|error| if error == Errno::ERESTARTSYS { Errno::ERESTARTNOINTR } else { error });
    }
    finish(task, lock, &waiter, slept).map_err(|error| if error == Errno::ERESTARTSYS { Errno::EAGAIN } else { error })
}

/// `FUTEX_CMP_REQUEUE_PI`: gives the lock at the second word to the first that waits at the first, or makes it and up to `count` others wait for it.
/// Returns how many were moved or woken.
///
/// # Errors
/// `EAGAIN`: the first word is not `expected`. `EINVAL`: one of them does not wait for that lock. Others as for [`lock`].
pub fn requeue(task: &Task, pair: Pair, count: usize, expected: u32) -> Result<usize, Errno> {
    if pair.from == pair.to {
        return Err(Errno::EINVAL);
    }
    let from = place(task, pair.from, pair.scope, Access::Read)?;
    let to = place(task, pair.to, pair.scope, Access::Write)?;
    if from.key == to.key {
        return Err(Errno::EINVAL);
    }
    loop {
        // The second word is faulted in by the step below, the first here.
        with_table(task, pair.from, Access::Read, |_| word_now(task, pair.from))?;
        let done = with_table(task, pair.to, Access::Write, |table| {
            let Some(word) = word_now(task, pair.from) else { return Some(Ok(None)) };
            if word != expected {
                return Some(Err(Errno::EAGAIN));
            }
            let waiters = table.waiters.get(&from.key);
            let chosen: Vec<_> = waiters.into_iter().flatten().take(count.saturating_add(1)).cloned().collect();
            let Some(first) = chosen.first() else { return Some(Ok(Some((0, None)))) };
            if chosen.iter().any(|waiter| waiter.target != Some(to.key)) {
                return Some(Err(Errno::EINVAL));
            }
            let mark = if chosen.len() > 1 { FUTEX_WAITERS } else { 0 };
            let (owner, granted) = match take(table, task, pair.to, &to, (first, mark))? {
                Ok(Look::Taken) => (first.pid, Some(first.clone())),
                Ok(Look::Held(owner)) => (owner, None),
                Err(error) => return Some(Err(error)),
            };
            for waiter in &chosen {
                table.forget(waiter);
                match &granted {
                    Some(granted) if Arc::ptr_eq(granted, waiter) => waiter.granted.store(true, Ordering::Relaxed),
                    _ => table.wait_for_lock(owner, &to, waiter.clone()),
                }
            }
            Some(Ok(Some((chosen.len(), granted))))
        })??;
        if let Some((moved, granted)) = done {
            wake_all(granted.as_slice());
            return Ok(moved);
        }
    }
}
