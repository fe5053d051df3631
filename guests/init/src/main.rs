//! The first process of a run, on Foldspace and on Linux alike.
//!
//! It reads the [`Job`] that the command packed into the archive, starts the program with the standard streams that
//! the job names, reaps whatever becomes an orphan, and when the program has ended: kills what it left running, waits
//! until all output has left the machine, reports the end on the control port and powers off.
//!
//! It uses as few system calls as it can: it is the first program that a new kernel must be able to run.

mod child;
mod end;
mod machine;
mod relay;
mod serial;
mod signals;

use std::convert::Infallible;

use foldspace_wire::{Job, Report, ttys};
use nix::unistd::getpid;

/// What went wrong, in words for the user of the command.
pub type Failure = String;

fn main() {
    if getpid().as_raw() != 1 {
        eprintln!("init: the first process of a Foldspace run; it does nothing when started by hand");
        std::process::exit(2);
    }
    let report = match run() {
        Ok(report) => report,
        Err(failure) => Report { failure: Some(failure), ..Report::default() },
    };
    if let Err(failure) = end::report(&report) {
        // The control port is what is missing: the kernel's log is the only place left.
        eprintln!("init: {failure}");
    }
    let Err::<Infallible, _>(failure) = end::power_off();
    panic!("the machine does not power off: {failure}");
}

fn run() -> Result<Report, Failure> {
    machine::mount_missing();
    let text = std::fs::read(Job::PATH).map_err(|e| format!("cannot read {}: {e}", Job::PATH))?;
    let job: Job = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", Job::PATH))?;
    let streams = child::Streams::open(&job)?;
    let started = machine::now_ns();
    let program = child::start(&job, &streams)?;
    signals::forward_to(program);
    let relays = streams.hand_over();
    let ended = end::wait_for(program)?;
    let elapsed_ns = machine::now_ns().saturating_sub(started);
    end::stop_the_rest(&relays);
    serial::drain(&[ttys::OUTPUT, ttys::ERROR]);
    Ok(Report { elapsed_ns: Some(elapsed_ns), ..ended })
}
