//! One process per output stream that is a pipe on the host: it copies the pipe to the stream's serial port.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use nix::unistd::{ForkResult, Pid, fork};

use crate::Failure;

/// Large enough that the copying costs little beside the port itself.
const CHUNK: usize = 16 * 1024;

/// Starts a relay from the pipe to the port. It ends when the last writer has closed the pipe.
///
/// `unwanted` is the pipe's other end: were it left open in the relay, the relay would wait for itself. (The second
/// relay does hold the first one's open, and so ends before it; neither waits for the other to begin.)
pub fn start(pipe: &OwnedFd, port: &File, unwanted: &OwnedFd) -> Result<Pid, Failure> {
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    match unsafe { fork() }.map_err(|e| format!("cannot fork: {e}"))? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let copied = nix::unistd::close(std::os::fd::AsRawFd::as_raw_fd(unwanted))
                .map_err(std::io::Error::from)
                .and_then(|()| copy(pipe, port));
            std::process::exit(i32::from(copied.is_err()));
        }
    }
}

fn copy(pipe: &OwnedFd, mut port: &File) -> std::io::Result<()> {
    let mut pipe = File::from(pipe.try_clone()?);
    let mut chunk = [0; CHUNK];
    loop {
        match pipe.read(&mut chunk)? {
            0 => return Ok(()),
            n => port.write_all(&chunk[..n])?,
        }
    }
}
