//! Terminals: the serial ports and pseudo-terminals ([`pty`]) with a line discipline, and job control.

pub mod devpts;
pub mod line;
pub mod pty;
pub mod termios;

use core::sync::atomic::{AtomicU32, Ordering};

use crate::sync::Mutex;
use linux_raw_sys::{general as raw, ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use self::line::Line;
use self::pty::Pair;
use self::termios::{Termio, Termios, Termios2};
use super::file::{Body, File, Ready};
use super::inode::DeviceNumber;
use super::io::{PageBuffer, Sink, Supply, done_or_fault};
use super::poll;
use crate::arch::{Serial, serial};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::signal::Signal;
use crate::process::signal::send::send_signal_to_group;
use crate::process::tree::is_orphaned_group;
use crate::sched::WaitQueue;
use crate::syscall::SysResult;

/// Size of a terminal's window (`struct winsize`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Window {
    rows: u16,
    columns: u16,
    width: u16,
    height: u16,
}

/// What is at the other end of a terminal.
enum Wire {
    /// A serial port.
    Serial(usize),
    /// A program: the master of a pseudo-terminal.
    Pair(Pair),
}

/// A terminal.
pub struct Tty {
    wire: Wire,
    line: Mutex<Line>,
    window: Mutex<Window>,
    /// The session that it controls; 0 for none.
    session: AtomicU32,
    /// The process group that may read; 0 for any.
    foreground: AtomicU32,
    /// Its speed where that has no code (`BOTHER`), baud.
    other_speed: AtomicU32,
}

static TTYS: [Tty; 4] = [Tty::new(0), Tty::new(1), Tty::new(2), Tty::new(3)];

/// The terminal on port `number`, 0 to 3.
pub fn tty(number: usize) -> Option<&'static Tty> {
    TTYS.get(number)
}

/// The terminal that controls a session.
pub fn controlling(session: u32) -> Option<&'static Tty> {
    first(|tty| tty.session() == session && session != 0 && !tty.is_hung_up())
}

