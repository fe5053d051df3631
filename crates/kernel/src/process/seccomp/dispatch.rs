//! System calls that a program wants to hear of itself (`PR_SET_SYSCALL_USER_DISPATCH`; Linux's `kernel/entry/syscall_user_dispatch.c`): all but those
//! made from one range of its code, as long as a byte of its memory says so.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Task;
use crate::process::exit::ExitStatus;
use crate::process::ptrace::FILTERED;
use crate::process::signal::{SigInfo, Signal, send};

/// What a thread has asked for.
#[derive(Clone, Copy, Debug)]
pub struct Dispatch {
    /// The code whose calls are made, and how much it is.
    from: (u64, u64),
    /// Where the byte is; 0 for nowhere: then all others are dispatched.
    selector: u64,
}

/// The byte's two values.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

impl Dispatch {
    /// `EINVAL` for a range that wraps, `EFAULT` for an address that is no program's.
    pub fn new(start: u64, len: u64, selector: u64) -> Result<Dispatch, Errno> {
        if start != 0 && start.wrapping_add(len) <= start {
            return Err(Errno::EINVAL);
        }
        if selector >= foldspace::addr::USER_END.get() {
            return Err(Errno::EFAULT);
        }
        Ok(Dispatch { from: (start, len), selector })
    }

    /// Begins.
    pub fn install(self, task: &Task) {
        *task.dispatch.lock() = Some(Box::new(self));
        task.tracing.fetch_or(FILTERED, Ordering::SeqCst);
    }
}

/// False if the program is told of the call that the frame says, which is not made.
pub fn permits(task: &Arc<Task>, frame: &mut TrapFrame) -> bool {
    let Some(Dispatch { from: (start, len), selector }) = task.dispatch.lock().as_deref().copied() else { return true };
    if frame.rip.wrapping_sub(start) < len {
        return true;
    }
    if selector != 0 {
        match uaccess::read::<u8>(selector) {
            Ok(ALLOW) => return true,
            Ok(BLOCK) => {}
            Ok(_) => {
                task.process.begin_exit(ExitStatus::Dumped(Signal::SYS));
                return false;
            }
            Err(_) => {
                task.process.begin_exit(ExitStatus::Dumped(Signal::SEGV));
                return false;
            }
        }
    }
    let number = frame.orig_rax;
    frame.rax = number;
    send::force(task, SigInfo::dispatched_call(frame.rip, number as u32, super::ARCHITECTURE));
    false
}
