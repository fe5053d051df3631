//! `./x bench native`: snapshots of a guest's memory in a process, Foldspace beside the other ways to take them. The same work in the same run; times are of a
//! machine that does other things too, which only adds to them: so the shortest of some rounds, and nothing in CI depends on them.

mod dirty;
mod plot;
mod throughput;
mod ways;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use dirty::List;
use throughput::Throughput;
use ways::{Copying, Foldspace, Fork, PAGE, Private, Round, Way, WriteProtect};

/// Snapshots of a guest's memory: Foldspace beside copying, a private mapping of a memfd, fork and userfaultfd.
#[derive(Parser)]
struct Arguments {
    /// Sizes of guests in MiB.
    #[arg(long, value_delimiter = ',', default_values_t = [16, 256, 1024])]
    sizes: Vec<usize>,
    /// At most so many MiB of each are filled; the rest stays untouched.
    #[arg(long, default_value_t = 1024)]
    resident: usize,
    /// Pages that are stored to after a snapshot.
    #[arg(long, default_value_t = 1000)]
    pages: usize,
    /// Rounds, of which the shortest times are shown.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Writes `native.json`, `native.svg` and `native.md` here.
    #[arg(long)]
    report: Option<PathBuf>,
}

/// The shortest times of one way at one size.
#[derive(Serialize, Clone)]
struct Figures {
    size_mib: usize,
    resident_mib: usize,
    way: &'static str,
    /// Microseconds.
    snapshot: f64,
    /// Nanoseconds of one store.
    first_write: f64,
    /// Microseconds.
    restore: f64,
    /// KiB.
    memory: u64,
}

#[derive(Serialize)]
struct Report {
    machine: String,
    pages: usize,
    rounds: usize,
    snapshots: Vec<Figures>,
    lists: Vec<(usize, Vec<List>)>,
    throughput: Vec<Throughput>,
}

type Maker = fn(usize, usize) -> Result<Box<dyn Way>>;

