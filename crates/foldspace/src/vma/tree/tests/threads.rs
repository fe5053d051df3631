//! Readers and holders on other threads while a writer changes the tree. Also meant for AddressSanitizer and ThreadSanitizer.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::thread;
use std::vec::Vec;

use super::*;
use crate::vma::tree::Version;
use crate::vma::tree::node::watch;

const PAGES: u64 = 512;
const CHANGES: u64 = if cfg!(debug_assertions) { 6_000 } else { 30_000 };

/// In every version, blocks of 8 pages are either empty or filled with VMAs of 1, 2, 4 or 8 pages that all carry the block's generation
/// in their name: a mixture of two generations, or of sizes, was never published.
fn block(at: u64, generation: u64, name: &Name) -> Vec<Vma> {
    let size = 1 << (generation % 4);
    (0..8 / size).map(|n| named(at + n * size, at + (n + 1) * size, name)).collect()
}

fn verify(version: VersionRef<'_>) {
    let mut vmas = version.iter().peekable();
    while let Some(first) = vmas.next() {
        let name = first.name.clone().expect("all are named");
        let generation = u64::from_le_bytes(name[..8].try_into().expect("eight bytes"));
        let at = first.start().get() / PAGE_SIZE;
        assert_eq!(at % 8, 0);
        for expected in block(at, generation, &name).iter().skip(1) {
            assert_eq!(vmas.next().map(row), Some(row(expected)));
        }
    }
}

#[test]
fn readers_see_whole_versions_while_a_writer_goes_on() {
    let collector = Collector::new();
    let cell = VersionCell::new(Version::empty());
    let (done, balance) = (AtomicBool::new(false), AtomicIsize::new(0));
    let (seen, stale) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let names: Vec<Name> = (0..16u64).map(|n| Name::from(n.to_le_bytes())).collect();
    thread::scope(|scope| {
        for reader in 0..3u64 {
            let (collector, cell, done, balance, seen, stale) = (&collector, &cell, &done, &balance, &seen, &stale);
            scope.spawn(move || {
                let alive = watch::alive();
                let local = collector.register();
                let mut held: Vec<(Version, Vec<Row>)> = Vec::new();
                let mut random = reader;
                while !done.load(Ordering::Relaxed) {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let guard = local.pin();
                    let version = cell.load(&guard);
                    match (random >> 33) % 4 {
                        0 => verify(version),
                        1 => {
                            let at = page((random >> 40) % PAGES);
                            if let Some(vma) = version.find(at) {
                                assert!(vma.range.contains(at));
                                drop(vma.clone());
                                seen.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        2 => {
                            let version = cell.hold(&guard);
                            let rows = rows(version.view());
                            held.push((version, rows));
                        }
                        _ => {}
                    }
                    if !cell.same(version) {
                        stale.fetch_add(1, Ordering::Relaxed);
                    }
                    drop(guard);
                    if held.len() > 4 {
                        let (version, before) = held.swap_remove((random >> 50) as usize % held.len());
                        verify(version.view());
                        assert_eq!(rows(version.view()), before);
                    }
                }
                drop((held, local));
                balance.fetch_add(watch::alive() - alive, Ordering::Relaxed);
            });
        }
        let alive = watch::alive();
        let local = collector.register();
        let enough = || seen.load(Ordering::Relaxed) > 100 && stale.load(Ordering::Relaxed) > 0;
        // On a busy machine the readers come late.
        for n in (0..100 * CHANGES).take_while(|n| *n < CHANGES || !enough()) {
            let at = (n.wrapping_mul(2_654_435_761) >> 7) % (PAGES / 8) * 8;
            let generation = n % 16;
            let len = if n % 97 == 0 { PAGES - at } else { 8 };
            let new = if n % 5 == 0 { Vec::new() } else { block(at, generation, &names[generation as usize]) };
            cell.splice(&local.pin(), pages(at, at + len), new).expect("memory");
        }
        done.store(true, Ordering::Relaxed);
        drop(local);
        balance.fetch_add(watch::alive() - alive, Ordering::Relaxed);
    });
    assert!(seen.load(Ordering::Relaxed) > 100, "readers found hardly anything");
    assert!(stale.load(Ordering::Relaxed) > 0, "no version was superseded while it was read");
    let alive = watch::alive();
    drop(cell);
    let local = collector.register();
    for _ in 0..1000 {
        local.pin().flush();
    }
    drop(local);
    drop(collector);
    assert_eq!(balance.into_inner() + watch::alive() - alive, 0, "nodes left behind");
    for name in names {
        assert_eq!(name.users(), 1);
    }
}

/// Two cells that share one tree are changed at the same time by their own writers.
#[test]
fn writers_of_cells_that_share_a_tree_do_not_meet() {
    let start = watch::alive();
    let collector = Collector::new();
    let name = Name::from(7u64.to_le_bytes());
    let parent = VersionCell::new(Version::empty());
    let local = collector.register();
    parent
        .splice(&local.pin(), pages(0, PAGES), (0..PAGES / 8).flat_map(|b| block(8 * b, 7, &name)).collect::<Vec<_>>())
        .expect("memory");
    let balance = AtomicIsize::new(0);
    for round in 0..CHANGES / 100 {
        let child = VersionCell::new(parent.hold(&local.pin()));
        thread::scope(|scope| {
            let (collector, parent, name, balance) = (&collector, &parent, &name, &balance);
            for (cell, odd) in [(child, 1), (VersionCell::new(parent.hold(&local.pin())), 2)] {
                scope.spawn(move || {
                    let alive = watch::alive();
                    let local = collector.register();
                    let mut model = Model::default();
                    model.splice(pages(0, PAGES), &cell.load(&local.pin()).iter().cloned().collect::<Vec<_>>());
                    for n in 0..20 {
                        let at = (round * 31 + n * 7 * odd) % (PAGES / 8) * 8;
                        let new = block(at, round + n, name);
                        model.splice(pages(at, at + 8), &new);
                        cell.splice(&local.pin(), pages(at, at + 8), new).expect("memory");
                    }
                    compare(&cell, &local.pin(), &model);
                    drop((cell, local));
                    balance.fetch_add(watch::alive() - alive, Ordering::Relaxed);
                });
            }
            let at = round % (PAGES / 8) * 8;
            parent.splice(&local.pin(), pages(at, at + 8), block(at, round, name)).expect("memory");
        });
    }
    check(parent.load(&local.pin()));
    drop(parent);
    for _ in 0..1000 {
        local.pin().flush();
    }
    drop((local, collector));
    assert_eq!(name.users(), 1);
    assert_eq!(balance.into_inner() + watch::alive() - start, 0, "nodes left behind");
}
