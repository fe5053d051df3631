//! Robust futexes: what becomes of the locks that an ending thread holds.

use foldspace::space::Access;
use linux_raw_sys::general as raw;

use super::wait::wake_after_exit;
use super::{update_now, with_table};
use crate::mm::uaccess;
use crate::process::Task;

/// What an entry of the list is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A lock that the thread holds.
    Held,
    /// One that it was about to take or to release.
    Pending,
}

/// Marks the robust futexes that an ending thread holds, and wakes one waiter of each (`exit_robust_list`; the list's form is in
/// `linux/futex.h`: next pointers from a head of {next, offset, pending}, bit 0 set for a lock that the kernel hands on).
pub fn owner_died(task: &Task, head: u64) {
    /// A program can make the list endless (`ROBUST_LIST_LIMIT`).
    const LIMIT: usize = 2048;
    let Ok([mut entry, offset, pending]) = uaccess::read::<[u64; 3]>(head) else { return };
    for _ in 0..LIMIT {
        if entry & !1 == head {
            break;
        }
        // The next one first: the lock, once released, may be freed.
        let next = uaccess::read::<u64>(entry & !1);
        if entry & !1 != pending & !1 && !mark(task, (entry & !1).wrapping_add(offset), entry & 1 != 0, Entry::Held) {
            return;
        }
        let Ok(next) = next else { return };
        entry = next;
    }
    if pending & !1 != 0 {
        mark(task, (pending & !1).wrapping_add(offset), pending & 1 != 0, Entry::Pending);
    }
}

/// Marks one (`handle_futex_death`). False if its memory is not as it should be: the rest of the list is given up then.
fn mark(task: &Task, address: u64, inherits: bool, entry: Entry) -> bool {
    if !address.is_multiple_of(4) || address >= foldspace::addr::USER_END.get() {
        return false;
    }
    let change = |word: u32| {
        (word & raw::FUTEX_TID_MASK == task.own_number()).then_some(word & raw::FUTEX_WAITERS | raw::FUTEX_OWNER_DIED)
    };
    let Ok(word) = with_table(task, address, Access::Write, |_| update_now(task, address, change)) else {
        return false;
    };
    // Between releasing a lock and waking the next: nobody else would.
    if entry == Entry::Pending && !inherits && word == 0 {
        wake_after_exit(task, address);
    }
    if word & raw::FUTEX_TID_MASK == task.own_number() && !inherits && word & raw::FUTEX_WAITERS != 0 {
        wake_after_exit(task, address);
    }
    true
}
