//! ptrace(2): its requests. What they do to a tracee is in [`crate::process::ptrace`].

use alloc::sync::Arc;

use foldspace::VirtAddr;
use linux_raw_sys::general as raw;
use linux_raw_sys::ptrace as request;
use syscalls::Sysno;
use zerocopy::IntoBytes;

use super::{Handler, SysResult, SyscallContext};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::credentials::CAP_SYS_ADMIN;
use crate::process::ptrace::registers::{EXTENDED_MAX, LEGACY_SIZE, Registers, WORDS, extended_size};
use crate::process::ptrace::{Manner, Pace, Place, TraceStop, control, option};
use crate::process::seccomp::{Instruction, Mode};
use crate::process::signal::SigSet;
use crate::process::signal::info::{SIGINFO_SIZE, SigInfo};
use crate::process::{Pid, Task};

/// The calls of this file.
pub const CALLS: &[(Sysno, Handler)] = &[(Sysno::ptrace, ptrace)];

/// Requests that only x86 has (`asm/ptrace-abi.h`), and one that is younger than the constants' crate.
const GETREGS: u32 = 12;
const SETREGS: u32 = 13;
const GETFPREGS: u32 = 14;
const SETFPREGS: u32 = 15;
const ARCH_PRCTL: u32 = 30;
const SYSEMU: u32 = 31;
const SYSEMU_SINGLESTEP: u32 = 32;

/// Register sets (`linux/elf.h`).
const NT_PRSTATUS: u64 = 1;
const NT_PRFPREG: u64 = 2;
const NT_X86_XSTATE: u64 = 0x202;

/// Bytes of `struct user`, of which the registers come first; only these and the debug registers mean something.
const USER_SIZE: u64 = 928;
const USER_DEBUG_REGISTERS: u64 = 848;

/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;

fn ptrace(ctx: &mut SyscallContext<'_>) -> SysResult {
    let [number, pid, address, data, ..] = ctx.args;
    // Numbers are longs: what does not fit is no request, and comes after the target.
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    if number == request::PTRACE_TRACEME {
        control::trace_me(ctx.task)?;
        return Ok(0);
    }
    let target = ctx.task.find(pid as Pid).ok_or(Errno::ESRCH)?;
    match number {
        request::PTRACE_ATTACH => control::attach(ctx.task, &target, Manner::Attached, 0)?,
        request::PTRACE_SEIZE => {
            if address != 0 || data & !u64::from(option::ALL) != 0 {
                return Err(Errno::EIO);
            }
            control::attach(ctx.task, &target, Manner::Seized, data as u32)?;
        }
        request::PTRACE_INTERRUPT => control::interrupt(&target, ctx.task)?,
        request::PTRACE_KILL => control::kill(&target, ctx.task)?,
        _ => return at_rest(ctx.task, &target, number, address, data),
    }
    Ok(0)
}

