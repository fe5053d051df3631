//! `foldspace frames`: who mapped which frame when the program ended.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Context, Result};
use foldspace_wire::{MappedFrames, Report};

/// Bytes of a frame.
const FRAME: u64 = 4096;
/// Mappings of a run that are listed one by one.
const MOST_PLACES: usize = 8;

/// Prints a line for each run of frames that is not free, and how many there are of each kind.
pub fn print(report: &Report) -> Result<()> {
    let mut out = io::stdout().lock();
    let mut write = || -> io::Result<()> {
        writeln!(out, "frames              {:>8}  {:<10} mapped by (process: addresses)", "count", "used")?;
        for run in report.mapped_frames.iter().filter(|run| !matches!(&*run.used, "free" | "idle")) {
            writeln!(out, "{}", line(run))?;
        }
        let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for run in &report.mapped_frames {
            let (frames, mappings) = sums.entry(&run.used).or_default();
            *frames += u64::from(run.count);
            *mappings += u64::from(run.count) * run.places.len() as u64;
        }
        writeln!(out)?;
        for (used, (frames, mappings)) in sums {
            let mapped = if mappings > 0 { format!(", mapped {mappings} times") } else { String::new() };
            writeln!(out, "{frames:>9} frames {used}{mapped}")?;
        }
        Ok(())
    };
    write().context("cannot write the listing")
}

fn line(run: &MappedFrames) -> String {
    let last = run.first + run.count - 1;
    let mut line = format!("{:08x}-{last:08x}   {:>8}  {:<10}", run.first, run.count, run.used);
    if let (Some(file), Some(page)) = (&run.file, run.page) {
        line += &format!(" {file} from page {page}");
    }
    for (process, at) in run.places.iter().take(MOST_PLACES) {
        line += &format!(" {process}:{at:x}-{:x}", at + u64::from(run.count) * FRAME);
    }
    if run.places.len() > MOST_PLACES {
        line += &format!(" and {} more", run.places.len() - MOST_PLACES);
    }
    line
}
