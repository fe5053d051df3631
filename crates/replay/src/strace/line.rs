//! One line of a log: strace(1), "The trace expression" and `-f`, `-o`, `-t`, `-T`.

use thiserror::Error;

use super::args::{end_of_arguments, split};

/// What a call returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A number: a descriptor, an address, a process.
    Value(u64),
    /// The error's name.
    Error(String),
    /// `?`: it has not returned, or nobody knows.
    Unknown,
}

/// A system call with its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Its arguments as they stand there.
    pub args: Vec<String>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a line says of its thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A call, from one end to the other.
    Call(Call),
    /// The beginning of one; others come before its end.
    Unfinished {
        /// Its name.
        name: String,
        /// The text up to `<unfinished ...>`.
        text: String,
    },
    /// The rest of one.
    Resumed {
        /// Its name.
        name: String,
        /// The text after `resumed>`.
        text: String,
    },
    /// It has ended.
    Exited,
    /// It has ended because another thread of its process called exec, and goes on in its place.
    Superseded {
        /// That thread, as it was called until now.
        by: u32,
    },
    /// A signal, or a note of strace's: nothing that matters here.
    Other,
}

/// Why a line was not understood.
#[derive(Clone, Copy, PartialEq, Eq, Error, Debug)]
pub enum Damage {
    /// No call, signal, end or note begins like this.
    #[error("this is no line of strace")]
    NotALine,
    /// The arguments do not end.
    #[error("the call's arguments do not end")]
    OpenArguments,
    /// No `= RESULT` behind the arguments.
    #[error("the call has no result")]
    NoResult,
    /// It goes on with a call that was not begun, or with another.
    #[error("a call is resumed that was not begun")]
    NotBegun,
    /// A number is out of all bounds, or an argument is missing.
    #[error("an argument is missing, or not what it should be")]
    BadArgument,
}

/// Reads a line: whose it is, if it says so (`PID`, `[pid PID]`), and what it says.
///
/// # Errors
/// [`Damage`].
pub fn parse(line: &str) -> Result<(Option<u32>, Line), Damage> {
    let line = line.trim();
    if line.starts_with("strace: ") {
        return Ok((None, Line::Other));
    }
    let (pid, rest) = thread(line);
    let rest = without_time(rest);
    let said = if rest.is_empty() {
        return Err(Damage::NotALine);
    } else if let Some(note) = rest.strip_prefix("+++ ") {
        ended(note)?
    } else if rest.starts_with("--- ") {
        Line::Other
    } else if let Some(resumed) = rest.strip_prefix("<... ") {
        let (name, text) = resumed.split_once(" resumed>").ok_or(Damage::NotALine)?;
        Line::Resumed { name: name.to_string(), text: text.to_string() }
    } else if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
        let (name, _) = begun.split_once('(').filter(|(name, _)| is_name(name)).ok_or(Damage::NotALine)?;
        Line::Unfinished { name: name.to_string(), text: begun.trim_end().to_string() }
    } else {
        Line::Call(call(rest)?)
    };
    Ok((pid, said))
}

/// A whole call, put together from its halves if need be.
pub(super) fn call(text: &str) -> Result<Call, Damage> {
    let (name, rest) = text.split_once('(').filter(|(name, _)| is_name(name)).ok_or(Damage::NotALine)?;
    let end = end_of_arguments(rest).ok_or(Damage::OpenArguments)?;
    let result = rest[end + 1..].trim_start().strip_prefix('=').ok_or(Damage::NoResult)?;
    Ok(Call { name: name.to_string(), args: split(&rest[..end]), outcome: outcome(result)? })
}

fn outcome(text: &str) -> Result<Outcome, Damage> {
    let mut words = text.split_whitespace();
    let value = words.next().ok_or(Damage::NoResult)?;
    if value == "?" {
        return Ok(Outcome::Unknown);
    }
    if value == "-1" {
        return Ok(words.next().map_or(Outcome::Unknown, |name| Outcome::Error(name.to_string())));
    }
    super::number(value).map(Outcome::Value).ok_or(Damage::NoResult)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'?')
}

/// `[pid 17] rest`, `17 rest`, or none of them.
fn thread(line: &str) -> (Option<u32>, &str) {
    let (number, rest) = match line.strip_prefix("[pid") {
        Some(bracket) => match bracket.split_once(']') {
            Some((number, rest)) => (number.trim(), rest),
            None => return (None, line),
        },
        None => match line.split_once(' ') {
            Some((number, rest)) => (number, rest),
            None => return (None, line),
        },
    };
    match number.parse() {
        Ok(pid) => (Some(pid), rest.trim_start()),
        Err(_) => (None, line),
    }
}

/// Without the time that `-t`, `-tt`, `-ttt` or `-r` puts before everything else.
fn without_time(line: &str) -> &str {
    match line.split_once(' ') {
        Some((time, rest))
            if time.starts_with(|c: char| c.is_ascii_digit())
                && time.bytes().all(|byte| byte.is_ascii_digit() || byte == b':' || byte == b'.') =>
        {
            rest.trim_start()
        }
        _ => line,
    }
}

fn ended(note: &str) -> Result<Line, Damage> {
    if note.starts_with("exited with ") || note.starts_with("killed by ") {
        return Ok(Line::Exited);
    }
    match note.strip_prefix("superseded by execve in pid ") {
        Some(rest) => {
            let by = rest.split_whitespace().next().and_then(|pid| pid.parse().ok()).ok_or(Damage::BadArgument)?;
            Ok(Line::Superseded { by })
        }
        None => Ok(Line::Other),
    }
}
