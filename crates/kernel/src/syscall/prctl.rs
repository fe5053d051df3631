//! `prctl` and `arch_prctl`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use foldspace::space::ForkMode;
use linux_raw_sys::prctl as raw;
use syscalls::Sysno;

use super::memory::call;
use super::{Handler, SysResult, SyscallContext};
use crate::arch::cpu::Counter;
use crate::errno::Errno;
use crate::fs::procfs;
use crate::mm::uaccess;
use crate::picture;
use crate::power::AtEnd;
use crate::process::credentials::{
    ALL_CAPABILITIES, CAP_SETPCAP, CAP_SYS_RESOURCE, KEEP_CAPS, LAST_CAPABILITY, NO_AMBIENT_RAISE, SECURE_BITS,
    SECURE_LOCKS,
};
use crate::process::seccomp::dispatch::Dispatch;
use crate::process::signal::Signal;
use crate::process::{EXEC_GAIN_NOT_INHERITED, EXEC_GAIN_REFUSED, Pid, Task};
use crate::sched;

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::prctl, prctl), (Sysno::arch_prctl, arch_prctl)];

/// `prctl(PR_FOLDSPACE_FORK_MODE, mode)`: how this process's address space is copied by its next forks, and by its children's: 0 copies
/// every table, 1 shares last-level tables, 2 shares everything; -1 leaves it. Returns the mode that was set before. The number is "FOLD".
const PR_FOLDSPACE_FORK_MODE: u32 = 0x464f_4c44;

/// `prctl(PR_FOLDSPACE_TELL_AT_END, what)`: when this process ends, what is written to the control port: 1 who maps which frame, 2 a snapshot of all
/// address spaces (and from now on one for each label that is written to `/proc/snapshot`), 3 both, 0 nothing. Not inherited.
const PR_FOLDSPACE_TELL_AT_END: u32 = 0x464f_4c46;

/// What processors might guess, and what can be done about it (`linux/prctl.h`). Emulated ones are not affected: the answers are those of a Linux on them.
const SPEC_STORE_BYPASS: u64 = 0;
const SPEC_INDIRECT_BRANCH: u64 = 1;
const SPEC_L1D_FLUSH: u64 = 2;
const SPEC_ENABLE: u64 = 2;
const SPEC_DISABLE: u64 = 4;
const SPEC_FORCE_DISABLE: u64 = 8;

/// `PR_SET_PTRACER`, of the security module Yama.
const PR_SET_PTRACER: u32 = 0x5961_6d61;

