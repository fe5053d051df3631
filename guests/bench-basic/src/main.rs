//! Measures the basic operations of a memory manager and prints one line of JSON for each.
//!
//! `bench-basic [--quick] [--wall] [--huge] [--mode copy|leaf|full] [--list] [ROW...]`
//!
//! The same program runs on Foldspace and on Linux. Without names every row is measured. A line has the row's name,
//! what is done (`work`), the `unit` of the `value`, what it is given `per`, the single `runs` in their order and
//! their median as `value`; some rows add what was seen besides. A row that cannot be measured here (too little
//! memory, an error of the kernel) has `skipped` with the reason in place of the value, and the exit status is 1 if
//! one failed for another reason than memory.
//!
//! Guest instructions are counted by the time-stamp counter, which under QEMU's `-icount shift=0` advances by one per
//! instruction. Without it the figures are clock ticks; `--wall` gives nanoseconds instead. What interrupts the
//! process (the timer's ticks) is part of a run; the median leaves most of it out.

mod calls;
mod fault;
mod fork;
mod heap;
mod mapping;
mod named;
mod protect;
mod restore;
mod tables;

use foldspace_guest_measure::row::{self, Row};
use std::process::ExitCode;

/// The first argument of the program when it is run to measure `execve`: it does nothing.
const NOTHING: &str = "--nothing";

fn all_rows() -> Vec<Row> {
    // The tiny process comes first: later rows leave the allocator's memory behind.
    [
        fork::rows(),
        named::rows(),
        tables::rows(),
        calls::rows(),
        mapping::rows(),
        fault::rows(),
        heap::rows(),
        restore::rows(),
        protect::rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|first| first == NOTHING) {
        return ExitCode::SUCCESS;
    }
    row::program("bench-basic", all_rows())
}
