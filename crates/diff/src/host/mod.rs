//! Linux's side: processes that do the operations on the kernel that this program runs on.
//!
//! ```text
//!   command ── asks ──► helper ── forks ──► process 0 ── forks ──► process 1 ...
//!                         │                     └──── one at a time: `turn` says which operation is done now
//!                         └── waits for them all, gives the turn on when one has exited
//! ```
//!
//! The helper is forked before the command has threads. It fills all of its address space but the window, so its processes have nowhere else to go.
//! They make raw system calls only: no allocation, nothing that would change their own memory.
//!
//! This module alone in the crate is unsafe: it changes the memory of the processes that it runs in. What keeps it sound is that
//! operations name addresses in the window only ([`confined`]), and that nothing of the program is there.

mod access;
mod addresses;
mod filler;
mod helper;
mod process;
mod shared;
mod system;

pub use addresses::{fix_addresses, names_memory};
pub use helper::{Crash, Helper, HelperError};
pub use shared::MAX_OPS;

use crate::op::Call;
use crate::window::{PAGE, contains};

/// No address and no length from here on is a program's: the user half ends below.
const TOO_FAR: u64 = 1 << 47;

/// Whether a call leaves alone what is outside the window.
pub fn confined(call: &Call) -> bool {
    // Most calls only look whether a range wraps, and go through all that is mapped in it otherwise.
    let range = |addr: u64, len: u64| {
        let Some(end) = len.checked_next_multiple_of(PAGE).and_then(|len| addr.checked_add(len)) else { return true };
        addr >= TOO_FAR || contains(addr, end.max(addr + 1))
    };
    match *call {
        Call::Map { addr, len, flags, .. } => {
            let fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) as u32 != 0;
            !fixed || len >= TOO_FAR || range(addr, len)
        }
        Call::Unmap { addr, len } => len >= TOO_FAR || range(addr, len),
        Call::Protect { addr, len, .. }
        | Call::Advise { addr, len, .. }
        | Call::Lock { addr, len }
        | Call::Lock2 { addr, len, .. }
        | Call::Unlock { addr, len }
        | Call::Sync { addr, len, .. }
        | Call::InCore { addr, len }
        | Call::Name { addr, len, .. }
        | Call::Seal { addr, len, .. }
        | Call::RemapPages { addr, len, .. } => range(addr, len),
        Call::Remap { addr, old_len, new_len, flags, target } => {
            let fixed = flags & libc::MREMAP_FIXED as u32 != 0;
            range(addr, old_len) && (!fixed || new_len >= TOO_FAR || range(target, new_len))
        }
        Call::Break { addr } => addr == 0 || addr >= TOO_FAR || contains(addr, addr),
        Call::SetHeap { addr } => contains(addr, addr),
        Call::AdviseOther { ranges, .. } => ranges.into_iter().all(|(addr, len)| range(addr, len)),
        Call::Copy { addr, there, len, .. } => range(addr, len) && range(there, len),
        Call::Store { addr, pages, .. } | Call::Load { addr, pages } => {
            contains(addr, addr + (pages as u64).max(1) * PAGE - PAGE + 8)
        }
        _ => true,
    }
}
