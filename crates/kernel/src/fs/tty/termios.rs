//! Settings of a terminal, as `TCGETS` and `TCSETS` move them.

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct termios` of the kernel (`asm-generic/termbits.h`), not the C library's.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Termios {
    /// What is done to input.
    pub input: u32,
    /// What is done to output.
    pub output: u32,
    /// Of the line.
    pub control: u32,
    /// Editing, echo, signals.
    pub local: u32,
    /// Line discipline: N_TTY is 0.
    pub line: u8,
    /// Special characters.
    pub characters: [u8; 19],
}

const _: () = assert!(size_of::<Termios>() == size_of::<raw::termios>());

/// Number of a character that is switched off (`_POSIX_VDISABLE`).
const DISABLED: u8 = 0;

impl Termios {
    /// Of `TIOCGLCKTRMIOS`, where each bit that is set may not be changed.
    pub const LOCKS_NOTHING: Termios =
        Termios { input: 0, output: 0, control: 0, local: 0, line: 0, characters: [0; 19] };

    /// What Linux gives to a new terminal (`tty_std_termios`), at 115200 baud and without a modem.
    pub const fn new() -> Termios {
        let mut characters = [0; 19];
        characters[raw::VINTR as usize] = 0x03;
        characters[raw::VQUIT as usize] = 0x1c;
        characters[raw::VERASE as usize] = 0x7f;
        characters[raw::VKILL as usize] = 0x15;
        characters[raw::VEOF as usize] = 0x04;
        characters[raw::VMIN as usize] = 1;
        characters[raw::VSTART as usize] = 0x11;
        characters[raw::VSTOP as usize] = 0x13;
        characters[raw::VSUSP as usize] = 0x1a;
        characters[raw::VREPRINT as usize] = 0x12;
        characters[raw::VDISCARD as usize] = 0x0f;
        characters[raw::VWERASE as usize] = 0x17;
        characters[raw::VLNEXT as usize] = 0x16;
        Termios {
            input: raw::ICRNL | raw::IXON,
            output: raw::OPOST | raw::ONLCR,
            control: raw::B115200 | raw::CS8 | raw::CREAD | raw::HUPCL | raw::CLOCAL,
            local: raw::ISIG
                | raw::ICANON
                | raw::ECHO
                | raw::ECHOE
                | raw::ECHOK
                | raw::ECHOCTL
                | raw::ECHOKE
                | raw::IEXTEN,
            line: 0,
            characters,
        }
    }

    /// What Linux gives to a new pseudo-terminal: 38400 baud.
    pub const fn of_pair() -> Termios {
        Termios { control: raw::B38400 | raw::CS8 | raw::CREAD, ..Termios::new() }
    }

    /// Whether all of an input flag's bits are set.
    pub fn has_input(&self, flag: u32) -> bool {
        self.input & flag == flag
    }

    /// Whether all of an output flag's bits are set.
    pub fn has_output(&self, flag: u32) -> bool {
        self.output & flag == flag
    }

    /// Whether all of a local flag's bits are set.
    pub fn has_local(&self, flag: u32) -> bool {
        self.local & flag == flag
    }

    /// Whether a byte is the special character number `index`.
    pub fn is(&self, byte: u8, index: u32) -> bool {
        byte == self.characters[index as usize] && byte != DISABLED
    }
}

/// The same with the speeds as numbers (`struct termios2`): what newer C libraries move.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Termios2 {
    /// All else.
    pub termios: Termios,
    /// Of input and output, baud.
    pub speeds: [u32; 2],
}

/// What came before (`struct termio`): the lower halves, and the first eight characters.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Termio {
    flags: [u16; 4],
    line: u8,
    characters: [u8; 8],
    pad: u8,
}

/// Speeds by their codes, baud (`linux/drivers/tty/tty_baudrate.c`): first those from 0 on, then those with `CBAUDEX`, from 1 on.
const SPEEDS: [u32; 16] = [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19_200, 38_400];
const FASTER: [u32; 15] = [
    57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000, 2_000_000,
    2_500_000, 3_000_000, 3_500_000, 4_000_000,
];

impl Termios2 {
    /// Those of `termios`; `other` where its code says that the speed is a number (`BOTHER`).
    pub fn of(termios: Termios, other: u32) -> Termios2 {
        let code = termios.control & raw::CBAUD;
        let index = (code & !raw::CBAUDEX) as usize;
        let speed = match code & raw::CBAUDEX {
            0 => SPEEDS.get(index).copied(),
            _ => index.checked_sub(1).and_then(|index| FASTER.get(index)).copied(),
        };
        let speed = speed.unwrap_or(other);
        Termios2 { termios, speeds: [speed, speed] }
    }
}

impl Termio {
    /// As far as they fit.
    pub fn of(termios: &Termios) -> Termio {
        let flags = [termios.input, termios.output, termios.control, termios.local].map(|flags| flags as u16);
        let mut characters = [0; 8];
        characters.copy_from_slice(&termios.characters[..8]);
        Termio { flags, line: termios.line, characters, pad: 0 }
    }

    /// `before` with these in it.
    pub fn into(self, before: Termios) -> Termios {
        let [input, output, control, local] = self.flags.map(u32::from);
        let with = |old: u32, low: u32| old & !0xffff | low;
        let mut characters = before.characters;
        characters[..8].copy_from_slice(&self.characters);
        Termios {
            input: with(before.input, input),
            output: with(before.output, output),
            control: with(before.control, control),
            local: with(before.local, local),
            line: self.line,
            characters,
        }
    }
}
