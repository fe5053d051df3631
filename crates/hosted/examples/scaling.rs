//! What a page fault takes when several threads fault in one address space: locks by kind, locks that somebody else had, faults that started over,
//! and stores to cache lines that another thread stores to, too. Counted inside, since few cores cannot show speed.
//!
//! `cargo run -p foldspace-hosted --release --example scaling [-- --json]`

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Barrier};
use std::thread;

use foldspace::addr::PAGE_SIZE;
use foldspace::space::{Access, MapRequest, Placement};
use foldspace::sync::Rank;
use foldspace::sync::watch::{self, Tally};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, VirtAddr};
use foldspace_hosted::{Host, Layouts};

/// Bytes below one last-level table.
const TABLE: u64 = 512 * PAGE_SIZE;
const START: u64 = 0x1000_0000_0000;

/// Where each thread stores.
#[derive(Clone, Copy)]
enum Places {
    /// In tables of its own.
    OwnTables,
    /// In a part of its own of tables that all share.
    SameTables,
    /// In pages of tables that all share, in turns with the others.
    Interleaved,
}

impl Places {
    fn name(self) -> &'static str {
        match self {
            Places::OwnTables => "own tables",
            Places::SameTables => "same tables",
            Places::Interleaved => "interleaved",
        }
    }

    /// The n-th page that a thread stores to.
    fn page(self, thread: u64, threads: u64, n: u64) -> u64 {
        let part = 512 / threads;
        match self {
            Places::OwnTables => thread * FAULTS + n,
            Places::SameTables => n / part * 512 + thread * part + n % part,
            Places::Interleaved => n * threads + thread,
        }
    }
}

/// Of each thread.
const FAULTS: u64 = 16 * 512;

/// What happened, for each fault.
struct Row {
    places: Places,
    threads: u64,
    tables: f64,
    frames: f64,
    buddy: f64,
    others: f64,
    waited: f64,
    again: f64,
    stores: f64,
    shared: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let json = env::args().any(|argument| argument == "--json");
    if !json {
        println!(
            "for each fault          threads  tables  caches   buddy  others  waited   again  lines written  by others, too"
        );
    }
    for places in [Places::OwnTables, Places::SameTables, Places::Interleaved] {
        for threads in [1, 2, 4, 8] {
            let row = measure(places, threads)?;
            print(&row, json);
        }
    }
    Ok(())
}

fn measure(places: Places, threads: u64) -> Result<Row, Box<dyn Error>> {
    let host = Host::new(640 << 20)?;
    let space = AddressSpace::new(host.memory(), Layouts::process())?;
    space.map(MapRequest {
        placement: Placement::Fixed(VirtAddr(START)),
        len: threads * FAULTS * PAGE_SIZE + 2 * TABLE,
        flags: VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE,
        backing: Backing::Anonymous,
        page_offset: 0,
    })?;
    let start = Arc::new(Barrier::new(threads as usize));
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (space, start) = (Arc::clone(&space), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                watch::begin();
                let page = |n| VirtAddr(START + places.page(thread, threads, n) * PAGE_SIZE);
                let outcome = (0..FAULTS).try_for_each(|n| space.fault(page(n), Access::Write));
                (outcome, watch::end())
            })
        })
        .collect();
    let mut tallies = Vec::new();
    for worker in workers {
        let (outcome, tally) = worker.join().map_err(|_| "a thread panicked")?;
        outcome.map_err(|fault| format!("{fault:?}"))?;
        tallies.push(tally);
    }
    Ok(summed(places, threads, &tallies))
}

fn summed(places: Places, threads: u64, tallies: &[Tally]) -> Row {
    let faults = (threads * FAULTS) as f64;
    let mut writers: HashMap<usize, u32> = HashMap::new();
    for line in tallies.iter().flat_map(|tally| tally.lines.keys()) {
        *writers.entry(*line).or_default() += 1;
    }
    let per_fault = |count: &dyn Fn(&Tally) -> u64| tallies.iter().map(count).sum::<u64>() as f64 / faults;
    let taken = |rank: Rank| per_fault(&|tally: &Tally| tally.taken[rank as usize]);
    let tables = taken(Rank::Table1) + taken(Rank::Table2) + taken(Rank::Table3) + taken(Rank::Table4);
    let all = per_fault(&|tally| tally.taken.iter().sum());
    let (frames, buddy) = (taken(Rank::Frames), taken(Rank::Buddy));
    Row {
        places,
        threads,
        tables,
        frames,
        buddy,
        others: all - tables - frames - buddy,
        waited: per_fault(&|tally| tally.waited.iter().sum()),
        again: per_fault(&|tally| tally.again),
        stores: per_fault(&|tally| tally.lines.len() as u64),
        shared: per_fault(&|tally| {
            tally.lines.iter().filter(|(line, _)| writers[*line] > 1).map(|(_, stores)| stores).sum()
        }),
    }
}

fn print(row: &Row, json: bool) {
    let Row { places, threads, tables, frames, buddy, others, waited, again, stores, shared } = row;
    let name = places.name();
    if json {
        println!(
            r#"{{"places":"{name}","threads":{threads},"table_locks":{tables:.4},"cache_locks":{frames:.4},"buddy_locks":{buddy:.4},"other_locks":{others:.4},"waited":{waited:.6},"again":{again:.6},"lines_written":{stores:.4},"shared_stores":{shared:.4}}}"#
        );
    } else {
        println!(
            "{name:<24}{threads:>7}{tables:>8.3}{frames:>8.3}{buddy:>8.3}{others:>8.3}{waited:>8.4}{again:>8.4}{stores:>15.3}{shared:>16.4}"
        );
    }
}