/// Requests to a tracee that rests.
fn at_rest(tracer: &Task, target: &Arc<Task>, number: u32, address: u64, data: u64) -> SysResult {
    // All of them are refused if it does not.
    control::with_stopped(target, tracer, |_| Ok(()))?;
    let look = |look: &mut dyn FnMut(&TraceStop) -> SysResult| control::with_stopped(target, tracer, |stop| look(stop));
    match number {
        request::PTRACE_PEEKTEXT | request::PTRACE_PEEKDATA => {
            let mut word = [0; 8];
            if target.space().read_forced(VirtAddr(address), &mut word) < word.len() {
                return Err(Errno::EIO);
            }
            uaccess::write_bytes(data, &word)?;
        }
        request::PTRACE_POKETEXT | request::PTRACE_POKEDATA => {
            if target.space().write_forced(VirtAddr(address), &data.to_le_bytes()) < 8 {
                return Err(Errno::EIO);
            }
        }
        request::PTRACE_PEEKUSR => {
            let index = user_word(address)?;
            let mut value = 0;
            look(&mut |stop| {
                value = match debug_register(address) {
                    Some(register) => stop.registers.debug_word(register),
                    None => stop.registers.words().get(index).copied().unwrap_or(0),
                };
                Ok(0)
            })?;
            uaccess::write(data, &value)?;
        }
        request::PTRACE_POKEUSR => {
            let index = user_word(address)?;
            if index < WORDS {
                change(target, tracer, |registers| registers.set_word(index, data))?;
            } else {
                // Of the rest of `struct user` only the debug registers can be set.
                let register = debug_register(address).ok_or(Errno::EIO)?;
                change(target, tracer, |registers| registers.set_debug_word(register, data))?;
            }
        }
        request::PTRACE_CONT => control::resume(target, tracer, Pace::Run, data)?,
        request::PTRACE_SYSCALL => control::resume(target, tracer, Pace::Call, data)?,
        request::PTRACE_SINGLESTEP => control::resume(target, tracer, Pace::Step, data)?,
        SYSEMU => control::resume(target, tracer, Pace::Emulate, data)?,
        SYSEMU_SINGLESTEP => control::resume(target, tracer, Pace::EmulateStep, data)?,
        request::PTRACE_DETACH => control::detach(target, tracer, data)?,
        request::PTRACE_LISTEN => control::listen(target, tracer)?,
        GETREGS => get_registers(target, tracer, NT_PRSTATUS, data, usize::MAX).map(|_| ())?,
        SETREGS => set_registers(target, tracer, NT_PRSTATUS, data, usize::MAX).map(|_| ())?,
        GETFPREGS => get_registers(target, tracer, NT_PRFPREG, data, usize::MAX).map(|_| ())?,
        SETFPREGS => set_registers(target, tracer, NT_PRFPREG, data, usize::MAX).map(|_| ())?,
        request::PTRACE_GETREGSET | request::PTRACE_SETREGSET => register_set(tracer, target, number, address, data)?,
        ARCH_PRCTL => arch_prctl(tracer, target, address, data)?,
        request::PTRACE_SETOPTIONS => {
            if data & !u64::from(option::ALL) != 0 {
                return Err(Errno::EINVAL);
            }
            target.trace.lock().options = data as u32;
        }
        request::PTRACE_GETEVENTMSG => {
            let message = target.trace.lock().message;
            uaccess::write(data, &message)?;
        }
        request::PTRACE_GETSIGINFO => {
            let info = control::with_stopped(target, tracer, |stop| stop.info.ok_or(Errno::EINVAL))?;
            uaccess::write_bytes(data, &info.to_bytes())?;
        }
        request::PTRACE_SETSIGINFO => {
            let info: SigInfo = uaccess::read(data)?;
            control::with_stopped(target, tracer, |stop| {
                *stop.info.as_mut().ok_or(Errno::EINVAL)? = info;
                Ok(())
            })?;
        }
        request::PTRACE_PEEKSIGINFO => return peek_signals(target, address, data),
        request::PTRACE_GETSIGMASK | request::PTRACE_SETSIGMASK => {
            if address != size_of::<u64>() as u64 {
                return Err(Errno::EINVAL);
            }
            if number == request::PTRACE_GETSIGMASK {
                let signals = target.signals.lock();
                let mask = signals.saved.unwrap_or(signals.blocked).bits();
                drop(signals);
                uaccess::write(data, &mask)?;
            } else {
                let mask: u64 = uaccess::read(data)?;
                target.signals.lock().blocked = SigSet::from_bits(mask).without(SigSet::UNBLOCKABLE);
                target.notify();
            }
        }
        request::PTRACE_GET_SYSCALL_INFO => return call_information(tracer, target, address, data),
        request::PTRACE_GET_RSEQ_CONFIGURATION => return Err(Errno::EIO),
        request::PTRACE_SECCOMP_GET_FILTER => return filter_of(tracer, target, address, data),
        request::PTRACE_SECCOMP_GET_METADATA => return filter_metadata(tracer, target, address, data),
        _ => return Err(Errno::EIO),
    }
    Ok(0)
}

/// The index of a word of `struct user`. `EIO`.
fn user_word(offset: u64) -> Result<usize, Errno> {
    if !offset.is_multiple_of(8) || offset >= USER_SIZE {
        return Err(Errno::EIO);
    }
    Ok(offset as usize / 8)
}

/// The debug register that is at an offset in `struct user`.
fn debug_register(offset: u64) -> Option<usize> {
    let from_first = offset.checked_sub(USER_DEBUG_REGISTERS)?;
    (from_first < 64).then_some(from_first as usize / 8)
}

