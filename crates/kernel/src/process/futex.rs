//! Futexes: waiting for a word of memory to change.
//!
//! A private futex goes by address space and address. A shared one may be mapped anywhere in several address spaces; it goes by its
//! offset in its page, which all mappings of it have in common, and waking one wakes all that share that offset: waiters look again, as
//! futex(2) tells them to.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use foldspace::addr::PAGE_SIZE;
use foldspace::platform::SpaceId;
use linux_raw_sys::general as raw;
use spin::Mutex;

use super::Task;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::sched::WaitQueue;

/// What a futex goes by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// Of one address space.
    Private(SpaceId, u64),
    /// Of memory that may be shared.
    Shared(u64),
}

/// Who may wake whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// `FUTEX_PRIVATE_FLAG`.
    Private,
    /// Without it.
    Shared,
}

/// A thread that waits.
struct Waiter {
    woken: AtomicBool,
    bits: u32,
    key: Mutex<Key>,
    queue: WaitQueue,
}

static WAITERS: Mutex<BTreeMap<Key, Vec<Arc<Waiter>>>> = Mutex::new(BTreeMap::new());

/// The key of the word at `address`, which must be aligned.
pub fn key(task: &Task, address: u64, scope: Scope) -> Result<Key, Errno> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    if address >= foldspace::addr::USER_END.get() {
        return Err(Errno::EFAULT);
    }
    Ok(match scope {
        Scope::Private => Key::Private(task.space().id(), address),
        Scope::Shared => Key::Shared(address % PAGE_SIZE),
    })
}

/// Waits while the word at `address` is `expected`, until woken with one of `bits` or `deadline` (nanoseconds of the monotonic clock).
///
/// # Errors
/// `EAGAIN`: the word is not `expected`. `ETIMEDOUT`. `ERESTARTSYS`: a signal. `EFAULT`.
pub fn wait(
    task: &Task,
    address: u64,
    scope: Scope,
    expected: u32,
    bits: u32,
    deadline: Option<u64>,
) -> Result<(), Errno> {
    let key = key(task, address, scope)?;
    let waiter =
        Arc::new(Waiter { woken: AtomicBool::new(false), bits, key: Mutex::new(key), queue: WaitQueue::new() });
    {
        let mut waiters = WAITERS.lock();
        let list = waiters.entry(key).or_default();
        list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        list.push(waiter.clone());
    }
    // Queued first, read afterwards: whoever changes the word after this read finds the waiter.
    let result = match uaccess::read::<u32>(address) {
        Err(error) => Err(error),
        Ok(value) if value != expected => Err(Errno::EAGAIN),
        Ok(_) => {
            let woken = || waiter.woken.load(Ordering::Acquire).then_some(());
            match deadline {
                None => waiter.queue.wait_until(woken).map(Some),
                Some(deadline) => waiter.queue.wait_until_deadline(deadline, woken),
            }
            .map_err(Errno::from)
            .and_then(|woken| woken.ok_or(Errno::ETIMEDOUT))
        }
    };
    // A waker that chose this thread must not be disappointed, whatever else happened.
    if forget(&waiter) { result } else { Ok(()) }
}

/// Takes a waiter out; false if a waker already has.
fn forget(waiter: &Arc<Waiter>) -> bool {
    let mut waiters = WAITERS.lock();
    let key = *waiter.key.lock();
    let Some(list) = waiters.get_mut(&key) else { return false };
    let Some(position) = list.iter().position(|other| Arc::ptr_eq(other, waiter)) else { return false };
    list.remove(position);
    if list.is_empty() {
        waiters.remove(&key);
    }
    true
}

/// Wakes up to `count` of those that wait with one of `bits`. Returns how many.
pub fn wake(task: &Task, address: u64, scope: Scope, count: usize, bits: u32) -> Result<usize, Errno> {
    Ok(wake_key(key(task, address, scope)?, count, bits))
}

