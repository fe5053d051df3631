//! Random changes, compared with the model after each.

use std::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::vma::tree::Version;

/// Pages in the address space of these tests: small, so that ranges meet.
const SPACE: u64 = 600;

fn flags() -> impl Strategy<Value = VmaFlags> {
    any::<u32>().prop_map(VmaFlags::from_bits_truncate)
}

/// A range, and how to fill it: (gap, length) pairs that are cut off at its end.
#[derive(Clone, Debug)]
struct Change {
    range: PageRange,
    fill: Vec<(u64, u64, VmaFlags)>,
}

fn change(longest: u64) -> impl Strategy<Value = Change> {
    let parts = prop_oneof![
        3 => vec((0..3u64, 1..6u64, flags()), 0..3),
        1 => vec((0..2u64, 1..3u64, flags()), 0..200),
    ];
    (0..SPACE - 1, 1..longest, parts)
        .prop_map(|(from, len, fill)| Change { range: pages(from, (from + len).min(SPACE)), fill })
}

impl Change {
    fn replacement(&self) -> Vec<Vma> {
        let mut at = self.range.start().get() / PAGE_SIZE;
        let end = self.range.end().get() / PAGE_SIZE;
        let mut vmas = Vec::new();
        for &(gap, len, flags) in &self.fill {
            let (from, to) = (at + gap, (at + gap + len).min(end));
            if from >= to {
                break;
            }
            vmas.push(vma(from, to, flags));
            at = to;
        }
        vmas
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec(prop_oneof![6 => change(8), 2 => change(60), 1 => change(SPACE)], 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn contents_and_summaries_are_those_of_a_plain_map(changes in changes()) {
        let epoch = Epoch::new();
        let cell = VersionCell::new(Version::empty());
        let mut model = Model::default();
        for change in changes {
            let guard = epoch.pin();
            let before = cell.load(&guard);
            let replacement = change.replacement();
            model.splice(change.range, &replacement);
            let mut prepared = cell.change(&guard, change.range);
            prepared.splice(replacement).expect("memory");
            prop_assert!(cell.same(before));
            check(prepared.view());
            prepared.publish();
            compare(&cell, &guard, &model);
        }
    }
}

/// VMAs of three kinds, one of which some have a flag that the others never have, put into a space full of small VMAs and holes.
fn puts() -> impl Strategy<Value = Vec<(PageRange, Option<VmaFlags>)>> {
    let kind = prop_oneof![
        4 => Just(None),
        3 => Just(Some(VmaFlags::READ)),
        3 => Just(Some(VmaFlags::READ | VmaFlags::WRITE)),
        1 => Just(Some(VmaFlags::LOCKED)),
    ];
    let len = prop_oneof![12 => 1..5u64, 2 => 5..40u64, 1 => 40..SPACE];
    let range = (0..SPACE - 1, len).prop_map(|(from, len)| pages(from, (from + len).min(SPACE)));
    vec((range, kind), 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn what_is_put_merges_with_its_neighbours(puts in puts(), full in any::<bool>()) {
        let epoch = Epoch::new();
        let (cell, mut model) = (VersionCell::new(Version::empty()), Model::default());
        if full {
            // Every second page: neighbours that can be joined at every distance from the edges of leaves.
            for n in 0..SPACE / 2 {
                let flags = if n % 5 == 0 { VmaFlags::LOCKED } else { VmaFlags::READ };
                cell.splice(&epoch.pin(), pages(2 * n, 2 * n + 1), [vma(2 * n, 2 * n + 1, flags)]).expect("memory");
                model.splice(pages(2 * n, 2 * n + 1), &[vma(2 * n, 2 * n + 1, flags)]);
            }
        }
        for (range, kind) in puts {
            let guard = epoch.pin();
            let new = kind.map(|flags| Vma { range, ..vma(0, 1, flags) });
            model.put(range, new.clone());
            let touched = cell.load(&guard).range(range).next().map(row);
            let mut change = cell.change(&guard, range);
            prop_assert_eq!(change.first_touched().map(row), touched);
            change.put(new).expect("memory");
            check(change.view());
            change.publish();
            compare(&cell, &guard, &model);
        }
    }
}

/// Every position and width of a hole in a tree of three levels, and of something put into it.
#[test]
fn every_range_of_a_comb() {
    let epoch = Epoch::new();
    let count = 300;
    let whole = comb(&epoch, count);
    let guard = epoch.pin();
    let mut model = Model::default();
    for n in 0..count {
        model.splice(pages(2 * n, 2 * n + 1), &[vma(2 * n, 2 * n + 1, VmaFlags::READ)]);
    }
    compare(&whole, &guard, &model);
    for from in (0..2 * count).step_by(7) {
        for len in (1..2 * count - from).step_by(11) {
            for fill in [0, 1, 3, 40] {
                let range = pages(from, from + len);
                let step = (len / (fill + 1)).max(1);
                let new: Vec<Vma> =
                    (0..fill.min(len)).map(|n| vma(from + n * step, from + n * step + 1, VmaFlags::WRITE)).collect();
                let cell = VersionCell::new(whole.hold(&guard));
                let mut model = model.clone();
                model.splice(range, &new);
                cell.splice(&guard, range, new).expect("memory");
                compare(&cell, &guard, &model);
                cell.splice(&guard, pages(0, 2 * count), []).expect("memory");
                assert!(cell.load(&guard).is_empty());
            }
        }
    }
}

#[test]
fn a_replacement_that_does_not_fit_changes_nothing() {
    let epoch = Epoch::new();
    let cell = comb(&epoch, 100);
    let guard = epoch.pin();
    let before = cell.load(&guard);
    let read = VmaFlags::READ;
    let bad = [
        std::vec![vma(9, 11, read)],
        std::vec![vma(15, 21, read)],
        std::vec![vma(12, 14, read), vma(13, 15, read)],
        std::vec![vma(14, 15, read), vma(12, 13, read)],
    ];
    for replacement in bad {
        assert_eq!(cell.splice(&guard, pages(10, 20), replacement), Err(crate::Error::BadRange));
        assert!(cell.same(before));
    }
}

#[test]
fn a_tree_that_is_filled_in_order_is_well_filled() {
    let epoch = Epoch::new();
    let upwards = comb(&epoch, 5000);
    let downwards = VersionCell::new(Version::empty());
    for n in (0..5000).rev() {
        let at = pages(2 * n, 2 * n + 1);
        downwards.splice(&epoch.pin(), at, [vma(2 * n, 2 * n + 1, VmaFlags::READ)]).expect("memory");
    }
    let guard = epoch.pin();
    for cell in [upwards, downwards] {
        let root = cell.load(&guard).root.expect("not empty");
        assert_eq!(root.level(), 3, "5000 VMAs need no more than four levels");
    }
}
