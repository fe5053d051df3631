//! The serial ports as byte-exact channels.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use foldspace_wire::Window;
use nix::libc;
use nix::sys::termios::{self, ControlFlags, LocalFlags, OutputFlags, SetArg, SpecialCharacterIndices};

use crate::Failure;

/// What a port does with the bytes that pass through it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Nothing, in either direction.
    Raw,
    /// Input is edited, echoed and turned into signals, as a terminal user expects; output passes as it is, because
    /// the host's terminal does the rest.
    Interactive,
}

/// Opens a port for reading and writing and sets it up; never as the caller's controlling terminal.
pub fn open(path: &str, discipline: Discipline) -> Result<File, Failure> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)
        .map_err(|e| format!("cannot open {path}: {e}"))?;
    set_up(&port, discipline).map_err(|e| format!("cannot set up {path}: {e}"))?;
    Ok(port)
}

fn set_up(port: &File, discipline: Discipline) -> nix::Result<()> {
    let mut settings = termios::tcgetattr(port)?;
    match discipline {
        Discipline::Raw => termios::cfmakeraw(&mut settings),
        Discipline::Interactive => {
            settings.local_flags |= LocalFlags::ISIG | LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ECHOE;
            settings.output_flags.remove(OutputFlags::OPOST);
            settings.control_chars[SpecialCharacterIndices::VERASE as usize] = 0x7f;
        }
    }
    // No modem is there to hang up.
    settings.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
    termios::tcsetattr(port, SetArg::TCSANOW, &settings)
}

/// Tells the port how large the user's terminal is.
pub fn set_window(port: &File, window: Window) {
    nix::ioctl_write_ptr_bad!(tiocswinsz, libc::TIOCSWINSZ, libc::winsize);
    let size = libc::winsize { ws_row: window.rows, ws_col: window.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open and TIOCSWINSZ reads one `winsize`, which `size` is.
    let _ = unsafe { tiocswinsz(std::os::fd::AsRawFd::as_raw_fd(port), &raw const size) };
}

/// Waits until everything written to the ports has left them.
pub fn drain(ports: &[&str]) {
    for port in ports {
        if let Ok(port) = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(port) {
            let _ = termios::tcdrain(&port);
        }
    }
}
