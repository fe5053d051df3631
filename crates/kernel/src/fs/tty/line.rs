//! The line discipline: from bytes that come in to bytes that are read, with editing, echo and signals (termios(3)).

use alloc::collections::VecDeque;

use linux_raw_sys::general as raw;
use smallvec::SmallVec;

use super::termios::Termios;
use crate::process::signal::Signal;

/// Most bytes kept for readers (`N_TTY_BUF_SIZE`).
const BUFFER: usize = 4096;

/// Input of a terminal.
pub struct Line {
    /// Settings.
    pub termios: Termios,
    /// Bytes that can be read. Canonical: whole lines.
    ready: VecDeque<u8>,
    /// Lengths of the lines in `ready`, an end of file (0 bytes, or a line without a newline) among them.
    lines: VecDeque<usize>,
    /// The line being edited.
    editing: VecDeque<u8>,
}

/// What a byte that came in brings about.
#[derive(Default)]
pub struct Effect {
    /// To be sent back.
    pub echo: Echo,
    /// To be sent to the foreground group.
    pub signal: Option<Signal>,
}

/// A few bytes to be echoed: rarely more than an erased control character, `\b \b\b \b`.
pub type Echo = SmallVec<[u8; 8]>;

impl Line {
    /// No input yet.
    pub const fn new(termios: Termios) -> Line {
        Line { termios, ready: VecDeque::new(), lines: VecDeque::new(), editing: VecDeque::new() }
    }

    fn canonical(&self) -> bool {
        self.termios.has_local(raw::ICANON)
    }

    /// Takes a byte from the device.
    pub fn receive(&mut self, byte: u8) -> Effect {
        let mut effect = Effect::default();
        let byte = match byte {
            b'\r' if self.termios.has_input(raw::IGNCR) => return effect,
            b'\r' if self.termios.has_input(raw::ICRNL) => b'\n',
            b'\n' if self.termios.has_input(raw::INLCR) => b'\r',
            byte => byte,
        };
        if self.termios.has_local(raw::ISIG) {
            let signal = [(raw::VINTR, Signal::INT), (raw::VQUIT, Signal::QUIT), (raw::VSUSP, Signal::TSTP)]
                .into_iter()
                .find(|&(index, _)| self.termios.is(byte, index));
            if let Some((_, signal)) = signal {
                self.echo(byte, &mut effect);
                if !self.termios.has_local(raw::NOFLSH) {
                    self.discard();
                }
                effect.signal = Some(signal);
                return effect;
            }
        }
        if self.canonical() {
            self.edit(byte, &mut effect);
        } else if self.ready.len() < BUFFER {
            self.echo(byte, &mut effect);
            self.ready.push_back(byte);
        }
        effect
    }

    fn edit(&mut self, byte: u8, effect: &mut Effect) {
        let termios = self.termios;
        if termios.is(byte, raw::VERASE) {
            self.erase(effect);
        } else if termios.is(byte, raw::VKILL) {
            while !self.editing.is_empty() {
                self.erase(effect);
            }
        } else if termios.is(byte, raw::VWERASE) && termios.has_local(raw::IEXTEN) {
            while self.editing.back() == Some(&b' ') {
                self.erase(effect);
            }
            while self.editing.back().is_some_and(|&last| last != b' ') {
                self.erase(effect);
            }
        } else if termios.is(byte, raw::VEOF) {
            self.finish_line();
        } else if byte == b'\n' || termios.is(byte, raw::VEOL) || termios.is(byte, raw::VEOL2) {
            if termios.has_local(raw::ECHO) || (byte == b'\n' && termios.has_local(raw::ECHONL)) {
                self.output(byte, &mut |byte| effect.echo.push(byte));
            }
            self.editing.push_back(byte);
            self.finish_line();
        } else if self.editing.len() + self.ready.len() < BUFFER - 1 {
            self.echo(byte, effect);
            self.editing.push_back(byte);
        }
    }

    fn finish_line(&mut self) {
        self.lines.push_back(self.editing.len());
        self.ready.append(&mut self.editing);
    }

    /// Takes back the last character (of UTF-8, the whole of it if IUTF8 is set).
    fn erase(&mut self, effect: &mut Effect) {
        let Some(mut byte) = self.editing.pop_back() else { return };
        while self.termios.has_input(raw::IUTF8) && byte & 0xc0 == 0x80 {
            match self.editing.pop_back() {
                Some(before) => byte = before,
                None => break,
            }
        }
        if self.termios.has_local(raw::ECHO | raw::ECHOE) {
            effect.echo.extend_from_slice(b"\x08 \x08");
            if is_control(byte) && self.termios.has_local(raw::ECHOCTL) {
                effect.echo.extend_from_slice(b"\x08 \x08");
            }
        }
    }

    fn echo(&self, byte: u8, effect: &mut Effect) {
        if !self.termios.has_local(raw::ECHO) {
            return;
        }
        if is_control(byte) && byte != b'\t' && byte != b'\n' && self.termios.has_local(raw::ECHOCTL) {
            effect.echo.extend_from_slice(&[b'^', byte ^ 0x40]);
        } else {
            self.output(byte, &mut |byte| effect.echo.push(byte));
        }
    }

    /// Passes on what a byte becomes on its way out.
    pub fn output(&self, byte: u8, send: &mut dyn FnMut(u8)) {
        if self.termios.has_output(raw::OPOST) {
            match byte {
                b'\n' if self.termios.has_output(raw::ONLCR) => send(b'\r'),
                b'\r' if self.termios.has_output(raw::OCRNL) => return send(b'\n'),
                _ => {}
            }
        }
        send(byte);
    }

    /// Whether a byte that comes in would be kept, or dropped although nothing could be read to make room: else its sender is to wait.
    pub fn takes_more(&self) -> bool {
        self.ready.len() + self.editing.len() < BUFFER - 1 || !self.readable()
    }

    /// Whether output passes unchanged.
    pub fn output_is_raw(&self) -> bool {
        !self.termios.has_output(raw::OPOST)
    }

    /// Whether a read would return at once.
    pub fn readable(&self) -> bool {
        if self.canonical() { !self.lines.is_empty() } else { !self.ready.is_empty() }
    }

    /// Bytes that a read would return.
    pub fn available(&self) -> usize {
        if self.canonical() { self.lines.front().copied().unwrap_or(0) } else { self.ready.len() }
    }

    /// Takes what a read of up to `max` bytes returns: canonically, (part of) one line, which may be empty: end of file. `None` if there is nothing.
    pub fn take(&mut self, max: usize) -> Option<impl Iterator<Item = u8> + '_> {
        if !self.readable() {
            return None;
        }
        let len = self.available().min(max);
        if self.canonical() {
            match self.lines.front_mut() {
                Some(rest) if *rest > len => *rest -= len,
                _ => {
                    self.lines.pop_front();
                }
            }
        }
        Some(self.ready.drain(..len))
    }

    /// Changes the settings. What was typed stays: an unfinished line becomes readable when lines go out of use.
    pub fn set_termios(&mut self, termios: Termios) {
        let was_canonical = self.canonical();
        self.termios = termios;
        if was_canonical && !self.canonical() {
            self.lines.clear();
            self.ready.append(&mut self.editing);
        } else if !was_canonical && self.canonical() && !self.ready.is_empty() {
            self.lines.push_back(self.ready.len());
        }
    }

    /// Forgets all input.
    pub fn discard(&mut self) {
        self.ready.clear();
        self.lines.clear();
        self.editing.clear();
    }
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}
