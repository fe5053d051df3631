//! A signal sent to the first process is meant for the program.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::Pid;

static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// From now on passes the signals that ask a program to end, or to reload, on to `program`.
pub fn forward_to(program: Pid) {
    PROGRAM.store(program.as_raw(), Ordering::Relaxed);
    let action = SigAction::new(SigHandler::Handler(forward), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        // SAFETY: the handler does nothing but one atomic load and one system call that is async-signal-safe.
        let _ = unsafe { sigaction(signal, &action) };
    }
}

extern "C" fn forward(signal: libc::c_int) {
    let program = PROGRAM.load(Ordering::Relaxed);
    // SAFETY: kill(2) takes no pointers.
    unsafe { libc::kill(program, signal) };
}
