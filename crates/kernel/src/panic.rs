//! The end of a kernel that has found itself wrong: what, the registers, who called whom, and QEMU's exit status.

use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::arch::{self, TrapFrame};
use crate::log::panic_write;
use crate::mm;

/// What is written to isa-debug-exit: QEMU then exits with status 35.
const PANIC_EXIT: u32 = 0x11;

/// Frames that a backtrace shows at most.
const MAX_FRAMES: usize = 48;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(location) => die(format_args!("{}, {location}", info.message()), None),
        None => die(format_args!("{}", info.message()), None),
    }
}

/// Says why, shows registers if an exception has saved some, and the calls that led there; then ends the machine.
pub fn die(reason: fmt::Arguments<'_>, frame: Option<&TrapFrame>) -> ! {
    static DYING: AtomicBool = AtomicBool::new(false);
    static BY: AtomicUsize = AtomicUsize::new(usize::MAX);
    let own = arch::processor();
    if DYING.swap(true, Ordering::SeqCst) {
        if BY.load(Ordering::SeqCst) == own {
            die_again(reason);
        }
        // One report is enough, and this processor is about to be stopped.
        arch::halt();
    }
    BY.store(own, Ordering::SeqCst);
    arch::stop_others();
    panic_write(format_args!("\nkernel panic: {reason}\n"));
    if let Some(pid) = crate::sched::current_pid() {
        panic_write(format_args!("  in process {pid}\n"));
    }
    if let Some(frame) = frame {
        print_registers(frame);
    }
    panic_write(format_args!("backtrace:\n"));
    match frame {
        Some(frame) => print_backtrace(Some(frame.rip), frame.rbp),
        None => print_backtrace(None, frame_pointer()),
    }
    // What this processor waits for is often another's to give.
    for (number, instruction, frame_pointer) in arch::stopped_others() {
        panic_write(format_args!("processor {number} was at:\n"));
        print_backtrace(Some(instruction), frame_pointer);
    }
    panic_write(format_args!("end of kernel panic\n"));
    arch::poweroff(PANIC_EXIT);
}

/// A second failure while the first is being reported.
fn die_again(reason: fmt::Arguments<'_>) -> ! {
    panic_write(format_args!("\nkernel panic while reporting a panic: {reason}\n"));
    arch::poweroff(PANIC_EXIT);
}

fn print_registers(frame: &TrapFrame) {
    let f = frame;
    panic_write(format_args!(
        "  rip {:016x} cs {:02x} rflags {:08x} rsp {:016x} ss {:02x}\n",
        f.rip, f.cs, f.rflags, f.rsp, f.ss
    ));
    panic_write(format_args!("  rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n", f.rax, f.rbx, f.rcx, f.rdx));
    panic_write(format_args!("  rsi {:016x} rdi {:016x} rbp {:016x}  r8 {:016x}\n", f.rsi, f.rdi, f.rbp, f.r8));
    panic_write(format_args!("   r9 {:016x} r10 {:016x} r11 {:016x} r12 {:016x}\n", f.r9, f.r10, f.r11, f.r12));
    panic_write(format_args!("  r13 {:016x} r14 {:016x} r15 {:016x}\n", f.r13, f.r14, f.r15));
}

#[inline(always)]
fn frame_pointer() -> u64 {
    let pointer;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// One line per caller, `#N address`; the command `foldspace` puts names to them. Prebuilt `core` keeps no frame pointers, so
/// callers of its functions can be missing.
fn print_backtrace(first: Option<u64>, frame_pointer: u64) {
    let mut number = 0;
    let mut line = |address: u64| {
        panic_write(format_args!("  #{number} {address:#018x}\n"));
        number += 1;
    };
    if let Some(address) = first {
        line(address);
    }
    let mut pointer = frame_pointer;
    for _ in 0..MAX_FRAMES {
        if !mm::is_kernel_stack(pointer) {
            break;
        }
        // SAFETY: it lies in a mapped kernel stack and is aligned.
        let (next, address) = unsafe { (*(pointer as *const u64), *(pointer as *const u64).add(1)) };
        if !mm::is_kernel_text(address) {
            break;
        }
        line(address);
        if next <= pointer {
            break;
        }
        pointer = next;
    }
}

/// Prebuilt `core` refers to it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Prebuilt `core` refers to it; nothing unwinds here.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    unreachable!("nothing unwinds in the kernel")
}
