//! The IDT: exceptions, the timer, and what happens to those that come from the kernel itself (it dies).

use core::arch::naked_asm;
use core::mem::offset_of;

use spin::Once;
use x86_64::VirtAddr;
use x86_64::registers::control::Cr2;
use x86_64::structures::idt::{Entry, InterruptDescriptorTable};

use super::context::{FRAME_OFFSET, XMM_OFFSET};
use super::entry::leave_kernel;
use super::gdt::InterruptStack;
use super::vectors::{save_line, save_xmm};
use super::{TrapFrame, percpu};

/// Exceptions of the processor, by vector (Intel SDM vol. 3, table 6-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exception {
    DivideError = 0,
    Debug = 1,
    NonMaskableInterrupt = 2,
    Breakpoint = 3,
    Overflow = 4,
    BoundRange = 5,
    InvalidOpcode = 6,
    DeviceNotAvailable = 7,
    DoubleFault = 8,
    InvalidTss = 10,
    SegmentNotPresent = 11,
    StackSegment = 12,
    GeneralProtection = 13,
    PageFault = 14,
    X87 = 16,
    AlignmentCheck = 17,
    MachineCheck = 18,
    Simd = 19,
    Virtualization = 20,
    ControlProtection = 21,
}

impl Exception {
    /// Every one.
    const ALL: [Exception; 20] = [
        Exception::DivideError,
        Exception::Debug,
        Exception::NonMaskableInterrupt,
        Exception::Breakpoint,
        Exception::Overflow,
        Exception::BoundRange,
        Exception::InvalidOpcode,
        Exception::DeviceNotAvailable,
        Exception::DoubleFault,
        Exception::InvalidTss,
        Exception::SegmentNotPresent,
        Exception::StackSegment,
        Exception::GeneralProtection,
        Exception::PageFault,
        Exception::X87,
        Exception::AlignmentCheck,
        Exception::MachineCheck,
        Exception::Simd,
        Exception::Virtualization,
        Exception::ControlProtection,
    ];

    fn from_vector(vector: u8) -> Exception {
        Exception::ALL
            .into_iter()
            .find(|&exception| exception as u8 == vector)
            .expect("stubs exist for exceptions only")
    }
}

/// The processor pushed no error code.
const NO_CODE: u8 = 0;
/// The processor pushed one.
const CODE: u8 = 1;

/// Vector of the local APIC's timer.
pub const TIMER_VECTOR: u8 = 0x20;
/// Vector by which one processor makes another come through the kernel.
pub const KICK_VECTOR: u8 = 0x21;
/// Vector of the local APIC's own errors.
pub const ERROR_VECTOR: u8 = 0xfe;
/// Vector of its spurious interrupts, which want no acknowledgement.
pub const SPURIOUS_VECTOR: u8 = 0xff;

/// Bit of a page fault's error code: it was a store.
pub const FAULT_WRITE: u64 = 1 << 1;
/// Bit of a page fault's error code: in user mode.
pub const FAULT_USER: u64 = 1 << 2;
/// Bit of a page fault's error code: an instruction fetch.
pub const FAULT_FETCH: u64 = 1 << 4;

/// Bit of a page fault's error code: the thread's rights to the page's protection key do not allow it.
pub const FAULT_KEY: u64 = 1 << 5;