fn first(wanted: impl Fn(&'static Tty) -> bool) -> Option<&'static Tty> {
    TTYS.iter().find(|tty| wanted(tty)).or_else(|| pty::find(wanted))
}

/// Why a session is to have no terminal any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    /// Its leader has ended.
    End,
    /// Its leader lets it go.
    Release,
}

/// The terminal of the session that `leader` leads controls it no more: who is in the foreground, or was when it was hung up, is told (`disassociate_ctty` of Linux's
/// `drivers/tty/tty_jobctrl.c`).
pub fn leader_leaves(leader: u32, why: Leaving) {
    let Some(tty) = first(|tty| tty.session() == leader) else { return };
    let foreground = tty.foreground();
    let goes_on = why == Leaving::Release || tty.is_hung_up();
    tty.release();
    if foreground != 0 {
        send_signal_to_group(foreground, Signal::HUP);
        if goes_on {
            send_signal_to_group(foreground, Signal::CONT);
        }
    }
}

/// Whether a terminal on a serial port controls a session.
pub fn any_controlling() -> bool {
    TTYS.iter().any(|tty| tty.session() != 0)
}

/// Takes what has come in at serial ports whose terminals control a session, so that Ctrl-C works while nobody reads. Called at every timer tick.
pub fn poll_controlling() {
    for tty in TTYS.iter().filter(|tty| tty.session() != 0) {
        tty.pump();
    }
}

impl Tty {
    const fn new(port: usize) -> Tty {
        Tty::on(Wire::Serial(port), Termios::new())
    }

    const fn on(wire: Wire, termios: Termios) -> Tty {
        Tty {
            wire,
            line: Mutex::new(Line::new(termios)),
            window: Mutex::new(Window { rows: 0, columns: 0, width: 0, height: 0 }),
            session: AtomicU32::new(0),
            foreground: AtomicU32::new(0),
            other_speed: AtomicU32::new(0),
        }
    }

    /// Device number: major 4, minor 64 on; major 136.
    pub fn number(&self) -> DeviceNumber {
        match &self.wire {
            Wire::Serial(port) => DeviceNumber::new(4, 64 + *port as u32),
            Wire::Pair(pair) => DeviceNumber::new(pty::MAJOR, pair.index),
        }
    }

    /// Who waits for input.
    fn readers(&self) -> &WaitQueue {
        match &self.wire {
            Wire::Serial(port) => &serial(*port).readers,
            Wire::Pair(pair) => &pair.slaves,
        }
    }

    /// Lets those look again who wait for input or its settings.
    fn announce(&self) {
        self.readers().wake_all();
        if matches!(self.wire, Wire::Pair(_)) {
            poll::notify();
        }
    }

    /// The session that it controls; 0 for none.
    pub fn session(&self) -> u32 {
        self.session.load(Ordering::Relaxed)
    }

    /// The foreground process group; 0 for none.
    pub fn foreground(&self) -> u32 {
        self.foreground.load(Ordering::Relaxed)
    }

    /// Makes it the controlling terminal of a session leader that has none.
    pub fn adopt(&self, task: &Task) {
        let (sid, pgid) = (task.process.sid(), task.process.pgid());
        if sid == task.tgid && self.session() == 0 && controlling(sid).is_none() {
            self.session.store(sid, Ordering::Relaxed);
            self.foreground.store(pgid, Ordering::Relaxed);
        }
    }

    /// Lets a session go.
    fn release(&self) {
        self.session.store(0, Ordering::Relaxed);
        self.foreground.store(0, Ordering::Relaxed);
    }

    /// Moves what the device has into the line discipline.
    fn pump(&self) {
        let Wire::Serial(port) = self.wire else { return };
        let device = serial(port);
        let mut received = false;
        loop {
            // From before the byte is taken until it is echoed: several processors may be at this, and bytes keep their order.
            let mut line = self.line.lock();
            let Some(byte) = device.try_read() else { break };
            let effect = line.receive(byte);
            if !effect.echo.is_empty() {
                device.write(&effect.echo);
            }
            drop(line);
            if let Some(signal) = effect.signal.filter(|_| self.foreground() != 0) {
                send_signal_to_group(self.foreground(), signal);
            }
            received = true;
        }
        // Whoever waits asks the device whether there is input: it has none any more.
        if received && self.line.lock().readable() {
            device.readers.wake_all();
        }
    }

    /// Stops a background process that reads (`job_control` of `n_tty.c`) or, with TOSTOP, writes.
    fn check_foreground(&self, task: &Task, signal: Signal) -> Result<(), Errno> {
        let (sid, pgid) = (task.process.sid(), task.process.pgid());
        if self.session() != sid || self.foreground() == 0 || self.foreground() == pgid {
            return Ok(());
        }
        let blocked = task.signals.lock().blocked.contains(signal);
        if blocked || task.process.handlers.lock().get(signal).is_ignore() {
            return if signal == Signal::TTIN { Err(Errno::EIO) } else { Ok(()) };
        }
        if is_orphaned_group(pgid) {
            return Err(Errno::EIO);
        }
        send_signal_to_group(pgid, signal);
        Err(Errno::ERESTARTSYS)
    }

    fn read(&self, file: &File, out: &mut dyn Sink) -> SysResult {
        if self.is_hung_up() {
            return Ok(0);
        }
        crate::sched::with_current(|task| self.check_foreground(task, Signal::TTIN))?;
        if out.room() == 0 {
            return Ok(0);
        }
        let mut bytes = [0; 256];
        let mut attempt = || {
            self.pump();
            let mut line = self.line.lock();
            if self.is_hung_up() || !line.readable() && self.returns_empty(&line) {
                return Some(0);
            }
            let taken = line.take(bytes.len().min(out.room()))?;
            Some(taken.zip(&mut bytes).map(|(byte, slot)| *slot = byte).count())
        };
        let len = match attempt() {
            Some(len) => len,
            None if file.non_blocking() => return Err(Errno::EAGAIN),
            None => self.readers().wait_until(attempt)?,
        };
        if let Wire::Pair(pair) = &self.wire {
            pair.tell_master();
        }
        let put = out.put(&bytes[..len]);
        if put < len { done_or_fault(put) } else { Ok(put) }
    }

    /// Whether the settings say that a read does not wait (VMIN and VTIME 0).
    fn returns_empty(&self, line: &Line) -> bool {
        let termios = &line.termios;
        !termios.has_local(raw::ICANON)
            && termios.characters[raw::VMIN as usize] == 0
            && termios.characters[raw::VTIME as usize] == 0
    }

    fn write(&self, file: &File, from: &mut dyn Supply) -> SysResult {
        if self.is_hung_up() {
            return Err(Errno::EIO);
        }
        let tostop = self.line.lock().termios.has_local(raw::TOSTOP);
        if tostop {
            crate::sched::with_current(|task| self.check_foreground(task, Signal::TTOU))?;
        }
        let mut buffer = PageBuffer::new()?;
        let bytes = buffer.bytes();
        let mut done = 0;
        while from.remaining() > 0 {
            let want = from.remaining().min(bytes.len());
            let took = from.take(&mut bytes[..want]);
            match &self.wire {
                Wire::Serial(port) => self.send(serial(*port), &bytes[..took]),
                Wire::Pair(pair) => {
                    let sent = pair.send(&self.line, &bytes[..took], file.non_blocking());
                    match sent {
                        Ok(sent) if sent == took => {}
                        Ok(sent) => return Ok(done + sent),
                        Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
                    }
                }
            }
            done += took;
            if took < want {
                return done_or_fault(done);
            }
        }
        Ok(done)
    }

    fn send(&self, device: &Serial, bytes: &[u8]) {
        let line = self.line.lock();
        if line.output_is_raw() {
            drop(line);
            return device.write(bytes);
        }
        let mut cooked = alloc::vec::Vec::with_capacity(2 * bytes.len());
        for &byte in bytes {
            line.output(byte, &mut |byte| cooked.push(byte));
        }
        drop(line);
        device.write(&cooked);
    }

    fn set_foreground(&self, task: &Task, argument: u64) -> Result<(), Errno> {
        let group: i32 = uaccess::read(argument)?;
        if self.session() == 0 || self.session() != task.process.sid() {
            return Err(Errno::ENOTTY);
        }
        self.check_foreground(task, Signal::TTOU)?;
        let group = u32::try_from(group).map_err(|_| Errno::EINVAL)?;
        let group = task.pid_of(group).ok_or(Errno::ESRCH)?;
        let members = crate::process::tree::group(group);
        let Some(member) = members.first() else { return Err(Errno::ESRCH) };
        if member.sid() != task.process.sid() {
            return Err(Errno::EPERM);
        }
        self.foreground.store(group, Ordering::Relaxed);
        Ok(())
    }

    fn set(&self, termios: Termios, flushes: bool) {
        let mut line = self.line.lock();
        if flushes {
            line.discard();
        }
        line.set_termios(termios);
        drop(line);
        self.announce();
    }

    fn control(&self, task: &Task, request: u32, argument: u64) -> SysResult {
        match request {
            ioctl::TCGETS => {
                let termios = self.line.lock().termios;
                uaccess::write(argument, &termios)?;
            }
            ioctl::TCGETS2 => {
                let termios = self.line.lock().termios;
                uaccess::write(argument, &Termios2::of(termios, self.other_speed.load(Ordering::Relaxed)))?;
            }
            ioctl::TCGETA => {
                let termios = self.line.lock().termios;
                uaccess::write(argument, &Termio::of(&termios))?;
            }
            ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
                self.set(uaccess::read(argument)?, request == ioctl::TCSETSF);
            }
            ioctl::TCSETS2 | ioctl::TCSETSW2 | ioctl::TCSETSF2 => {
                let new: Termios2 = uaccess::read(argument)?;
                self.other_speed.store(new.speeds[1], Ordering::Relaxed);
                self.set(new.termios, request == ioctl::TCSETSF2);
            }
            ioctl::TCSETA | ioctl::TCSETAW | ioctl::TCSETAF => {
                let new: Termio = uaccess::read(argument)?;
                let before = self.line.lock().termios;
                self.set(new.into(before), request == ioctl::TCSETAF);
            }
            // What was written has gone on to the other side, or out of the port.
            ioctl::TIOCOUTQ => uaccess::write(argument, &0)?,
            // None is locked.
            ioctl::TIOCGLCKTRMIOS => uaccess::write(argument, &Termios::LOCKS_NOTHING)?,
            ioctl::TIOCGWINSZ => uaccess::write(argument, &*self.window.lock())?,
            ioctl::TIOCSWINSZ => {
                let window: Window = uaccess::read(argument)?;
                let changed = core::mem::replace(&mut *self.window.lock(), window).as_bytes() != window.as_bytes();
                if changed && self.foreground() != 0 {
                    send_signal_to_group(self.foreground(), Signal::WINCH);
                }
            }
            ioctl::TIOCGPGRP => {
                if self.session() == 0 || self.session() != task.process.sid() {
                    return Err(Errno::ENOTTY);
                }
                uaccess::write(argument, &task.number_of(self.foreground()))?;
            }
            ioctl::TIOCSPGRP => self.set_foreground(task, argument)?,
            ioctl::TIOCGSID => {
                if self.session() == 0 || self.session() != task.process.sid() {
                    return Err(Errno::ENOTTY);
                }
                uaccess::write(argument, &task.number_of(self.session()))?;
            }
            ioctl::TIOCSCTTY => {
                let sid = task.process.sid();
                if self.session() == sid && task.tgid == sid {
                    return Ok(0);
                }
                if task.tgid != sid || controlling(sid).is_some() || (self.session() != 0 && argument != 1) {
                    return Err(Errno::EPERM);
                }
                self.release();
                self.adopt(task);
            }
            ioctl::TIOCNOTTY => {
                if self.session() != task.process.sid() {
                    return Err(Errno::ENOTTY);
                }
                if task.tgid == task.process.sid() {
                    leader_leaves(task.tgid, Leaving::Release);
                }
            }
            ioctl::FIONREAD => {
                self.pump();
                let available = self.line.lock().available() as i32;
                uaccess::write(argument, &available)?;
            }
            ioctl::TCFLSH => self.flush(argument)?,
            // Output has left when `write` returns; there is no flow control and no break to send.
            ioctl::TCSBRK | ioctl::TCSBRKP | ioctl::TCXONC => {}
            _ => return Err(Errno::ENOTTY),
        }
        Ok(0)
    }

    fn flush(&self, queue: u64) -> Result<(), Errno> {
        match queue as u32 {
            raw::TCIFLUSH | raw::TCIOFLUSH => {
                self.pump();
                self.line.lock().discard();
                if let (Wire::Pair(pair), raw::TCIOFLUSH) = (&self.wire, queue as u32) {
                    pair.discard_output();
                }
            }
            raw::TCOFLUSH => {
                if let Wire::Pair(pair) = &self.wire {
                    pair.discard_output();
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        if let Wire::Pair(pair) = &self.wire {
            pair.tell_master();
        }
        Ok(())
    }

    /// The master is gone.
    fn is_hung_up(&self) -> bool {
        matches!(&self.wire, Wire::Pair(pair) if pair.is_hung_up())
    }

    fn ready(&self) -> Ready {
        self.pump();
        let mut ready = match &self.wire {
            Wire::Serial(_) => Ready::WRITABLE,
            Wire::Pair(pair) if pair.is_hung_up() => {
                return Ready::READABLE | Ready::WRITABLE | Ready::ERROR | Ready::HANG_UP;
            }
            Wire::Pair(pair) if pair.has_room() => Ready::WRITABLE,
            Wire::Pair(_) => Ready::empty(),
        };
        ready.set(Ready::READABLE, self.line.lock().readable());
        ready
    }
}

/// An open terminal.
pub struct TtyBody(&'static Tty);

impl TtyBody {
    /// Opens it. Of a pseudo-terminal that is [`pty::open_slave`]'s to permit.
    pub fn new(tty: &'static Tty) -> TtyBody {
        if let Wire::Pair(pair) = &tty.wire {
            pair.slave_opened();
        }
        TtyBody(tty)
    }
}

impl Drop for TtyBody {
    fn drop(&mut self) {
        if let Wire::Pair(pair) = &self.0.wire {
            pair.slave_closed();
        }
    }
}

impl Body for TtyBody {
    fn read(&self, file: &File, _at: Option<u64>, out: &mut dyn Sink) -> SysResult {
        self.0.read(file, out)
    }

    fn write(&self, file: &File, _at: Option<u64>, from: &mut dyn Supply) -> SysResult {
        self.0.write(file, from)
    }

    fn ready(&self, _file: &File) -> Ready {
        self.0.ready()
    }

    fn changes_unannounced(&self) -> bool {
        matches!(self.0.wire, Wire::Serial(_))
    }

    fn ioctl(&self, task: &Task, _file: &File, request: u32, argument: u64) -> SysResult {
        if self.0.is_hung_up() {
            return Err(if request == ioctl::TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO });
        }
        self.0.control(task, request, argument)
    }
}
