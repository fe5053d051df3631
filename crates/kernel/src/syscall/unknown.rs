//! System calls that a program asked for and that do not exist here: recorded once per number and program, reported when the machine
//! is switched off.

use alloc::vec::Vec;

use crate::sync::Mutex;

/// How many different ones are remembered: a program that tries every number must not fill the kernel's heap.
const LIMIT: usize = 256;

static UNKNOWN: Mutex<Vec<UnknownCall>> = Mutex::new(Vec::new());

/// A number that nothing handles, and who asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownCall {
    /// The number.
    pub number: u64,
    /// Name of the program (`comm`).
    pub program: Vec<u8>,
}

impl UnknownCall {
    /// Linux's name of the call; `None` if Linux has none of that number either.
    pub fn name(&self) -> Option<&'static str> {
        syscalls::Sysno::new(usize::try_from(self.number).ok()?).map(|call| call.name())
    }
}

/// Remembers one; the first time only.
pub(super) fn record(number: u64, program: Vec<u8>) {
    let call = UnknownCall { number, program };
    let mut known = UNKNOWN.lock();
    if known.len() < LIMIT && !known.contains(&call) {
        known.push(call);
    }
}

/// All that were recorded, in the order in which they first happened.
pub fn list() -> Vec<UnknownCall> {
    UNKNOWN.lock().clone()
}
