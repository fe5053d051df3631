//! What a user program's registers look like while the kernel runs.

use core::mem::offset_of;

use super::gdt::{USER_CODE, USER_DATA};

/// General registers at an entry from user mode, in the order of Linux's `struct pt_regs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// Number of the system call that is being made; [`TrapFrame::NO_CALL`] in an exception or interrupt.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

impl TrapFrame {
    /// What `orig_rax` holds outside system calls.
    pub const NO_CALL: u64 = u64::MAX;

    /// Flags that a program may change: Linux's `FIX_EFLAGS` (signal return) with the ID bit.
    pub const USER_FLAGS: u64 = 0x24_4dd5 & !0x20_0000;

    /// The state in which a program starts: at `rip`, with stack pointer `rsp` and everything else zero.
    pub fn new_program(rip: u64, rsp: u64) -> TrapFrame {
        TrapFrame {
            rip,
            rsp,
            cs: u64::from(USER_CODE),
            ss: u64::from(USER_DATA),
            rflags: RFLAGS_START,
            orig_rax: TrapFrame::NO_CALL,
            ..TrapFrame::default()
        }
    }

    /// Takes `flags` for the bits that a program may set and leaves the others (IF among them) as they are.
    pub fn set_user_flags(&mut self, flags: u64) {
        self.rflags = self.rflags & !TrapFrame::USER_FLAGS | flags & TrapFrame::USER_FLAGS;
    }
}

/// Interrupts on, and the bit that is always one.
const RFLAGS_START: u64 = 0x202;

/// Bytes of the legacy region (FXSAVE), the XSAVE header and the AVX component, which is at 576 in the standard format
/// (Intel SDM vol. 1, 13.4).
pub const XSAVE_SIZE: usize = 512 + 64 + 256;

/// Where MXCSR is in the area, the XMM registers, and the header, whose first byte says which components are not as after a reset.
pub const MXCSR_OFFSET: usize = 24;
pub const XMM_OFFSET: usize = 160;
pub const HEADER_OFFSET: usize = 512;
/// Past the XMM registers.
const XMM_END: usize = XMM_OFFSET + 16 * 16;

/// x87, SSE and AVX state in XSAVE's standard format. XCR0 is limited to those three, and to the rights to protection keys, which are kept elsewhere.
///
/// # Invariants
///
/// `XRSTOR` takes it: no bit is set that is reserved. The XMM registers are what the bytes say, also where the header says that they are as after a
/// reset.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct FpuState([u8; XSAVE_SIZE]);

impl FpuState {
    /// The state after `exec`: control words at their defaults, registers empty.
    pub const fn new() -> FpuState {
        let mut bytes = [0; XSAVE_SIZE];
        // FCW = 0x37f.
        bytes[0] = 0x7f;
        bytes[1] = 0x03;
        // MXCSR = 0x1f80. (XSTATE_BV = 0: XRSTOR then takes initial values, but MXCSR from here.)
        bytes[MXCSR_OFFSET] = 0x80;
        bytes[MXCSR_OFFSET + 1] = 0x1f;
        FpuState(bytes)
    }

    /// The whole area, as a signal frame shows it.
    pub const fn as_bytes(&self) -> &[u8; XSAVE_SIZE] {
        &self.0
    }

    /// Takes what a program left in a signal frame. `XRSTOR` faults on a bad image, so reserved bits of MXCSR and of the header are
    /// cleared here (as Linux does in `fpu/signal.c` when it copies from user memory).
    pub fn from_user(mut bytes: [u8; XSAVE_SIZE]) -> FpuState {
        /// Bits of MXCSR that exist (with denormals-are-zero).
        const MXCSR_MASK: u32 = 0xffff;
        /// The header's bit of the XMM registers.
        const SSE: u8 = 2;
        let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) & MXCSR_MASK;
        bytes[MXCSR_OFFSET..MXCSR_OFFSET + 4].copy_from_slice(&mxcsr.to_le_bytes());
        bytes[HEADER_OFFSET] &= super::cpu::XSTATE_MASK as u8;
        bytes[HEADER_OFFSET + 1..HEADER_OFFSET + 64].fill(0);
        if bytes[HEADER_OFFSET] & SSE == 0 {
            bytes[XMM_OFFSET..XMM_END].fill(0);
        }
        FpuState(bytes)
    }
}

impl Default for FpuState {
    fn default() -> FpuState {
        FpuState::new()
    }
}

/// All of a program's registers, at the very top of its thread's kernel stack. (FS and GS base are in [`crate::sched::Thread`].)
#[repr(C, align(64))]
pub struct UserContext {
    /// Vector registers.
    pub fpu: FpuState,
    _pad: [u64; 3],
    /// General registers.
    pub frame: TrapFrame,
}

impl UserContext {
    /// A context to be filled in.
    pub const fn new(frame: TrapFrame, fpu: FpuState) -> UserContext {
        UserContext { fpu, _pad: [0; 3], frame }
    }
}

/// From the saved vector registers, which is where the stack pointer is while a handler runs, to the saved general registers.
pub const FRAME_OFFSET: usize = offset_of!(UserContext, frame);

const _: () = assert!(size_of::<UserContext>() == 1024);
const _: () = assert!(FRAME_OFFSET + size_of::<TrapFrame>() == size_of::<UserContext>());
