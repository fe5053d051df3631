//! Into the kernel by `syscall`, out of it to user mode, and from one kernel stack to another.
//!
//! At an entry from user mode the stack pointer is the top of the thread's kernel stack; a [`UserContext`] is built there
//! ([`TrapFrame`] by pushes, XMM registers by moves: [`super::vectors`]), and the handler runs right below it.

use core::arch::naked_asm;
use core::mem::offset_of;

use x86_64::VirtAddr;
use x86_64::registers::model_specific::{LStar, Msr, SFMask};
use x86_64::registers::rflags::RFlags;

use super::context::{FRAME_OFFSET, XMM_OFFSET};
use super::gdt::{KERNEL_CODE, SYSRET_BASE, USER_CODE, USER_DATA};
use super::vectors::{load_line, load_xmm, save_line, save_xmm};
use super::{TrapFrame, UserContext, percpu};

/// IA32_STAR: segment bases of `syscall` and `sysret`.
const IA32_STAR: u32 = 0xc000_0081;

/// Flags with which `sysret` does not return as `iret` would: RF, which it drops, and TF, which would trap in the kernel.
const FLAGS_FOR_IRET: u64 = 1 << 16 | 1 << 8;

/// Makes `syscall` come here.
///
/// # Safety
/// Once per processor, after its segments and its per-processor structure are in place.
pub unsafe fn init() {
    LStar::write(VirtAddr::new(syscall_entry as *const () as u64));
    // Interrupts off, and everything that a program may have set and compiled code relies on.
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::ALIGNMENT_CHECK
            | RFlags::NESTED_TASK
            | RFlags::IOPL_LOW
            | RFlags::IOPL_HIGH,
    );
    // SAFETY: the bases match the GDT: kernel code and data; user data and code.
    unsafe { Msr::new(IA32_STAR).write(u64::from(SYSRET_BASE) << 48 | u64::from(KERNEL_CODE) << 32) };
}

/// Where `syscall` jumps to: rcx = return address, r11 = flags, still on the program's stack.
#[unsafe(naked)]
unsafe extern "C" fn syscall_entry() {
    naked_asm!(
        "swapgs",
        "mov gs:[{user_stack}], rsp",
        "mov rsp, gs:[{kernel_stack}]",
        "mov byte ptr gs:[{mode}], 0",
        "push {user_data}",
        "push qword ptr gs:[{user_stack}]",
        "push r11",
        "push {user_code}",
        "push rcx",
        "push rax",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rax",
        "push r8",
        "push r9",
        "push r10",
        "push r11",
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "lea rdi, [rsp]",
        "sub rsp, {frame_offset}",
        save_xmm!(),
        // The end of the chain of frames, for backtraces.
        "xor ebp, ebp",
        "call {dispatch}",
        "jmp {leave}",
        user_stack = const percpu::USER_STACK,
        kernel_stack = const percpu::KERNEL_STACK,
        mode = const percpu::MODE,
        user_data = const USER_DATA,
        user_code = const USER_CODE,
        frame_offset = const FRAME_OFFSET,
        xmm = const XMM_OFFSET,
        dispatch = sym dispatch,
        leave = sym leave_kernel,
    )
}

extern "C" fn dispatch(frame: &mut TrapFrame) {
    crate::syscall::dispatch(frame);
}

