//! System calls that have little to do with memory: what everything else is measured against.

use crate::NOTHING;
use foldspace_guest_measure::process::{self, Fork, Gate};
use foldspace_guest_measure::row::{Figures, Row, Settings};
use foldspace_guest_measure::{Region, Shared};
use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

pub fn rows() -> Vec<Row> {
    vec![
        Row::new("getppid", "getppid", "call", getppid),
        Row::new("pipe_round_trip", "a byte to another process and one back, by pipes", "round trip", pipe_round_trip),
        Row::new(
            "context_switch",
            "sched_yield to another process of the same priority: a context switch",
            "switch",
            yields,
        ),
        Row::new("mmap_file", "mmap of a page of a file in memory, read, munmap", "call", map_file),
        Row::new("read_4k", "pread of 4 KiB of a file in memory", "call", read_file),
        Row::new("fork_execve_wait", "fork + execve + exit + wait, this program with nothing to do", "call", execve),
    ]
}

fn getppid(settings: &Settings) -> io::Result<Figures> {
    let calls = 1000;
    let one_run = |_| {
        let (cost, ()) = settings.counter.measure(|| {
            for _ in 0..calls {
                process::parent_pid();
            }
        });
        cost as f64 / f64::from(calls)
    };
    Ok((0..settings.effort.runs(9)).map(one_run).collect::<Vec<_>>().into())
}

fn pipe_round_trip(settings: &Settings) -> io::Result<Figures> {
    let rounds = 1000;
    let runs = settings.effort.runs(9);
    let (to, from) = (Gate::new()?, Gate::new()?);
    match process::fork()? {
        Fork::Child => {
            for _ in 0..rounds * runs {
                to.pass();
                from.open();
            }
            process::exit(0)
        }
        Fork::Parent(child) => {
            let one_run = |_| {
                let (cost, ()) = settings.counter.measure(|| {
                    for _ in 0..rounds {
                        to.open();
                        from.pass();
                    }
                });
                cost as f64 / rounds as f64
            };
            let values: Vec<f64> = (0..runs).map(one_run).collect();
            child.wait()?;
            Ok(values.into())
        }
    }
}

/// Two processes that do nothing but yield: on one processor each call is a switch to the other.
fn yields(settings: &Settings) -> io::Result<Figures> {
    let calls = 1000;
    let shared = Shared::new()?;
    match process::fork()? {
        Fork::Child => {
            while shared.get(0) == 0 {
                process::give_way();
            }
            process::exit(0)
        }
        Fork::Parent(child) => {
            let one_run = |_| {
                let (cost, ()) = settings.counter.measure(|| (0..calls).for_each(|_| process::give_way()));
                // There and back again.
                cost as f64 / f64::from(2 * calls)
            };
            let values: Vec<f64> = (0..settings.effort.runs(9)).map(one_run).collect();
            shared.set(0, 1);
            child.wait()?;
            Ok(values.into())
        }
    }
}

fn map_file(settings: &Settings) -> io::Result<Figures> {
    let rounds = 1000;
    let path = std::env::temp_dir().join(format!("bench-basic.{}", std::process::id()));
    fs::create_dir_all(std::env::temp_dir())?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.write_all_at(&[b'x'; 4096], 0)?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(9) {
        let start = settings.counter.now();
        for _ in 0..rounds {
            let region = Region::of_file(&file, 1)?;
            if region.read(0) & 0xff != u64::from(b'x') {
                return Err(io::Error::other("the file does not hold what was written"));
            }
        }
        runs.push((settings.counter.now() - start) as f64 / f64::from(rounds));
    }
    Ok(runs.into())
}

fn read_file(settings: &Settings) -> io::Result<Figures> {
    let reads = 1000;
    let path = std::env::temp_dir().join(format!("bench-basic.{}", std::process::id()));
    fs::create_dir_all(std::env::temp_dir())?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.write_all_at(&[b'x'; 4096], 0)?;
    let mut buffer = vec![1u8; 4096];
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(9) {
        let start = settings.counter.now();
        for _ in 0..reads {
            file.read_exact_at(&mut buffer, 0)?;
        }
        runs.push((settings.counter.now() - start) as f64 / f64::from(reads));
    }
    Ok(runs.into())
}

fn execve(settings: &Settings) -> io::Result<Figures> {
    let path = CString::new(std::env::current_exe()?.into_os_string().into_vec())?;
    let nothing = CString::new(NOTHING)?;
    let mut runs = Vec::new();
    for _ in 0..settings.effort.runs(30) {
        let start = settings.counter.now();
        match process::fork()? {
            Fork::Child => {
                let error = process::execute(&path, &[&path, &nothing]);
                process::exit(error.raw_os_error().unwrap_or(1))
            }
            Fork::Parent(child) => {
                child.wait()?;
                runs.push((settings.counter.now() - start) as f64);
            }
        }
    }
    Ok(runs.into())
}
