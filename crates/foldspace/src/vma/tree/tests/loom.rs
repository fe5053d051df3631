//! Publication of versions, and whoever reads or holds them, explored by loom. The epoch is the real one, which loom does not follow.

use std::boxed::Box;

use ::loom::sync::Arc;

use super::*;
use crate::sync::loom::explore;

/// A tree with a VMA of `size` pages in it, which readers find or a later one.
struct Shared {
    cell: VersionCell,
    collector: Collector,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let shared = Shared { cell: VersionCell::new(crate::vma::tree::Version::empty()), collector: Collector::new() };
        shared.put(1);
        Arc::new(shared)
    }

    fn put(&self, size: u64) {
        let local = self.collector.register();
        self.cell.splice(&local.pin(), pages(0, 8), [vma(0, size, VmaFlags::READ)]).expect("there is heap");
    }
}

fn seen(version: VersionRef<'_>) -> &'static str {
    match version.find(page(0)).map(|vma| vma.range.pages()) {
        Some(1) => "old",
        Some(2) => "new",
        _ => "neither",
    }
}

fn writer(shared: &Arc<Shared>) -> Box<dyn FnOnce() -> &'static str + Send> {
    let shared = shared.clone();
    Box::new(move || {
        shared.put(2);
        "published"
    })
}

#[test]
fn a_pinned_reader_sees_a_whole_version() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let shared = Shared::new();
        let write = writer(&shared);
        [
            write,
            Box::new(move || {
                let local = shared.collector.register();
                let guard = local.pin();
                seen(shared.cell.load(&guard))
            }),
        ]
    };
    explore(threads, &[["published", "old"], ["published", "new"]]);
}

#[test]
fn a_held_version_stays() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let shared = Shared::new();
        let write = writer(&shared);
        [
            write,
            Box::new(move || {
                let local = shared.collector.register();
                let held = shared.cell.hold(&local.pin());
                let first = seen(held.view());
                assert_eq!(seen(held.view()), first);
                first
            }),
        ]
    };
    explore(threads, &[["published", "old"], ["published", "new"]]);
}

impl Shared {
    /// Runs what waits for a grace period. Nobody is pinned.
    fn pass_grace_period(&self) {
        for _ in 0..4 {
            self.collector.register().pin().flush();
        }
    }
}

/// Two who hold the last counts of a version read it and let go: the last one destroys it, after both have read.
#[test]
fn the_last_holder_destroys_what_all_have_read() {
    let threads = || {
        let version = {
            let shared = Shared::new();
            shared.cell.hold(&shared.collector.register().pin())
        };
        [version.clone(), version].map(|held| {
            let thread: Box<dyn FnOnce() -> &'static str + Send> = Box::new(move || {
                let seen = seen(held.view());
                drop(held);
                seen
            });
            thread
        })
    };
    explore(threads, &[["old", "old"]]);
}

/// A writer replaces a version that somebody holds, or held a moment ago: its content moves only if he is done.
#[test]
fn a_version_moves_when_its_holder_is_done() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let shared = Shared::new();
        let held = shared.cell.hold(&shared.collector.register().pin());
        [
            Box::new(move || {
                shared.put(2);
                shared.pass_grace_period();
                "published"
            }),
            Box::new(move || {
                let seen = seen(held.view());
                drop(held);
                seen
            }),
        ]
    };
    explore(threads, &[["published", "old"]]);
}

/// The same of a leaf that two versions have: the older one's last holder lets go while a writer changes it.
#[test]
fn a_leaf_moves_when_the_other_version_has_gone() {
    let threads = || -> [Box<dyn FnOnce() -> &'static str + Send>; 2] {
        let shared = Shared { cell: VersionCell::new(crate::vma::tree::Version::empty()), collector: Collector::new() };
        // Two leaves. Each VMA differs from its neighbours.
        let flags = |n: u64| if n % 2 == 0 { VmaFlags::READ } else { VmaFlags::WRITE };
        let many: std::vec::Vec<_> = (0..24).map(|n| vma(8 * n, 8 * n + 1, flags(n))).collect();
        let local = shared.collector.register();
        shared.cell.splice(&local.pin(), pages(0, 8 * 24), many).expect("there is heap");
        let held = shared.cell.hold(&local.pin());
        // The upper leaf becomes another one; the lower one is shared.
        shared.cell.splice(&local.pin(), pages(8 * 23, 8 * 24), []).expect("there is heap");
        shared.pass_grace_period();
        drop(local);
        let shared = Arc::new(shared);
        [
            Box::new(move || {
                shared.put(2);
                shared.pass_grace_period();
                "published"
            }),
            Box::new(move || {
                let seen = seen(held.view());
                drop(held);
                seen
            }),
        ]
    };
    explore(threads, &[["published", "old"]]);
}
