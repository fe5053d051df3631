//! One round: fill, fork, write on both sides, look at every page, end.

use foldspace_guest_measure::figures::{BeforeFork, Status};
use foldspace_guest_measure::process::{self, Fork, Gate, TimedFork};
use foldspace_guest_measure::statistics::median;
use foldspace_guest_measure::{Counter, PAGES_PER_MIB, Region, Shared, TABLE_PAGES};
use serde_json::{Value, json};
use std::io;

/// The smallest region that has room for all the writes below.
pub const LEAST_MIB: usize = 16;

/// How many later writes the median is taken of.
const LATER_WRITES: usize = 64;

/// What a process writes, besides its number, to the pages that it changes.
const CHILD: u64 = 1 << 40;
const PARENT: u64 = 2 << 40;

/// Slots of the shared page: the child's figures.
mod slot {
    pub const FIRST_WRITE: usize = 0;
    pub const LATER_WRITE: usize = 1;
    pub const BULK_WRITE: usize = 2;
    pub const WRONG_PAGES: usize = 3;
}

/// The figures of a round. Costs are in the counter's unit.
#[derive(Debug)]
pub struct Report {
    fork: u64,
    exit_and_wait: u64,
    /// Page tables that fork added to the machine, KiB.
    tables_added: Option<i64>,
    /// Memory of the whole machine that fork took, KiB, whatever for.
    memory_taken: Option<i64>,
    after_fork: Sizes,
    after_writes: Sizes,
    parent: Writes,
    child: Writes,
    /// Whether each process found its own writes and none of the other's.
    pub isolated: bool,
}

/// What the two processes take, as `/proc` says.
#[derive(Debug)]
struct Sizes {
    parent: Option<Status>,
    child: Option<Status>,
}

/// What writes cost one of the processes.
#[derive(Clone, Copy, Debug)]
struct Writes {
    /// The first one after the fork.
    first: u64,
    /// One into a page beside a page that was written: the median.
    later: u64,
    /// Per page, when an eighth of the region is written in order.
    bulk: u64,
}

/// Does a round with `mib` MiB resident.
pub fn run(counter: Counter, mib: usize) -> io::Result<Report> {
    let mut region = Region::filled(mib * PAGES_PER_MIB)?;
    let shared = Shared::new()?;
    let (write, written, end) = (Gate::new()?, Gate::new()?, Gate::new()?);
    let (part_of_child, part_of_parent) = (Part::of_child(&region), Part::of_parent(&region));
    let before = BeforeFork::now();
    let TimedFork { start, end: forked, side } = process::timed_fork(counter)?;
    match side {
        Fork::Child => {
            write.pass();
            let writes = write_some(counter, &mut region, part_of_child);
            shared.set(slot::FIRST_WRITE, writes.first);
            shared.set(slot::LATER_WRITE, writes.later);
            shared.set(slot::BULK_WRITE, writes.bulk);
            written.open();
            end.pass();
            shared.set(slot::WRONG_PAGES, wrong_pages(&region, part_of_child));
            written.open();
            end.pass();
            process::exit(0)
        }
        Fork::Parent(child) => {
            let memory_taken = before.memory_taken_kib();
            let after_fork = Sizes::now(child.pid());
            let tables_added = after_fork.child.as_ref().and_then(|child| before.tables_added_kib(child));
            // The child writes first, to pages that both still share; then the parent, to others that both share.
            write.open();
            written.pass();
            let parent = write_some(counter, &mut region, part_of_parent);
            let after_writes = Sizes::now(child.pid());
            end.open();
            written.pass();
            let own_wrong_pages = wrong_pages(&region, part_of_parent);
            let (exit_and_wait, ended) = counter.measure(|| {
                end.open();
                child.wait()
            });
            ended?;
            let child = Writes {
                first: shared.get(slot::FIRST_WRITE),
                later: shared.get(slot::LATER_WRITE),
                bulk: shared.get(slot::BULK_WRITE),
            };
            let isolated = own_wrong_pages == 0 && shared.get(slot::WRONG_PAGES) == 0;
            Ok(Report {
                fork: forked - start,
                exit_and_wait,
                tables_added,
                memory_taken,
                after_fork,
                after_writes,
                parent,
                child,
                isolated,
            })
        }
    }
}

/// The eighth of the region that one of the processes writes, and with what.
#[derive(Clone, Copy)]
struct Part {
    first_page: usize,
    pages: usize,
    mark: u64,
}

impl Part {
    /// From the first page of a last-level table on, so that the first write meets a full one.
    fn of_child(region: &Region) -> Part {
        Part { first_page: region.first_page_of_table(), pages: region.pages() / 8, mark: CHILD }
    }

    /// The same, in other tables than the child's.
    fn of_parent(region: &Region) -> Part {
        let tables = region.pages() / 2 / TABLE_PAGES;
        let first_page = region.first_page_of_table() + tables * TABLE_PAGES;
        Part { first_page, pages: region.pages() / 8, mark: PARENT }
    }

    /// What this process must find in a page.
    fn expected(self, page: usize) -> u64 {
        let original = page as u64 + 1;
        if (self.first_page..self.first_page + self.pages).contains(&page) { original | self.mark } else { original }
    }
}

fn write_some(counter: Counter, region: &mut Region, part: Part) -> Writes {
    let cost_of = |region: &mut Region, page: usize| {
        let (cost, ()) = counter.measure(|| region.write(page, part.expected(page)));
        cost
    };
    let first = cost_of(region, part.first_page);
    let later: Vec<f64> = (1..=LATER_WRITES).map(|next| cost_of(region, part.first_page + next) as f64).collect();
    let rest = part.first_page + LATER_WRITES + 1..part.first_page + part.pages;
    let pages = rest.len() as u64;
    let (bulk, ()) = counter.measure(|| rest.for_each(|page| region.write(page, part.expected(page))));
    Writes { first, later: median(&later) as u64, bulk: bulk / pages }
}

fn wrong_pages(region: &Region, part: Part) -> u64 {
    (0..region.pages()).filter(|&page| region.read(page) != part.expected(page)).count() as u64
}

impl Sizes {
    fn now(child: i32) -> Sizes {
        Sizes { parent: Status::of("self").ok(), child: Status::of(&child.to_string()).ok() }
    }

    fn to_json(&self) -> Value {
        let line = |status: &Option<Status>, name| status.as_ref().and_then(|status: &Status| status.kib(name));
        json!({
            "parent_rss_kib": line(&self.parent, "VmRSS"),
            "child_rss_kib": line(&self.child, "VmRSS"),
            "parent_tables_kib": line(&self.parent, "VmPTE"),
            "child_tables_kib": line(&self.child, "VmPTE"),
        })
    }
}

impl Writes {
    fn to_json(self) -> Value {
        json!({ "first_write": self.first, "later_write": self.later, "write_per_page": self.bulk })
    }
}

impl Report {
    /// The line of the report.
    pub fn to_json(&self, counter: Counter, mib: usize, mode: &str) -> Value {
        json!({
            "mode": mode,
            "resident_mib": mib,
            "unit": counter.unit(),
            "fork": self.fork,
            "exit_and_wait": self.exit_and_wait,
            "tables_copied": self.tables_added.map(|kib| kib / 4),
            "tables_added_kib": self.tables_added,
            "memory_taken_kib": self.memory_taken,
            "after_fork": self.after_fork.to_json(),
            "after_writes": self.after_writes.to_json(),
            "child": self.child.to_json(),
            "parent": self.parent.to_json(),
            "isolated": self.isolated,
        })
    }
}
