//! Pseudo-terminals (pty(7)): a terminal, the *slave*, whose other end is a program, which has the *master* open.
//!
//! ```text
//!   master                                        slave (a Tty)
//!   write ──► Line::receive (editing, signals) ─► read
//!                  └─ echo ─┐
//!   read  ◄── Pair::output ◄┴── Line::output ◄─── write
//! ```
//!
//! A pair is there from the time that its master is opened (`/dev/ptmx`) until neither side is open any more; then its number is free for another. Behaviour follows
//! Linux's `drivers/tty/pty.c` and `n_tty.c`. Locks: the line, then the output.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use linux_raw_sys::{general as raw, ioctl};

use super::line::Line;
use super::termios::Termios;
use super::{Tty, TtyBody, Wire, devpts};
use crate::errno::Errno;
use crate::fs::fdtable::AtExec;
use crate::fs::file::{Body, File, OpenFlags, Ready};
use crate::fs::io::{PageBuffer, Sink, Supply, done_or_fault};
use crate::fs::poll;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::signal::send::{send_signal_to_group, to_process};
use crate::process::signal::{SigInfo, Signal};
use crate::process::tree;
use crate::sched::WaitQueue;
use crate::sync::Mutex;
use crate::syscall::SysResult;

/// Major number of slaves.
pub const MAJOR: u32 = 136;

/// Bytes of output that wait for the master.
const OUTPUT: usize = 12_288;
/// Room that there is to be for `poll` to say that the slave can write: more than a byte becomes on its way out.
const ROOM_FOR_ONE: usize = 8;

/// The two ends of a pseudo-terminal, in its [`Tty`].
pub(super) struct Pair {
    pub(super) index: u32,
    state: Mutex<State>,
    /// What the slave has written and echoed.
    output: Mutex<VecDeque<u8>>,
    /// Who waits at the slave: for input, or for room in the output.
    pub(super) slaves: WaitQueue,
    /// Who waits at the master.
    masters: WaitQueue,
}

struct State {
    /// Whether somebody has the master open.
    master: bool,
    /// How many have the slave open.
    slaves: usize,
    /// The slave was open, and is not any more.
    left: bool,
    /// The slave may not be opened yet (`unlockpt`).
    locked: bool,
}

impl State {
    const NEW: State = State { master: true, slaves: 0, left: false, locked: true };
}

/// All that there ever were at a time, by number: their records are used again.
static PAIRS: Mutex<Vec<&'static Tty>> = Mutex::new(Vec::new());

/// The first pseudo-terminal that is `wanted`.
pub(super) fn find(wanted: impl Fn(&'static Tty) -> bool) -> Option<&'static Tty> {
    PAIRS.lock().iter().copied().find(|&tty| wanted(tty))
}

impl Tty {
    fn pair(&self) -> Option<&Pair> {
        match &self.wire {
            Wire::Pair(pair) => Some(pair),
            Wire::Serial(_) => None,
        }
    }
}

/// Opens `/dev/ptmx`: a new pair, whose slave belongs to the caller.
///
/// # Errors
/// `ENOMEM`.
pub fn open_master(owner: (u32, u32)) -> Result<Box<dyn Body>, Errno> {
    let tty = new_pair()?;
    if let Err(error) = devpts::enter(index(tty), owner) {
        if let Some(pair) = tty.pair() {
            pair.state.lock().master = false;
        }
        return Err(error);
    }
    Ok(Box::new(Master(tty)))
}

fn index(tty: &Tty) -> u32 {
    tty.pair().map_or(0, |pair| pair.index)
}

fn new_pair() -> Result<&'static Tty, Errno> {
    let mut pairs = PAIRS.lock();
    for &tty in pairs.iter() {
        let Some(pair) = tty.pair() else { continue };
        // Nobody has it open, nor can anybody open it.
        let free = {
            let state = pair.state.lock();
            !state.master && state.slaves == 0
        };
        if free {
            tty.release();
            *tty.line.lock() = Line::new(Termios::of_pair());
            pair.output.lock().clear();
            *pair.state.lock() = State::NEW;
            return Ok(tty);
        }
    }
    pairs.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let pair = Pair {
        index: pairs.len() as u32,
        state: Mutex::new(State::NEW),
        output: Mutex::new(VecDeque::new()),
        slaves: WaitQueue::new(),
        masters: WaitQueue::new(),
    };
    let tty: &'static Tty = Box::leak(Box::new(Tty::on(Wire::Pair(pair), Termios::of_pair())));
    pairs.push(tty);
    Ok(tty)
}

/// Opens the slave of that number.
///
/// # Errors
/// `EIO`: there is none, or it is still locked.
pub fn open_slave(index: u32) -> Result<Box<dyn Body>, Errno> {
    let tty = slave(index).ok_or(Errno::EIO)?;
    let pair = tty.pair().ok_or(Errno::EIO)?;
    {
        let state = pair.state.lock();
        if !state.master || state.locked {
            return Err(Errno::EIO);
        }
    }
    Ok(Box::new(TtyBody::new(tty)))
}

/// The slave of that number, if there ever was one.
pub fn slave(index: u32) -> Option<&'static Tty> {
    PAIRS.lock().get(index as usize).copied()
}

