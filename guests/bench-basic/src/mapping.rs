//! Changes of the layout.

use crate::row::{Figures, Row, Settings};
use foldspace_guest_measure::{Counter, Protection, Region};
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
        Row::new("maps_10000", "read of /proc/self/maps, 10,000 VMAs", "call", read_maps).needs_mib(64),
    ]
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

fn read_maps(settings: &Settings) -> io::Result<Figures> {
    let _region = Region::alternating(MAPS_OF, 1)?;
    let mut buffer = vec![1u8; 64 << 10];
    let mut runs = Vec::new();
    let mut bytes = 0;
    let mut lines = 0;
    for _ in 0..settings.effort.runs(5) {
        let mut maps = File::open("/proc/self/maps")?;
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
        return Err(io::Error::other(format!("maps has {lines} lines, {MAPS_OF} VMAs were made")));
    }
    Ok(Figures::from(runs).with("lines", lines).with("bytes", bytes))
}