fn prctl(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [option, value, arg3, arg4, arg5, _] = ctx.args;
    let task = ctx.task;
    let process = &task.process;
    // Some options insist that what they do not use is zero.
    let rest_is_zero = |result: SysResult| if arg3 | arg4 | arg5 == 0 { result } else { Err(Errno::EINVAL) };
    let all_zero = |result: SysResult| if value == 0 { rest_is_zero(result) } else { Err(Errno::EINVAL) };
    match option as u32 {
        PR_FOLDSPACE_FORK_MODE => fork_mode(value),
        PR_FOLDSPACE_TELL_AT_END => {
            let what = u8::try_from(value).ok().and_then(AtEnd::from_bits).ok_or(Errno::EINVAL)?;
            if what.contains(AtEnd::SNAPSHOT) {
                picture::wanted();
            }
            process.tells_at_end.store(what.bits(), Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_SET_VMA => {
            call(ctx, |caller| foldspace_linux::prctl_set_vma(caller, value, arg3, arg4, arg5))?;
            Ok(0)
        }
        raw::PR_SET_MM => {
            call(ctx, |caller| foldspace_linux::prctl_set_mm(caller, value, arg3, arg4, arg5))?;
            Ok(0)
        }
        raw::PR_SET_NAME => {
            let mut name = [0; crate::process::COMM_LEN];
            read_name(value, &mut name[..crate::process::COMM_LEN - 1])?;
            task.set_comm(&name);
            Ok(0)
        }
        raw::PR_GET_NAME => {
            let mut name = [0; crate::process::COMM_LEN];
            let comm = task.comm();
            name[..comm.len()].copy_from_slice(&comm);
            uaccess::write_bytes(value, &name)?;
            Ok(0)
        }
        raw::PR_SET_PDEATHSIG => {
            let number = match value {
                0 => 0,
                value => Signal::new(value).ok_or(Errno::EINVAL)?.number(),
            };
            process.parent_death.store(number, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_PDEATHSIG => {
            uaccess::write(value, &i32::from(process.parent_death.load(Ordering::Relaxed)))?;
            Ok(0)
        }
        raw::PR_SET_DUMPABLE if value <= 1 => {
            process.dumpable.store(value == 1, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_DUMPABLE => Ok(usize::from(process.dumpable.load(Ordering::Relaxed))),
        raw::PR_SET_NO_NEW_PRIVS if value == 1 => {
            rest_is_zero(Ok(0))?;
            process.no_new_privileges.store(true, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_NO_NEW_PRIVS => all_zero(Ok(usize::from(process.no_new_privileges.load(Ordering::Relaxed)))),
        raw::PR_SET_MDWE => {
            const KNOWN: u64 = (EXEC_GAIN_REFUSED | EXEC_GAIN_NOT_INHERITED) as u64;
            let alone = value == u64::from(EXEC_GAIN_NOT_INHERITED);
            if arg3 | arg4 | arg5 != 0 || value & !KNOWN != 0 || alone {
                return Err(Errno::EINVAL);
            }
            let before = process.exec_gain.load(Ordering::Relaxed);
            if before != 0 && u64::from(before) != value {
                return Err(Errno::EPERM);
            }
            process.exec_gain.store(value as u8, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_MDWE => all_zero(Ok(usize::from(process.exec_gain.load(Ordering::Relaxed)))),
        raw::PR_GET_AUXV => {
            if arg4 | arg5 != 0 {
                return Err(Errno::EINVAL);
            }
            auxiliary_vector(task, value, arg3)
        }
        raw::PR_SET_CHILD_SUBREAPER => {
            process.subreaper.store(value != 0, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_CHILD_SUBREAPER => {
            uaccess::write(value, &i32::from(process.subreaper.load(Ordering::Relaxed)))?;
            Ok(0)
        }
        // There are no huge pages to disable, so they always are.
        raw::PR_SET_THP_DISABLE => rest_is_zero(Ok(0)),
        raw::PR_GET_THP_DISABLE => all_zero(Ok(1)),
        raw::PR_SET_TIMERSLACK => {
            let mut slack = task.timer_slack.lock();
            slack.0 = if value as i64 <= 0 { slack.1 } else { value };
            Ok(0)
        }
        raw::PR_GET_TIMERSLACK => Ok(task.timer_slack.lock().0 as usize),
        raw::PR_GET_TIMING => Ok(0),
        raw::PR_SET_TIMING if value == 0 => Ok(0),
        raw::PR_GET_SECCOMP => Ok(task.seccomp.lock().number() as usize),
        raw::PR_SET_SECCOMP => super::seccomp::by_prctl(ctx, value, arg3),
        raw::PR_SET_KEEPCAPS
        | raw::PR_GET_KEEPCAPS
        | raw::PR_SET_SECUREBITS
        | raw::PR_GET_SECUREBITS
        | raw::PR_CAPBSET_READ
        | raw::PR_CAPBSET_DROP
        | raw::PR_CAP_AMBIENT => capabilities(task, option as u32, [value, arg3, arg4, arg5]),
        raw::PR_GET_TSC => {
            let said = match task.thread.counter() {
                Counter::Readable => raw::PR_TSC_ENABLE,
                Counter::Refused => raw::PR_TSC_SIGSEGV,
            };
            uaccess::write(value, &(said as i32))?;
            Ok(0)
        }
        raw::PR_SET_TSC => {
            task.thread.set_counter(match value as u32 {
                raw::PR_TSC_ENABLE => Counter::Readable,
                raw::PR_TSC_SIGSEGV => Counter::Refused,
                _ => return Err(Errno::EINVAL),
            });
            Ok(0)
        }
        raw::PR_MCE_KILL => match (value as u32, arg3 as u32) {
            _ if arg4 | arg5 != 0 => Err(Errno::EINVAL),
            (raw::PR_MCE_KILL_CLEAR, 0) => Ok(0),
            (raw::PR_MCE_KILL_SET, raw::PR_MCE_KILL_LATE | raw::PR_MCE_KILL_EARLY | raw::PR_MCE_KILL_DEFAULT) => Ok(0),
            _ => Err(Errno::EINVAL),
        },
        raw::PR_MCE_KILL_GET => all_zero(Ok(raw::PR_MCE_KILL_DEFAULT as usize)),
        // Nobody counts events.
        raw::PR_TASK_PERF_EVENTS_DISABLE | raw::PR_TASK_PERF_EVENTS_ENABLE => Ok(0),
        raw::PR_GET_SPECULATION_CTRL => {
            rest_is_zero(Ok(0))?;
            match value {
                SPEC_STORE_BYPASS => Ok(0),
                SPEC_INDIRECT_BRANCH => Ok(SPEC_ENABLE as usize),
                SPEC_L1D_FLUSH => Ok(SPEC_FORCE_DISABLE as usize),
                _ => Err(Errno::ENODEV),
            }
        }
        raw::PR_SET_SPECULATION_CTRL if arg4 | arg5 != 0 => Err(Errno::EINVAL),
        raw::PR_SET_SPECULATION_CTRL => match (value, arg3) {
            (SPEC_STORE_BYPASS, _) => Err(Errno::ENXIO),
            (SPEC_INDIRECT_BRANCH, SPEC_ENABLE) => Ok(0),
            (SPEC_INDIRECT_BRANCH, SPEC_DISABLE | SPEC_FORCE_DISABLE) | (SPEC_L1D_FLUSH, _) => Err(Errno::EPERM),
            (SPEC_INDIRECT_BRANCH, _) => Err(Errno::ERANGE),
            _ => Err(Errno::ENODEV),
        },
        raw::PR_SET_IO_FLUSHER | raw::PR_GET_IO_FLUSHER if !task.credentials().may(CAP_SYS_RESOURCE) => {
            Err(Errno::EPERM)
        }
        raw::PR_SET_IO_FLUSHER if value <= 1 => {
            rest_is_zero(Ok(0))?;
            task.writes_back.store(value == 1, Ordering::Relaxed);
            Ok(0)
        }
        raw::PR_GET_IO_FLUSHER => all_zero(Ok(usize::from(task.writes_back.load(Ordering::Relaxed)))),
        raw::PR_SET_SYSCALL_USER_DISPATCH => match value as u32 {
            raw::PR_SYS_DISPATCH_OFF if arg3 | arg4 | arg5 == 0 => {
                *task.dispatch.lock() = None;
                Ok(0)
            }
            raw::PR_SYS_DISPATCH_ON => {
                Dispatch::new(arg3, arg4, arg5)?.install(task);
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        },
        // Whoever may trace may do so anyway (Yama with `ptrace_scope` 0).
        PR_SET_PTRACER => match value as i32 {
            0 | -1 => Ok(0),
            pid => ctx.task.find(pid as Pid).map(|_| 0).ok_or(Errno::EINVAL),
        },
        raw::PR_GET_TID_ADDRESS => {
            uaccess::write(value, &task.clear_child_tid.load(Ordering::Relaxed))?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_GET_NO_NEW_PRIVS`.
pub(super) fn no_new_privileges(task: &Task) -> bool {
    task.process.no_new_privileges.load(Ordering::Relaxed)
}

/// What is about capabilities (`cap_task_prctl` of Linux's `security/commoncap.c`).
fn capabilities(task: &Task, option: u32, [value, arg3, arg4, arg5]: [u64; 4]) -> SysResult {
    let mut ids = task.credentials();
    let bit = |capability: u64| match capability {
        0..=LAST_CAPABILITY => Ok(1_u64 << capability),
        _ => Err(Errno::EINVAL),
    };
    match option {
        raw::PR_GET_KEEPCAPS => return Ok(usize::from(ids.secure_bits & KEEP_CAPS != 0)),
        raw::PR_GET_SECUREBITS => return Ok(ids.secure_bits as usize),
        raw::PR_CAPBSET_READ => return Ok(usize::from(ids.capabilities.bounding & bit(value)? != 0)),
        raw::PR_SET_KEEPCAPS => {
            if value > 1 {
                return Err(Errno::EINVAL);
            }
            if ids.secure_bits & KEEP_CAPS << 1 != 0 {
                return Err(Errno::EPERM);
            }
            ids.secure_bits = ids.secure_bits & !KEEP_CAPS | if value == 1 { KEEP_CAPS } else { 0 };
        }
        raw::PR_SET_SECUREBITS => {
            let locks = ids.secure_bits & SECURE_LOCKS;
            let locked = locks >> 1;
            let unlocks = locks & !(value as u32) != 0;
            let changes_locked = (ids.secure_bits ^ value as u32) & locked != 0;
            if unlocks || changes_locked || value & !u64::from(SECURE_BITS) != 0 || !ids.may_here(CAP_SETPCAP) {
                return Err(Errno::EPERM);
            }
            ids.secure_bits = value as u32;
        }
        raw::PR_CAPBSET_DROP => {
            if !ids.may_here(CAP_SETPCAP) {
                return Err(Errno::EPERM);
            }
            ids.capabilities.bounding &= !bit(value)?;
        }
        _ => {
            let sets = &mut ids.capabilities;
            let clears = value == u64::from(raw::PR_CAP_AMBIENT_CLEAR_ALL);
            if arg4 | arg5 != 0 || clears && arg3 != 0 {
                return Err(Errno::EINVAL);
            }
            let bit = if clears { ALL_CAPABILITIES } else { bit(arg3)? };
            match value as u32 {
                raw::PR_CAP_AMBIENT_IS_SET => return Ok(usize::from(sets.ambient & bit != 0)),
                raw::PR_CAP_AMBIENT_CLEAR_ALL | raw::PR_CAP_AMBIENT_LOWER => sets.ambient &= !bit,
                raw::PR_CAP_AMBIENT_RAISE => {
                    if sets.permitted & sets.inheritable & bit == 0 || ids.secure_bits & NO_AMBIENT_RAISE != 0 {
                        return Err(Errno::EPERM);
                    }
                    sets.ambient |= bit;
                }
                _ => return Err(Errno::EINVAL),
            }
        }
    }
    task.set_credentials(ids);
    Ok(0)
}

fn fork_mode(mode: u64) -> SysResult {
    let wanted = match mode as i64 {
        -1 => None,
        0 => Some(ForkMode::Copy),
        1 => Some(ForkMode::Leaf),
        2 => Some(ForkMode::Full),
        _ => return Err(Errno::EINVAL),
    };
    sched::with_space(|space| {
        let before = space.fork_mode();
        if let Some(mode) = wanted {
            space.set_fork_mode(mode);
        }
        before as usize
    })
    .ok_or(Errno::EFAULT)
}

/// Up to 15 bytes, or to a NUL, whichever comes first (`strncpy_from_user`).
fn read_name(address: u64, name: &mut [u8]) -> Result<(), Errno> {
    for (index, byte) in name.iter_mut().enumerate() {
        *byte = uaccess::read(address.wrapping_add(index as u64))?;
        if *byte == 0 {
            break;
        }
    }
    Ok(())
}

/// `ARCH_*` (`asm/prctl.h`).
const ARCH_SET_GS: u32 = 0x1001;
const ARCH_SET_FS: u32 = 0x1002;
const ARCH_GET_FS: u32 = 0x1003;
const ARCH_GET_GS: u32 = 0x1004;

fn arch_prctl(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [code, address, ..] = ctx.args;
    let thread = &ctx.task.thread;
    let code = code as u32;
    match code {
        ARCH_GET_FS => uaccess::write(address, &thread.live_registers().fs)?,
        ARCH_GET_GS => uaccess::write(address, &thread.live_registers().gs)?,
        ARCH_SET_FS | ARCH_SET_GS => {
            if address >= foldspace::addr::USER_END.get() {
                return Err(Errno::EPERM);
            }
            let mut live = thread.live_registers();
            if code == ARCH_SET_FS {
                live.fs = address;
            } else {
                live.gs = address;
            }
            thread.set_live_registers(live);
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `PR_GET_AUXV`: as much of it as there is room for; returns how long it is as Linux keeps it.
fn auxiliary_vector(task: &Task, to: u64, room: u64) -> SysResult {
    /// Bytes that Linux keeps of it (`AT_VECTOR_SIZE` words).
    const KEPT: usize = 448;
    let mut bytes = Vec::new();
    procfs::auxiliary_vector(&task.space(), &mut bytes);
    bytes.resize(KEPT, 0);
    let len = usize::try_from(room).unwrap_or(usize::MAX).min(KEPT);
    uaccess::write_bytes(to, &bytes[..len])?;
    Ok(KEPT)
}
