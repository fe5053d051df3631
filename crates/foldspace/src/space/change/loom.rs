//! The words that say which range is in change, explored by loom.

use std::boxed::Box;

use ::loom::sync::{Arc, Mutex};

use super::*;
use crate::addr::PAGE_SIZE;
use crate::sync::Content;
use crate::sync::loom::explore;

/// What a writer and a fault meet at.
#[derive(Default)]
struct Place {
    in_change: InChange,
    version: AtomicU64,
    /// Whether the old entry is gone: what the lock of a table guards. (That of records has tests of its own.)
    cleared: Mutex<bool>,
}

/// A fault that acts on the new version finds the old entry gone, or waits.
#[test]
fn a_fault_waits_from_publication_to_the_end() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let place: Arc<Place> = Arc::default();
        let fault = place.clone();
        let range = PageRange::new(VirtAddr(PAGE_SIZE), VirtAddr(2 * PAGE_SIZE)).expect("a page");
        [
            Box::new(move || {
                place.in_change.begin(range);
                place.version.store(1, Ordering::Release);
                *place.cleared.lock().expect("nobody panicked") = true;
                place.in_change.end();
                "changed"
            }),
            Box::new(move || {
                let version = fault.version.load(Ordering::Acquire);
                let cleared = fault.cleared.lock().expect("nobody panicked");
                let holds =
                    fault.version.load(Ordering::Acquire) == version && !fault.in_change.contains(range.start());
                assert!(!holds || version == 0 || *cleared, "what is installed now would be cleared");
                match (holds, version) {
                    (false, _) => "waits",
                    (true, 0) => "before",
                    (true, _) => "after",
                }
            }),
        ]
    };
    explore(threads, &[["changed", "waits"], ["changed", "before"], ["changed", "after"]]);
}

/// What a writer of the root and a fault meet at: a fork, whose shootdown ends stores through what processors remember.
#[derive(Default)]
struct Fork {
    in_change: InChange,
    protected: AtomicU64,
    page: Content,
}

fn page_range(from: u64, until: u64) -> PageRange {
    PageRange::new(VirtAddr(from * PAGE_SIZE), VirtAddr(until * PAGE_SIZE)).expect("pages")
}

/// A fault at page 5 that finds its path protected, and need not wait, copies what was stored until the shootdown: whatever the next writer says.
fn a_fault_copies_what_was_stored_until_the_shootdown(next: impl Fn(&InChange) + Copy + Send + Sync + 'static) {
    let threads = move || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let fork: Arc<Fork> = Arc::default();
        let fault = fork.clone();
        [
            Box::new(move || {
                fork.in_change.begin(page_range(0, 100));
                fork.protected.store(1, Ordering::Release);
                fork.page.write();
                fork.in_change.end();
                next(&fork.in_change);
                "forked"
            }),
            Box::new(move || {
                if fault.protected.load(Ordering::Acquire) == 0 {
                    return "before";
                }
                if fault.in_change.contains(VirtAddr(5 * PAGE_SIZE)) {
                    return "waits";
                }
                fault.page.read();
                "after"
            }),
        ]
    };
    explore(threads, &[["forked", "before"], ["forked", "waits"], ["forked", "after"]]);
}

#[test]
fn a_fault_after_a_fork_copies_what_was_stored_until_the_shootdown() {
    a_fault_copies_what_was_stored_until_the_shootdown(|_| {});
}

#[test]
fn the_next_change_lies_below() {
    a_fault_copies_what_was_stored_until_the_shootdown(|next| next.begin(page_range(1, 2)));
}

#[test]
fn the_next_change_lies_above() {
    a_fault_copies_what_was_stored_until_the_shootdown(|next| next.begin(page_range(7, 9)));
}

#[test]
fn the_next_change_lies_around() {
    a_fault_copies_what_was_stored_until_the_shootdown(|next| next.begin_two(page_range(1, 2), page_range(7, 9)));
}

#[test]
fn the_next_change_of_two_lies_below_or_above() {
    a_fault_copies_what_was_stored_until_the_shootdown(|next| next.begin_two(page_range(1, 2), page_range(3, 4)));
    a_fault_copies_what_was_stored_until_the_shootdown(|next| next.begin_two(page_range(7, 8), page_range(9, 10)));
}
