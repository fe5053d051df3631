//! Exceptions of programs: the signal that each becomes, and the line in the kernel's log when a wild access is the end.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;

use foldspace::VirtAddr;
use foldspace::space::{Access, Fault};
use foldspace::vma::{Backing, Vma, VmaFlags};

use super::Task;
use super::keys;
use super::signal::info::code;
use super::signal::{SigInfo, Signal, send};
use super::task::Trap;
use crate::arch::breakpoints::{self, STATUS_STEP};
use crate::arch::cpu::{self, Counter};
use crate::arch::exceptions::{FAULT_FETCH, FAULT_USER, FAULT_WRITE};
use crate::arch::{Exception, FpuState, TrapFrame};
use crate::fs::userfault::{self, By, Outcome};
use crate::sched;

/// What the program tried, from a page fault's error code.
fn access(error_code: u64) -> Access {
    if error_code & FAULT_WRITE != 0 {
        Access::Write
    } else if error_code & FAULT_FETCH != 0 {
        Access::Execute
    } else {
        Access::Read
    }
}

/// A page fault of the current program that the memory manager could not resolve: SIGSEGV or SIGBUS. When no frame is
/// left, somebody has to go.
pub fn handle_page_fault(_frame: &mut TrapFrame, address: u64, error_code: u64) {
    let task = sched::current();
    // Asked again for the reason: it may even have become possible meanwhile, and the program simply tries again.
    let fault = match sched::with_space(|space| space.fault(VirtAddr(address), access(error_code))) {
        Some(Err(fault)) => fault,
        Some(Ok(())) if address < foldspace::addr::USER_END.get() && error_code & FAULT_USER != 0 => {
            let Some(key) = keys::refusing(VirtAddr(address), access(error_code)) else { return };
            *task.last_trap.lock() = Trap { vector: Exception::PageFault as u64, error_code, address };
            return send::force(&task, SigInfo::key_fault(address, key));
        }
        _ => Fault::NotMapped,
    };
    *task.last_trap.lock() = Trap { vector: Exception::PageFault as u64, error_code, address };
    let info = match fault {
        Fault::NotMapped => SigInfo::fault(Signal::SEGV, code::SEGV_MAPERR, address),
        Fault::AccessDenied => SigInfo::fault(Signal::SEGV, code::SEGV_ACCERR, address),
        Fault::PastEnd => SigInfo::fault(Signal::BUS, code::BUS_ADRERR, address),
        Fault::Watched { watcher, kind } => {
            match userfault::wait(&task, watcher, kind, address, access(error_code), By::Program) {
                // A signal is delivered first, and the access tried again after it.
                Outcome::Again | Outcome::Interrupted => return,
                Outcome::Refused => SigInfo::fault(Signal::BUS, code::BUS_ADRERR, address),
            }
        }
        Fault::Poisoned => SigInfo::memory_failure(address),
        // Tried again, when there is some, unless this is the one that has to go.
        Fault::OutOfMemory => return super::oom::relieve(&task),
    };
    send::force(&task, info);
}

/// Any other exception of the current program.
pub fn handle_exception(frame: &mut TrapFrame, exception: Exception, error_code: u64) {
    let task = sched::current();
    let stopped_by = if exception == Exception::Debug { debug_stop(&task, frame) } else { DebugStop::Nothing };
    if stopped_by == DebugStop::Foreign {
        return;
    }
    // Refused for somebody who ran here before, perhaps.
    if exception == Exception::GeneralProtection
        && cpu::counter() == Counter::Refused
        && task.thread.counter() == Counter::Readable
    {
        return cpu::set_counter(Counter::Readable);
    }
    *task.last_trap.lock() = Trap { vector: exception as u64, error_code, address: 0 };
    let at = frame.rip;
    let info = match exception {
        Exception::DivideError => SigInfo::fault(Signal::FPE, code::FPE_INTDIV, at),
        Exception::Debug => SigInfo::fault(Signal::TRAP, stopped_by.code(), at),
        Exception::Breakpoint => SigInfo::kernel(Signal::TRAP),
        Exception::InvalidOpcode => SigInfo::fault(Signal::ILL, code::ILL_ILLOPN, at),
        Exception::X87 => SigInfo::fault(Signal::FPE, x87_code(task.thread.fpu()), at),
        Exception::Simd => SigInfo::fault(Signal::FPE, simd_code(task.thread.fpu()), at),
        Exception::AlignmentCheck => SigInfo::fault(Signal::BUS, code::BUS_ADRALN, 0),
        Exception::StackSegment | Exception::SegmentNotPresent => SigInfo::kernel(Signal::BUS),
        _ => SigInfo::kernel(Signal::SEGV),
    };
    send::force(&task, info);
}

/// What a debug exception is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DebugStop {
    /// The trap flag.
    Step,
    /// A breakpoint of the thread's.
    Breakpoint,
    /// A breakpoint of somebody who ran on this processor before.
    Foreign,
    /// The program's own instruction for it.
    Nothing,
}

impl DebugStop {
    /// `get_si_code` of Linux's `arch/x86/kernel/traps.c`.
    fn code(self) -> i32 {
        match self {
            DebugStop::Step => code::TRAP_TRACE,
            DebugStop::Breakpoint => code::TRAP_HWBKPT,
            DebugStop::Foreign | DebugStop::Nothing => code::TRAP_BRKPT,
        }
    }
}

