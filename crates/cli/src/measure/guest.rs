//! Running a measuring program and reading what it prints.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;

use crate::args::{Accel, Fork, Machine};
use crate::machine::{Streams, System};
use crate::run::{Task, environment};
use crate::verdict::Verdict;

/// What the machine's clock counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Instructions: repeatable, on one processor.
    Instructions,
    /// Time as it passes outside, on so many processors.
    Wall { cpus: u8 },
}

/// A measurement on one system.
pub struct Measurement<'a> {
    pub system: System,
    /// What the progress bar says.
    pub label: &'a str,
    pub vmlinuz: Option<&'a Path>,
    /// Memory of the machine, in bytes.
    pub memory: u64,
    pub time: Time,
    pub accel: Accel,
    /// What QEMU loads besides, as its option `-plugin` has it.
    pub plugin: Option<String>,
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// How many lines are expected, for the progress bar.
    pub lines: u64,
}

impl Measurement<'_> {
    /// Runs the program to its end and returns its lines. A program that ends with 1 has printed what failed in its
    /// lines; any other failure is an error here.
    pub fn take<Line: DeserializeOwned>(&self) -> Result<Vec<Line>> {
        let shape = Machine {
            memory: self.memory,
            cpus: Some(match self.time {
                Time::Instructions => 1,
                Time::Wall { cpus } => cpus,
            }),
            fork: Fork::Full,
            icount: self.time == Time::Instructions,
            accel: self.accel,
            debug: false,
            kernel: None,
            append: None,
            plugin: self.plugin.clone(),
            lacks: &[],
        };
        let task = Task {
            system: self.system,
            vmlinuz: self.vmlinuz,
            shape: &shape,
            root: None,
            command: self.command,
            env: environment(&[])?,
            list_frames: false,
            snapshot: false,
            streams: &Streams::CAPTURED,
            limit: None,
            show_log: false,
        };
        let progress = progress(self.label, self.lines);
        let text = Arc::new(Mutex::new(Vec::new()));
        let output = Collect { text: Arc::clone(&text), progress: progress.clone() };
        let ended = task.run(Box::new(output), Box::new(io::stderr()))?;
        progress.finish_and_clear();
        let verdict = Verdict::of(&ended);
        verdict.explain(&ended, &self.command[0], false);
        if verdict.reason.is_some() || verdict.status > 1 {
            bail!("{} did not get to its end on {}", self.command[0].display(), self.system.name());
        }
        let text = text.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line))
            .collect::<Result<_, _>>()
            .with_context(|| format!("{} printed something unexpected", self.command[0].display()))
    }
}

/// Keeps what is written and counts its lines.
struct Collect {
    text: Arc<Mutex<Vec<u8>>>,
    progress: ProgressBar,
}

impl Write for Collect {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.progress.inc(bytes.iter().filter(|byte| **byte == b'\n').count() as u64);
        self.text.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn progress(label: &str, lines: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix:10} {bar:30} {pos}/{len} {elapsed}").expect("a sound template");
    let bar = ProgressBar::new(lines).with_style(style).with_prefix(label.to_owned());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
