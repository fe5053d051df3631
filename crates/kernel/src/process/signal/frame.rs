//! The signal frame: what a handler finds on its stack, in Linux's x86-64 layout (`arch/x86/include/uapi/asm/sigcontext.h`,
//! `asm/sigframe.h`), and the way back from it.
//!
//! ```text
//!   high  │ interrupted stack, red zone of 128 bytes │   (or the top of the alternate stack)
//!         │ vector state (XSAVE), 64-byte aligned    │ ← mcontext.fpstate
//!         │ siginfo                                  │ ← rsi
//!         │ ucontext: stack, registers, mask         │ ← rdx
//!   low   │ return address: the restorer             │ ← rsp, ≡ 8 mod 16, as after a call
//! ```

use alloc::sync::Arc;
use core::mem::offset_of;

use linux_raw_sys::general as raw;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::action::Action;
use super::info::SIGINFO_SIZE;
use super::state::{AlternateStack, SS_AUTODISARM};
use super::{SigInfo, SigSet};
use crate::arch::context::XSAVE_SIZE;
use crate::arch::cpu::{KEY_RIGHTS_COMPONENT, KEY_RIGHTS_SIZE, key_rights_offset};
use crate::arch::live_registers::{FIRST_KEY_RIGHTS, key_rights, set_key_rights};
use crate::arch::{FpuState, TrapFrame};
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::{Task, oom};

/// Bytes below the stack pointer that functions may use without telling (System V ABI).
const RED_ZONE: u64 = 128;
/// The vector state is XSAVE's, with [`SoftwareReserved`] in it.
const UC_FP_XSTATE: u64 = 1;
/// `ss` in the context is valid.
const UC_SIGCONTEXT_SS: u64 = 2;
/// …and is restored as it is.
const UC_STRICT_RESTORE_SS: u64 = 4;
/// In [`SoftwareReserved::magic1`].
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
/// Right after the XSAVE area.
const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// Where the legacy region keeps bytes for software.
const SOFTWARE_RESERVED: usize = 464;

/// `struct _fpx_sw_bytes`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SoftwareReserved {
    magic1: u32,
    /// Bytes of the area with magic2.
    extended_size: u32,
    /// Components in it.
    xfeatures: u64,
    /// Bytes of the area without magic2.
    xstate_size: u32,
    padding: [u32; 7],
}

/// `struct sigcontext_64`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SignalContext {
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    rflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    error_code: u64,
    trap: u64,
    old_mask: u64,
    cr2: u64,
    fpstate: u64,
    reserved: [u64; 8],
}

/// `struct ucontext`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UserContextRecord {
    flags: u64,
    link: u64,
    stack: AlternateStack,
    context: SignalContext,
    mask: u64,
}

/// `struct rt_sigframe`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct SignalFrame {
    restorer: u64,
    ucontext: UserContextRecord,
    info: [u8; SIGINFO_SIZE],
}

const _: () = {
    assert!(size_of::<SoftwareReserved>() == 48);
    assert!(SOFTWARE_RESERVED + size_of::<SoftwareReserved>() == 512);
    assert!(size_of::<SignalContext>() == 256);
    assert!(offset_of!(SignalContext, cs) == 144);
    assert!(offset_of!(SignalContext, fpstate) == 184);
    assert!(size_of::<UserContextRecord>() == 304);
    assert!(size_of::<SignalFrame>() == 440);
};

/// Where the header says which components are not in their initial state (`XSTATE_BV`).
const COMPONENTS: usize = 512;
/// Bytes that magic2 takes.
const MAGIC2_SIZE: usize = size_of::<u32>();

/// Bytes of the XSAVE area in a frame: with the rights to protection keys, where there are keys. Between the vector state and those nothing is written:
/// components that no kernel has turned on.
fn area_size() -> usize {
    key_rights_offset().map_or(XSAVE_SIZE, |offset| offset + KEY_RIGHTS_SIZE)
}

/// What an alternate stack must have for a frame: `AT_MINSIGSTKSZ`, computed like Linux's `get_sigframe_size`.
pub fn minimum_stack() -> u64 {
    (size_of::<SignalFrame>() + area_size() + MAGIC2_SIZE + 63 + 15 + 8).next_multiple_of(16) as u64
}