/// fork comes first: the child of a process with threads may do little.
const WAYS: [(&str, Maker); 5] = [
    ("fork(2)", |size, resident| Ok(Box::new(Fork::new(size, resident)?))),
    ("copying", |size, resident| Ok(Box::new(Copying::new(size, resident)?))),
    ("MAP_PRIVATE of a memfd", |size, resident| Ok(Box::new(Private::new(size, resident)?))),
    ("Foldspace", |size, resident| Ok(Box::new(Foldspace::new(size, resident)?))),
    ("userfaultfd, write-protected", |size, resident| Ok(Box::new(WriteProtect::new(size, resident)?))),
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut report = Report {
        machine: machine(),
        pages: arguments.pages,
        rounds: arguments.rounds,
        snapshots: Vec::new(),
        lists: Vec::new(),
        throughput: Vec::new(),
    };
    let progress = progress(arguments.sizes.len() * (WAYS.len() + 1) + THROUGHPUTS);
    for (way, make) in WAYS {
        for size in &arguments.sizes {
            let resident = (*size).min(arguments.resident);
            progress.set_message(format!("{way}, {size} MiB"));
            match measure(make, size << 20, resident << 20, &arguments) {
                Ok(figures) => report.snapshots.push(Figures { way, ..figures }),
                Err(error) => progress.suspend(|| eprintln!("{way}, {size} MiB: {error:#}")),
            }
            progress.inc(1);
        }
    }
    report.snapshots.sort_by_key(|figures| figures.size_mib);
    for size in &arguments.sizes {
        let resident = (*size).min(arguments.resident) << 20;
        let pages = places(resident, arguments.pages);
        progress.set_message(format!("lists of what was stored to, {size} MiB"));
        report.lists.push((*size, dirty::measure(size << 20, resident, &pages, arguments.rounds)));
        progress.inc(1);
    }
    let bytes: [usize; THROUGHPUTS] = [512 << 10, arguments.resident.min(256) << 20];
    for bytes in bytes {
        progress.set_message(format!("loads and stores in {} KiB", bytes >> 10));
        report.throughput.extend(throughput::measure(bytes)?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let text = text(&report);
    println!("{text}");
    if let Some(directory) = &arguments.report {
        fs::create_dir_all(directory)?;
        fs::write(directory.join("native.json"), serde_json::to_string_pretty(&report)?)?;
        fs::write(directory.join("native.svg"), plot::draw(&report.snapshots)?)?;
        fs::write(directory.join("native.md"), text)?;
    }
    Ok(())
}

/// Sizes of memory that is loaded from and stored to.
const THROUGHPUTS: usize = 2;

/// A bar on a terminal, and nothing elsewhere.
fn progress(steps: usize) -> ProgressBar {
    let style = "{bar:30} {pos}/{len}, {elapsed}: {msg}";
    // The template is ours and valid.
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    // It is drawn by who measures: a thread that ticks would be there when this process forks.
    ProgressBar::new(steps as u64).with_style(style)
}

/// Pages all over what is resident, in no order, each once.
fn places(resident: usize, count: usize) -> Vec<u64> {
    let all = resident / PAGE;
    // Steps of a prime number that does not divide the number of pages reach each page before any comes again.
    let step = [7919, 7907, 7901].into_iter().find(|step| !all.is_multiple_of(*step)).unwrap_or(1);
    (0..count.min(all)).map(|number| (number * step % all) as u64).collect()
}

fn measure(make: Maker, size: usize, resident: usize, arguments: &Arguments) -> Result<Figures> {
    let mut way = make(size, resident)?;
    let pages = places(resident, arguments.pages);
    way.round(&pages).context("the first round")?;
    let rounds = (0..arguments.rounds.max(1)).map(|_| way.round(&pages)).collect::<Result<Vec<Round>>>()?;
    let least = |of: fn(&Round) -> Duration| rounds.iter().map(of).min().unwrap_or_default().as_secs_f64();
    Ok(Figures {
        size_mib: size >> 20,
        resident_mib: resident >> 20,
        way: "",
        snapshot: least(|round| round.snapshot) * 1e6,
        first_write: least(|round| round.writes) * 1e9 / pages.len() as f64,
        restore: least(|round| round.restore) * 1e6,
        memory: rounds.iter().map(|round| round.bytes).max().unwrap_or(0) / 1024,
    })
}

fn machine() -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let load = read("/proc/loadavg");
    format!(
        "{}; Linux {}; load when it began: {}",
        model.trim_start_matches([':', '\t', ' ']),
        read("/proc/sys/kernel/osrelease").trim(),
        load.split(' ').next().unwrap_or_default()
    )
}

fn text(report: &Report) -> String {
    let table = |head: &[&str]| {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(head.iter().copied());
        table
    };
    let mut snapshots = table(&[
        "guest, MiB",
        "resident",
        "way",
        "snapshot, µs",
        "first write, ns",
        "restore, µs",
        "memory of the snapshot, KiB",
    ]);
    for row in &report.snapshots {
        snapshots.add_row([
            row.size_mib.to_string(),
            row.resident_mib.to_string(),
            row.way.to_string(),
            format!("{:.1}", row.snapshot),
            format!("{:.0}", row.first_write),
            format!("{:.1}", row.restore),
            row.memory.to_string(),
        ]);
    }
    let mut lists = table(&["guest, MiB", "list of what was stored to", "µs"]);
    for (size, all) in &report.lists {
        for list in all {
            let value = list.micros.map(|micros| format!("{micros:.1}")).or(list.note.clone()).unwrap_or_default();
            lists.add_row([size.to_string(), list.way.to_string(), value]);
        }
    }
    let mut throughput = table(&["8 bytes at random in", "way", "load, ns", "store, ns"]);
    for row in &report.throughput {
        let bytes = format!("{} KiB", row.bytes >> 10);
        throughput.add_row([bytes, row.way.to_string(), format!("{:.2}", row.load), format!("{:.2}", row.store)]);
    }
    format!(
        "{}. {} pages are stored to; the shortest of {} rounds.\n\n{snapshots}\n\n{lists}\n\n{throughput}\n",
        report.machine, report.pages, report.rounds
    )
}
