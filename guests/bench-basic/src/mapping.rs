//! Changes of the layout.

use foldspace_guest_measure::maps::{self, Maps};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{Counter, PAGE, PAGES_PER_MIB, Protection, Region};
use std::fs::File;
use std::io::{self, Read};

const SPLIT_AMONG: usize = 32_000;
const MAPS_OF: usize = 10_000;

pub fn rows() -> Vec<Row> {
    let middle = "mprotect of the middle of a VMA, making three of it, among 32,000 VMAs";
    vec![
        Row::new("mmap_munmap", "mmap + munmap of a page", "call", |settings| map_and_unmap(settings, |_| {})),
        Row::new("mmap_touch_munmap", "mmap + munmap of a page, touched in between", "call", |settings| {
            map_and_unmap(settings, |region| region.write(0, 1))
        }),
        Row::new("mprotect_split", "mprotect that splits a VMA in two, among 32,000 VMAs", "call", |settings| {
            split(settings, 2)
        })
        .needs_mib(64),
        Row::new("mprotect_split_middle", middle, "call", |settings| split(settings, 3)).needs_mib(64),
        Row::new("maps_10000", "read of /proc/self/maps, 10,000 VMAs", "call", |settings| read_areas(settings, "maps"))
            .needs_mib(64),
        Row::new(
            "maps_text_10000",
            "one area found in the text of /proc/self/maps, 10,000 VMAs",
            "question",
            |settings| find_area(settings, Way::Text),
        )
        .needs_mib(64),
        Row::new("maps_query_10000", "one area found by PROCMAP_QUERY, 10,000 VMAs", "question", |settings| {
            find_area(settings, Way::Query)
        })
        .needs_mib(64),
        Row::new("smaps_10000", "read of /proc/self/smaps, 10,000 VMAs", "call", |settings| {
            read_areas(settings, "smaps")
        })
        .needs_mib(64),
        Row::new("mremap_1024", "mremap of 1 GiB, all touched, to where its tables fit", "call", |settings| {
            move_there_and_back(settings, 0)
        })
        .needs_mib(1024 + 64),
        Row::new("mremap_1024_askew", "mremap of 1 GiB, all touched, a page askew", "call", |settings| {
            move_there_and_back(settings, PAGE)
        })
        .needs_mib(1024 + 64),
    ]
}

/// Two places that begin with a table of tables, and whose end does, too.
const PLACES: [usize; 2] = [0x2000_0000_0000, 0x2100_0000_0000];

/// Moves a GiB to a place that lies as its own does, or `askew` bytes beside such a one.
fn move_there_and_back(settings: &Settings, askew: usize) -> io::Result<Figures> {
    let mut region = Region::filled_at(PLACES[0], 1024 * PAGES_PER_MIB)?;
    let mut runs = Vec::new();
    for run in 0..settings.effort.runs(5) {
        let place = PLACES[(run + 1) % 2] + if run % 2 == 0 { askew } else { 0 };
        let (cost, moved) = settings.counter.measure(|| region.move_to(place));
        moved?;
        runs.push(cost as f64);
        for page in (0..region.pages()).step_by(1000) {
            if region.read(page) != page as u64 + 1 {
                return Err(io::Error::other(format!("page {page} did not come along")));
            }
        }
    }
    Ok(runs.into())
}

fn map_and_unmap(settings: &Settings, between: impl Fn(&mut Region)) -> io::Result<Figures> {
    let rounds = 1000;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(9) {
        let start = settings.counter.now();
        for _ in 0..rounds {
            let mut region = Region::map_only(1)?;
            between(&mut region);
        }
        runs.push((settings.counter.now() - start) as f64 / f64::from(rounds));
    }
    Ok(runs.into())
}

/// Protects the second page of VMAs of `pages_each` pages, which are taken from all over the region, each once.
fn split(settings: &Settings, pages_each: usize) -> io::Result<Figures> {
    let splits_per_run = 1000;
    let mut region = Region::alternating(SPLIT_AMONG, pages_each)?;
    let counter: Counter = settings.counter;
    let mut runs = Vec::new();
    for run in 0..settings.effort.runs(9) {
        let stride = SPLIT_AMONG / splits_per_run;
        let start = counter.now();
        for split in 0..splits_per_run {
            let page = (split * stride + run) * pages_each + 1;
            region.protect(page..page + 1, Protection::None)?;
        }
        runs.push((counter.now() - start) as f64 / splits_per_run as f64);
    }
    Ok(runs.into())
}

/// How an area is found.
#[derive(Clone, Copy)]
enum Way {
    Text,
    Query,
}

fn find_area(settings: &Settings, way: Way) -> io::Result<Figures> {
    let region = Region::alternating(MAPS_OF, 1)?;
    let mut maps = Maps::of("self")?;
    let questions = if matches!(way, Way::Text) { 3 } else { 300 };
    let mut runs = Vec::new();
    for run in 0..settings.effort.runs(5) {
        let start = settings.counter.now();
        for question in 0..questions {
            let page = (run + question * 29) % MAPS_OF;
            let address = (region.address() + page * PAGE) as u64;
            let found = match way {
                Way::Text => maps::areas(maps.read(64 << 10)?).flatten().find(|area| area.end > address),
                Way::Query => maps.query(address).map_err(no_query)?,
            };
            if found.is_none_or(|area| !(area.start..area.end).contains(&address)) {
                return Err(io::Error::other(format!("{address:#x} is in no area")));
            }
        }
        runs.push((settings.counter.now() - start) as f64 / questions as f64);
    }
    Ok(runs.into())
}

fn no_query(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOTTY) => io::Error::new(io::ErrorKind::Unsupported, "the kernel has no PROCMAP_QUERY"),
        _ => error,
    }
}

/// Reads a file of `/proc/self` that has a line with its addresses for each VMA.
fn read_areas(settings: &Settings, file: &str) -> io::Result<Figures> {
    let _region = Region::alternating(MAPS_OF, 1)?;
    let mut buffer = vec![1u8; 64 << 10];
    let mut runs = Vec::new();
    let mut bytes = 0;
    let mut lines = 0;
    for _ in 0..settings.effort.runs(5) {
        let mut maps = File::open(format!("/proc/self/{file}"))?;
        (bytes, lines) = (0, 0);
        let mut cost = 0;
        loop {
            let (one, got) = settings.counter.measure(|| maps.read(&mut buffer));
            cost += one;
            let got = got?;
            if got == 0 {
                break;
            }
            bytes += got;
            lines += buffer[..got].iter().filter(|&&byte| byte == b'\n').count();
        }
        runs.push(cost as f64);
    }
    if lines < MAPS_OF {
        return Err(io::Error::other(format!("{file} has {lines} lines, {MAPS_OF} VMAs were made")));
    }
    Ok(Figures::from(runs).with("lines", lines).with("bytes", bytes))
}
