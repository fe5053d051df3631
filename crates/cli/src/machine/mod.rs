//! One virtual machine from its start to its end.
//!
//! ```text
//!   main thread ── waits for the first of: QEMU ended, a signal, the time limit, output that nobody reads
//!   one thread for each serial port, one for QEMU's own messages, one for the keyboard when interactive
//! ```

mod backtrace;
mod lifeline;
mod names;
mod ports;
mod qemu;
mod terminal;

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use foldspace_wire::Report;
use shared_child::SharedChild;

use crate::args::{self, Accel};

pub use names::Names;
pub use ports::Sink;
pub use qemu::{LINUX_PARAMETERS, check_accelerator, status};
pub use terminal::{Streams, window};

/// What to boot and what to do with what comes out of it.
pub struct Machine {
    pub shape: args::Machine,
    pub system: System,
    /// The Linux or Foldspace kernel.
    pub kernel: PathBuf,
    pub archive: PathBuf,
    /// Connects the host's terminal to the first port.
    pub interactive: bool,
    /// Shows the kernel's log as it is written.
    pub show_log: bool,
    pub limit: Option<Duration>,
}

/// Which kernel is booted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    Foldspace,
    Linux,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Foldspace => "foldspace",
            Self::Linux => "linux",
        }
    }
}

/// A run that is over.
pub struct Ended {
    pub cause: Cause,
    /// What init and the kernel reported.
    pub report: Report,
    /// The end of the kernel's log.
    pub log: String,
    /// What QEMU said on its own behalf.
    pub complaints: String,
    /// From the start of QEMU to its end.
    pub wall: Duration,
}

/// Why the machine stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// By itself.
    Off(ExitStatus),
    /// This process got a signal.
    Signal(i32),
    /// The time limit.
    Limit,
    /// Nobody reads the program's output any more.
    OutputClosed,
    /// The keys that end an interactive run.
    EscapeKey,
    /// The virtualization of the host gave up.
    VirtualizationFailed,
}

/// What the threads tell the main thread.
enum Event {
    /// The kernel has written the first line of its log.
    Alive,
    Stop(Cause),
}

/// How long a machine on the host's virtualization may take to its first word. It needs a fraction of that; where
/// virtualization is only pretended it may well say nothing for ever.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// Runs the machine. `output` and `error` get what the program writes, each byte as soon as it comes.
pub fn run(machine: &Machine, output: Sink, error: Sink) -> Result<Ended> {
    let (ports, guest_ends) = ports::Ports::open().context("cannot make the machine's serial ports")?;
    let mut command = qemu::command(machine, &guest_ends);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    lifeline::attach(&mut command);

    let started = Instant::now();
    let child = SharedChild::spawn(&mut command).map_err(qemu::not_started)?;
    // QEMU has its ends now; while a copy stayed open here, the ports would never end.
    drop(guest_ends);
    let child = Arc::new(child);
    let (events, happened) = channel();

    let _raw = if machine.interactive { Some(terminal::RawMode::enter()?) } else { None };
    watch_signals(events.clone())?;
    let complaints = child.take_stderr().map(|pipe| ports::collect_complaints(pipe, events.clone()));
    let ports = ports.connect(machine, output, error, events.clone())?;
    wait_in_background(&child, events);

    let alive_by = (machine.shape.accel == Accel::Kvm).then(|| started + FIRST_WORD);
    let cause = match first_cause(&happened, machine.limit.map(|limit| started + limit), alive_by) {
        Cause::Off(status) => Cause::Off(status),
        stopped => {
            child.kill().context("cannot stop QEMU")?;
            child.wait().context("cannot wait for QEMU")?;
            stopped
        }
    };
    let wall = started.elapsed();
    let (report, mut log) = ports.finish();
    if matches!(cause, Cause::Off(qemu) if qemu.code() == Some(status::PANIC)) {
        log = backtrace::with_names(&log, &machine.kernel);
    }
    let complaints = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
    // Output that broke off at the very end is only noticed after QEMU has gone.
    let broke_off = happened.try_iter().any(|event| matches!(event, Event::Stop(Cause::OutputClosed)));
    let cause = if broke_off { Cause::OutputClosed } else { cause };
    Ok(Ended { cause, report, log, complaints, wall })
}

fn first_cause(happened: &Receiver<Event>, deadline: Option<Instant>, mut alive_by: Option<Instant>) -> Cause {
    loop {
        let event = match deadline.into_iter().chain(alive_by).min() {
            None => happened.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => happened.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match event {
            Ok(Event::Alive) => alive_by = None,
            Ok(Event::Stop(cause)) => return cause,
            Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                return Cause::Limit;
            }
            Err(RecvTimeoutError::Timeout) => return Cause::VirtualizationFailed,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread that watches for signals never ends"),
        }
    }
}

fn wait_in_background(child: &Arc<SharedChild>, events: Sender<Event>) {
    let child = Arc::clone(child);
    thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = events.send(Event::Stop(Cause::Off(status)));
        }
    });
}

fn watch_signals(events: Sender<Event>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Stop(Cause::Signal(signal))).is_err() {
                break;
            }
        }
    });
    Ok(())
}
