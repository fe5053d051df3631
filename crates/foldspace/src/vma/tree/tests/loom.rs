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
