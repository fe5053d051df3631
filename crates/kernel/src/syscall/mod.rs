//! System calls: from a number in a register to the function that does the work.
//!
//! The tables of the subjects ([`file::FILE_CALLS`] and those here) are laid out at compile time into one array indexed by number,
//! so a call costs one bounds check and one indirect jump.

pub mod file;
pub mod unknown;

use alloc::sync::Arc;

use syscalls::Sysno;

use crate::arch::TrapFrame;
use crate::errno::Errno;
use crate::process::Task;

/// What a call returns: the value for the result register, or why not.
pub type SysResult = Result<usize, Errno>;

/// One system call in progress.
pub struct SyscallContext<'a> {
    /// The six argument registers: rdi, rsi, rdx, r10, r8, r9.
    pub args: [u64; 6],
    /// The caller's registers.
    pub frame: &'a mut TrapFrame,
    /// The caller.
    pub task: &'a Arc<Task>,
}

/// Does one system call.
pub type Handler = fn(&mut SyscallContext<'_>) -> SysResult;