/// Arranges that the task goes on in the handler of `action`. `mask` is what sigreturn is to restore.
///
/// # Errors
/// `EFAULT`: the stack cannot take the frame, or there is no restorer. Nothing has changed then but memory below the stack pointer.
pub fn enter_handler(
    task: &Arc<Task>,
    frame: &mut TrapFrame,
    action: &Action,
    info: &SigInfo,
    mask: SigSet,
) -> Result<(), Errno> {
    if !action.has(raw::SA_RESTORER) {
        return Err(Errno::EFAULT);
    }
    let alternate = task.signals.lock().alternate;
    let top = stack_top(frame.rsp, action, &alternate);
    let fpstate = top.wrapping_sub((area_size() + MAGIC2_SIZE) as u64) & !63;
    let base = (fpstate.wrapping_sub(size_of::<SignalFrame>() as u64) & !15).wrapping_sub(8);
    // A handler that was to run on the alternate stack must not run off its end (Linux's `get_sigframe`).
    let nested = alternate.contains(frame.rsp);
    let entering = action.has(raw::SA_ONSTACK) && alternate.size != 0 && !nested;
    if (nested || entering) && (base <= alternate.base || base - alternate.base > alternate.size) {
        return Err(Errno::EFAULT);
    }

    write_fpstate(task, fpstate, task.thread.fpu())?;
    let trap = task.last_trap();
    let context = SignalContext {
        r8: frame.r8,
        r9: frame.r9,
        r10: frame.r10,
        r11: frame.r11,
        r12: frame.r12,
        r13: frame.r13,
        r14: frame.r14,
        r15: frame.r15,
        rdi: frame.rdi,
        rsi: frame.rsi,
        rbp: frame.rbp,
        rbx: frame.rbx,
        rdx: frame.rdx,
        rax: frame.rax,
        rcx: frame.rcx,
        rsp: frame.rsp,
        rip: frame.rip,
        rflags: frame.rflags,
        cs: frame.cs as u16,
        gs: 0,
        fs: 0,
        ss: frame.ss as u16,
        error_code: trap.error_code,
        trap: trap.vector,
        old_mask: mask.bits(),
        cr2: trap.address,
        fpstate,
        reserved: [0; 8],
    };
    let record = SignalFrame {
        restorer: action.restorer,
        ucontext: UserContextRecord {
            flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
            link: 0,
            stack: alternate,
            context,
            mask: mask.bits(),
        },
        info: info.to_bytes(),
    };
    write_to_stack(task, base, record.as_bytes())?;

    if alternate.flags & SS_AUTODISARM != 0 {
        task.signals.lock().alternate = AlternateStack::DISABLED;
    }
    /// Direction, resume, trap: off in a handler.
    const CLEARED_FLAGS: u64 = 1 << 10 | 1 << 16 | 1 << 8;
    frame.rdi = u64::from(info.signal().number());
    frame.rsi = base + offset_of!(SignalFrame, info) as u64;
    frame.rdx = base + offset_of!(SignalFrame, ucontext) as u64;
    frame.rax = 0;
    frame.rip = action.handler;
    frame.rsp = base;
    frame.rflags &= !CLEARED_FLAGS;
    frame.cs = u64::from(crate::arch::USER_CODE);
    frame.ss = u64::from(crate::arch::USER_DATA);
    task.thread.set_fpu(&FpuState::new());
    set_key_rights(FIRST_KEY_RIGHTS);
    Ok(())
}

/// `rt_sigreturn`: takes everything back from the frame that the stack pointer is in.
///
/// # Errors
/// `EFAULT`: it is not there, or not sound. The program then gets SIGSEGV.
pub fn leave_handler(task: &Arc<Task>, frame: &mut TrapFrame) -> Result<(), Errno> {
    // The handler's `ret` has taken the return address.
    let base = frame.rsp.wrapping_sub(size_of::<u64>() as u64);
    let record: SignalFrame = uaccess::read(base)?;
    let context = &record.ucontext.context;
    let (fpu, rights) = match context.fpstate {
        0 => (FpuState::new(), FIRST_KEY_RIGHTS),
        address => read_fpstate(address)?,
    };
    task.thread.set_fpu(&fpu);
    {
        let mut signals = task.signals.lock();
        signals.blocked = SigSet::from_bits(record.ucontext.mask).without(SigSet::UNBLOCKABLE);
        signals.restart = None;
        // A stack that does not pass the checks leaves the present one in place, as on Linux.
        if let Ok(stack) = record.ucontext.stack.checked(&signals.alternate, context.rsp) {
            signals.alternate = stack;
        }
    }
    task.notify();
    frame.r8 = context.r8;
    frame.r9 = context.r9;
    frame.r10 = context.r10;
    frame.r11 = context.r11;
    frame.r12 = context.r12;
    frame.r13 = context.r13;
    frame.r14 = context.r14;
    frame.r15 = context.r15;
    frame.rdi = context.rdi;
    frame.rsi = context.rsi;
    frame.rbp = context.rbp;
    frame.rbx = context.rbx;
    frame.rdx = context.rdx;
    frame.rax = context.rax;
    frame.rcx = context.rcx;
    frame.rsp = context.rsp;
    // Whatever it is: on the way to user mode an address that is not canonical becomes a fault of the program, there.
    frame.rip = context.rip;
    frame.set_user_flags(context.rflags);
    frame.cs = u64::from(crate::arch::USER_CODE);
    frame.ss = u64::from(crate::arch::USER_DATA);
    // Last: nothing is read or written any more for the program.
    set_key_rights(rights);
    Ok(())
}

