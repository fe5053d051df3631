//! `foldspace replay`: a log of strace on the published reverse maps and on Foldspace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};

use anyhow::{Context, Result};
use foldspace_replay::{Figures, Name, Options, Replay, Report, Stores, Variant};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args;
use crate::measure::table::with_header;

/// Replays a log and prints what each reverse map came to.
pub fn replay(args: &args::Replay) -> Result<u8> {
    let name = args.trace.display();
    let file = File::open(&args.trace).with_context(|| format!("cannot open {name}"))?;
    let bytes = file.metadata().with_context(|| format!("cannot ask for the size of {name}"))?.len();
    let stores = Stores { per_area: args.stores, ..Stores::default() };
    let mut replay = Replay::new(Options { stores, memory: args.memory, ..Options::default() })?;
    let progress = progress(bytes);
    let mut input = BufReader::new(progress.wrap_read(file));
    let mut line = Vec::new();
    loop {
        line.clear();
        // Bytes: a path in a log may be anything.
        if input.read_until(b'\n', &mut line).with_context(|| format!("cannot read {name}"))? == 0 {
            break;
        }
        replay.line(&String::from_utf8_lossy(&line))?;
    }
    progress.finish_and_clear();
    if args.check {
        replay.check().map_err(anyhow::Error::msg).context("an invariant does not hold at the end of the log")?;
    }
    let report = replay.finish()?;
    for damaged in &report.damaged_lines {
        eprintln!("foldspace: line {}: {}; passed over", damaged.line, damaged.reason);
    }
    let mut out = io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        write!(out, "{}", text(&report))?;
    }
    Ok(0)
}

fn progress(bytes: u64) -> ProgressBar {
    let style = "{bar:40} {bytes}/{total_bytes}, {elapsed}, {eta} left";
    // The template is ours and valid.
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style)
}

fn text(report: &Report) -> String {
    let Report { lines, damaged, calls, execs, forks, clones, orphans, operations, stores, samples, .. } = report;
    let mut text = format!(
        "{lines} lines, {damaged} passed over: {calls} calls that change memory, {execs} programs, {forks} forks, {clones} threads and vforks, \
         {orphans} of unknown origin\n{operations} operations, {stores} of them stores by the model; {samples} samples\n\n"
    );
    let mut now = with_header(["", "VMAs", "objects", "links", "bytes", "most bytes", "tables"]);
    for variant in &report.variants {
        let tables = variant.tables.map_or_else(String::new, |tables| mean(&tables));
        now.add_row([
            title(variant.name).to_string(),
            mean(&variant.vmas),
            mean(&variant.objects),
            mean(&variant.links),
            mean(&variant.bytes),
            variant.bytes.peak.to_string(),
            tables,
        ]);
    }
    text += &format!("At a moment, on average:\n{now}\n\n");
    let mut work = with_header([
        "",
        "objects made",
        "links made",
        "of them at fork",
        "a fork",
        "longest chain",
        "looked at for a page",
        "there",
    ]);
    for variant in report.variants.iter().filter(|variant| variant.name != Name::Foldspace) {
        let forks = report.forks.max(1) as f64;
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        let real = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.2}"));
        work.add_row([
            title(variant.name).to_string(),
            number(variant.objects_made),
            number(variant.links_made),
            variant.fork.links.to_string(),
            format!("{:.1}", variant.fork.links as f64 / forks),
            number(variant.longest_chain),
            real(variant.looked_at),
            real(variant.found),
        ]);
    }
    text += &format!("Work:\n{work}\n\n");
    text + &compared(report)
}

/// The sentences that the series' figure can be held against.
fn compared(report: &Report) -> String {
    let of = |name| report.variants.iter().find(|variant| variant.name == name);
    let (Some(before), Some(foldspace)) = (of(Name::Before), of(Name::Foldspace)) else { return String::new() };
    let mut text = String::new();
    let made = |variant: &Variant| variant.objects_made.unwrap_or(0) as f64;
    for name in [Name::FirstPatch, Name::BothPatches, Name::Today] {
        let Some(variant) = of(name) else { continue };
        let fewer = 100.0 * (made(variant) / made(before).max(1.0) - 1.0);
        text += &format!("anon_vmas made, {} beside before the series: {fewer:+.1} %\n", title(name));
    }
    let forks = report.forks.max(1) as f64;
    text + &format!(
        "Foldspace: {:.2} frames a fork, no object and no link of its reverse map; lineages begin where a table is copied\n",
        foldspace.fork.frames as f64 / forks
    )
}

fn mean(figures: &Figures) -> String {
    format!("{:.0}", figures.mean)
}

/// What it is called in tables.
pub fn title(name: Name) -> &'static str {
    match name {
        Name::PerFork => "one per fork",
        Name::Before => "before the series",
        Name::FirstPatch => "with patch 1/2",
        Name::BothPatches => "with both patches",
        Name::Today => "Linux today",
        Name::Foldspace => "Foldspace",
    }
}
