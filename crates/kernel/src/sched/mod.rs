//! Threads and who runs.
//!
//! Each processor has a queue of threads that are ready, runs the first for a time slice, and idles on its boot stack when there is none.
//! A thread gives the processor up in the kernel only where it says so (by waiting, [`yield_now`], [`exit_current`]); in user mode the
//! timer ends its slice. A thread's own state:
//!
//! ```text
//!            spawn                  picked                 wait
//!  (prepared) ───► READY ◄─────────────────► RUNNING ─────────────► WAITING ──┐
//!                    ▲    yield, end of slice   │                             │
//!                    │                          └─ exit ─► DEAD               │
//!                    └───────────────── wake ────────────────────────────────┘
//! ```
//!
//! **Locks**, outermost first: a wait queue, the timers, a run queue. None is held while a thread is switched.

mod idle;
mod list;
mod place;
mod processor;
mod queue;
mod run;
mod thread;
pub mod timer;
mod wait;

pub use idle::{TickIn, idle, timer_tick};
pub use processor::CpuState;
pub use queue::{ROUND_ROBIN_NS, Rank};
pub use run::{
    affinity, current, current_pid, exit_current, kicked, leave_space, notify, set_affinity, set_rank, set_space,
    spawn, try_with_current, wake, with_current, with_space, work_before_user, yield_now,
};
pub use thread::Thread;
pub use wait::{Interrupted, WaitQueue, sleep_until};

/// How long a thread runs while others are ready, in nanoseconds.
pub const SLICE_NS: u64 = 10_000_000;
