//! Ties QEMU's life to ours. The only `unsafe` code of the command.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Makes the child die when this process does, however that happens, and keeps the terminal's Ctrl-C from it: this
/// process gets that, and stops the machine in order.
pub fn attach(command: &mut Command) {
    let parent = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing, so it is
    // async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above.
            if getppid() == Some(parent) { Ok(()) } else { Err(rustix::io::Errno::SRCH.into()) }
        });
    }
}