fn wake_key(key: Key, count: usize, bits: u32) -> usize {
    // Among those that share an offset there may be strangers.
    let limit = if matches!(key, Key::Shared(_)) && count > 0 { usize::MAX } else { count };
    let chosen = {
        let mut waiters = WAITERS.lock();
        let Some(list) = waiters.get_mut(&key) else { return 0 };
        let mut chosen = Vec::new();
        list.retain(|waiter| {
            let take = waiter.bits & bits != 0 && chosen.len() < limit && chosen.try_reserve(1).is_ok();
            if take {
                chosen.push(waiter.clone());
            }
            !take
        });
        if list.is_empty() {
            waiters.remove(&key);
        }
        chosen
    };
    for waiter in &chosen {
        waiter.woken.store(true, Ordering::Release);
        waiter.queue.wake_all();
    }
    chosen.len().min(count)
}

/// `FUTEX_REQUEUE` and `FUTEX_CMP_REQUEUE`: wakes `wake_count` and moves up to `move_count` others to another futex. Returns how many of both.
pub fn requeue(
    task: &Task,
    from: u64,
    to: u64,
    scope: Scope,
    (wake_count, move_count): (usize, usize),
    expected: Option<u32>,
) -> Result<usize, Errno> {
    let (from_key, to_key) = (key(task, from, scope)?, key(task, to, scope)?);
    if let Some(expected) = expected
        && uaccess::read::<u32>(from)? != expected
    {
        return Err(Errno::EAGAIN);
    }
    let woken = wake_key(from_key, wake_count, raw::FUTEX_BITSET_MATCH_ANY);
    let mut waiters = WAITERS.lock();
    let Some(mut list) = waiters.remove(&from_key) else { return Ok(woken) };
    let moved: Vec<_> = list.drain(..move_count.min(list.len())).collect();
    let count = moved.len();
    for waiter in &moved {
        *waiter.key.lock() = to_key;
    }
    if !list.is_empty() {
        waiters.insert(from_key, list);
    }
    if !moved.is_empty() {
        waiters.entry(to_key).or_default().extend(moved);
    }
    Ok(woken + count)
}

/// Wakes whoever waits for the end of a thread: the C libraries do so with either scope.
pub(super) fn wake_after_exit(task: &Task, address: u64) {
    for scope in [Scope::Private, Scope::Shared] {
        // A bad address has no waiters.
        let _ = wake(task, address, scope, 1, raw::FUTEX_BITSET_MATCH_ANY);
    }
}

/// Marks the robust futexes that an ending thread holds, and wakes one waiter of each (`exit_robust_list`; the list's form is in
/// `linux/futex.h`: next pointers from a head of {next, offset, pending}).
pub(super) fn owner_died(task: &Task, head: u64) {
    /// A program can make the list endless.
    const LIMIT: usize = 2048;
    let Ok([mut entry, offset, pending]) = uaccess::read::<[u64; 3]>(head) else { return };
    for _ in 0..LIMIT {
        if entry & !1 == head {
            break;
        }
        let Ok(next) = uaccess::read::<u64>(entry & !1) else { break };
        if entry != pending {
            mark_owner_died(task, (entry & !1).wrapping_add(offset));
        }
        entry = next;
    }
    if pending != 0 {
        mark_owner_died(task, (pending & !1).wrapping_add(offset));
    }
}

fn mark_owner_died(task: &Task, address: u64) {
    if !address.is_multiple_of(4) {
        return;
    }
    let Ok(value) = uaccess::read::<u32>(address) else { return };
    if value & raw::FUTEX_TID_MASK != task.pid {
        return;
    }
    if uaccess::write(address, &(value & raw::FUTEX_WAITERS | raw::FUTEX_OWNER_DIED)).is_ok()
        && value & raw::FUTEX_WAITERS != 0
    {
        wake_after_exit(task, address);
    }
}
