//! The four serial ports. Each is a socket to QEMU, which takes and gives bytes as they are, and which holds QEMU back
//! when this side is slow, so nothing is lost however much a program writes.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ChildStderr;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use anyhow::Result;
use foldspace_wire::Report;

use super::{Cause, Event, Machine, System, qemu, terminal};

/// Where bytes go: the command's own output, or memory when the command reads what a measuring program prints.
pub type Sink = Box<dyn Write + Send>;

/// How much of the kernel's log is kept for the case that the run fails: its end tells why.
const LOG_KEPT: usize = 256 * 1024;

const CHUNK: usize = 64 * 1024;

/// This process's ends.
pub struct Ports {
    output: UnixStream,
    error: UnixStream,
    control: UnixStream,
    log: UnixStream,
}

/// QEMU's ends, in the order of the ports; inherited by the next process that is started.
pub struct GuestEnds([UnixStream; 4]);

impl GuestEnds {
    pub fn iter(&self) -> impl Iterator<Item = &UnixStream> {
        self.0.iter()
    }
}

impl Ports {
    pub fn open() -> io::Result<(Self, GuestEnds)> {
        let pair = || -> io::Result<(UnixStream, UnixStream)> {
            let (ours, theirs) = UnixStream::pair()?;
            rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
            Ok((ours, theirs))
        };
        let ((output, a), (error, b), (control, c), (log, d)) = (pair()?, pair()?, pair()?, pair()?);
        Ok((Self { output, error, control, log }, GuestEnds([a, b, c, d])))
    }

    /// Starts a thread for each port.
    pub fn connect(self, machine: &Machine, output: Sink, error: Sink, events: Sender<Event>) -> Result<Connected> {
        if machine.interactive {
            terminal::feed_keys(self.output.try_clone()?, events.clone());
        }
        let shown = match (machine.show_log, machine.system) {
            (true, _) => Shown::All,
            (false, System::Foldspace) => Shown::Warnings,
            (false, System::Linux) => Shown::Nothing,
        };
        let (out, err) = (self.output, self.error);
        let (closed, alive) = (events.clone(), events.clone());
        Ok(Connected {
            copies: [
                thread::spawn(move || copy(out, output, &events)),
                thread::spawn(move || copy(err, error, &closed)),
            ],
            control: thread::spawn(move || collect_reports(self.control)),
            log: thread::spawn(move || collect_log(self.log, shown, &alive)),
        })
    }
}

/// The ports at work.
pub struct Connected {
    copies: [JoinHandle<()>; 2],
    control: JoinHandle<Report>,
    log: JoinHandle<String>,
}

impl Connected {
    /// Waits until every port is at its end, which it is when QEMU has gone. Returns the reports and the log.
    pub fn finish(self) -> (Report, String) {
        for copy in self.copies {
            let _ = copy.join();
        }
        (self.control.join().unwrap_or_default(), self.log.join().unwrap_or_default())
    }
}

fn copy(mut from: UnixStream, mut to: Sink, events: &Sender<Event>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        if to.write_all(&chunk[..n]).and_then(|()| to.flush()).is_err() {
            let _ = events.send(Event::Stop(Cause::OutputClosed));
            return;
        }
    }
}

fn collect_reports(from: UnixStream) -> Report {
    let mut report = Report::default();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        // Anything can write to the port; what is no report is none of ours.
        if let Ok(part) = serde_json::from_slice(&line) {
            report.merge(part);
        }
    }
    report
}

/// What of the kernel's log the user sees while it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    All,
    /// What concerns the program, such as an access to memory that is not its own.
    Warnings,
    Nothing,
}

/// The message of a warning or an error in the log of Foldspace's kernel: `[seconds] LEVEL message`.
fn warning(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let message = rest.strip_prefix("WARN ").or_else(|| rest.strip_prefix("ERROR "))?;
    Some(message.trim())
}

fn collect_log(from: UnixStream, shown: Shown, events: &Sender<Event>) -> String {
    let mut kept: VecDeque<u8> = VecDeque::new();
    for mut line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        if kept.is_empty() {
            let _ = events.send(Event::Alive);
        }
        line.retain(|byte| *byte != b'\r');
        line.push(b'\n');
        match shown {
            Shown::All => {
                let _ = io::stderr().write_all(&line);
            }
            Shown::Warnings => {
                let text = String::from_utf8_lossy(&line);
                if let Some(warning) = warning(&text) {
                    eprintln!("foldspace: {warning}");
                }
            }
            Shown::Nothing => {}
        }
        kept.extend(&line);
        let surplus = kept.len().saturating_sub(LOG_KEPT);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(kept.make_contiguous()).into_owned()
}

/// Keeps what QEMU itself has to say, and notices when it says that the host's virtualization does not work.
pub fn collect_complaints(from: ChildStderr, events: Sender<Event>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut all = String::new();
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if qemu::says_virtualization_failed(&line) {
                let _ = events.send(Event::Stop(Cause::VirtualizationFailed));
            }
            all.push_str(&line);
            all.push('\n');
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::warning;

    #[test]
    fn only_warnings_and_errors_concern_the_user() {
        assert_eq!(
            warning("[    0.237654] WARN  segv[4]: wild write at 0x1234\n"),
            Some("segv[4]: wild write at 0x1234")
        );
        assert_eq!(warning("[   10.000001] ERROR out of memory\n"), Some("out of memory"));
        assert_eq!(warning("[    0.036330] DEBUG initrd: WARN 290 entries\n"), None);
        assert_eq!(warning("WARN no time"), None);
    }
}