/// Changes registers, all or (if `act` fails) those before.
fn change(target: &Task, tracer: &Task, act: impl FnOnce(&mut Registers) -> Result<(), Errno>) -> Result<(), Errno> {
    control::with_stopped(target, tracer, |stop| {
        stop.changed = true;
        act(&mut stop.registers)
    })
}

/// Bytes of a set. `EINVAL`: there is none of that number.
fn set_size(set: u64) -> Result<usize, Errno> {
    match set {
        NT_PRSTATUS => Ok(WORDS * 8),
        NT_PRFPREG => Ok(LEGACY_SIZE),
        NT_X86_XSTATE => Ok(extended_size()),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes up to `max` bytes of a set of registers to the tracer; returns how many.
fn get_registers(target: &Task, tracer: &Task, set: u64, to: u64, max: usize) -> SysResult {
    let len = set_size(set)?.min(max);
    let mut bytes = [0; EXTENDED_MAX];
    control::with_stopped(target, tracer, |stop| {
        match set {
            NT_PRSTATUS => bytes[..WORDS * 8].copy_from_slice(stop.registers.words().as_bytes()),
            NT_PRFPREG => bytes[..LEGACY_SIZE].copy_from_slice(&stop.registers.legacy()),
            _ => bytes = stop.registers.extended(),
        }
        Ok(())
    })?;
    uaccess::write_bytes(to, &bytes[..len])?;
    Ok(len)
}

/// Takes up to `max` bytes of a set of registers from the tracer; returns how many.
fn set_registers(target: &Task, tracer: &Task, set: u64, from: u64, max: usize) -> SysResult {
    let whole = set_size(set)?;
    let len = whole.min(max);
    let mut bytes = [0; EXTENDED_MAX];
    uaccess::read_bytes(from, &mut bytes[..len])?;
    change(target, tracer, |registers| match set {
        NT_PRSTATUS => {
            for (index, word) in bytes[..len].chunks_exact(8).enumerate() {
                let mut value = [0; 8];
                value.copy_from_slice(word);
                registers.set_word(index, u64::from_le_bytes(value))?;
            }
            Ok(())
        }
        NT_PRFPREG => {
            let mut legacy = registers.legacy();
            legacy[..len].copy_from_slice(&bytes[..len]);
            registers.set_legacy(&legacy)
        }
        // Given whole or not at all (`xstateregs_set`).
        _ if len < whole => Err(Errno::EFAULT),
        _ => registers.set_extended(&bytes),
    })?;
    Ok(len)
}

/// `PTRACE_GETREGSET`, `PTRACE_SETREGSET`: a `struct iovec` says where and how much, and is told how much it was.
fn register_set(tracer: &Task, target: &Task, number: u32, set: u64, vector: u64) -> Result<(), Errno> {
    let [base, len]: [u64; 2] = uaccess::read(vector)?;
    set_size(set)?;
    if !len.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let done = match number {
        request::PTRACE_GETREGSET => get_registers(target, tracer, set, base, len as usize)?,
        _ => set_registers(target, tracer, set, base, len as usize)?,
    };
    uaccess::write(vector.wrapping_add(8), &(done as u64))
}

/// `arch_prctl` on the tracee's behalf: its segment bases.
fn arch_prctl(tracer: &Task, target: &Task, address: u64, code: u64) -> Result<(), Errno> {
    const SET_GS: u64 = 0x1001;
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    const GET_GS: u64 = 0x1004;
    const FS_BASE: usize = 21;
    let index = if matches!(code, SET_FS | GET_FS) { FS_BASE } else { FS_BASE + 1 };
    match code {
        SET_GS | SET_FS => {
            change(target, tracer, |registers| registers.set_word(index, address).map_err(|_| Errno::EPERM))
        }
        GET_FS | GET_GS => {
            let value = control::with_stopped(target, tracer, |stop| Ok(stop.registers.words()[index]))?;
            uaccess::write(address, &value)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `PTRACE_PEEKSIGINFO`: signals that wait, from number `offset` on. Returns how many were copied.
fn peek_signals(target: &Task, arguments: u64, to: u64) -> SysResult {
    const SHARED: u32 = 1;
    let [offset, flags_and_count]: [u64; 2] = uaccess::read(arguments)?;
    let (flags, count) = (flags_and_count as u32, (flags_and_count >> 32) as i32);
    if flags & !SHARED != 0 || count < 0 {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < count as u64 {
        let at = usize::try_from(offset + done).unwrap_or(usize::MAX);
        let info = match flags {
            SHARED => target.process.pending.lock().nth(at),
            _ => target.signals.lock().pending.nth(at),
        };
        let Some(info) = info else { break };
        if let Err(error) = uaccess::write_bytes(to + done * SIGINFO_SIZE as u64, &info.to_bytes()) {
            return if done == 0 { Err(error) } else { Ok(done as usize) };
        }
        done += 1;
    }
    Ok(done as usize)
}

/// `PTRACE_GET_SYSCALL_INFO`: as much of the record as there is room for; returns how much there is.
fn call_information(tracer: &Task, target: &Task, room: u64, to: u64) -> SysResult {
    /// What comes before what depends on the kind.
    const HEAD: usize = 24;
    const NONE: u32 = 0;
    const ENTRY: u32 = 1;
    const EXIT: u32 = 2;
    const FILTERED: u32 = 3;
    let mut record = [0u64; 11];
    let message = target.trace.lock().message;
    let size = control::with_stopped(target, tracer, |stop| {
        let frame = stop.registers.frame();
        let marked = stop.code == raw::SIGTRAP | 0x80;
        let (kind, size) = match stop.place {
            place @ (Place::CallBegins | Place::CallFiltered) if marked || place == Place::CallFiltered => {
                record[3..10].copy_from_slice(&[
                    frame.orig_rax,
                    frame.rdi,
                    frame.rsi,
                    frame.rdx,
                    frame.r10,
                    frame.r8,
                    frame.r9,
                ]);
                if place == Place::CallBegins {
                    (ENTRY, HEAD + 56)
                } else {
                    record[10] = message & 0xffff_ffff;
                    (FILTERED, HEAD + 60)
                }
            }
            Place::CallEnds if marked => {
                record[3] = frame.rax;
                record[4] = u64::from(frame.rax > u64::MAX - 4095);
                (EXIT, HEAD + 9)
            }
            _ => (NONE, HEAD),
        };
        record[0] = u64::from(kind) | u64::from(ARCHITECTURE) << 32;
        record[1] = frame.rip;
        record[2] = frame.rsp;
        Ok(size)
    })?;
    let len = size.min(usize::try_from(room).unwrap_or(usize::MAX));
    uaccess::write_bytes(to, &record.as_bytes()[..len])?;
    Ok(size)
}

/// Filters of system calls are for those to see who are root and have none (`get_nth_filter` of Linux's `kernel/seccomp.c`).
fn filters_of(tracer: &Task, target: &Task) -> Result<Mode, Errno> {
    if !tracer.credentials().may(CAP_SYS_ADMIN) || tracer.seccomp.lock().number() != 0 {
        return Err(Errno::EACCES);
    }
    Ok(target.seccomp.lock().clone())
}

/// `PTRACE_SECCOMP_GET_FILTER`: the instructions of the filter that was the `number`th to be added; returns how many. To 0: only that.
fn filter_of(tracer: &Task, target: &Task, number: u64, to: u64) -> SysResult {
    let program = filters_of(tracer, target)?.program(number)?;
    if to != 0 {
        for (index, instruction) in program.iter().enumerate() {
            uaccess::write(to.wrapping_add((index * size_of::<Instruction>()) as u64), instruction)?;
        }
    }
    Ok(program.len())
}

/// `PTRACE_SECCOMP_GET_METADATA`: the flags of one; none are kept.
fn filter_metadata(tracer: &Task, target: &Task, room: u64, record: u64) -> SysResult {
    const SIZE: u64 = 16;
    let size = room.min(SIZE);
    if size < 8 {
        return Err(Errno::EINVAL);
    }
    let number: u64 = uaccess::read(record)?;
    filters_of(tracer, target)?.program(number)?;
    uaccess::write_bytes(record, &[number, 0].as_bytes()[..size as usize])?;
    Ok(size as usize)
}
