//! How a run ends.

use std::convert::Infallible;
use std::io::Write;

use foldspace_wire::{Report, ttys};
use nix::errno::Errno;
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{Pid, getpid};

use crate::Failure;
use crate::serial::{self, Discipline};

/// Reaps children until `program` has ended, and says how it did. Orphans become children of this process, so they
/// are reaped here too.
pub fn wait_for(program: Pid) -> Result<Report, Failure> {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, status)) if pid == program => {
                return Ok(Report { exit: Some(status.to_le_bytes()[0]), ..Report::default() });
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == program => {
                return Ok(Report { signal: Some(signal as u8), ..Report::default() });
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(format!("cannot wait for the program: {e}")),
        }
    }
}

/// Kills whatever the program left running, then waits until the relays have copied the last byte.
pub fn stop_the_rest(relays: &[Pid]) {
    let mut running: Vec<Pid> = relays.to_vec();
    kill_others(relays);
    while !running.is_empty() {
        match wait() {
            Ok(status) => {
                running.retain(|relay| status.pid() != Some(*relay));
                // A process that forked while the others were being killed left a child: look again.
                if status.pid().is_some_and(|pid| !relays.contains(&pid)) {
                    kill_others(relays);
                }
            }
            Err(Errno::EINTR) => {}
            Err(_) => break,
        }
    }
}

fn kill_others(spared: &[Pid]) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
    for process in processes {
        if process != getpid() && !spared.contains(&process) {
            // A thread of the Linux kernel takes no notice.
            let _ = kill(process, Signal::SIGKILL);
        }
    }
}

/// Writes one line on the control port and waits until it has left.
pub fn report(report: &Report) -> Result<(), Failure> {
    let mut line = serde_json::to_string(report).map_err(|e| e.to_string())?;
    line.push('\n');
    let mut port = serial::open(ttys::CONTROL, Discipline::Raw)?;
    port.write_all(line.as_bytes()).map_err(|e| format!("cannot write to {}: {e}", ttys::CONTROL))?;
    serial::drain(&[ttys::CONTROL]);
    Ok(())
}

/// Turns the machine off. Nothing is on a disk, so there is nothing to write back.
pub fn power_off() -> nix::Result<Infallible> {
    reboot(RebootMode::RB_POWER_OFF)
}
