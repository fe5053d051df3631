//! Tracing (ptrace(2)): one thread, the *tracer*, watches another, the *tracee*, stops it, and reads and changes its registers and memory.
//!
//! ```text
//!   tracee (stops.rs)                                   tracer (control.rs, syscall/ptrace.rs)
//!   ───────────────────────────────────────────────     ───────────────────────────────────────────────
//!   comes to a place where it is to stop:
//!     copies its registers into Task::trace
//!     tells the tracer (SIGCHLD, wait)
//!     waits on Process::resume                          waits for it; reads and writes the copy
//!                                                       resumes: takes the stop away, says how to go on
//!     takes the copy back if it was changed
//!     goes on as told
//! ```
//!
//! The tracer never touches the tracee's stack: the copy, under the lock of [`Trace`], is all that both see. That a tracee rests is that its
//! [`Trace::stop`] is there; only the tracee puts it there, and whoever takes it away lets it go.
//!
//! Who traces whom is kept by the tree of processes (`tracees` of a process), and changes under its lock and that of the tracee's [`Trace`].
//! Behaviour follows Linux's `kernel/ptrace.c` and `kernel/signal.c`.

pub mod control;
pub mod registers;
pub mod stops;

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::exit::ExitStatus;
use super::signal::SigInfo;
use super::{Pid, Process};
use registers::Registers;

/// Bit of [`super::Task::tracing`]: it has a tracer.
pub const TRACED: u32 = 1;
/// Bit of [`super::Task::tracing`]: its system calls are of interest. Looked at in every call.
pub const CALLS: u32 = 2;
/// Bit of [`super::Task::tracing`]: it is to stop as soon as it can (`PTRACE_INTERRUPT`, and for seized threads the end of a group's stop).
pub const TRAP: u32 = 4;

/// Bit of [`super::Task::tracing`]: which system calls it may make is asked each time ([`super::seccomp`]). Not a matter of tracing, but looked at together.
pub const FILTERED: u32 = 8;

/// `PTRACE_O_*` and `PTRACE_EVENT_*` (`linux/ptrace.h`).
pub mod option {
    /// Stops at system calls can be told from others.
    pub const TRACESYSGOOD: u32 = 1;
    /// The tracee is killed when the tracer ends.
    pub const EXITKILL: u32 = 1 << 20;
    /// Every one that there is; those above `EXITKILL` have nothing to act on here.
    pub const ALL: u32 = 0xff | EXITKILL | 1 << 21;
}

/// What a tracee can stop for; the option that asks for it is `1 << event`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum TraceEvent {
    /// fork, or a clone that ends with `SIGCHLD`.
    Fork = 1,
    /// vfork.
    Vfork = 2,
    /// Any other clone.
    Clone = 3,
    /// exec.
    Exec = 4,
    /// The child of a vfork has let go of the memory.
    VforkDone = 5,
    /// It is about to end.
    Exit = 6,
    /// A filter of its system calls says so.
    Seccomp = 7,
    /// It was interrupted, or its group stops (seized threads only).
    Stop = 128,
}

/// How a tracee came to be one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Manner {
    /// `PTRACE_ATTACH` or `PTRACE_TRACEME`.
    #[default]
    Attached,
    /// `PTRACE_SEIZE`.
    Seized,
}

/// Who traces.
#[derive(Clone)]
pub struct Tracer {
    /// The thread, which alone may make requests.
    pub thread: Pid,
    /// Its process: every thread of it may wait for the tracee.
    pub process: Arc<Process>,
}

/// How a tracee goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pace {
    /// Until something happens.
    #[default]
    Run,
    /// Until the next begin or end of a system call.
    Call,
    /// For one instruction.
    Step,
    /// Until the next system call, which is not done.
    Emulate,
    /// For one instruction; a system call is not done.
    EmulateStep,
}

impl Pace {
    /// Whether it is for one instruction.
    pub fn steps(self) -> bool {
        matches!(self, Pace::Step | Pace::EmulateStep)
    }
}

/// Where a tracee has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A signal is about to be delivered.
    Signal,
    /// Its group has stopped.
    Group,
    /// A system call begins.
    CallBegins,
    /// A filter says that the tracer is to look at a system call.
    CallFiltered,
    /// A system call is over.
    CallEnds,
    /// Something else that the tracer asked for.
    Event,
    /// It is about to end.
    Exit,
}

/// A tracee at rest.
pub struct TraceStop {
    /// What `wait` reports: a signal's number, and an event in the second byte.
    pub code: u32,
    /// Whether a `wait` has.
    pub told: bool,
    /// `PTRACE_GETSIGINFO`; a thread that was attached has none while its group is stopped.
    pub info: Option<SigInfo>,
    /// Where.
    pub place: Place,
    /// What it will go on with.
    pub registers: Box<Registers>,
    /// Whether the tracer has changed them.
    pub changed: bool,
    /// `PTRACE_LISTEN`: it rests, but for its group and not for the tracer.
    pub listening: bool,
}

/// How a tracer let it go on.
pub(super) struct Resumed {
    pub(super) signal: u8,
    pub(super) info: Option<SigInfo>,
    pub(super) registers: Box<Registers>,
    pub(super) changed: bool,
}

/// A thread's part in being traced.
#[derive(Default)]
pub struct Trace {
    /// By whom; `None`: not traced.
    pub tracer: Option<Tracer>,
    /// `PTRACE_O_*`.
    pub options: u32,
    /// Since when it is.
    pub manner: Manner,
    /// It rests.
    pub stop: Option<TraceStop>,
    /// `PTRACE_GETEVENTMSG`.
    pub message: u64,
    /// How it goes on, or went on last.
    pub pace: Pace,
    /// The trap flag is the tracer's and not the program's own.
    pub(super) trap_flag: bool,
    pub(super) resumed: Option<Resumed>,
    /// It has ended and waits for its tracer to know: of threads that are not their process's first, whom nobody else waits for.
    pub ended: Option<ExitStatus>,
}

impl Trace {
    /// Whether its tracer wants to be told of an event.
    pub fn wants(&self, event: TraceEvent) -> bool {
        self.tracer.is_some() && (event as u32) < 32 && self.options & 1 << event as u32 != 0
    }
}
