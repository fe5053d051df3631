//! From the command to init: what to run, and what its three standard streams are.

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// The serial ports as the guest names them.
pub mod ttys {
    /// The program's output, and its input when interactive (COM1).
    pub const OUTPUT: &str = "/dev/ttyS0";
    /// The program's error output (COM2).
    pub const ERROR: &str = "/dev/ttyS1";
    /// Reports, one JSON line each (COM3).
    pub const CONTROL: &str = "/dev/ttyS2";
    /// The kernel's log (COM4).
    pub const LOG: &str = "/dev/ttyS3";
}

/// One program to run: the content of [`Job::PATH`] in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The file to execute, an absolute path in the archive.
    pub exec: Bytes,
    /// The arguments, the program's name first.
    pub argv: Vec<Bytes>,
    /// The whole environment, `NAME=value` each.
    pub env: Vec<Bytes>,
    /// The working directory.
    pub cwd: Bytes,
    /// Where the program's input comes from.
    pub stdin: Input,
    /// Where its output goes.
    pub stdout: Output,
    /// Where its error output goes.
    pub stderr: Output,
    /// Whether the kernel is to say who maps which frame when the program ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub list_frames: bool,
    /// Whether snapshots of all address spaces are kept: at the program's end, and whenever a label is written to `/proc/snapshot`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snapshot: bool,
    /// The size of the host's terminal, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
}

impl Job {
    /// Where the archive holds the job.
    pub const PATH: &str = "/.foldspace/run.json";
    /// Where the archive holds the program's input, if it has any.
    pub const STDIN_PATH: &str = "/.foldspace/stdin";
}

/// The program's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// At its end at once: `/dev/null`.
    Empty,
    /// The file [`Job::STDIN_PATH`].
    File,
    /// The first serial port, as a controlling terminal.
    Terminal,
}

/// One of the program's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A pipe, which a relay copies to the stream's serial port: `isatty` is false, as it is on the host.
    Pipe,
    /// The stream's serial port itself: `isatty` is true, as it is on the host.
    Terminal,
    /// Only for the error output: the same open file as the output, because the host's two are one file as well. Keeps
    /// the order of what the program writes.
    SameAsOutput,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}