/// Builds and loads the IDT. There is one for all processors.
///
/// # Safety
/// Segments and the task state segment are loaded.
pub unsafe fn init() {
    static IDT: Once<InterruptDescriptorTable> = Once::new();
    IDT.call_once(|| {
        let mut idt = InterruptDescriptorTable::new();
        fn set<F>(entry: &mut Entry<F>, stub: unsafe extern "C" fn()) {
            // SAFETY: each stub saves and restores what the processor expects of that vector.
            unsafe { entry.set_handler_addr(VirtAddr::new(stub as usize as u64)) };
        }
        set(&mut idt.divide_error, exception_stub::<0, NO_CODE>);
        set(&mut idt.debug, exception_stub::<1, NO_CODE>);
        set(&mut idt.non_maskable_interrupt, fatal_stub::<2, NO_CODE>);
        set(&mut idt.breakpoint, exception_stub::<3, NO_CODE>);
        set(&mut idt.overflow, exception_stub::<4, NO_CODE>);
        set(&mut idt.bound_range_exceeded, exception_stub::<5, NO_CODE>);
        set(&mut idt.invalid_opcode, exception_stub::<6, NO_CODE>);
        set(&mut idt.device_not_available, exception_stub::<7, NO_CODE>);
        set(&mut idt.double_fault, fatal_stub::<8, CODE>);
        set(&mut idt.invalid_tss, exception_stub::<10, CODE>);
        set(&mut idt.segment_not_present, exception_stub::<11, CODE>);
        set(&mut idt.stack_segment_fault, exception_stub::<12, CODE>);
        set(&mut idt.general_protection_fault, exception_stub::<13, CODE>);
        set(&mut idt.page_fault, page_fault_stub);
        set(&mut idt.x87_floating_point, exception_stub::<16, NO_CODE>);
        set(&mut idt.alignment_check, exception_stub::<17, CODE>);
        set(&mut idt.machine_check, fatal_stub::<18, NO_CODE>);
        set(&mut idt.simd_floating_point, exception_stub::<19, NO_CODE>);
        set(&mut idt.virtualization, exception_stub::<20, NO_CODE>);
        set(&mut idt.cp_protection_exception, exception_stub::<21, CODE>);
        set(&mut idt[TIMER_VECTOR], timer_stub);
        set(&mut idt[KICK_VECTOR], kick_stub);
        set(&mut idt[ERROR_VECTOR], ignored_stub);
        set(&mut idt[SPURIOUS_VECTOR], ignored_stub);
        // Programs may execute int3 and into. (`set_handler_addr` is how an entry's options are reached.)
        for entry in [&mut idt.breakpoint, &mut idt.overflow] {
            let address = entry.handler_addr();
            // SAFETY: the stub that was just set.
            unsafe { entry.set_handler_addr(address) }.set_privilege_level(x86_64::PrivilegeLevel::Ring3);
        }
        // SAFETY: the task state segment has these stacks.
        unsafe {
            let address = idt.double_fault.handler_addr();
            idt.double_fault.set_handler_addr(address).set_stack_index(InterruptStack::DoubleFault as u16);
            let address = idt.non_maskable_interrupt.handler_addr();
            idt.non_maskable_interrupt.set_handler_addr(address).set_stack_index(InterruptStack::NonMaskable as u16);
            let address = idt.machine_check.handler_addr();
            idt.machine_check.set_handler_addr(address).set_stack_index(InterruptStack::MachineCheck as u16);
        }
        idt
    })
    .load();
}

/// Saves the general registers above an error code, tells user mode from kernel mode, and (from user mode) completes the context.
/// Arguments of the handler: the frame, the error code. From the kernel: on the exception stack, never back.
macro_rules! entry_stub {
    ($(#[$attribute:meta])* $name:ident $(<$($generic:ident),*>)?, $code:expr, $user:path, $kernel:path) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name $(<$(const $generic: u8),*>)? () {
            naked_asm!(
                ".if {code} == 0",
                "push 0",
                ".endif",
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
                "mov rdi, rsp",
                "test byte ptr [rsp + {cs}], 3",
                "je 7f",
                "swapgs",
                "mov byte ptr gs:[{mode}], 0",
                // Interrupts off, and the flags that a program may have set and compiled code relies on (AC, DF, NT) clear.
                "push 2",
                "popfq",
                "sub rsp, {frame_offset}",
                save_xmm!(),
                "mov rsi, [rdi + {orig_rax}]",
                "mov qword ptr [rdi + {orig_rax}], -1",
                "xor ebp, ebp",
                "call {user}",
                "jmp {leave}",
                "7: mov rsi, [rdi + {orig_rax}]",
                "jmp {kernel}",
                code = const $code,
                cs = const offset_of!(TrapFrame, cs),
                orig_rax = const offset_of!(TrapFrame, orig_rax),
                frame_offset = const FRAME_OFFSET,
                xmm = const XMM_OFFSET,
                mode = const percpu::MODE,
                leave = sym leave_kernel,
                user = sym $user,
                kernel = sym $kernel,
            )
        }
    };
}

entry_stub! {
    /// Exceptions that become signals.
    exception_stub<VECTOR, HAS_CODE>, HAS_CODE, user_exception::<VECTOR>, kernel_exception_stub::<VECTOR>
}
entry_stub! {
    /// Page faults.
    page_fault_stub, CODE, user_page_fault, kernel_exception_stub::<14>
}
entry_stub! {
    /// The timer.
    timer_stub, NO_CODE, user_timer, idle_interrupt_stub::<TIMER_VECTOR>
}
entry_stub! {
    /// Another processor's kick.
    kick_stub, NO_CODE, user_kick, idle_interrupt_stub::<KICK_VECTOR>
}

