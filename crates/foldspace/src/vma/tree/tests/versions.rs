//! Versions that are held stay as they are, whatever the writer does and whoever lets go first.

use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::vma::tree::Version;
use crate::vma::tree::node::watch;

const SPACE: u64 = 400;

#[derive(Clone, Debug)]
enum Step {
    /// Cell `usize` puts VMAs with name `usize` at every second page of the range.
    Splice(usize, PageRange, usize),
    /// Cell `usize` puts one VMA with name `usize` into the range, merged with its neighbours.
    Put(usize, PageRange, usize),
    /// Forget what is in the range.
    Unmap(usize, PageRange),
    Hold(usize),
    /// A further cell starts from a held version or from a cell's current one: fork.
    Fork(usize),
    CloneHeld(usize),
    DropHeld(usize),
    DropCell(usize),
    Clear(usize),
    /// Goes back to a held version.
    Restore(usize, usize),
    PrepareAndDrop(usize, PageRange),
}

fn range() -> impl Strategy<Value = PageRange> {
    (0..SPACE - 1, prop_oneof![4 => 1..10u64, 1 => 1..SPACE])
        .prop_map(|(from, len)| pages(from, (from + len).min(SPACE)))
}

fn step() -> impl Strategy<Value = Step> {
    let n = any::<usize>;
    prop_oneof![
        26 => prop_oneof![
            12 => (n(), range(), n()).prop_map(|(cell, range, name)| Step::Splice(cell, range, name)),
            8 => (n(), range(), n()).prop_map(|(cell, range, name)| Step::Put(cell, range, name)),
            6 => (n(), range()).prop_map(|(cell, range)| Step::Unmap(cell, range)),
        ],
        3 => n().prop_map(Step::Hold),
        2 => n().prop_map(Step::Fork),
        1 => n().prop_map(Step::CloneHeld),
        3 => n().prop_map(Step::DropHeld),
        1 => n().prop_map(Step::DropCell),
        1 => n().prop_map(Step::Clear),
        1 => (n(), n()).prop_map(|(cell, held)| Step::Restore(cell, held)),
        2 => (n(), range()).prop_map(|(cell, range)| Step::PrepareAndDrop(cell, range)),
    ]
}

fn teeth(range: PageRange, name: &Name) -> Vec<Vma> {
    let (from, to) = (range.start().get() / PAGE_SIZE, range.end().get() / PAGE_SIZE);
    (from..to).step_by(2).map(|n| named(n, n + 1, name)).collect()
}

