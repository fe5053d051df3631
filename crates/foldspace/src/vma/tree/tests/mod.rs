//! Tests of the tree: against a plain map, with held versions, failing allocations and threads.

#[cfg(foldspace_loom)]
mod loom;
mod memory;
mod model;
mod queries;
mod threads;
mod versions;

use std::collections::BTreeMap;
use std::vec::Vec;

use crossbeam_epoch::{Collector, Guard, LocalHandle};

use super::node::{NodeRef, Slots, cap, min_len};
use super::{Summary, VersionCell, VersionRef};
use crate::addr::{PAGE_SIZE, PageRange, VirtAddr};
use crate::vma::{Backing, Name, Tag, Vma, VmaFlags};

/// Page `n` as an address.
fn page(n: u64) -> VirtAddr {
    VirtAddr(n * PAGE_SIZE)
}

fn pages(from: u64, to: u64) -> PageRange {
    PageRange::new(page(from), page(to)).expect("not empty")
}

fn vma(from: u64, to: u64, flags: VmaFlags) -> Vma {
    Vma { range: pages(from, to), flags, page_offset: 0, backing: Backing::Anonymous, name: None, tag: Tag::NONE }
}

fn named(from: u64, to: u64, name: &Name) -> Vma {
    Vma { name: Some(name.clone()), ..vma(from, to, VmaFlags::READ) }
}

/// An epoch of our own, so that what a test retires is freed by that test.
struct Epoch {
    collector: Collector,
    local: LocalHandle,
}

impl Epoch {
    fn new() -> Epoch {
        let collector = Collector::new();
        let local = collector.register();
        Epoch { collector, local }
    }

    fn pin(&self) -> Guard {
        self.local.pin()
    }

    /// Lets grace periods pass until everything retired so far is freed.
    fn settle(&self) {
        for _ in 0..1000 {
            self.pin().flush();
        }
    }
}

/// The slow and obvious model: VMAs by start.
#[derive(Clone, Default)]
struct Model(BTreeMap<VirtAddr, Vma>);

impl Model {
    fn splice(&mut self, range: PageRange, replacement: &[Vma]) {
        let touched: Vec<Vma> =
            self.0.values().filter(|v| v.start() < range.end() && v.end() > range.start()).cloned().collect();
        for old in touched {
            self.0.remove(&old.start());
            for part in [(old.start(), range.start()), (range.end(), old.end())] {
                if let Some(part) = PageRange::new(part.0, part.1) {
                    self.0.insert(part.start(), old.slice(part));
                }
            }
        }
        self.0.extend(replacement.iter().map(|v| (v.start(), v.clone())));
    }

    /// [`Self::splice`], then the new VMA becomes one with what touches it.
    fn put(&mut self, range: PageRange, new: Option<Vma>) {
        self.splice(range, new.as_slice());
        let Some(new) = new else { return };
        let below = self.0.values().find(|v| v.end() == range.start() && new.continues(v)).cloned();
        let above = self.0.values().find(|v| v.start() == range.end() && v.continues(&new)).cloned();
        let start = below.as_ref().map_or(range.start(), Vma::start);
        let end = above.as_ref().map_or(range.end(), Vma::end);
        [below, above].into_iter().flatten().for_each(|v| drop(self.0.remove(&v.start())));
        self.0.remove(&range.start());
        self.0.insert(start, Vma { range: PageRange::new(start, end).expect("not empty"), ..new });
    }

    fn rows(&self) -> Vec<Row> {
        self.0.values().map(row).collect()
    }

    fn summary(&self) -> Summary {
        summary_of(&self.0.values().collect::<Vec<_>>())
    }
}

type Row = (PageRange, VmaFlags, u64, Option<Name>);

fn row(vma: &Vma) -> Row {
    (vma.range, vma.flags, vma.page_offset, vma.name.clone())
}

fn rows(version: VersionRef<'_>) -> Vec<Row> {
    version.iter().map(row).collect()
}

