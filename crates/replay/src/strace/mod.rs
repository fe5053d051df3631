//! Logs of `strace -f`, line by line.
//!
//! Any text is read without a crash: what is no line of such a log is [`Damage`], said with its number and passed over.

mod args;
mod line;
mod log;

pub use args::{flags_of, number};
pub use line::{Call, Damage, Line, Outcome, parse};
pub use log::{Event, Log};
