//! A run in a terminal: keys go in, the terminal inside edits and echoes, Ctrl-C reaches what runs in the foreground.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::System;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_BRACKET: &str = "\x1d";
const PATIENCE: Duration = Duration::from_secs(120);

/// The command in a terminal of its own.
struct Session {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Session {
    fn start(system: System, program: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let terminal = File::from(ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
        tcsetwinsize(&terminal, Winsize { ws_row: 33, ws_col: 101, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let which = if system == System::Linux { "--linux" } else { "--debug" };
        let child = Command::new(env!("CARGO_BIN_EXE_foldspace"))
            .args(["run", which, "--"])
            .args(program)
            .env("TERM", "dumb")
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal)
            .spawn()
            .unwrap();
        let keys = File::from(master);
        let mut screen = keys.try_clone().unwrap();
        let (show, shown) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                if show.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, screen: shown, seen: String::new() }
    }

    /// Waits until the text is on the screen, and forgets everything up to it.
    fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(e) => panic!("{text:?} did not appear ({e}); the screen has {:?}", self.seen),
            }
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn status(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Only after a failure is it still there.
        let _ = self.child.kill();
    }
}

on_both! {
    fn a_shell_can_be_used(system: System) {
        let mut session = Session::start(system, &["busybox", "sh"]);
        session.expect("# ");
        session.type_in("stty size; tty\r");
        session.expect("33 101\r\n/dev/ttyS0\r\n");
        session.expect("# ");
        session.type_in("sleep 1000; echo status $?\r");
        thread::sleep(Duration::from_secs(1));
        session.type_in(CTRL_C);
        session.expect("^C");
        session.expect("# ");
        session.type_in("cat >/tmp/f\r");
        thread::sleep(Duration::from_secs(1));
        session.type_in("mistake\x15a line\r");
        session.type_in(CTRL_D);
        session.expect("# ");
        session.type_in("cat /tmp/f; exit 5\r");
        session.expect("exit 5\r\na line\r\n");
        assert_eq!(session.status(), Some(5));
    }

    fn a_key_ends_the_run(system: System) {
        let mut session = Session::start(system, &["busybox", "sh", "-c", "echo ready; sleep 1000"]);
        session.expect("ready\r\n");
        session.type_in(CTRL_BRACKET);
        assert_eq!(session.status(), Some(130));
    }
}
