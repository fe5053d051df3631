//! `seccomp`, and what `prctl` has of it.

use alloc::vec::Vec;

use syscalls::Sysno;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::CAP_SYS_ADMIN;
use crate::process::seccomp::{self, Instruction, MOST, Program, Refused, Whom, answer};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::seccomp, seccomp)];

/// `SECCOMP_FILTER_FLAG_*` (`linux/seccomp.h`). Log and speculation concern nothing here; there are no listeners.
mod flag {
    pub const TSYNC: u32 = 1;
    pub const LOG: u32 = 2;
    pub const SPEC_ALLOW: u32 = 4;
    pub const TSYNC_ESRCH: u32 = 16;
    pub const KNOWN: u32 = TSYNC | LOG | SPEC_ALLOW | TSYNC_ESRCH;
}

/// Bytes of `struct seccomp_notif`, `struct seccomp_notif_resp` and `struct seccomp_data`.
const NOTIFICATION_SIZES: [u16; 3] = [80, 24, 64];

fn seccomp(ctx: &mut SyscallContext<'_>) -> SysResult {
    const SET_MODE_STRICT: u32 = 0;
    const SET_MODE_FILTER: u32 = 1;
    const GET_ACTION_AVAIL: u32 = 2;
    const GET_NOTIF_SIZES: u32 = 3;
    let [operation, flags, argument, ..] = ctx.args;
    let flags = flags as u32;
    match operation as u32 {
        SET_MODE_STRICT if flags == 0 && argument == 0 => be_strict(ctx),
        SET_MODE_FILTER => filter(ctx, flags, argument),
        GET_ACTION_AVAIL if flags == 0 => {
            let action: u32 = uaccess::read(argument)?;
            if answer::KNOWN.contains(&action) { Ok(0) } else { Err(Errno::EOPNOTSUPP) }
        }
        GET_NOTIF_SIZES if flags == 0 => {
            uaccess::write(argument, &NOTIFICATION_SIZES)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `SECCOMP_SET_MODE_STRICT`.
fn be_strict(ctx: &SyscallContext<'_>) -> SysResult {
    seccomp::be_strict(ctx.task)?;
    Ok(0)
}

/// `PR_SET_SECCOMP`.
pub(super) fn by_prctl(ctx: &SyscallContext<'_>, mode: u64, argument: u64) -> SysResult {
    const STRICT: u64 = 1;
    const FILTER: u64 = 2;
    match mode {
        STRICT => be_strict(ctx),
        FILTER => filter(ctx, 0, argument),
        _ => Err(Errno::EINVAL),
    }
}

/// `SECCOMP_SET_MODE_FILTER`: checks in the order of `seccomp_set_mode_filter`.
fn filter(ctx: &SyscallContext<'_>, flags: u32, from: u64) -> SysResult {
    if flags & !flag::KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    // `struct sock_fprog`.
    let [len, at]: [u64; 2] = uaccess::read(from)?;
    let len = usize::from(len as u16);
    if len == 0 || len > MOST {
        return Err(Errno::EINVAL);
    }
    if !super::prctl::no_new_privileges(ctx.task) && !ctx.task.credentials().may_here(CAP_SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let mut instructions: Vec<Instruction> = Vec::new();
    instructions.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
    for index in 0..len {
        instructions.push(uaccess::read(at.wrapping_add((index * size_of::<Instruction>()) as u64))?);
    }
    let whom = if flags & flag::TSYNC != 0 { Whom::Process } else { Whom::Thread };
    match seccomp::add(ctx.task, Program::new(instructions)?, whom) {
        Ok(()) => Ok(0),
        Err(Refused::Error(error)) => Err(error),
        Err(Refused::Apart(_)) if flags & flag::TSYNC_ESRCH != 0 => Err(Errno::ESRCH),
        Err(Refused::Apart(thread)) => Ok(ctx.task.number_of(thread) as usize),
    }
}
