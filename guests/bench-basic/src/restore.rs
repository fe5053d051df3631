//! Executions of a fuzz loop: each in a child of its own, or from a restore point.

use crate::fork::room;
use foldspace_guest_measure::process::{self, Fork};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{PAGES_PER_MIB, Region, Shared, restore_point, target};
use std::io;

/// Executions in one run.
const EXECUTIONS: u32 = 100;

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for mib in [4, 64, 512] {
        let by_fork = move |settings: &Settings| {
            let _resident = Region::filled(mib * PAGES_PER_MIB)?;
            executions_by_fork(settings)
        };
        let words = format!("an execution of a fuzz loop, by fork, {mib} MiB resident");
        rows.push(Row::new(format!("fuzz_fork_{mib}"), words, "execution", by_fork).needs_mib(room(mib)));
        let by_restore = move |settings: &Settings| {
            let _resident = Region::filled(mib * PAGES_PER_MIB)?;
            executions_by_restore(settings)
        };
        let words = format!("an execution of a fuzz loop, by a restore point, {mib} MiB resident");
        rows.push(Row::new(format!("fuzz_restore_{mib}"), words, "execution", by_restore).needs_mib(room(mib)));
    }
    rows
}

fn executions_by_fork(settings: &Settings) -> io::Result<Figures> {
    let mut values = Vec::new();
    for _ in 0..settings.effort.runs(9) {
        let start = settings.counter.now();
        for number in 0..EXECUTIONS {
            match process::fork()? {
                Fork::Child => {
                    target::execute(&target::harmless(number));
                    process::exit(0)
                }
                Fork::Parent(child) => child.wait()?,
            }
        }
        values.push((settings.counter.now() - start) as f64 / f64::from(EXECUTIONS));
    }
    Ok(values.into())
}

fn executions_by_restore(settings: &Settings) -> io::Result<Figures> {
    let mut values = Vec::new();
    // What a restore does not take back.
    let shared = Shared::new()?;
    for _ in 0..settings.effort.runs(9) {
        shared.set(0, settings.counter.now());
        let number = restore_point::set()?;
        if number < EXECUTIONS {
            target::execute(&target::harmless(number));
            return Err(restore_point::go_back(number + 1));
        }
        values.push((settings.counter.now() - shared.get(0)) as f64 / f64::from(EXECUTIONS));
    }
    restore_point::forget()?;
    Ok(values.into())
}
