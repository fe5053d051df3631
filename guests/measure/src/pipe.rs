//! Pipes that carry words of a fixed size between processes of one program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

/// Both ends, shared with the processes that are forked afterwards.
#[derive(Debug)]
pub struct Pipe {
    read: File,
    write: File,
}

impl Pipe {
    /// An empty one.
    ///
    /// # Errors
    /// What `pipe` says (`EMFILE`, `ENFILE`).
    pub fn new() -> io::Result<Pipe> {
        let (read, write) = io::pipe()?;
        Ok(Pipe { read: File::from(OwnedFd::from(read)), write: File::from(OwnedFd::from(write)) })
    }

    /// Puts a word in.
    ///
    /// # Errors
    /// What `write` says.
    pub fn send(&self, word: &[u8]) -> io::Result<()> {
        (&self.write).write_all(word)
    }

    /// Waits for a word.
    ///
    /// # Errors
    /// What `read` says.
    pub fn receive<const N: usize>(&self) -> io::Result<[u8; N]> {
        let mut word = [0; N];
        (&self.read).read_exact(&mut word)?;
        Ok(word)
    }
}
