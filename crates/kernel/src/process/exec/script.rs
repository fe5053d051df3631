//! `#!`: files that another program is to run.

use alloc::vec::Vec;

use crate::errno::Errno;

/// What of a file is looked at (`BINPRM_BUF_SIZE`).
pub const HEAD: usize = 256;

/// The first line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The program to run.
    pub interpreter: Vec<u8>,
    /// What else the line says, as one argument.
    pub argument: Option<Vec<u8>>,
}

impl Script {
    /// From the first bytes of a file; `None` if it is no script. The rules are those of Linux's `fs/binfmt_script.c`: blanks around both parts
    /// do not count, and a line that does not end within [`HEAD`] bytes is good only if its interpreter certainly does.
    ///
    /// # Errors
    /// `ENOEXEC`: no interpreter, or one that may be cut off.
    pub fn parse(head: &[u8]) -> Result<Option<Script>, Errno> {
        let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let ended = line.iter().position(|&byte| byte == b'\n');
        let line = match ended {
            Some(end) => &line[..end],
            // A file shorter than the buffer ends its line by ending.
            None if head.len() < HEAD => line,
            None => {
                let start = line.iter().position(|byte| !is_blank(byte)).ok_or(Errno::ENOEXEC)?;
                if !line[start..].iter().any(|byte| is_blank(byte) || *byte == 0) {
                    return Err(Errno::ENOEXEC);
                }
                // The last byte of Linux's buffer is its terminator.
                &line[..line.len() - 1]
            }
        };
        let line = line.split(|&byte| byte == 0).next().unwrap_or_default();
        let line = trim(line, is_blank);
        if line.is_empty() {
            return Err(Errno::ENOEXEC);
        }
        let end = line.iter().position(is_blank).unwrap_or(line.len());
        let argument = trim(&line[end..], is_blank);
        Ok(Some(Script {
            interpreter: line[..end].to_vec(),
            argument: (!argument.is_empty()).then(|| argument.to_vec()),
        }))
    }
}

fn trim(mut text: &[u8], is_blank: impl Fn(&u8) -> bool) -> &[u8] {
    while let [first, rest @ ..] = text {
        if !is_blank(first) {
            break;
        }
        text = rest;
    }
    while let [rest @ .., last] = text {
        if !is_blank(last) {
            break;
        }
        text = rest;
    }
    text
}
