//! The JSON document about a run.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};
use foldspace_wire::{Bytes, Frames, MappedFrames, UnknownCall};
use serde::Serialize;

use crate::machine::{Ended, System};
use crate::verdict::Verdict;

/// Everything about one run that a script may want to know. Fields are added, never renamed.
#[derive(Serialize)]
pub struct Document<'a> {
    /// `foldspace` or `linux`.
    system: &'static str,
    command: Vec<Bytes>,
    /// The exit status of the command itself.
    status: u8,
    /// The program's exit status, if it exited.
    exit: Option<u8>,
    /// The signal that ended the program, if one did.
    signal: Option<u8>,
    /// Why the status is not the program's own.
    reason: Option<&'a str>,
    /// From the start of QEMU to its end.
    wall_seconds: f64,
    /// From the program's start to its end by the guest's clock; with `--icount`, instructions.
    program_ns: Option<u64>,
    /// Page frames of 4 KiB (Foldspace only).
    frames: Option<Frames>,
    unknown_syscalls: &'a [UnknownCall],
    /// Who mapped which frame when the program ended (`foldspace frames` only).
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    mapped_frames: &'a [MappedFrames],
}

impl<'a> Document<'a> {
    pub fn new(system: System, command: &[OsString], ended: &'a Ended, verdict: &'a Verdict) -> Self {
        let report = &ended.report;
        Self {
            system: system.name(),
            command: command.iter().map(|arg| Bytes(arg.as_bytes().to_vec())).collect(),
            status: verdict.status,
            exit: report.exit,
            signal: report.signal,
            reason: verdict.reason.as_deref(),
            wall_seconds: ended.wall.as_secs_f64(),
            program_ns: report.elapsed_ns,
            frames: report.frames,
            unknown_syscalls: &report.unknown_syscalls,
            mapped_frames: &report.mapped_frames,
        }
    }
}

/// Writes the document as one line: the last one on the error output, or a file.
pub fn write(place: Option<&Path>, document: &Document<'_>) -> Result<()> {
    let mut line = serde_json::to_string(document)?;
    line.push('\n');
    match place {
        None => io::stderr().write_all(line.as_bytes()).context("cannot write the JSON document"),
        Some(path) => File::create(path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display())),
    }
}
