//! A whole log: halves of calls put together, each line with its thread.

use std::collections::HashMap;

use super::line::{Call, Damage, Line, call, parse};

/// Something that happened to a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It has called.
    Call {
        /// Which thread. 0 in a log of one thread, which does not say.
        pid: u32,
        /// What, and what came of it.
        call: Call,
    },
    /// It has ended.
    Exited {
        /// Which thread.
        pid: u32,
    },
    /// It has ended; another of its process is called like it from now on.
    Superseded {
        /// Which thread.
        pid: u32,
        /// The other, as it was called.
        by: u32,
    },
}

/// Reads lines one after the other.
#[derive(Default)]
pub struct Log {
    /// Calls that have begun: name, and text so far.
    begun: HashMap<u32, (String, String)>,
}

impl Log {
    /// One that has read nothing.
    pub fn new() -> Log {
        Log::default()
    }

    /// Reads a line. `None`: nothing has happened yet, or nothing that matters.
    ///
    /// # Errors
    /// [`Damage`]; the line is as if it were not there.
    pub fn line(&mut self, text: &str) -> Result<Option<Event>, Damage> {
        let (pid, said) = parse(text)?;
        let pid = pid.unwrap_or(0);
        Ok(match said {
            Line::Call(call) => Some(Event::Call { pid, call }),
            Line::Unfinished { name, text } => {
                self.begun.insert(pid, (name, text));
                None
            }
            Line::Resumed { name, text } => {
                let begun = self.begun.remove(&pid).filter(|(begun, _)| *begun == name);
                let (_, first) = begun.ok_or(Damage::NotBegun)?;
                Some(Event::Call { pid, call: call(&(first + &text))? })
            }
            Line::Exited => {
                self.begun.remove(&pid);
                Some(Event::Exited { pid })
            }
            Line::Superseded { by } => {
                // What it was in the middle of does not end; the other's exec does, under its number.
                match self.begun.remove(&by) {
                    Some(begun) => self.begun.insert(pid, begun),
                    None => self.begun.remove(&pid),
                };
                Some(Event::Superseded { pid, by })
            }
            Line::Other => None,
        })
    }

    /// Calls that have begun and not ended.
    pub fn open_calls(&self) -> usize {
        self.begun.len()
    }
}
