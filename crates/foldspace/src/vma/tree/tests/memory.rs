//! Allocation fails at every place where it can: nothing changes, nothing leaks.

use std::vec::Vec;

use super::*;
use crate::Error;
use crate::vma::tree::Version;
use crate::vma::tree::node::watch;

/// Runs `change` again and again, with the n-th allocation failing, until it needs no more; how many it needed.
fn fail_everywhere(cell: &VersionCell, epoch: &Epoch, range: PageRange, replacement: &[Vma], names: &[Name]) -> usize {
    let splice = |guard: &Guard| cell.splice(guard, range, replacement.iter().cloned());
    fail_each(cell, epoch, names, splice, |model| model.splice(range, replacement))
}

/// The same of any change, and what it should do.
fn fail_each(
    cell: &VersionCell,
    epoch: &Epoch,
    names: &[Name],
    change: impl Fn(&Guard) -> crate::error::Result<()>,
    expected: impl Fn(&mut Model),
) -> usize {
    let model = {
        let mut model = Model::default();
        model.splice(pages(0, 1 << 20), &cell.load(&epoch.pin()).iter().cloned().collect::<Vec<_>>());
        model
    };
    epoch.settle();
    let alive = watch::alive();
    let counts: Vec<usize> = names.iter().map(Name::users).collect();
    for n in 0.. {
        let guard = epoch.pin();
        let before = cell.load(&guard);
        watch::fail_after(Some(n));
        let result = change(&guard);
        watch::fail_after(None);
        if result.is_ok() {
            let mut model = model;
            expected(&mut model);
            compare(cell, &guard, &model);
            return n;
        }
        assert_eq!(result, Err(Error::OutOfMemory));
        assert!(cell.same(before));
        compare(cell, &guard, &model);
        assert_eq!(watch::alive(), alive);
        assert_eq!(names.iter().map(Name::users).collect::<Vec<_>>(), counts);
    }
    0
}

#[test]
fn every_allocation_may_fail() {
    let alive = watch::alive();
    let names = [Name::from(*b"old"), Name::from(*b"new")];
    let epoch = Epoch::new();
    let mut injected = 0;
    for shared in [None, Some(())] {
        for (range, count) in [
            (pages(0, 1), 1),
            (pages(100, 101), 1),
            (pages(100, 101), 0),
            (pages(50, 900), 0),
            (pages(301, 303), 1),
            (pages(50, 900), 200),
            (pages(0, 4000), 0),
            (pages(0, 4000), 3000),
            (pages(40, 3990), 1),
        ] {
            let cell = VersionCell::new(Version::empty());
            let all: Vec<Vma> = (0..600).map(|n| named(2 * n, 2 * n + 2, &names[0])).collect();
            injected += fail_everywhere(&cell, &epoch, pages(0, 4000), &all, &names);
            let held = shared.map(|()| cell.hold(&epoch.pin()));
            let from = range.start().get() / PAGE_SIZE;
            let new: Vec<Vma> = (from..from + count).map(|n| named(n, n + 1, &names[1])).collect();
            injected += fail_everywhere(&cell, &epoch, range, &new, &names);
            let new = (count > 0).then(|| Vma { range, ..named(0, 1, &names[1]) });
            let put_new = |guard: &Guard| put(&cell, guard, range, new.clone());
            injected += fail_each(&cell, &epoch, &names, put_new, |model| model.put(range, new.clone()));
            drop(held);
        }
    }
    assert!(injected > 500, "only {injected} allocations failed");
    epoch.settle();
    assert_eq!(watch::alive(), alive);
    assert!(names.iter().all(|name| name.users() == 1));
}

#[test]
fn spare_nodes_can_be_given_back() {
    let epoch = Epoch::new();
    let cell = comb(&epoch, 100);
    epoch.settle();
    crate::vma::tree::free_spare_nodes();
    cell.splice(&epoch.pin(), pages(0, 50), []).expect("memory");
    check(cell.load(&epoch.pin()));
}