/// Notes for the tracer what has stopped the current thread.
fn debug_stop(task: &Task, frame: &mut TrapFrame) -> DebugStop {
    /// RFLAGS' resume flag: the instruction at which an execution breakpoint is has not been executed, and is to be.
    const RESUME_FLAG: u64 = 1 << 16;
    let status = breakpoints::take_status();
    let mut own = task.thread.breakpoints();
    // The processor may report those that are off, too.
    let hit = status & own.on();
    if status != 0 && hit == 0 && status & STATUS_STEP == 0 {
        if own.on() == 0 {
            breakpoints::switch_off();
        }
        return DebugStop::Foreign;
    }
    let executed = |index: usize| hit & 1 << index != 0 && own.is_for_execution(index);
    if (0..breakpoints::COUNT).any(executed) {
        frame.rflags |= RESUME_FLAG;
    }
    own.status = status & STATUS_STEP | hit;
    task.thread.set_breakpoints(own);
    match own.status {
        0 => DebugStop::Nothing,
        status if status & STATUS_STEP != 0 => DebugStop::Step,
        _ => DebugStop::Breakpoint,
    }
}

/// Which of the unmasked floating-point exceptions happened, as bits of the status and control words have them: Linux's `fpu__exception_code`.
fn floating_point_code(raised: u32) -> i32 {
    const INVALID: u32 = 1;
    const DENORMAL: u32 = 2;
    const ZERO_DIVIDE: u32 = 4;
    const OVERFLOW: u32 = 8;
    const UNDERFLOW: u32 = 16;
    const PRECISION: u32 = 32;
    if raised & INVALID != 0 {
        code::FPE_FLTINV
    } else if raised & ZERO_DIVIDE != 0 {
        code::FPE_FLTDIV
    } else if raised & OVERFLOW != 0 {
        code::FPE_FLTOVF
    } else if raised & (DENORMAL | UNDERFLOW) != 0 {
        code::FPE_FLTUND
    } else if raised & PRECISION != 0 {
        code::FPE_FLTRES
    } else {
        0
    }
}

fn x87_code(fpu: &FpuState) -> i32 {
    let bytes = fpu.as_bytes();
    let control = u16::from_le_bytes([bytes[0], bytes[1]]);
    let status = u16::from_le_bytes([bytes[2], bytes[3]]);
    floating_point_code(u32::from(status & !control))
}

fn simd_code(fpu: &FpuState) -> i32 {
    let bytes = fpu.as_bytes();
    let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
    floating_point_code(mxcsr & !(mxcsr >> 7))
}

/// Writes the line about a process that its own instruction ends: process, address, access and VMA for a wild access, else the
/// signal and where the program was. What others sent is theirs to report.
pub fn report_fatal(task: &Arc<Task>, info: &SigInfo) {
    if info.code <= 0 {
        return;
    }
    let comm = task.comm();
    let name = Lossy(&comm);
    let rip = task.thread.frame().rip;
    let trap = task.last_trap();
    let is_access = trap.vector == Exception::PageFault as u64
        && (info.signo == i32::from(Signal::SEGV.number()) || info.signo == i32::from(Signal::BUS.number()))
        && info.code != code::SI_KERNEL;
    if !is_access {
        log::warn!("{name}[{}]: killed by signal {} (code {}) at ip {rip:#x}", task.tgid, info.signo, info.code);
        return;
    }
    let what = match access(trap.error_code) {
        Access::Read => "read",
        Access::Write => "write",
        Access::Execute => "execution",
    };
    let place = describe_place(task, VirtAddr(trap.address));
    let rsp = task.thread.frame().rsp;
    log::warn!("{name}[{}]: wild {what} at {:#x}, ip {rip:#x}, sp {rsp:#x}: {place}", task.tgid, trap.address);
}

/// The VMA at an address, or its two neighbours.
fn describe_place(task: &Task, address: VirtAddr) -> String {
    let version = task.space().vmas();
    let around = version.view().neighbours(address);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match around.at_or_after {
        Some(vma) if vma.range.contains(address) => write!(text, "in {}", Row(vma)),
        after => match (around.before, after) {
            (Some(before), Some(after)) => write!(text, "between {} and {}", Row(before), Row(after)),
            (Some(before), None) => write!(text, "above {}", Row(before)),
            (None, Some(after)) => write!(text, "below {}", Row(after)),
            (None, None) => write!(text, "nothing is mapped"),
        },
    };
    text
}

/// A VMA on one line.
struct Row<'a>(&'a Vma);

impl core::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Row(vma) = self;
        let letter = |flag: VmaFlags, letter: char| if vma.flags.contains(flag) { letter } else { '-' };
        write!(
            f,
            "{:x}-{:x} {}{}{}{}",
            vma.start().get(),
            vma.end().get(),
            letter(VmaFlags::READ, 'r'),
            letter(VmaFlags::WRITE, 'w'),
            letter(VmaFlags::EXEC, 'x'),
            if vma.flags.contains(VmaFlags::SHARED) { 's' } else { 'p' },
        )?;
        match &vma.backing {
            Backing::Anonymous if vma.flags.contains(VmaFlags::GROWS_DOWN) => f.write_str(" (stack)"),
            Backing::Anonymous => f.write_str(" (anonymous)"),
            Backing::Reference(_) => f.write_str(" (reference page)"),
            Backing::Object(object) => {
                let mut path = Vec::new();
                object.path(&mut path);
                write!(f, " ({}, page {})", Lossy(&path), vma.page_offset)
            }
        }
    }
}

/// Bytes shown as text.
struct Lossy<'a>(&'a [u8]);

impl core::fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char('\u{fffd}')?;
            }
        }
        Ok(())
    }
}
