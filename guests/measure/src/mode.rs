//! Foldspace's fork modes, which a process may change for itself and its children.

use std::io;

/// The first argument of the `prctl` that reads and sets the mode ("FOLD"). No other kernel knows it.
const PRCTL: libc::c_int = 0x464f_4c44;

/// How much of the page tables a fork copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// All of them.
    Copy,
    /// All but the last level.
    Leaf,
    /// None but the root.
    Full,
}

impl Mode {
    /// All modes, the one that copies most first.
    pub const ALL: [Mode; 3] = [Mode::Copy, Mode::Leaf, Mode::Full];

    /// The name, as the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Copy => "copy",
            Mode::Leaf => "leaf",
            Mode::Full => "full",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The mode of this process, or `None` if the kernel is not Foldspace.
    pub fn current() -> Option<Mode> {
        // SAFETY: reads a setting; a kernel that does not know it says EINVAL.
        match unsafe { libc::prctl(PRCTL, -1i64, 0, 0, 0) } {
            0 => Some(Mode::Copy),
            1 => Some(Mode::Leaf),
            2 => Some(Mode::Full),
            _ => None,
        }
    }

    /// Makes this the mode of this process and of those it forks.
    ///
    /// # Errors
    /// `EINVAL` if the kernel is not Foldspace.
    pub fn set(self) -> io::Result<()> {
        let number: i64 = match self {
            Mode::Copy => 0,
            Mode::Leaf => 1,
            Mode::Full => 2,
        };
        // SAFETY: changes how later forks work, no memory.
        if unsafe { libc::prctl(PRCTL, number, 0, 0, 0) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_found_by_their_names() {
        for mode in Mode::ALL {
            assert_eq!(Mode::named(mode.name()), Some(mode));
        }
        assert_eq!(Mode::named("half"), None);
    }
}