/// To user mode, with what the context at the top of the stack says. The stack pointer must be at that context.
///
/// `sysret` only where it does exactly what `iret` would: rcx and r11 hold what it takes from them, the segments are
/// the usual ones, no flag that it treats differently. Neither instruction may be given an address that is not canonical: it would fault in
/// the kernel, on Intel's `sysret` with the program's stack; such an address is first turned into a fault of the program.
#[unsafe(naked)]
pub unsafe extern "C" fn leave_kernel() -> ! {
    naked_asm!(
        // Announced first, looked for work then: see `percpu::Mode`.
        "2: lock inc dword ptr gs:[{mode}]",
        "js 7f",
        "mov rax, gs:[{work}]",
        "cmp dword ptr [rax], 0",
        "jne 8f",
        "mov rcx, [rsp + {rip}]",
        "mov r11, [rsp + {rflags}]",
        "mov rax, rcx",
        "shr rax, 47",
        "jne 9f",
        load_xmm!(),
        "cmp rcx, [rsp + {rcx}]",
        "jne 5f",
        "cmp r11, [rsp + {r11}]",
        "jne 5f",
        "cmp qword ptr [rsp + {cs}], {user_code}",
        "jne 5f",
        "cmp qword ptr [rsp + {ss}], {user_data}",
        "jne 5f",
        "test r11d, {flags_for_iret}",
        "jne 5f",
        "add rsp, {frame_offset}",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov rsp, [rsp + 32]",
        "swapgs",
        "sysretq",
        "5: add rsp, {frame_offset}",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "add rsp, 8",
        "swapgs",
        "iretq",
        "7: mov byte ptr gs:[{mode}], 0",
        "call {attend}",
        "jmp 2b",
        "8: mov byte ptr gs:[{mode}], 0",
        "lea rdi, [rsp + {frame_offset}]",
        "call {do_work}",
        "jmp 2b",
        "9: mov byte ptr gs:[{mode}], 0",
        "lea rdi, [rsp + {frame_offset}]",
        "call {bad_address}",
        "jmp 2b",
        mode = const percpu::MODE,
        work = const percpu::WORK,
        xmm = const XMM_OFFSET,
        frame_offset = const FRAME_OFFSET,
        rip = const FRAME_OFFSET + offset_of!(TrapFrame, rip),
        rflags = const FRAME_OFFSET + offset_of!(TrapFrame, rflags),
        rcx = const FRAME_OFFSET + offset_of!(TrapFrame, rcx),
        r11 = const FRAME_OFFSET + offset_of!(TrapFrame, r11),
        cs = const FRAME_OFFSET + offset_of!(TrapFrame, cs),
        ss = const FRAME_OFFSET + offset_of!(TrapFrame, ss),
        user_code = const USER_CODE,
        user_data = const USER_DATA,
        flags_for_iret = const FLAGS_FOR_IRET,
        attend = sym attend,
        do_work = sym do_work,
        bad_address = sym bad_return_address,
    )
}

/// What other processors ask of this one.
extern "C" fn attend() {
    crate::mm::serve_shootdowns();
    super::park_if_told();
}

/// What the current thread's work word asks for.
extern "C" fn do_work(frame: &mut TrapFrame) {
    crate::sched::work_before_user(frame);
}

/// The program would go on outside the user half: that is a fault of the program.
extern "C" fn bad_return_address(frame: &mut TrapFrame) {
    let address = frame.rip;
    super::exceptions::fault_on_return(frame, address);
}

/// Saves what the calling convention keeps and the stack pointer through `save`, and goes on with the stack pointer `load`, which was saved
/// so or made by [`new_thread_entry`].
///
/// # Safety
/// `load` is such a value, used once; interrupts are off.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_context(save: *mut u64, load: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// A stack with a [`UserContext`] at its top.
#[derive(Clone, Copy)]
pub struct ContextPointer(*mut UserContext);

impl ContextPointer {
    /// The context of a stack that ends at `stack_top`.
    pub fn at_top_of(stack_top: u64) -> ContextPointer {
        ContextPointer((stack_top - size_of::<UserContext>() as u64) as *mut UserContext)
    }

    /// The context.
    pub fn as_ptr(self) -> *mut UserContext {
        self.0
    }
}

/// What a thread does before it first goes to user mode.
pub type KernelEntry = extern "C" fn();

/// Prepares a stack so that [`switch_context`] to the returned value runs `start`, and, when that returns, goes to user mode with `context`.
///
/// # Safety
/// The stack is the caller's, and nothing runs on it.
pub unsafe fn new_thread_entry(context: ContextPointer, start: KernelEntry) -> u64 {
    let mut top = context.0.cast::<u64>();
    let mut push = |value: u64| {
        // SAFETY: the stack is much larger than what is pushed here, and the caller's.
        unsafe {
            top = top.sub(1);
            top.write(value);
        }
    };
    // Popped by the trampoline, which then calls it with the stack pointer at the context: aligned as a call must be.
    push(start as usize as u64);
    push(thread_trampoline as *const () as u64);
    for _saved_register in 0..6 {
        push(0);
    }
    top as u64
}

/// First code of a new thread: the stack pointer is at the address of its start function, right below its context.
#[unsafe(naked)]
unsafe extern "C" fn thread_trampoline() -> ! {
    naked_asm!(
        "pop rax",
        "call rax",
        "jmp {leave}",
        leave = sym leave_kernel,
    )
}
