//! Why a run did not happen, and the exit status that says so.
//!
//! The statuses are those of a shell and of other commands that run commands (env, timeout, docker), so scripts can
//! tell them from the program's own.

use std::fmt;

/// Something on this side failed: no QEMU, no kernel image, the kernel panicked.
pub const OUR_FAULT: u8 = 125;
/// The run took longer than `--timeout`.
pub const TIMED_OUT: u8 = 124;
/// The program is there but cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// There is no such program.
const NOT_FOUND: u8 = 127;

/// One sentence for the user, with its exit status.
#[derive(Debug)]
pub struct Refusal {
    status: u8,
    sentence: String,
}

impl Refusal {
    /// The program cannot be executed.
    pub fn cannot_execute(sentence: String) -> anyhow::Error {
        Self { status: CANNOT_EXECUTE, sentence }.into()
    }

    /// There is no such program.
    pub fn not_found(sentence: String) -> anyhow::Error {
        Self { status: NOT_FOUND, sentence }.into()
    }

    /// The exit status of the command.
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Refusal {}
