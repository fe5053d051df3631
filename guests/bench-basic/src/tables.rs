//! The page-table memory that a fork adds.

use crate::fork::room;
use foldspace_guest_measure::figures::{BeforeFork, Status};
use foldspace_guest_measure::mode::Mode;
use foldspace_guest_measure::process::{self, Child, Fork, Gate};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{PAGES_PER_MIB, Region, Shared};
use std::io;
use std::time::Duration;

/// Long enough for the forked process and its parent to be still.
const SETTLING: Duration = Duration::from_millis(50);

pub fn rows() -> Vec<Row> {
    let words = "page-table memory that fork adds before anything is written, 1024 MiB resident";
    let row = Row::new("fork_tables_1024", words, "call", |settings| added_tables(settings, 1024));
    let mut rows = vec![row.needs_mib(room(1024)).in_unit("KiB")];
    for (who, side) in [("the parent", Side::Parent), ("the child", Side::Child)] {
        for line in ["VmRSS", "VmPTE"] {
            let name = format!("fork_{}_{}_512", line.to_lowercase(), side.name());
            let words = format!("{line} of {who} after fork, 512 MiB resident, nothing written");
            let work = move |settings: &Settings| size_after_fork(settings, side, line);
            rows.push(Row::new(name, words, "process", work).needs_mib(room(512)).in_unit("KiB"));
        }
    }
    rows
}

/// Whose size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Parent,
    Child,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Parent => "parent",
            Side::Child => "child",
        }
    }
}

/// What `/proc/PID/status` says of one of the two while the child stands still.
fn size_after_fork(settings: &Settings, side: Side, line: &str) -> io::Result<Figures> {
    let _resident = Region::filled(512 * PAGES_PER_MIB)?;
    let gate = Gate::new()?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(3) {
        match process::fork()? {
            Fork::Child => {
                gate.pass();
                process::exit(0)
            }
            Fork::Parent(child) => {
                let whose = if side == Side::Child { child.pid().to_string() } else { "self".to_owned() };
                let status = Status::of(&whose);
                gate.open();
                child.wait()?;
                let kib = status?.kib(line).ok_or_else(|| io::Error::other(format!("status has no {line}")))?;
                runs.push(kib as f64);
            }
        }
    }
    Ok(runs.into())
}

/// Where a kernel has tables only for each process by itself, the child's own `VmPTE` is what fork added. Where tables
/// are shared, another process looks at the machine's sum before and after the fork, while parent and child have not
/// written anything. `after_first_writes_kib` is what the parent sees after the fork, when both have used their stacks.
fn added_tables(settings: &Settings, mib: usize) -> io::Result<Figures> {
    let runs = settings.effort.runs(5);
    let shared = Mode::current().is_some();
    let (mut before_writes, mut after_writes, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    let mut child_vm_pte = None;
    for _ in 0..runs {
        // The observer is there before the memory is, so that it has no part in it.
        let observer = shared.then(Observer::start).transpose()?;
        let _resident = Region::filled(mib * PAGES_PER_MIB)?;
        if let Some(observer) = observer {
            before_writes.push(observer.watch_a_fork()? as f64);
        }
        let (added, memory, status) = seen_by_the_parent()?;
        after_writes.extend(added.map(|kib| kib as f64));
        taken.extend(memory.map(|kib| kib as f64));
        child_vm_pte = status.and_then(|status| status.kib("VmPTE"));
    }
    let values = if shared { before_writes } else { after_writes.clone() };
    Ok(Figures::from(values)
        .with("after_first_writes_kib", after_writes)
        .with("memory_taken_kib", taken)
        .with("child_vm_pte_kib", child_vm_pte)
        .with("own_vm_pte_kib", Status::of("self").ok().and_then(|status| status.kib("VmPTE"))))
}

fn seen_by_the_parent() -> io::Result<(Option<i64>, Option<i64>, Option<Status>)> {
    let gate = Gate::new()?;
    let before = BeforeFork::now();
    match process::fork()? {
        Fork::Child => {
            gate.pass();
            process::exit(0)
        }
        Fork::Parent(child) => {
            let status = Status::of(&child.pid().to_string()).ok();
            let added = status.as_ref().and_then(|status| before.tables_added_kib(status));
            let memory = before.memory_taken_kib();
            gate.open();
            child.wait()?;
            Ok((added, memory, status))
        }
    }
}

/// A process that looks at the machine while another one forks.
struct Observer {
    process: Child,
    seen: Shared,
    start: Gate,
    fork: Gate,
    parent_goes_on: Gate,
    child_goes_on: Gate,
}

/// What the observer hands over: the difference, moved up so that none is 0, which stands for "nothing seen".
const OFFSET: i64 = 1 << 32;

impl Observer {
    fn start() -> io::Result<Observer> {
        let seen = Shared::new()?;
        let (start, fork, parent_goes_on, child_goes_on) = (Gate::new()?, Gate::new()?, Gate::new()?, Gate::new()?);
        match process::fork()? {
            Fork::Child => {
                start.pass();
                // Once in vain: whatever looking takes is there afterwards.
                BeforeFork::now().tables_of_machine_added_kib();
                let before = BeforeFork::now();
                fork.open();
                std::thread::sleep(SETTLING);
                if let Some(kib) = before.tables_of_machine_added_kib() {
                    seen.set(0, (kib + OFFSET) as u64);
                }
                child_goes_on.open();
                parent_goes_on.open();
                process::exit(0)
            }
            Fork::Parent(process) => Ok(Observer { process, seen, start, fork, parent_goes_on, child_goes_on }),
        }
    }

    /// Forks under the observer's eyes; gives the page tables that the machine then has more, in KiB.
    fn watch_a_fork(self) -> io::Result<i64> {
        self.start.open();
        self.fork.pass();
        let child = process::fork_and_stand_still(&self.parent_goes_on, &self.child_goes_on)?;
        child.wait()?;
        self.process.wait()?;
        match self.seen.get(0) {
            0 => Err(io::Error::other("/proc/meminfo has no line PageTables")),
            kib => Ok(kib as i64 - OFFSET),
        }
    }
}
