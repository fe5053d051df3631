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
