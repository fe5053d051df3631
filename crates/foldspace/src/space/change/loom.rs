//! The words that say which range is in change, explored by loom.

use std::boxed::Box;

use ::loom::sync::{Arc, Mutex};

use super::*;
use crate::addr::PAGE_SIZE;
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
