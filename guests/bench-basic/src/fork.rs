//! Fork, and the fork's life up to its end.

use foldspace_guest_measure::process::{self, Fork, Gate, TimedFork};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{Counter, PAGES_PER_MIB, Region, Shared};
use std::io;

pub fn rows() -> Vec<Row> {
    let mut rows =
        vec![Row::new("fork_exit_wait_tiny", "fork + exit + wait, tiny static process", "call", |settings| {
            fork_exit_wait(settings, settings.effort.runs(99))
        })];
    for mib in [0, 4, 16, 64, 256, 512, 1024, 2048, 3072] {
        let work = move |settings: &Settings| {
            // Of nothing there is no mapping.
            let _resident = (mib > 0).then(|| Region::filled(mib * PAGES_PER_MIB)).transpose()?;
            fork_alone(settings, settings.effort.runs(15))
        };
        rows.push(
            Row::new(format!("fork_{mib}"), format!("fork, {mib} MiB resident"), "call", work).needs_mib(room(mib)),
        );
    }
    for mib in [64, 512, 1024] {
        let work = move |settings: &Settings| {
            let _resident = Region::filled(mib * PAGES_PER_MIB)?;
            fork_exit_wait(settings, settings.effort.runs(9))
        };
        let name = format!("fork_exit_wait_{mib}");
        rows.push(Row::new(name, format!("fork + exit + wait, {mib} MiB resident"), "call", work).needs_mib(room(mib)));
    }
    for mib in [64, 512, 1024] {
        let work = move |settings: &Settings| {
            let _resident = Region::filled(mib * PAGES_PER_MIB)?;
            exit_alone(settings, settings.effort.runs(9))
        };
        let words = format!("exit + wait of a child that wrote nothing, {mib} MiB resident");
        rows.push(Row::new(format!("exit_wait_{mib}"), words, "call", work).needs_mib(room(mib)));
    }
    for (suffix, populated, touch_every) in [("", "unpopulated", None), ("_half", "half populated", Some(2))] {
        for areas in [10, 60_000] {
            let work = move |settings: &Settings| {
                let mut region = Region::alternating(areas, 1)?;
                if let Some(step) = touch_every {
                    (0..areas).step_by(step).for_each(|page| region.write(page, 1));
                }
                fork_alone(settings, settings.effort.runs(15))
            };
            let name = format!("fork_vmas_{areas}{suffix}");
            rows.push(Row::new(name, format!("fork, {areas} VMAs, {populated}"), "call", work).needs_mib(400));
        }
    }
    rows
}

/// What a row needs that fills `mib` MiB and forks: the pages, their tables (twice), and some room.
pub fn room(mib: usize) -> u64 {
    (mib + mib / 100 + 32) as u64
}

/// The parent's side of fork alone. The child notes when it first ran and then waits at a gate, so that at most its
/// first few steps lie in a run even where the kernel lets the child go first; `child_ran_first` says in how many runs
/// it had started before fork returned in the parent.
pub fn fork_alone(settings: &Settings, runs: usize) -> io::Result<Figures> {
    let counter = settings.counter;
    let shared = Shared::new()?;
    let gate = Gate::new()?;
    let mut values = Vec::with_capacity(runs);
    let mut child_first = 0;
    for _ in 0..runs {
        let TimedFork { start, end, side } = process::timed_fork(counter)?;
        match side {
            Fork::Child => {
                shared.set(0, end);
                gate.pass();
                process::exit(0)
            }
            Fork::Parent(child) => {
                gate.open();
                child.wait()?;
                values.push((end - start) as f64);
                child_first += usize::from(shared.get(0) < end);
            }
        }
    }
    Ok(Figures::from(values).with("child_ran_first", child_first))
}

fn fork_exit_wait(settings: &Settings, runs: usize) -> io::Result<Figures> {
    let mut values = Vec::with_capacity(runs);
    for _ in 0..runs {
        values.push(one_fork_exit_wait(settings.counter)? as f64);
    }
    Ok(values.into())
}

/// From the moment when a child that has stood still is let go on to the end of the wait for it.
fn exit_alone(settings: &Settings, runs: usize) -> io::Result<Figures> {
    let gate = Gate::new()?;
    let mut values = Vec::with_capacity(runs);
    for _ in 0..runs {
        match process::fork()? {
            Fork::Child => {
                gate.pass();
                process::exit(0)
            }
            Fork::Parent(child) => {
                process::give_way();
                let (cost, ended) = settings.counter.measure(|| {
                    gate.open();
                    child.wait()
                });
                ended?;
                values.push(cost as f64);
            }
        }
    }
    Ok(values.into())
}

fn one_fork_exit_wait(counter: Counter) -> io::Result<u64> {
    let start = counter.now();
    match process::fork()? {
        Fork::Child => process::exit(0),
        Fork::Parent(child) => {
            let ended = child.wait();
            let end = counter.now();
            ended.map(|()| end - start)
        }
    }
}