/// Computed the long way, kind by kind as `vm_stat_account` in Linux's `mm/mmap.c` puts it.
fn summary_of(vmas: &[&Vma]) -> Summary {
    let (Some(first), Some(last)) = (vmas.first(), vmas.last()) else { return Summary::EMPTY };
    let mut summary = Summary { start: first.start(), end: last.end(), ..Summary::EMPTY };
    for pair in vmas.windows(2) {
        summary.largest_gap = summary.largest_gap.max(pair[1].start().get() - pair[0].end().get());
    }
    for vma in vmas {
        let (n, flags, counts) = (vma.range.pages(), vma.flags, &mut summary.totals.pages);
        let has = |flag| flags.contains(flag);
        counts.total += n;
        if has(VmaFlags::GROWS_DOWN) {
            counts.stack += n;
        } else if has(VmaFlags::EXEC) && !has(VmaFlags::WRITE) {
            counts.exec += n;
        } else if has(VmaFlags::WRITE) && !has(VmaFlags::SHARED) {
            counts.data += n;
        }
        if has(VmaFlags::ACCOUNT) {
            counts.accounted += n;
        }
        if has(VmaFlags::LOCKED) {
            counts.locked += n;
        }
        summary.totals.vmas += 1;
        summary.flags |= flags;
    }
    summary
}

/// Verifies everything that must hold of a tree, node by node.
fn check(version: VersionRef<'_>) {
    let Some(root) = version.root else {
        assert_eq!(*version.summary(), Summary::EMPTY);
        return;
    };
    assert!(root.level() == 0 || root.len() >= 2, "an inner root with one child");
    let mut vmas = Vec::new();
    check_node(root, true, &mut vmas);
    for pair in vmas.windows(2) {
        assert!(pair[0].end() <= pair[1].start(), "{:?} and {:?} overlap", pair[0], pair[1]);
    }
    assert_eq!(*version.summary(), summary_of(&vmas));
}

fn check_node<'t>(node: NodeRef<'t>, is_root: bool, vmas: &mut Vec<&'t Vma>) {
    assert!(node.len() <= cap(node.level()));
    assert!(node.len() >= if is_root { 1 } else { min_len(node.level()) }, "too few slots: {}", node.len());
    let first = vmas.len();
    match node.slots() {
        Slots::Leaf(slots) => vmas.extend(slots),
        Slots::Inner(children) => {
            for (at, child) in children.nodes().iter().enumerate() {
                let (node_below, end) = (child.node(), child.node().summary().end);
                assert_eq!(node_below.level() + 1, node.level());
                assert_eq!(children.near(VirtAddr(end.get() - 1)), at);
                check_node(node_below, false, vmas);
            }
        }
    }
    assert_eq!(*node.summary(), summary_of(&vmas[first..]));
}

/// `cell` holds what `model` does, and is well formed.
fn compare(cell: &VersionCell, guard: &Guard, model: &Model) {
    let version = cell.load(guard);
    check(version);
    assert_eq!(rows(version), model.rows());
    assert_eq!(*version.summary(), model.summary());
    assert_eq!(version.summary().totals.vmas, model.0.len());
}

/// Plans and publishes one VMA, or nothing, in a range.
fn put(cell: &VersionCell, guard: &Guard, range: PageRange, new: Option<Vma>) -> crate::error::Result<()> {
    let mut change = cell.change(guard, range);
    change.put(new)?;
    change.publish();
    Ok(())
}

/// A cell with one-page VMAs at every second page below `2 * count`, put in one by one upwards.
fn comb(epoch: &Epoch, count: u64) -> VersionCell {
    let cell = VersionCell::new(super::Version::empty());
    for n in 0..count {
        cell.splice(&epoch.pin(), pages(2 * n, 2 * n + 1), [vma(2 * n, 2 * n + 1, VmaFlags::READ)]).expect("memory");
    }
    cell
}