/// Where frames are built from, downwards (Linux's `get_sigframe`).
fn stack_top(stack_pointer: u64, action: &Action, alternate: &AlternateStack) -> u64 {
    if action.has(raw::SA_ONSTACK) && alternate.size != 0 && !alternate.contains(stack_pointer) {
        return alternate.base.wrapping_add(alternate.size);
    }
    stack_pointer.wrapping_sub(RED_ZONE)
}

fn write_fpstate(task: &Arc<Task>, to: u64, fpu: &FpuState) -> Result<(), Errno> {
    let size = area_size();
    let reserved = SoftwareReserved {
        magic1: FP_XSTATE_MAGIC1,
        extended_size: (size + MAGIC2_SIZE) as u32,
        xfeatures: crate::arch::cpu::xfeatures(),
        xstate_size: size as u32,
        padding: [0; 7],
    };
    let mut bytes = *fpu.as_bytes();
    bytes[SOFTWARE_RESERVED..SOFTWARE_RESERVED + size_of::<SoftwareReserved>()].copy_from_slice(reserved.as_bytes());
    let rights = key_rights();
    if rights.is_some() {
        let components = components_of(&bytes);
        bytes[COMPONENTS..COMPONENTS + 8].copy_from_slice(&(components | KEY_RIGHTS_COMPONENT).to_le_bytes());
    }
    write_to_stack(task, to, &bytes)?;
    let mut end = [0; KEY_RIGHTS_SIZE + MAGIC2_SIZE];
    end[..4].copy_from_slice(&rights.unwrap_or(0).to_le_bytes());
    end[KEY_RIGHTS_SIZE..].copy_from_slice(&FP_XSTATE_MAGIC2.to_le_bytes());
    let end = if rights.is_some() { &end[..] } else { &end[KEY_RIGHTS_SIZE..] };
    write_to_stack(task, to + (size + MAGIC2_SIZE - end.len()) as u64, end)
}

/// Writes a part of a frame. A stack that wants memory gets it, as if the program had called the handler itself.
fn write_to_stack(task: &Arc<Task>, to: u64, bytes: &[u8]) -> Result<(), Errno> {
    loop {
        let whole = uaccess::write_whatever_key(to, bytes) == bytes.len();
        let written = if whole { Ok(()) } else { Err(Errno::EFAULT) };
        if whole || !oom::relieve_store(task, to, bytes.len() as u64) {
            return written;
        }
    }
}

/// What the header of an XSAVE area says of its components.
fn components_of(area: &[u8; XSAVE_SIZE]) -> u64 {
    u64::read_from_prefix(&area[COMPONENTS..]).map_or(0, |(components, _)| components)
}

/// What a frame says the vector state is to be, and the rights to protection keys. Without the magic words only the legacy part counts (Linux's
/// `check_xstate_in_sigframe`).
fn read_fpstate(from: u64) -> Result<(FpuState, u32), Errno> {
    /// x87 and SSE.
    const LEGACY: u64 = 3;
    /// PKRU as XRSTOR initializes it: everything is allowed.
    const NO_RIGHTS_SAVED: u32 = 0;
    let mut area = [0; XSAVE_SIZE];
    uaccess::read_bytes(from, &mut area[..512])?;
    let reserved = SoftwareReserved::read_from_prefix(&area[SOFTWARE_RESERVED..]).expect("48 bytes are left").0;
    let size = area_size();
    if reserved.magic1 == FP_XSTATE_MAGIC1 && reserved.xstate_size as usize == size {
        let magic: u32 = uaccess::read(from + size as u64)?;
        if magic == FP_XSTATE_MAGIC2 {
            uaccess::read_bytes(from, &mut area)?;
            let components = components_of(&area);
            let rights = match key_rights_offset() {
                Some(offset) if components & KEY_RIGHTS_COMPONENT != 0 => uaccess::read(from + offset as u64)?,
                _ => NO_RIGHTS_SAVED,
            };
            return Ok((FpuState::from_user(area), rights));
        }
    }
    area[512..].fill(0);
    area[512..520].copy_from_slice(&LEGACY.to_le_bytes());
    Ok((FpuState::from_user(area), FIRST_KEY_RIGHTS))
}
