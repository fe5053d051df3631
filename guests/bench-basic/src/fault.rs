//! Page faults: the first touch of a page, and the first write after a fork.

use foldspace_guest_measure::process::{self, Fork, Gate};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::statistics::XorShift;
use foldspace_guest_measure::{Counter, PAGES_PER_MIB, Region, Shared};
use std::io;

const RANDOM_WRITES: usize = 1_000_000;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for mib in [64, 256] {
        let work = move |settings: &Settings| first_touch(settings, mib * PAGES_PER_MIB);
        let name = format!("first_touch_{mib}");
        rows.push(Row::new(name, format!("first touch of a page, {mib} MiB in order"), "page", work).needs_mib(320));
    }
    rows.push(Row::new("munmap_256", "munmap of 256 MiB, all touched", "page", munmap_touched).needs_mib(320));
    for mib in [64, 512] {
        let pages = mib * PAGES_PER_MIB;
        let child = move |settings: &Settings| after_fork(settings, pages, Writer::Child, write_in_order);
        let parent = move |settings: &Settings| after_fork(settings, pages, Writer::Parent, write_in_order);
        let needs = 2 * mib as u64 + 48;
        let words = format!("write to every page after fork, {mib} MiB");
        rows.push(
            Row::new(format!("write_after_fork_{mib}"), format!("{words}, the child"), "page", child).needs_mib(needs),
        );
        let name = format!("write_after_fork_parent_{mib}");
        rows.push(Row::new(name, format!("{words}, the parent"), "page", parent).needs_mib(needs));
    }
    let random = |settings: &Settings| after_fork(settings, 512 * PAGES_PER_MIB, Writer::Child, write_at_random);
    let words = "1 million random writes over 512 MiB after fork, the child";
    rows.push(Row::new("random_write_after_fork_512", words, "write", random).needs_mib(2 * 512 + 48));
    let resident = |settings: &Settings| {
        let mut region = Region::filled(512 * PAGES_PER_MIB)?;
        let runs = (0..settings.effort.runs(3)).map(|_| write_at_random(settings.counter, &mut region));
        Ok(runs.collect::<Vec<_>>().into())
    };
    let words = "the same random writes with no fork: the loop itself";
    rows.push(Row::new("random_write_resident_512", words, "write", resident).needs_mib(512 + 48));
    rows
}

fn first_touch(settings: &Settings, pages: usize) -> io::Result<Figures> {
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(5) {
        let mut region = Region::map(pages)?;
        runs.push(write_in_order(settings.counter, &mut region));
    }
    Ok(runs.into())
}

fn munmap_touched(settings: &Settings) -> io::Result<Figures> {
    let pages = 256 * PAGES_PER_MIB;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(5) {
        let region = Region::filled(pages)?;
        let (cost, ()) = settings.counter.measure(|| drop(region));
        runs.push(cost as f64 / pages as f64);
    }
    Ok(runs.into())
}

/// Who writes while the other waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Child,
    Parent,
}

/// Fills a region, forks, and lets one of the two write while the other is alive and waits, so that every page is
/// still shared when it is written. Each run has a region of its own.
fn after_fork(
    settings: &Settings,
    pages: usize,
    writer: Writer,
    write: impl Fn(Counter, &mut Region) -> f64,
) -> io::Result<Figures> {
    let shared = Shared::new()?;
    let gate = Gate::new()?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(3) {
        let mut region = Region::filled(pages)?;
        match process::fork()? {
            Fork::Child => {
                match writer {
                    Writer::Child => shared.set(0, write(settings.counter, &mut region).to_bits()),
                    Writer::Parent => gate.pass(),
                }
                process::exit(0)
            }
            Fork::Parent(child) => {
                if writer == Writer::Parent {
                    runs.push(write(settings.counter, &mut region));
                    gate.open();
                }
                child.wait()?;
                if writer == Writer::Child {
                    runs.push(f64::from_bits(shared.get(0)));
                }
            }
        }
    }
    Ok(runs.into())
}

fn write_in_order(counter: Counter, region: &mut Region) -> f64 {
    let pages = region.pages();
    let (cost, ()) = counter.measure(|| (0..pages).for_each(|page| region.write(page, 7)));
    cost as f64 / pages as f64
}

fn write_at_random(counter: Counter, region: &mut Region) -> f64 {
    let pages = region.pages() as u64;
    let mut random = XorShift::new(0x2545_f491_4f6c_dd1d);
    let (cost, ()) = counter.measure(|| {
        for _ in 0..RANDOM_WRITES {
            // The high half of a product: a page number without a division.
            let page = (u128::from(random.next_number()) * u128::from(pages)) >> 64;
            region.write(page as usize, 7);
        }
    });
    cost as f64 / RANDOM_WRITES as f64
}
