//! What the end of a run means for the user.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;

use foldspace_wire::Report;

use crate::machine::{Cause, Ended, status};
use crate::refusal::{CANNOT_EXECUTE, OUR_FAULT, TIMED_OUT};

/// What a reader that has gone makes of a writer: 128 and SIGPIPE.
const BROKEN_PIPE: u8 = 128 + 13;
/// 128 and SIGINT, for the key that ends an interactive run.
const INTERRUPTED: u8 = 128 + 2;

/// The exit status of the command and, where it is not simply the program's own, why.
pub struct Verdict {
    pub status: u8,
    pub reason: Option<String>,
    /// Whether the end of the kernel's log belongs to the reason.
    needs_log: bool,
}

impl Verdict {
    pub fn of(ended: &Ended) -> Self {
        let plain = |status| Self { status, reason: None, needs_log: false };
        let because = |status, reason| Self { status, reason: Some(reason), needs_log: false };
        let with_log = |status, reason: String| Self { status, reason: Some(reason), needs_log: true };
        let qemu = match ended.cause {
            Cause::Off(status) => status,
            Cause::Signal(signal) => return plain(128 + signal.to_le_bytes()[0]),
            Cause::EscapeKey => return plain(INTERRUPTED),
            Cause::OutputClosed => return plain(BROKEN_PIPE),
            Cause::Limit => {
                let seconds = ended.wall.as_secs_f64();
                return with_log(TIMED_OUT, format!("stopped after {seconds:.1} s (--timeout)"));
            }
            Cause::VirtualizationFailed => {
                let said = match first_line(&ended.complaints) {
                    "" => "the kernel does not even start",
                    said => said,
                };
                let reason = format!(
                    "the virtualization of this machine does not work ({said}): use --accel tcg instead of kvm"
                );
                return because(OUR_FAULT, reason);
            }
        };
        if qemu.code() == Some(status::PANIC) {
            return with_log(OUR_FAULT, "the kernel panicked; its log is above".into());
        }
        match (&ended.report.failure, ended.report.status()) {
            (Some(failure), Some(_)) => because(CANNOT_EXECUTE, failure.clone()),
            (Some(failure), None) => with_log(OUR_FAULT, failure.clone()),
            (None, Some(status)) => plain(status),
            (None, None) => with_log(OUR_FAULT, no_report(ended, qemu)),
        }
    }

    /// Says on the error output what the program's own output does not.
    pub fn explain(&self, ended: &Ended, program: &OsStr, log_shown: bool) {
        for call in unknown_calls(&ended.report) {
            eprintln!("foldspace: {call}");
        }
        if self.needs_log && !log_shown {
            eprint!("{}", ended.log);
        }
        if let Some(reason) = &self.reason {
            eprintln!("foldspace: {}: {reason}", program.display());
        }
    }
}

/// Why a machine ended without a word about the program.
fn no_report(ended: &Ended, qemu: std::process::ExitStatus) -> String {
    let said = first_line(&ended.complaints);
    if let Some(signal) = qemu.signal() {
        return format!("QEMU was killed by signal {signal}");
    }
    if ended.log.trim().is_empty() {
        let said = if said.is_empty() { "it gave no reason" } else { said };
        return format!("QEMU could not run the machine: {said}");
    }
    if ended.log.contains("Kernel panic") {
        return "the kernel panicked; its log is above".into();
    }
    "the machine stopped before the program had ended; the kernel's log is above".into()
}

fn first_line(text: &str) -> &str {
    // Features of newer processors that QEMU cannot emulate are no reason for anything.
    let mut lines = text.lines().filter(|line| !line.contains("warning:"));
    let line = lines.next().unwrap_or_default();
    line.strip_prefix("qemu-system-x86_64: ").unwrap_or(line)
}

/// One sentence for each system call that the kernel does not have.
fn unknown_calls(report: &Report) -> impl Iterator<Item = String> {
    report.unknown_syscalls.iter().map(|call| {
        let name = if call.name.is_empty() { "no name" } else { &call.name };
        format!("{} made system call {} ({name}), which Foldspace does not have", call.program, call.nr)
    })
}