impl Pair {
    pub(super) fn is_hung_up(&self) -> bool {
        !self.state.lock().master
    }

    pub(super) fn slave_opened(&self) {
        let mut state = self.state.lock();
        state.slaves += 1;
        state.left = false;
    }

    pub(super) fn slave_closed(&self) {
        {
            let mut state = self.state.lock();
            state.slaves -= 1;
            state.left = state.slaves == 0;
        }
        self.tell_master();
    }

    /// Lets those look again who wait at the master.
    pub(super) fn tell_master(&self) {
        self.masters.wake_all();
        poll::notify();
    }

    /// Whether the slave may write.
    pub(super) fn has_room(&self) -> bool {
        self.output.lock().len() + ROOM_FOR_ONE <= OUTPUT
    }

    pub(super) fn discard_output(&self) {
        self.output.lock().clear();
        self.slaves.wake_all();
        poll::notify();
    }

    /// Passes what the slave writes to the master, as its settings say; waits for room. Returns how many bytes.
    pub(super) fn send(&self, line: &Mutex<Line>, bytes: &[u8], non_blocking: bool) -> SysResult {
        let mut done = 0;
        while done < bytes.len() {
            let attempt = || {
                if self.is_hung_up() {
                    return Some(Err(Errno::EIO));
                }
                let line = line.lock();
                let mut output = self.output.lock();
                // A newline may become two bytes.
                let each = if line.output_is_raw() { 1 } else { 2 };
                let now = (OUTPUT.saturating_sub(output.len()) / each).min(bytes.len() - done);
                for &byte in &bytes[done..done + now] {
                    line.output(byte, &mut |byte| output.push_back(byte));
                }
                (now > 0).then_some(Ok(now))
            };
            let sent = match attempt() {
                Some(sent) => sent,
                None if non_blocking => Err(Errno::EAGAIN),
                None => self.slaves.wait_until(attempt).unwrap_or(Err(Errno::ERESTARTSYS)),
            };
            match sent {
                Ok(now) => done += now,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            self.tell_master();
        }
        Ok(done)
    }
}

/// An open master.
struct Master(&'static Tty);

impl Master {
    fn pair(&self) -> Result<&'static Pair, Errno> {
        self.0.pair().ok_or(Errno::EIO)
    }

    /// Gives the slave a byte as input.
    fn receive(&self, pair: &Pair, byte: u8) {
        let signal = {
            let mut line = self.0.line.lock();
            let effect = line.receive(byte);
            let mut output = pair.output.lock();
            if output.len() + effect.echo.len() <= OUTPUT {
                output.extend(&effect.echo);
            }
            effect.signal
        };
        if let Some(signal) = signal.filter(|_| self.0.foreground() != 0) {
            send_signal_to_group(self.0.foreground(), signal);
        }
    }

    fn open_peer(&self, task: &Task, flags: u32) -> SysResult {
        let body = open_slave(index(self.0))?;
        let dentry = devpts::find(index(self.0)).ok_or(Errno::EIO)?;
        let file = File::new(dentry, OpenFlags::from_user(flags) | OpenFlags::LARGE_FILE, body);
        let limit = task.process.limits.lock().soft(raw::RLIMIT_NOFILE) as usize;
        let at_exec = AtExec::from_flag(flags, raw::O_CLOEXEC);
        Ok(task.files.lock().insert_from(0, limit, file, at_exec)? as usize)
    }
}

impl Body for Master {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        let pair = self.pair()?;
        let mut done = 0;
        while out.room() > 0 {
            let mut bytes = [0; 256];
            let mut attempt = || {
                let mut output = pair.output.lock();
                let len = bytes.len().min(out.room()).min(output.len());
                if len == 0 {
                    return pair.state.lock().left.then_some(Err(Errno::EIO));
                }
                output.drain(..len).zip(&mut bytes).for_each(|(byte, slot)| *slot = byte);
                Some(Ok(len))
            };
            let got = match attempt() {
                Some(got) => got,
                None if done > 0 => break,
                None if file.non_blocking() => Err(Errno::EAGAIN),
                None => pair.masters.wait_until(attempt).unwrap_or(Err(Errno::ERESTARTSYS)),
            };
            let len = match got {
                Ok(len) => len,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            // There is room again.
            pair.slaves.wake_all();
            poll::notify();
            let put = out.put(&bytes[..len]);
            done += put;
            if put < len {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        let pair = self.pair()?;
        let mut buffer = PageBuffer::new()?;
        let bytes = buffer.bytes();
        let mut done = 0;
        while from.remaining() > 0 {
            let want = from.remaining().min(bytes.len());
            let took = from.take(&mut bytes[..want]);
            for &byte in &bytes[..took] {
                let room = || self.0.line.lock().takes_more().then_some(());
                if room().is_none() {
                    self.0.announce();
                    let waited = match file.non_blocking() {
                        true => Err(Errno::EAGAIN),
                        false => pair.masters.wait_until(room).map_err(|_| Errno::ERESTARTSYS),
                    };
                    if let Err(error) = waited {
                        return if done > 0 { Ok(done) } else { Err(error) };
                    }
                }
                self.receive(pair, byte);
                done += 1;
            }
            self.0.announce();
            pair.tell_master();
            if took < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }

    fn ready(&self, _file: &File) -> Ready {
        let Some(pair) = self.0.pair() else { return Ready::ERROR };
        let mut ready = Ready::empty();
        ready.set(Ready::WRITABLE, self.0.line.lock().takes_more());
        ready.set(Ready::READABLE, !pair.output.lock().is_empty());
        ready.set(Ready::HANG_UP, pair.state.lock().left);
        ready
    }

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        let pair = self.pair()?;
        match request {
            ioctl::TIOCGPTN => uaccess::write(argument, &pair.index)?,
            ioctl::TIOCSPTLCK => {
                let locked: i32 = uaccess::read(argument)?;
                pair.state.lock().locked = locked != 0;
            }
            ioctl::TIOCGPTLCK => {
                let locked = i32::from(pair.state.lock().locked);
                uaccess::write(argument, &locked)?;
            }
            ioctl::TIOCGPTPEER => return self.open_peer(task, argument as u32),
            ioctl::TIOCSIG => {
                let signal = Signal::new(u64::from(argument as u32)).ok_or(Errno::EINVAL)?;
                if self.0.foreground() != 0 {
                    send_signal_to_group(self.0.foreground(), signal);
                }
            }
            ioctl::FIONREAD => {
                let waiting = pair.output.lock().len() as i32;
                uaccess::write(argument, &waiting)?;
            }
            // Who looks from this side need not be in the session (`tiocgpgrp`).
            ioctl::TIOCGPGRP => uaccess::write(argument, &task.number_of(self.0.foreground()))?,
            ioctl::TIOCGSID if self.0.session() == 0 => return Err(Errno::ENOTTY),
            ioctl::TIOCGSID => uaccess::write(argument, &task.number_of(self.0.session()))?,
            ioctl::TCFLSH => {
                let input_too = matches!(argument as u32, raw::TCIFLUSH | raw::TCIOFLUSH);
                // What comes in here is what goes out there.
                if input_too {
                    pair.discard_output();
                }
                if matches!(argument as u32, raw::TCOFLUSH | raw::TCIOFLUSH) {
                    self.0.line.lock().discard();
                } else if !input_too {
                    return Err(Errno::EINVAL);
                }
            }
            _ => return self.0.control(task, request, argument),
        }
        Ok(0)
    }
}

/// The slave is hung up (`tty_vhangup`): the leader of its session is told, the foreground when that one ends.
impl Drop for Master {
    fn drop(&mut self) {
        devpts::remove(index(self.0));
        if let Some(pair) = self.0.pair() {
            pair.state.lock().master = false;
        }
        if let Some(leader) = tree::process_of_thread(self.0.session()) {
            for signal in [Signal::HUP, Signal::CONT] {
                // A standard signal always finds room.
                let _ = to_process(&leader, SigInfo::kernel(signal));
            }
        }
        self.0.announce();
    }
}
