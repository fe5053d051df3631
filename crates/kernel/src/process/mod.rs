//! Processes: threads and their groups, the tree that relates them, how they begin (fork, exec), end (exit, wait) and are told
//! things (signals).
//!
//! A [`Task`] is a thread: what the scheduler runs. A [`Process`] is a thread group: what has a parent, a process group, a session and
//! an exit status. What fork may share (files, directories, signal handlers, the address space) hangs off the task behind `Arc`s.
//!
//! **Lock order**: [`tree`] (relations, states that `wait` reports) → a process's or a task's own locks (signals, timers, credentials)
//! → the locks of wait queues. None of them is held across a wait, or while user memory is touched.

pub mod access;
pub mod credentials;
pub mod exec;
pub mod exit;
pub mod fault;
pub mod fork;
pub mod futex;
pub mod keys;
pub mod limits;
pub mod namespaces;
pub mod net;
pub mod oom;
pub mod pid_namespace;
pub mod policy;
pub mod ptrace;
pub mod restore_point;
pub mod rseq;
pub mod seccomp;
pub mod signal;
pub mod slot;
mod task;
pub mod time_namespace;
pub mod timer;
pub mod tree;
pub mod usage;
pub mod user_namespace;
pub mod wait;

pub use fault::{handle_exception, handle_page_fault};
pub use signal::deliver::deliver_signals;
pub use signal::send::send_signal;
pub use task::{COMM_LEN, EXEC_GAIN_NOT_INHERITED, EXEC_GAIN_REFUSED, Pid, Process, Task, empty_space};
pub use tree::{all, find};

mod start;
pub use start::start_init;
