//! The program's process: its streams, and the way from fork to execve.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use foldspace_wire::{Bytes, Input, Job, Output, Report, ttys};
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, fork, pipe2, setsid};

use crate::serial::{self, Discipline};
use crate::{Failure, end, relay};

/// The status of a program that could not be executed, as in a shell.
const CANNOT_EXECUTE: i32 = 126;

/// The program's standard streams, open in this process until [`Streams::hand_over`].
///
/// Every descriptor is close-on-exec, so the program has the three that it is given and no other.
pub struct Streams {
    input: File,
    output: Sink,
    /// `None`: the same as the output.
    error: Option<Sink>,
    interactive: bool,
}

enum Sink {
    Port(File),
    Pipe { writer: OwnedFd, relay: Pid },
}

impl Streams {
    /// Opens what the job names, and starts the relays.
    pub fn open(job: &Job) -> Result<Self, Failure> {
        let interactive = job.stdin == Input::Terminal;
        let input = match job.stdin {
            Input::Empty => open_file("/dev/null")?,
            Input::File => open_file(Job::STDIN_PATH)?,
            Input::Terminal => serial::open(ttys::OUTPUT, Discipline::Interactive)?,
        };
        let discipline = if interactive { Discipline::Interactive } else { Discipline::Raw };
        let output = Sink::open(job.stdout, ttys::OUTPUT, discipline)?;
        let error = match job.stderr {
            Output::SameAsOutput => None,
            kind => Some(Sink::open(kind, ttys::ERROR, Discipline::Raw)?),
        };
        if let (Sink::Port(port), Some(window)) = (&output, job.window) {
            serial::set_window(port, window);
        }
        Ok(Self { input, output, error, interactive })
    }

    /// Closes this process's ends, so that a relay sees the end of its pipe when the program and its children are
    /// gone. Returns the relays.
    pub fn hand_over(self) -> Vec<Pid> {
        [Some(self.output), self.error]
            .into_iter()
            .flatten()
            .filter_map(|sink| match sink {
                Sink::Pipe { relay, .. } => Some(relay),
                Sink::Port(_) => None,
            })
            .collect()
    }

    fn install(&self) -> nix::Result<()> {
        dup2_stdin(&self.input)?;
        dup2_stdout(self.output.as_fd())?;
        dup2_stderr(self.error.as_ref().unwrap_or(&self.output).as_fd())
    }
}

impl Sink {
    fn open(kind: Output, port: &str, discipline: Discipline) -> Result<Self, Failure> {
        let port = serial::open(port, discipline)?;
        if kind == Output::Terminal {
            return Ok(Self::Port(port));
        }
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(|e| format!("cannot make a pipe: {e}"))?;
        let relay = relay::start(&reader, &port, &writer)?;
        Ok(Self::Pipe { writer, relay })
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Port(port) => port.as_fd(),
            Self::Pipe { writer, .. } => writer.as_fd(),
        }
    }
}

fn open_file(path: &str) -> Result<File, Failure> {
    OpenOptions::new().read(true).open(path).map_err(|e| format!("cannot open {path}: {e}"))
}

/// Forks the program's process. Everything that can be prepared is prepared before the fork.
pub fn start(job: &Job, streams: &Streams) -> Result<Pid, Failure> {
    let exec = c_string(&job.exec)?;
    let cwd = c_string(&job.cwd)?;
    let argv = job.argv.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let env = job.env.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    match unsafe { fork() }.map_err(|e| format!("cannot fork: {e}"))? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            tell_at_end(job);
            let error = match enter(streams, &cwd) {
                Ok(()) => execve(&exec, &argv, &env).expect_err("returns only when it failed"),
                Err(error) => error,
            };
            let failure = format!("cannot execute {}: {}", exec.to_string_lossy(), error.desc());
            let _ = end::report(&Report { failure: Some(failure), ..Report::default() });
            std::process::exit(CANNOT_EXECUTE);
        }
    }
}

/// When this process ends, whatever it executes, the kernel says what the job asks for. Only Foldspace does.
fn tell_at_end(job: &Job) {
    const PR_FOLDSPACE_TELL_AT_END: libc::c_int = 0x464f_4c46;
    const FRAMES: u64 = 1;
    const SNAPSHOT: u64 = 2;
    let what = if job.list_frames { FRAMES } else { 0 } | if job.snapshot { SNAPSHOT } else { 0 };
    if what != 0 {
        // SAFETY: the call takes no pointer.
        unsafe { libc::prctl(PR_FOLDSPACE_TELL_AT_END, what) };
    }
}

/// In the child: the usual signals, a session of its own, the streams, the working directory.
fn enter(streams: &Streams, cwd: &CString) -> nix::Result<()> {
    // Rust's start-up code ignores SIGPIPE, which execve would hand down: `yes | head` is to end as it does elsewhere.
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl)? };
    setsid()?;
    streams.install()?;
    if streams.interactive {
        nix::ioctl_none_bad!(tiocsctty, libc::TIOCSCTTY);
        // SAFETY: the ioctl takes no pointer. Without a controlling terminal the program runs all the same, only
        // Ctrl-C does not reach it.
        let _ = unsafe { tiocsctty(libc::STDIN_FILENO) };
    }
    chdir(cwd.as_c_str())
}

fn c_string(bytes: &Bytes) -> Result<CString, Failure> {
    CString::new(bytes.0.clone()).map_err(|_| format!("{bytes:?} contains a zero byte"))
}
