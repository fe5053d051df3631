//! The reverse maps beside each other, in this process: chains of forks, many children, and the log of a build.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use foldspace_classic::{Area, Backing, Operation, Process, VmaFlags};
use foldspace_replay::{Brood, Link, Name, Options, Replay, Report, Size, Variant, chain as long_chain, children};

use super::document::{Figure, Row};
use crate::images::Images;

/// Processes of the chain, each forked by the one before, all alive to the end.
const CHAIN: u32 = 64;
/// Pages that the first one has written to.
const PAGES: u64 = 512;
/// Pages that each child writes to.
const OWN: u64 = 8;

/// Forks of the chain of which only the last is alive.
const LONG: u32 = 10_000;
/// Children of one parent.
const CHILDREN: u32 = 1_000;
/// Bytes of Foldspace's machine for these, paid for as they are used.
const MEMORY: u64 = 1 << 30;

/// All rows.
pub fn rows() -> Result<Vec<Row>> {
    let mut rows = of("chain", "a chain of 64 forks", &chain()?);
    rows.extend(families()?);
    match log() {
        Some(path) => rows.extend(of("build", "the log of a build", &build(&path)?)),
        None => rows.push(Row {
            row: "reverse_build".to_owned(),
            work: "the log of a build".to_owned(),
            unit: "count".to_owned(),
            per: "run".to_owned(),
            skipped: [("foldspace".to_owned(), "there is no log: `./x bench` records one where strace is".to_owned())]
                .into(),
            ..Row::default()
        }),
    }
    Ok(rows)
}

/// Where `./x bench` leaves the log of this project's build of C test programs.
fn log() -> Option<PathBuf> {
    Images::find().ok()?.file("build.trace").ok()
}

fn build(path: &std::path::Path) -> Result<Report> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut replay = Replay::new(Options::default())?;
    for line in String::from_utf8_lossy(&text).lines() {
        replay.line(line)?;
    }
    Ok(replay.finish()?)
}

fn chain() -> Result<Report> {
    let first = 0x1000;
    let process = Process;
    let area = Area { start: first, end: first + PAGES };
    let flags = VmaFlags::READ | VmaFlags::WRITE;
    let mut stream = vec![
        Operation::Start { process: process(0) },
        Operation::Map { process: process(0), area, backing: Backing::Anonymous, flags },
    ];
    stream.extend((0..PAGES).map(|page| Operation::Store { process: process(0), page: first + page }));
    for child in 1..CHAIN {
        stream.push(Operation::Fork { parent: process(child - 1), child: process(child) });
        let start = first + u64::from(child) * OWN % PAGES;
        stream.extend((start..start + OWN).map(|page| Operation::Store { process: process(child), page }));
    }
    let mut replay = Replay::new(Options::default())?;
    replay.operations(&stream)?;
    replay.check().map_err(anyhow::Error::msg)?;
    Ok(replay.finish()?)
}

/// Each reverse map after a long chain of forks, and with many children.
fn families() -> Result<Vec<Row>> {
    let links = long_chain(LONG, MEMORY, || {})?;
    let ends: Vec<&Link> = links.iter().filter(|link| link.size.forks == LONG).collect();
    let broods = children(CHILDREN, MEMORY, || {})?;
    let chained = |name, work, unit, figure: fn(&Link) -> f64| {
        let work = format!("10,000 forks, each parent exits: {work}");
        family_row(&format!("reverse_long_{name}"), &work, unit, ends.iter().map(|link| (&link.size, figure(link))))
    };
    let of_many = |name, work, figure: fn(&Brood) -> f64| {
        let work = format!("1,000 children of one parent: {work}");
        let unit = if name == "bytes" { "bytes" } else { "places" };
        family_row(
            &format!("reverse_many_{name}"),
            &work,
            unit,
            broods.iter().map(|brood| (&brood.size, figure(brood))),
        )
    };
    Ok(vec![
        chained("objects", "anon_vmas, or lineages, at the end", "objects", |link| link.size.objects as f64),
        chained("last", "objects and links that the last fork makes", "objects", |link| link.size.by_last_fork as f64),
        chained("bytes", "memory of the reverse map at the end", "bytes", |link| link.size.bytes as f64),
        chained("looked", "places looked at for the mappings of a page", "places", |link| link.page.looked_at),
        of_many("bytes", "memory of the reverse map", |brood| brood.size.bytes as f64),
        of_many("child", "places looked at for a child's own page", |brood| brood.childs.looked_at),
        of_many("parent", "places looked at for the parent's own page", |brood| brood.parents.looked_at),
        of_many("all", "places looked at for a page that all have", |brood| brood.shared.looked_at),
    ])
}

fn family_row<'s>(name: &str, work: &str, unit: &str, figures: impl Iterator<Item = (&'s Size, f64)>) -> Row {
    Row {
        row: name.to_owned(),
        work: work.to_owned(),
        unit: unit.to_owned(),
        per: "run".to_owned(),
        figures: figures.map(|(size, value)| (column(size.name).to_owned(), Figure::exact(value))).collect(),
        ..Row::default()
    }
}

/// A figure of each map.
type Measure = (&'static str, &'static str, &'static str, fn(&Variant) -> Option<f64>);

const MEASURES: [Measure; 6] = [
    ("objects", "anon_vmas made, or lineages at a moment", "objects", |variant| {
        variant.objects_made.map(|made| made as f64).or(Some(variant.objects.mean))
    }),
    ("links", "links made at fork", "links", |variant| Some(variant.fork.links as f64)),
    ("frames", "frames that forks took", "frames", |variant| variant.tables.map(|_| variant.fork.frames as f64)),
    ("bytes", "memory of the reverse map, mean", "bytes", |variant| Some(variant.bytes.mean)),
    ("looked", "places looked at for the mappings of a page, mean", "places", |variant| variant.looked_at),
    ("found", "mappings that there are of it, mean", "mappings", |variant| variant.found),
];

fn of(stream: &str, words: &str, report: &Report) -> Vec<Row> {
    let row = |&(name, work, unit, figure): &Measure| {
        let figures = report.variants.iter().filter_map(|variant| {
            let value = figure(variant)?;
            Some((column(variant.name).to_owned(), Figure::exact((value * 100.0).round() / 100.0)))
        });
        Row {
            row: format!("reverse_{stream}_{name}"),
            work: format!("{words}: {work}"),
            unit: unit.to_owned(),
            per: "run".to_owned(),
            figures: figures.collect(),
            ..Row::default()
        }
    };
    MEASURES.iter().map(row).collect()
}

fn column(name: Name) -> &'static str {
    match name {
        Name::PerFork => "per-fork",
        Name::Before => "before",
        Name::FirstPatch => "patch-1",
        Name::BothPatches => "patches",
        Name::Today => "today",
        Name::Foldspace => "foldspace",
    }
}

/// What the columns of this experiment are called.
pub fn title(column: &str) -> Option<&'static str> {
    Some(match column {
        "per-fork" => "anon_vma per fork",
        "before" => "before the series",
        "patch-1" => "with patch 1/2",
        "patches" => "with both patches",
        "today" => "anon_vma today",
        _ => return None,
    })
}