/// From an exception in the kernel: to the stack for that, so that a bad stack pointer does no more harm.
/// rdi = frame, rsi = error code.
#[unsafe(naked)]
unsafe extern "C" fn kernel_exception_stub<const VECTOR: u8>() -> ! {
    naked_asm!(
        "mov rsp, gs:[{stack}]",
        "call {handler}",
        stack = const percpu::EXCEPTION_STACK,
        handler = sym kernel_exception::<VECTOR>,
    )
}

/// An interrupt came while the processor idled (nowhere else in the kernel are interrupts on): rdi = frame. Idle expects its vector
/// registers to be clobbered.
#[unsafe(naked)]
unsafe extern "C" fn idle_interrupt_stub<const VECTOR: u8>() -> ! {
    naked_asm!(
        "mov rbx, rsp",
        "and rsp, -16",
        "call {handler}",
        "mov rsp, rbx",
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
        "iretq",
        handler = sym idle_interrupt::<VECTOR>,
    )
}

/// Exceptions with a stack of their own, which nothing survives. They may come between an entry and its `swapgs`: what
/// GS base is now decides. (A program that has put a kernel address into its own GS base makes the report less useful, no more.)
#[unsafe(naked)]
unsafe extern "C" fn fatal_stub<const VECTOR: u8, const HAS_CODE: u8>() {
    naked_asm!(
        ".if {code} == 0",
        "push 0",
        ".endif",
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
        "cld",
        "mov ecx, {gs_base}",
        "rdmsr",
        "test edx, edx",
        "js 2f",
        "swapgs",
        "2: mov rdi, rsp",
        "mov rsi, [rdi + {orig_rax}]",
        "and rsp, -16",
        "call {handler}",
        code = const HAS_CODE,
        gs_base = const 0xc000_0101_u32,
        orig_rax = const offset_of!(TrapFrame, orig_rax),
        handler = sym kernel_exception::<VECTOR>,
    )
}

/// Interrupts that want no answer.
#[unsafe(naked)]
unsafe extern "C" fn ignored_stub() {
    naked_asm!("iretq")
}

extern "C" fn user_exception<const VECTOR: u8>(frame: &mut TrapFrame, error_code: u64) {
    crate::process::handle_exception(frame, Exception::from_vector(VECTOR), error_code);
}

extern "C" fn user_page_fault(frame: &mut TrapFrame, error_code: u64) {
    let address = Cr2::read_raw();
    if !crate::mm::resolve_user_fault(address, error_code) {
        crate::process::handle_page_fault(frame, address, error_code);
    }
}

/// A program is to go on at an address outside the user half: what would happen if it did.
pub(super) fn fault_on_return(frame: &mut TrapFrame, address: u64) {
    let is_canonical = VirtAddr::try_new(address).is_ok();
    if is_canonical {
        crate::process::handle_page_fault(frame, address, FAULT_USER | FAULT_FETCH);
    } else {
        crate::process::handle_exception(frame, Exception::GeneralProtection, 0);
    }
}

extern "C" fn user_timer(_frame: &mut TrapFrame, _code: u64) {
    super::apic::ack_interrupt();
    crate::sched::timer_tick(crate::sched::TickIn::User);
}

/// What is wanted is found on the way back, but that a thread is to make place for a more urgent one.
extern "C" fn user_kick(_frame: &mut TrapFrame, _code: u64) {
    super::apic::ack_interrupt();
    crate::sched::kicked();
}

extern "C" fn idle_interrupt<const VECTOR: u8>(_frame: &mut TrapFrame) {
    super::apic::ack_interrupt();
    if VECTOR == TIMER_VECTOR {
        crate::sched::timer_tick(crate::sched::TickIn::Idle);
    }
}

extern "C" fn kernel_exception<const VECTOR: u8>(frame: &TrapFrame, error_code: u64) -> ! {
    let exception = Exception::from_vector(VECTOR);
    if exception == Exception::NonMaskableInterrupt {
        super::stop_if_told(frame);
    }
    let address = Cr2::read_raw();
    crate::panic::die(
        format_args!("{exception:?} in the kernel at {:#x}, error code {error_code:#x}, cr2 {address:#x}", frame.rip),
        Some(frame),
    );
}
