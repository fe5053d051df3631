//! Write protection by userfaultfd, with which programs take snapshots where fork is too dear: what fork is held against.

use std::io;

use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{PAGES_PER_MIB, Region, userfault::Userfault};

const MIB: usize = 512;
/// Pages that are written to.
const WRITES: usize = 1000;

pub fn rows() -> Vec<Row> {
    let protect = "write-protecting 512 MiB by userfaultfd: a snapshot without fork";
    let write = "the first write to a page that userfaultfd protects, with the handler that lets it pass";
    let needs = (MIB + 64) as u64;
    vec![
        Row::new("uffd_protect_512", protect, "call", protect_all).needs_mib(needs),
        Row::new("uffd_write_512", write, "page", write_protected).needs_mib(needs),
    ]
}

fn protect_all(settings: &Settings) -> io::Result<Figures> {
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(5) {
        let region = Region::filled(MIB * PAGES_PER_MIB)?;
        let fault = Userfault::over(&region)?;
        let (cost, done) = settings.counter.measure(|| fault.protect(0..region.pages()));
        done?;
        runs.push(cost as f64);
    }
    Ok(runs.into())
}

fn write_protected(settings: &Settings) -> io::Result<Figures> {
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(3) {
        let mut region = Region::filled(MIB * PAGES_PER_MIB)?;
        let fault = Userfault::over(&region)?;
        fault.protect(0..region.pages())?;
        let step = region.pages() / WRITES;
        let cost = std::thread::scope(|scope| {
            scope.spawn(|| fault.let_pass(WRITES));
            let (cost, ()) = settings.counter.measure(|| (0..WRITES).for_each(|at| region.write(at * step, 7)));
            cost
        });
        runs.push(cost as f64 / WRITES as f64);
    }
    Ok(runs.into())
}
