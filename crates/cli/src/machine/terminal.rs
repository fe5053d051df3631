//! The host's side of the program's standard streams.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::{Context, Result};
use foldspace_wire::{Input, Output, Window};
use rustix::fs::{FileType, fstat};
use rustix::termios::{OptionalActions, OutputModes, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::{Cause, Event};

/// Ctrl-], as in telnet: the only key that does not reach the program.
const ESCAPE_KEY: u8 = 0x1d;

/// What the command's own standard streams are, and so what the program's shall be.
pub struct Streams {
    pub stdin: Input,
    pub stdout: Output,
    pub stderr: Output,
}

impl Streams {
    /// For a program whose output this command reads itself.
    pub const CAPTURED: Self = Self { stdin: Input::Empty, stdout: Output::Pipe, stderr: Output::Pipe };

    /// Looks at the streams of this process.
    pub fn of_this_process() -> Result<Self> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let output = |terminal| if terminal { Output::Terminal } else { Output::Pipe };
        let same = same_file(&stdout, &stderr)?;
        Ok(Self {
            stdin: match () {
                // Keys are passed on only where their echo can be seen.
                () if stdin.is_terminal() && stdout.is_terminal() => Input::Terminal,
                () if stdin.is_terminal() || is_null(&stdin) => Input::Empty,
                () => Input::File,
            },
            stdout: output(stdout.is_terminal()),
            stderr: if same { Output::SameAsOutput } else { output(stderr.is_terminal()) },
        })
    }

    pub fn interactive(&self) -> bool {
        self.stdin == Input::Terminal
    }
}

fn same_file(a: &impl AsFd, b: &impl AsFd) -> Result<bool> {
    let (a, b) = (fstat(a).context("standard output is closed")?, fstat(b).context("standard error is closed")?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Whether this is `/dev/null` (major 1, minor 3), under whatever name.
fn is_null(file: &impl AsFd) -> bool {
    fstat(file).is_ok_and(|about| {
        FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
            && about.st_rdev == rustix::fs::makedev(1, 3)
    })
}

/// The size of the terminal that the output goes to.
pub fn window() -> Option<Window> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    Some(Window { rows: size.ws_row, columns: size.ws_col })
}

/// The host's terminal without line editing, echo and signals while the guest's does all that; restored when dropped.
pub struct RawMode(Termios);

impl RawMode {
    pub fn enter() -> Result<Self> {
        let before = tcgetattr(io::stdin()).context("cannot read the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        // The guest's terminal passes output as it is, so lines still have to be ended for this one.
        raw.output_modes |= before.output_modes & (OutputModes::OPOST | OutputModes::ONLCR);
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw).context("cannot change the terminal's settings")?;
        Ok(Self(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Passes what is typed to the first port until the escape key.
pub fn feed_keys(mut to: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        let mut keys = [0; 1024];
        while let Ok(n @ 1..) = io::stdin().read(&mut keys) {
            let typed = keys[..n].split(|key| *key == ESCAPE_KEY).next().unwrap_or_default();
            if to.write_all(typed).is_err() {
                break;
            }
            if typed.len() < n {
                let _ = events.send(Event::Stop(Cause::EscapeKey));
                break;
            }
        }
    });
}
