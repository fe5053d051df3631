#![doc = include_str!("../README.md")]

#[cfg(feature = "hosted")]
pub mod campaign;
pub mod generate;
pub mod host;
mod log;
mod look;
mod op;
mod program;
pub mod window;

#[cfg(feature = "hosted")]
pub mod compare;
#[cfg(feature = "hosted")]
pub mod hosted;
#[cfg(feature = "hosted")]
mod shrink;

pub use host::{Crash, Helper, HelperError};
pub use log::{read_step, write_step};
pub use look::{Area, Look, Step};
pub use op::{Call, KINDS, NAMES, NOBODY, OUTSIDE, Op, Outcome, PASSED_OVER, SAMPLES, mix};
pub use program::{c_call, c_program};
#[cfg(feature = "hosted")]
pub use shrink::shrink;
