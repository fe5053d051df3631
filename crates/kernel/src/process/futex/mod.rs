//! Futexes: waiting for a word of memory to change (futex(2)).
//!
//! - [`key`]: what a word goes by: a page of an object wherever it is mapped, or an address of one address space.
//! - [`wait`]: waiting for one word or several, waking, moving those who wait elsewhere.
//! - [`pi`]: words that say who owns a lock, which goes from owner to owner in the kernel.
//! - [`robust`]: what becomes of the locks of a thread that ends.
//!
//! One lock over all waiters ([`TABLE`]). Words are looked at and changed under it, in one step each, so a wait, a wake-up and a move come in some
//! order; a page that is not there is faulted in without it, and the step begins again. Nothing is woken, freed or waited for under it. The lock of the
//! process tree may be taken below it.

pub mod key;
pub mod pi;
pub mod robust;
pub mod wait;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sync::Mutex;
use foldspace::VirtAddr;
use foldspace::space::Access;

use self::key::{Key, Place, Scope};
use self::pi::Owned;
use super::{Pid, Task};
use crate::errno::Errno;
use crate::sched::WaitQueue;

/// Who waits for which word.
static TABLE: Mutex<Table> = Mutex::new(Table { waiters: BTreeMap::new(), owned: BTreeMap::new() });

struct Table {
    /// In the order in which they came.
    waiters: BTreeMap<Key, Vec<Arc<Waiter>>>,
    /// Locks that somebody waits for.
    owned: BTreeMap<Key, Owned>,
}

/// Where a thread sleeps that waits for one word or several.
struct Sleeper {
    woken: AtomicBool,
    queue: WaitQueue,
}

impl Sleeper {
    fn new() -> Arc<Sleeper> {
        Arc::new(Sleeper { woken: AtomicBool::new(false), queue: WaitQueue::new() })
    }

    /// Lets it go on. It has been taken out of the table.
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    /// Until it is woken, `deadline` (nanoseconds of the monotonic clock), or a signal.
    fn sleep(&self, deadline: Option<u64>) -> Result<(), Errno> {
        let woken = || self.woken.load(Ordering::Acquire).then_some(());
        match deadline {
            None => self.queue.wait_until(woken).map(Some),
            Some(deadline) => self.queue.wait_until_deadline(deadline, woken),
        }?
        .ok_or(Errno::ETIMEDOUT)
    }
}

/// One word that a thread waits for.
struct Waiter {
    sleeper: Arc<Sleeper>,
    /// A wake-up with none of these is not for it.
    bits: u32,
    /// Who waits.
    pid: Pid,
    /// How words call that thread: its own number of itself.
    number: Pid,
    /// The word that it waits for now: a requeue changes it. Only under the lock of the table.
    place: Mutex<Place>,
    /// The lock that it is to be moved to, and is to own when it goes on (`FUTEX_WAIT_REQUEUE_PI`).
    target: Option<Key>,
    /// It owns the lock that it waited for.
    granted: AtomicBool,
}

impl Waiter {
    fn new(task: &Task, sleeper: &Arc<Sleeper>, bits: u32, place: Place) -> Waiter {
        Waiter {
            sleeper: sleeper.clone(),
            bits,
            pid: task.pid,
            number: task.own_number(),
            place: Mutex::new(place),
            target: None,
            granted: AtomicBool::new(false),
        }
    }

    fn key(&self) -> Key {
        self.place.lock().key
    }
}

impl Table {
    fn push(&mut self, waiter: &Arc<Waiter>) -> Result<(), Errno> {
        let list = self.waiters.entry(waiter.key()).or_default();
        list.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        list.push(waiter.clone());
        Ok(())
    }

    /// Takes a waiter out; false if a waker already has.
    fn forget(&mut self, waiter: &Arc<Waiter>) -> bool {
        let key = waiter.key();
        let Some(list) = self.waiters.get_mut(&key) else { return false };
        let position = list.iter().position(|other| Arc::ptr_eq(other, waiter));
        let found = position.map(|position| list.remove(position)).is_some();
        if list.is_empty() {
            self.waiters.remove(&key);
        }
        found
    }
}

/// Runs `step` under the lock of the table, again and again until the word at `address` was there to be looked at: `step` says `None` if it was not.
fn with_table<T>(
    task: &Task,
    address: u64,
    access: Access,
    mut step: impl FnMut(&mut Table) -> Option<T>,
) -> Result<T, Errno> {
    loop {
        let done = step(&mut TABLE.lock());
        if let Some(done) = done {
            return Ok(done);
        }
        task.space().fault(VirtAddr(address), access).map_err(|_| Errno::EFAULT)?;
    }
}

/// The word at `address` if it is there now.
fn word_now(task: &Task, address: u64) -> Option<u32> {
    task.space().word_now(VirtAddr(address))
}

/// Changes the word at `address` in one step if it is there now; returns what it was.
fn update_now(task: &Task, address: u64, change: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
    task.space().update_word_now(VirtAddr(address), change)
}

/// The place of the word at `address`, for somebody who looks at it, or who changes it.
fn place(task: &Task, address: u64, scope: Scope, access: Access) -> Result<Place, Errno> {
    key::place(&task.space(), address, scope, access)
}

/// Whether a thread lets go of its memory because it ends, or for another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// It ends.
    End,
    /// It calls exec.
    Exec,
}

/// Lets go of the locks that the current thread holds (`futex_exit_release` and `futex_exec_release`).
pub fn release(task: &Task, leaving: Leaving) {
    let robust = task.robust_list.swap(0, Ordering::Relaxed);
    if robust != 0 {
        robust::owner_died(task, robust);
    }
    pi::owner_died(task, leaving);
}
