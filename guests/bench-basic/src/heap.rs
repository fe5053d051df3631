//! An allocator that fills with a pattern, in several ways, when little, half or all of its memory is used.

use foldspace_guest_measure::figures::Status;
use foldspace_guest_measure::heap::{self, Block, Fill, Heap, Use};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{Shared, process};
use std::io;

const MIB: usize = 256;

/// What a row is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    Cost,
    /// More of `VmRSS` than before.
    Resident,
    /// More of `VmPTE` than before.
    Tables,
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for usage in Use::ALL {
        for fill in [Fill::None, Fill::Memset, Fill::ReferencePage] {
            let words = match fill {
                Fill::None => "not filled",
                Fill::Memset => "filled by memset",
                _ => "filled by a reference page",
            };
            let words = format!("allocating {MIB} MiB, {} use, {words}", usage.name());
            let name = format!("heap_{}_{}", usage.name(), fill.name());
            let cost = move |settings: &Settings| run(settings, fill, usage, Figure::Cost);
            rows.push(Row::new(name.clone(), words.clone(), "call", cost).needs_mib(MIB as u64 + 128));
            for (figure, suffix, what) in
                [(Figure::Resident, "resident", "resident memory"), (Figure::Tables, "tables", "page tables")]
            {
                let size = move |settings: &Settings| run(settings, fill, usage, figure);
                let row = Row::new(format!("{name}_{suffix}"), format!("{words}: {what}"), "call", size);
                rows.push(row.needs_mib(MIB as u64 + 128).in_unit("KiB"));
            }
        }
    }
    let read = |settings: &Settings| read_reference_memory(settings);
    let words = "first read of each page of 256 MiB, filled by a reference page";
    rows.push(Row::new("refpage_read_256", words, "page", read));
    rows.extend(pattern_rows());
    rows
}

/// What the last version of the series measured: 4 MiB that show a pattern are mapped, one page, half or all of them are written to, and they are unmapped.
const PATTERN_MIB: usize = 4;
/// The series did it 1,000 times; the figure is for one.
const ROUNDS: usize = 100;

fn pattern_rows() -> Vec<Row> {
    let pages = PATTERN_MIB << 20 >> 12;
    let mut rows = Vec::new();
    for (touched, words, count) in [("one", "one page", 1), ("half", "half", pages / 2), ("all", "all", pages)] {
        for (fill, by) in [(Fill::Memset, "written by memset"), (Fill::ReferencePage, "mapped as a reference page")] {
            let name = format!("pattern_{touched}_{}", fill.name());
            let words = format!("{PATTERN_MIB} MiB of a pattern, {by}; {words} of it touched; unmapped");
            let work = move |settings: &Settings| map_touch_unmap(settings, fill, count);
            rows.push(Row::new(name, words, "round", work).needs_mib(64));
        }
    }
    rows
}

fn map_touch_unmap(settings: &Settings, fill: Fill, touched: usize) -> io::Result<Figures> {
    let heap = Heap::new(fill)?;
    let rounds = settings.effort.runs(ROUNDS);
    let pages = PATTERN_MIB << 20 >> 12;
    let step = (pages / touched) << 12;
    let mut runs = Vec::new();
    for _ in 0..3 {
        let start = settings.counter.now();
        for _ in 0..rounds {
            let mut memory = heap.fresh(PATTERN_MIB << 20)?;
            for page in 0..touched {
                memory.block().write(page * step, 1, 1);
            }
        }
        runs.push((settings.counter.now() - start) as f64 / rounds as f64);
    }
    Ok(runs.into())
}

/// Each run in a process of its own, whose heap is new.
fn run(settings: &Settings, fill: Fill, usage: Use, figure: Figure) -> io::Result<Figures> {
    // A size is the same each time.
    let runs = if figure == Figure::Cost { settings.effort.runs(3) } else { 1 };
    in_children(runs, |shared| {
        let before = size_kib(figure)?;
        let (cost, outcome) = settings.counter.measure(|| -> io::Result<(Heap, Vec<Block>)> {
            let mut heap = Heap::new(fill)?;
            let blocks = heap::allocate_and_use(&mut heap, MIB, usage)?;
            Ok((heap, blocks))
        });
        let (_heap, blocks) = outcome?;
        let more = size_kib(figure)?.saturating_sub(before);
        if !heap::holds_the_pattern(&blocks, usage, fill) {
            return Err(io::Error::other("a page does not hold what it should"));
        }
        shared.set(0, if figure == Figure::Cost { cost } else { more });
        Ok(1)
    })
}

fn read_reference_memory(settings: &Settings) -> io::Result<Figures> {
    in_children(settings.effort.runs(3), |shared| {
        let mut heap = Heap::new(Fill::ReferencePage)?;
        let mut blocks = Vec::new();
        for _ in 0..MIB {
            blocks.push(heap.allocate(1 << 20)?);
        }
        let (cost, right) = settings.counter.measure(|| {
            blocks.iter().all(|block| (0..1 << 20).step_by(4096).all(|at| block.read(at) == heap::PATTERN))
        });
        if !right {
            return Err(io::Error::other("a page does not hold the pattern"));
        }
        shared.set(0, cost);
        Ok((MIB << 20 >> 12) as u64)
    })
}

/// The child stores its figure and returns for how many pages (or calls) it is. An unsupported fill is told to the parent.
fn in_children(times: usize, work: impl Fn(&Shared) -> io::Result<u64>) -> io::Result<Figures> {
    let shared = Shared::new()?;
    let mut runs = Vec::new();
    for _ in 0..times {
        shared.set(1, 0);
        process::in_child(|| match work(&shared) {
            Ok(count) => {
                shared.set(1, count);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(error),
        })?;
        match shared.get(1) {
            0 => return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no reference pages")),
            count => runs.push(shared.get(0) as f64 / count as f64),
        }
    }
    Ok(runs.into())
}

fn size_kib(figure: Figure) -> io::Result<u64> {
    let line = if figure == Figure::Tables { "VmPTE" } else { "VmRSS" };
    Status::of("self")?.kib(line).ok_or_else(|| io::Error::other(format!("status has no {line}")))
}
