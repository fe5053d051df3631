//! Loads and stores that may fault.
//!
//! Each is one instruction of a function written in assembly; the signal handler sends a fault in them to a place of the same function that
//! returns 1. A fault anywhere else is a mistake of this program and ends it.

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

core::arch::global_asm!(
    ".text",
    "foldspace_diff_access:",
    "foldspace_diff_load:",
    "  mov rax, [rdi]",
    "  mov [rsi], rax",
    "  xor eax, eax",
    "  ret",
    "foldspace_diff_store:",
    "  mov [rdi], rsi",
    "  xor eax, eax",
    "  ret",
    "foldspace_diff_faulted:",
    "  mov eax, 1",
    "  ret",
);

unsafe extern "C" {
    /// First instruction of the three.
    static foldspace_diff_access: u8;
    /// One past the last that may fault.
    static foldspace_diff_faulted: u8;
    /// Loads 8 bytes at `addr` into `out`; 1 if that faulted.
    fn foldspace_diff_load(addr: u64, out: *mut u64) -> u64;
    /// Stores 8 bytes at `addr`; 1 if that faulted.
    fn foldspace_diff_store(addr: u64, value: u64) -> u64;
}

static SIGNAL: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);

/// A signal and its `si_code`.
pub type Fault = (i32, i32);

/// From now on faults in this module's functions are errors of theirs, in this process and those that it forks.
pub fn catch_faults() {
    // SAFETY: zeros are a valid `sigaction`; the handler touches nothing but two atomics and the saved registers.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &action, core::ptr::null_mut());
        }
    }
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel gives a signal frame's information and context to handlers installed with SA_SIGINFO.
    let (code, registers) = unsafe { ((*info).si_code, &mut (*context).uc_mcontext.gregs) };
    let at = registers[libc::REG_RIP as usize];
    let first = &raw const foldspace_diff_access as i64;
    let faulted = &raw const foldspace_diff_faulted as i64;
    if (first..faulted).contains(&at) {
        SIGNAL.store(signal, Relaxed);
        CODE.store(code, Relaxed);
        registers[libc::REG_RIP as usize] = faulted;
    } else {
        // SAFETY: ends this process.
        unsafe { libc::_exit(100 + signal) };
    }
}

fn outcome(faulted: u64) -> Result<(), Fault> {
    if faulted == 0 { Ok(()) } else { Err((SIGNAL.load(Relaxed), CODE.load(Relaxed))) }
}

/// Loads 8 bytes of the window.
pub fn load(addr: u64) -> Result<u64, Fault> {
    let mut value = 0;
    // SAFETY: reads 8 bytes of memory that belongs to no object of this program, or faults.
    outcome(unsafe { foldspace_diff_load(addr, &mut value) }).map(|()| value)
}

/// Stores 8 bytes in the window.
pub fn store(addr: u64, value: u64) -> Result<(), Fault> {
    debug_assert!(crate::window::contains(addr, addr + 8));
    // SAFETY: writes 8 bytes of memory that belongs to no object of this program, or faults.
    outcome(unsafe { foldspace_diff_store(addr, value) })
}
