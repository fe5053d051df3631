//! The file of `run --snapshot`: what the processes of a run had and shared, at moments. `explore` shows it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use foldspace_wire::{Bytes, Moment, Report};
use serde::{Deserialize, Serialize};

/// Grows by one with each change that a reader of an older file would have to know.
const SCHEMA: u32 = 1;

/// The file's content, one JSON document.
#[derive(Serialize, Deserialize)]
pub struct Snapshot {
    foldspace_snapshot: u32,
    /// What was run.
    pub command: Vec<Bytes>,
    /// In the order in which they were.
    pub moments: Vec<Moment>,
}

/// Writes what the kernel reported.
pub fn write(file: &Path, command: &[OsString], report: &Report) -> Result<()> {
    let mut moments = report.moments.clone();
    moments.sort_by_key(|moment| moment.number);
    moments.iter_mut().for_each(|moment| moment.processes.sort_by_key(|process| process.pid));
    if moments.is_empty() {
        eprintln!("foldspace: no moment of the run was kept: the program has not come to its end");
    }
    let command = command.iter().map(|arg| Bytes(arg.as_bytes().to_vec())).collect();
    let mut text = serde_json::to_string(&Snapshot { foldspace_snapshot: SCHEMA, command, moments })?;
    text.push('\n');
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

impl Snapshot {
    /// Whether a file begins like one; a log of strace begins with a process's number.
    pub fn begins_like(text: &[u8]) -> bool {
        text.trim_ascii_start().starts_with(b"{")
    }

    /// Reads what [`write`] wrote.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let snapshot: Self = serde_json::from_slice(text).context("this is no file of `run --snapshot`")?;
        if snapshot.foldspace_snapshot != SCHEMA {
            bail!("the snapshot has schema {}, this program reads {SCHEMA}", snapshot.foldspace_snapshot);
        }
        if snapshot.moments.is_empty() {
            bail!("the snapshot has no moment");
        }
        Ok(snapshot)
    }
}
