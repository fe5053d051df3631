//! What the system is, and switching it off.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use crate::sync::Mutex;
use linux_raw_sys::general as raw;
use syscalls::Sysno;
use zerocopy::IntoBytes;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::{CAP_SYS_ADMIN, CAP_SYS_BOOT};
use crate::process::exit::ExitStatus;
use crate::process::namespaces::{FIELD, MachineName, machine_name};
use crate::process::signal::Signal;
use crate::process::time_namespace::{Counter, shown};
use crate::process::{self, tree};
use crate::sched;
use crate::time::{NANOS_PER_SECOND, monotonic_ns};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[
    (Sysno::uname, uname),
    (Sysno::sethostname, sethostname),
    (Sysno::setdomainname, setdomainname),
    (Sysno::sysinfo, sysinfo),
    (Sysno::syslog, syslog),
    (Sysno::personality, personality),
    (Sysno::reboot, reboot),
    (Sysno::getrandom, getrandom),
    // What is known and not here: programs ask and go on without.
    // As from a Linux that was built without them, or where they are off.
    (Sysno::modify_ldt, |_| Err(Errno::ENOSYS)),
    (Sysno::io_uring_setup, |_| Err(Errno::ENOSYS)),
    (Sysno::io_uring_enter, |_| Err(Errno::ENOSYS)),
    (Sysno::io_uring_register, |_| Err(Errno::ENOSYS)),
    (Sysno::get_thread_area, |_| Err(Errno::ENOSYS)),
    (Sysno::set_thread_area, |_| Err(Errno::ENOSYS)),
    (Sysno::iopl, |_| Err(Errno::EPERM)),
    (Sysno::ioperm, |_| Err(Errno::EPERM)),
];

/// The Linux that programs are told they run on: what is here behaves like it as far as it goes.
const RELEASE: &[u8] = b"6.18.0-foldspace";
const VERSION: &[u8] = b"#1 SMP Foldspace";

/// The host's name as the current thread sees it, for `/proc/sys/kernel/hostname`.
pub fn hostname() -> Vec<u8> {
    let uts = sched::with_current(|task| task.namespaces.lock().uts.clone());
    let name = *uts.host.lock();
    name.into_iter().take_while(|&byte| byte != 0).collect()
}

/// `uname -r`.
pub fn release() -> &'static [u8] {
    RELEASE
}

/// `uname -v`.
pub fn version() -> &'static [u8] {
    VERSION
}

fn uname(ctx: &mut SyscallContext<'_>) -> SysResult {
    let uts = ctx.task.namespaces.lock().uts.clone();
    let (host, domain) = (*uts.host.lock(), *uts.domain.lock());
    let named = machine_name;
    let fields = [named(b"Linux"), host, named(RELEASE), named(VERSION), named(b"x86_64"), domain];
    uaccess::write_bytes(ctx.args[0], fields.as_bytes())?;
    Ok(0)
}