/// The last of `things`, or one of them, by any number.
fn pick<T>(things: &[T], n: usize) -> Option<usize> {
    n.checked_rem(things.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn held_versions_stay_and_nothing_leaks(steps in vec(step(), 1..150)) {
        let alive = watch::alive();
        let names: Vec<Name> = (0..3u8).map(|n| Name::from([n])).collect();
        let epoch = Epoch::new();
        let mut cells = std::vec![(VersionCell::new(Version::empty()), Model::default())];
        let mut held: Vec<(Version, Model)> = Vec::new();
        for step in steps {
            // Some steps stay pinned over others, so that garbage waits.
            let guard = epoch.pin();
            match step {
                Step::Splice(cell, range, name) => if let Some(i) = pick(&cells, cell) {
                    let new = teeth(range, &names[name % names.len()]);
                    cells[i].1.splice(range, &new);
                    cells[i].0.splice(&guard, range, new).expect("memory");
                },
                Step::Put(cell, range, name) => if let Some(i) = pick(&cells, cell) {
                    let new = Vma { range, ..named(0, 1, &names[name % names.len()]) };
                    cells[i].1.put(range, Some(new.clone()));
                    put(&cells[i].0, &guard, range, Some(new)).expect("memory");
                },
                Step::Unmap(cell, range) => if let Some(i) = pick(&cells, cell) {
                    cells[i].1.put(range, None);
                    put(&cells[i].0, &guard, range, None).expect("memory");
                },
                Step::Hold(cell) => if let Some(i) = pick(&cells, cell) {
                    held.push((cells[i].0.hold(&guard), cells[i].1.clone()));
                },
                Step::Fork(cell) => if let Some(i) = pick(&cells, cell) && cells.len() < 5 {
                    let child = (VersionCell::new(cells[i].0.hold(&guard)), cells[i].1.clone());
                    cells.push(child);
                },
                Step::CloneHeld(n) => if let Some(i) = pick(&held, n) {
                    let copy = held[i].clone();
                    held.push(copy);
                },
                Step::DropHeld(n) => if let Some(i) = pick(&held, n) {
                    held.swap_remove(i);
                },
                Step::DropCell(n) => if let Some(i) = pick(&cells, n) && cells.len() > 1 {
                    cells.swap_remove(i);
                },
                Step::Clear(n) => if let Some(i) = pick(&cells, n) {
                    cells[i].0.clear(&guard);
                    cells[i].1 = Model::default();
                },
                Step::Restore(n, m) => if let (Some(i), Some(j)) = (pick(&cells, n), pick(&held, m)) {
                    let (version, model) = held[j].clone();
                    cells[i].0.replace(&guard, version);
                    cells[i].1 = model;
                },
                Step::PrepareAndDrop(cell, range) => if let Some(i) = pick(&cells, cell) {
                    let before = cells[i].0.load(&guard);
                    let mut change = cells[i].0.change(&guard, range);
                    change.splice(teeth(range, &names[0])).expect("memory");
                    drop(change);
                    prop_assert!(cells[i].0.same(before));
                },
            }
            for (cell, model) in &cells {
                compare(cell, &guard, model);
            }
            for (version, model) in &held {
                check(version.view());
                prop_assert_eq!(rows(version.view()), model.rows());
            }
        }
        drop((cells, held));
        epoch.settle();
        prop_assert_eq!(watch::alive(), alive, "nodes left behind");
        for name in names {
            prop_assert_eq!(name.users(), 1, "a name is still counted");
        }
    }
}

/// What a pinned reader sees stays, Arcs included, until he lets go; then it is freed.
#[test]
fn a_pinned_reader_keeps_what_the_writer_removes() {
    let alive = watch::alive();
    let name = Name::from(*b"kept");
    let reader = Epoch::new();
    let other = reader.collector.register();
    let cell = VersionCell::new(Version::empty());
    cell.splice(&reader.pin(), pages(0, 300), teeth(pages(0, 300), &name)).expect("memory");
    reader.settle();
    let guard = reader.pin();
    let before = cell.load(&guard);
    for n in 0..300 {
        cell.splice(&other.pin(), pages(n, n + 1), []).expect("memory");
        other.pin().flush();
    }
    assert!(cell.load(&guard).is_empty());
    assert_eq!(name.users(), 151, "all still there for the reader");
    assert_eq!(before.iter().filter(|v| v.name.as_ref() == Some(&name)).count(), 150);
    check(before);
    drop(guard);
    reader.settle();
    assert_eq!(name.users(), 1);
    drop(cell);
    reader.settle();
    assert_eq!(watch::alive(), alive);
}

/// A version that nobody shares is changed without touching the counts of what it holds.
#[test]
fn a_sole_owner_moves_and_a_sharer_counts() {
    let name = Name::from(*b"moved");
    let epoch = Epoch::new();
    let cell = VersionCell::new(Version::empty());
    cell.splice(&epoch.pin(), pages(0, 16), teeth(pages(0, 16), &name)).expect("memory");
    epoch.settle();
    assert_eq!(name.users(), 9);
    let guard = epoch.pin();
    cell.splice(&guard, pages(1, 2), [vma(1, 2, VmaFlags::READ)]).expect("memory");
    assert_eq!(name.users(), 9, "moved");
    let held = cell.hold(&guard);
    cell.splice(&guard, pages(3, 4), [vma(3, 4, VmaFlags::READ)]).expect("memory");
    assert_eq!(name.users(), 17, "the held version has its own");
    drop(held);
    drop(guard);
    epoch.settle();
    assert_eq!(name.users(), 9);
}

/// Path copying: a change builds nodes in proportion to what it touches, not to the tree.
#[test]
fn a_small_change_of_a_large_tree_makes_few_nodes() {
    let epoch = Epoch::new();
    let cell = comb(&epoch, 20_000);
    let guard = epoch.pin();
    let height = cell.load(&guard).root.expect("not empty").level() as usize + 1;
    assert_eq!(height, 4);
    let mut most = 0;
    for n in 0..2000 {
        let at = (n * 7919) % 39_000;
        let before = watch::made();
        cell.splice(&guard, pages(at, at + 3), [vma(at, at + 1, VmaFlags::WRITE)]).expect("memory");
        most = most.max(watch::made() - before);
    }
    assert!(most <= 2 * height + 1, "{most} nodes for one change");
    let before = watch::made();
    cell.splice(&guard, pages(10, 39_000), []).expect("memory");
    assert!(watch::made() - before <= 2 * height, "what lies between the edges is dropped whole");
    check(cell.load(&guard));
}

/// Fork is a count, whatever the size.
#[test]
fn holding_makes_no_nodes() {
    let epoch = Epoch::new();
    let cell = comb(&epoch, 1000);
    let guard = epoch.pin();
    let before = watch::made();
    let (held, child) = (cell.hold(&guard), VersionCell::new(cell.hold(&guard)));
    assert_eq!(watch::made(), before);
    assert!(child.same(cell.load(&guard)) && held.view().root == cell.load(&guard).root);
}
