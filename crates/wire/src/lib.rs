//! What the command, the guest's init and the kernel say to each other during a run.
//!
//! ```text
//!   foldspace (host)                     the guest
//!   ────────────────                     ─────────
//!   archive: /init, PROGRAM, /.foldspace/run.json ──► init reads a [`Job`]
//!   COM1  ◄── PROGRAM's output (and ──► its input when interactive)
//!   COM2  ◄── PROGRAM's error output
//!   COM3  ◄── one [`Report`] a line, from init and from the Foldspace kernel
//!   COM4  ◄── the kernel's log
//! ```
//!
//! Both kernels boot the same archive. Linux never writes to COM3; the Foldspace kernel adds its own line there when
//! it powers off.

mod bytes;
mod job;
mod moment;
mod report;

pub use bytes::Bytes;
pub use job::{Input, Job, Output, Window, ttys};
pub use moment::{Moment, MomentProcess, MomentSlots, MomentTable};
pub use report::{Frames, MappedFrames, Report, UnknownCall};