fn set_name(ctx: &SyscallContext<'_>, name: &Mutex<MachineName>) -> SysResult {
    let [address, len, ..] = ctx.args;
    let owner = ctx.task.namespaces.lock().uts.owner.clone();
    if !ctx.task.credentials().may_in(&owner, CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let len = usize::try_from(len as i32).ok().filter(|&len| len < FIELD).ok_or(Errno::EINVAL)?;
    let mut bytes = [0; FIELD];
    uaccess::read_bytes(address, &mut bytes[..len])?;
    *name.lock() = bytes;
    Ok(0)
}

fn sethostname(ctx: &mut SyscallContext<'_>) -> SysResult {
    let uts = ctx.task.namespaces.lock().uts.clone();
    set_name(ctx, &uts.host)
}

fn setdomainname(ctx: &mut SyscallContext<'_>) -> SysResult {
    let uts = ctx.task.namespaces.lock().uts.clone();
    set_name(ctx, &uts.domain)
}

/// `struct sysinfo` of x86-64, as words: uptime, three loads, total, free, shared, buffers, total and free swap, processes, total and
/// free high memory, unit of memory.
fn sysinfo(ctx: &mut SyscallContext<'_>) -> SysResult {
    let frames = crate::mm::memory().stats();
    let page = foldspace::addr::PAGE_SIZE;
    let record: [u64; 14] = [
        shown(Counter::Boottime, monotonic_ns()) / NANOS_PER_SECOND,
        0,
        0,
        0,
        frames.total * page,
        frames.free * page,
        0,
        0,
        0,
        0,
        tree::count() as u64,
        0,
        0,
        1,
    ];
    uaccess::write(ctx.args[0], &record)?;
    Ok(0)
}

/// The kernel's log goes to a serial port and is not kept: there is nothing to read, and nothing to clear.
fn syslog(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [kind, buffer, len, ..] = ctx.args;
    match kind as i32 {
        // SYSLOG_ACTION_READ, READ_ALL, READ_CLEAR
        2..=4 if buffer == 0 || (len as i32) < 0 => Err(Errno::EINVAL),
        0..=10 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// personality(2). Every number is taken, and shown again (`READ_IMPLIES_EXEC` and what exec does with it apart, it changes nothing).
fn personality(ctx: &mut SyscallContext<'_>) -> SysResult {
    const QUERY: u32 = u32::MAX;
    let personality = &ctx.task.process.personality;
    let before = match ctx.args[0] as u32 {
        QUERY => personality.load(Ordering::Relaxed),
        new => personality.swap(new, Ordering::Relaxed),
    };
    Ok(before as usize)
}

/// `LINUX_REBOOT_*` (`linux/reboot.h`).
const MAGIC1: u32 = 0xfee1_dead;
const MAGIC2: [u32; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
const RESTART: u32 = 0x0123_4567;
const HALT: u32 = 0xcdef_0123;
const POWER_OFF: u32 = 0x4321_fedc;
const CTRL_ALT_DEL_OFF: u32 = 0;
const CTRL_ALT_DEL_ON: u32 = 0x89ab_cdef;

const RESTART_WITH_COMMAND: u32 = 0xa1b2_c3d4;

/// reboot(2): of the machine, or of the caller's namespace of processes.
fn reboot(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [magic1, magic2, command, ..] = ctx.args;
    let (namespace, command) = (&ctx.task.process.pid_namespace, command as u32);
    if !ctx.task.credentials().may_in(&namespace.owner, CAP_SYS_BOOT) {
        return Err(Errno::EPERM);
    }
    if magic1 as u32 != MAGIC1 || !MAGIC2.contains(&(magic2 as u32)) {
        return Err(Errno::EINVAL);
    }
    if !namespace.is_first() {
        return reboot_namespace(ctx, command);
    }
    match command {
        RESTART | HALT | POWER_OFF => crate::power::off(),
        CTRL_ALT_DEL_OFF | CTRL_ALT_DEL_ON => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// The namespace's first process ends, and all others with it; its parent sees by the signal how (`reboot_pid_ns` of Linux's `kernel/pid_namespace.c`).
fn reboot_namespace(ctx: &SyscallContext<'_>, command: u32) -> SysResult {
    let signal = match command {
        RESTART | RESTART_WITH_COMMAND => Signal::HUP,
        HALT | POWER_OFF => Signal::INT,
        _ => return Err(Errno::EINVAL),
    };
    let first = ctx.task.process.pid_namespace.init().and_then(process::find);
    if let Some(first) = first {
        first.process.begin_exit(ExitStatus::Killed(signal));
    }
    ctx.task.signals.lock().exit = Some(ExitStatus::Exited(0));
    ctx.task.notify();
    Ok(0)
}

fn getrandom(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [buffer, len, flags, ..] = ctx.args;
    let flags = flags as u32;
    const KNOWN: u32 = raw::GRND_NONBLOCK | raw::GRND_RANDOM | raw::GRND_INSECURE;
    if flags & !KNOWN != 0 || flags & (raw::GRND_RANDOM | raw::GRND_INSECURE) == raw::GRND_RANDOM | raw::GRND_INSECURE {
        return Err(Errno::EINVAL);
    }
    // What one call returns at most (`MAX_RW_COUNT`).
    let len = len.min(0x7fff_f000);
    let mut chunk = [0; 256];
    let mut done = 0;
    while done < len {
        let part = (len - done).min(chunk.len() as u64) as usize;
        crate::fs::random::fill(&mut chunk[..part]);
        let written = uaccess::write_some(buffer.wrapping_add(done), &chunk[..part]);
        done += written as u64;
        if written < part {
            break;
        }
    }
    if done == 0 && len != 0 { Err(Errno::EFAULT) } else { Ok(done as usize) }
}
