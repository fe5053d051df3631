//! Vector registers, between an entry from user mode and the way back.
//!
//! Compiled Rust uses the sixteen XMM registers, and nothing else of the vector state: no upper halves (it is compiled for the baseline), no x87, no
//! arithmetic with floating point, for which MXCSR would count (`./x build` looks whether that is so). So every entry puts those sixteen into the
//! program's context and every exit takes them from there, by plain moves; all the rest stays in the processor until somebody asks for it or
//! another thread runs. `xsave` and `xrstor` of everything would cost more than most system calls do.

use core::arch::asm;

use super::FpuState;
use super::context::XMM_OFFSET;

/// Components that stay in the processor: x87 and the upper halves. MXCSR, which belongs to both SSE and AVX, is treated by itself.
const REST: u32 = super::cpu::XSTATE_MASK & !SSE;
/// Bit of the XMM registers.
const SSE: u32 = 1 << 1;

/// A line of assembly for each XMM register: between it and its place in the [`FpuState`] that the stack pointer is at.
macro_rules! for_each_xmm {
    ($line:ident) => {
        concat!(
            $line!(0),
            $line!(1),
            $line!(2),
            $line!(3),
            $line!(4),
            $line!(5),
            $line!(6),
            $line!(7),
            $line!(8),
            $line!(9),
            $line!(10),
            $line!(11),
            $line!(12),
            $line!(13),
            $line!(14),
            $line!(15),
        )
    };
}

/// One line of [`save_xmm`].
macro_rules! save_line {
    ($n:literal) => {
        concat!("movaps [rsp + {xmm} + 16 * ", $n, "], xmm", $n, "\n")
    };
}

/// One line of [`load_xmm`].
macro_rules! load_line {
    ($n:literal) => {
        concat!("movaps xmm", $n, ", [rsp + {xmm} + 16 * ", $n, "]\n")
    };
}

/// Assembly that puts the XMM registers into the context that the stack pointer is at. Wants the operand `xmm = const XMM_OFFSET`.
macro_rules! save_xmm {
    () => {
        $crate::arch::vectors::for_each_xmm!(save_line)
    };
}

/// Assembly that takes them from there.
macro_rules! load_xmm {
    () => {
        $crate::arch::vectors::for_each_xmm!(load_line)
    };
}

pub(super) use {for_each_xmm, load_line, load_xmm, save_line, save_xmm};

/// Adds what is in the processor to what the last entry put into the current thread's context, which is then its whole vector state.
///
/// # Safety
/// `context` is in the current thread's context; the registers have not been loaded for another thread since its last entry.
pub unsafe fn save_rest(context: *mut FpuState) {
    // SAFETY: the caller's promise; the area is aligned and its header sound (`FpuState`). The XMM registers' bit says that they are not as after a
    // reset, which may well be.
    unsafe {
        asm!(
            "xsave64 [{context}]",
            "stmxcsr [{context} + {mxcsr}]",
            "or byte ptr [{context} + {header}], {sse}",
            context = in(reg) context,
            mxcsr = const super::context::MXCSR_OFFSET,
            header = const super::context::HEADER_OFFSET,
            sse = const SSE,
            in("eax") REST,
            in("edx") 0,
            options(nostack),
        );
    }
}

/// Loads what the way to user mode does not.
///
/// # Safety
/// `context` is that of the thread that is the current one from now on.
pub unsafe fn load_rest(context: *const FpuState) {
    // SAFETY: the area is aligned, and nothing in it makes the instructions fault (`FpuState`). The kernel has no use for the registers.
    unsafe {
        asm!(
            "xrstor64 [{context}]",
            "ldmxcsr [{context} + {mxcsr}]",
            context = in(reg) context,
            mxcsr = const super::context::MXCSR_OFFSET,
            in("eax") REST,
            in("edx") 0,
            options(nostack, readonly),
        );
    }
}

const _: () = assert!(XMM_OFFSET.is_multiple_of(16));
