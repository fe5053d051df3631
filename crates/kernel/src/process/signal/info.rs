//! `siginfo_t`: where a signal comes from and what it says.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use foldspace::addr::PAGE_SHIFT;
use foldspace::vma::ProtectionKey;

use super::Signal;
use crate::errno::Errno;
use crate::mm::uaccess;
use crate::process::Pid;

/// `si_code` values (`asm-generic/siginfo.h`).
pub mod code {
    /// Sent by `kill`.
    pub const SI_USER: i32 = 0;
    /// Sent by the kernel.
    pub const SI_KERNEL: i32 = 0x80;
    /// Sent by `sigqueue`.
    pub const SI_QUEUE: i32 = -1;
    /// A timer of `timer_create` is over.
    pub const SI_TIMER: i32 = -2;
    /// Sent by `tkill` or `tgkill`.
    pub const SI_TKILL: i32 = -6;
    /// No VMA at the address.
    pub const SEGV_MAPERR: i32 = 1;
    /// The VMA does not allow the access.
    pub const SEGV_ACCERR: i32 = 2;
    /// The rights to the protection key of the memory do not allow the access.
    pub const SEGV_PKUERR: i32 = 4;
    /// Misaligned address.
    pub const BUS_ADRALN: i32 = 1;
    /// Past the end of what is mapped.
    pub const BUS_ADRERR: i32 = 2;
    /// The memory has failed that the access needed.
    pub const BUS_MCEERR_AR: i32 = 4;
    /// Integer divided by zero.
    pub const FPE_INTDIV: i32 = 1;
    /// Floating point: divided by zero.
    pub const FPE_FLTDIV: i32 = 3;
    /// Floating point: overflow.
    pub const FPE_FLTOVF: i32 = 4;
    /// Floating point: underflow.
    pub const FPE_FLTUND: i32 = 5;
    /// Floating point: inexact result.
    pub const FPE_FLTRES: i32 = 6;
    /// Floating point: invalid operation.
    pub const FPE_FLTINV: i32 = 7;
    /// Unknown instruction.
    pub const ILL_ILLOPN: i32 = 2;
    /// A breakpoint of the debugger.
    pub const TRAP_BRKPT: i32 = 1;
    /// Single step.
    pub const TRAP_TRACE: i32 = 2;
    /// A breakpoint of the processor.
    pub const TRAP_HWBKPT: i32 = 4;
    /// A filter refused a system call.
    pub const SYS_SECCOMP: i32 = 1;
    /// The program wants to hear of a system call.
    pub const SYS_USER_DISPATCH: i32 = 2;
    /// The child exited.
    pub const CLD_EXITED: i32 = 1;
    /// The child was killed.
    pub const CLD_KILLED: i32 = 2;
    /// The traced child has stopped for its tracer.
    pub const CLD_TRAPPED: i32 = 4;
    /// The child stopped.
    pub const CLD_STOPPED: i32 = 5;
    /// The child goes on.
    pub const CLD_CONTINUED: i32 = 6;
}

/// Bytes of a program's `siginfo_t`.
pub const SIGINFO_SIZE: usize = 128;

/// The part of `siginfo_t` that means something; the rest of its 128 bytes is zero.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SigInfo {
    /// `si_signo`.
    pub signo: i32,
    /// `si_errno`.
    pub errno: i32,
    /// `si_code`.
    pub code: i32,
    pad: i32,
    /// The union: pid and uid, an address, a child's status, ... by `code`.
    fields: [u64; 4],
}

const _: () = {
    assert!(size_of::<SigInfo>() == 48);
    assert!(offset_of!(SigInfo, fields) == 16);
};

impl SigInfo {
    fn new(signal: Signal, code: i32, fields: [u64; 4]) -> SigInfo {
        SigInfo { signo: i32::from(signal.number()), errno: 0, code, pad: 0, fields }
    }

    /// Sent by the kernel itself.
    pub fn kernel(signal: Signal) -> SigInfo {
        SigInfo::new(signal, code::SI_KERNEL, [0; 4])
    }

    /// Sent by a process, with `kill` (`SI_USER`) or `tkill` (`SI_TKILL`).
    pub fn user(signal: Signal, code: i32, pid: Pid, uid: u32) -> SigInfo {
        SigInfo::new(signal, code, [u64::from(pid) | u64::from(uid) << 32, 0, 0, 0])
    }

    /// A timer of `timer_create` is over; how many were missed is filled in when it is delivered.
    pub fn timer(signal: Signal, id: i32, value: u64) -> SigInfo {
        SigInfo::new(signal, code::SI_TIMER, [u64::from(id as u32), value, 0, 0])
    }

    /// Whether it says which process sent it, and as whom (`has_si_pid_and_uid` of Linux's `kernel/signal.c`).
    pub fn names_sender(&self) -> bool {
        let by_program = matches!(self.code, code::SI_USER | code::SI_TKILL | code::SI_QUEUE);
        by_program || self.signo == i32::from(Signal::CHLD.number()) && self.code > 0
    }

    /// The same with the user that `shown` makes of it.
    #[must_use]
    pub fn with_user(mut self, shown: impl FnOnce(u32) -> u32) -> SigInfo {
        let uid = shown((self.fields[0] >> 32) as u32);
        self.fields[0] = self.fields[0] & u64::from(u32::MAX) | u64::from(uid) << 32;
        self
    }

    /// The same from nobody that the receiver could see.
    #[must_use]
    pub fn without_sender(mut self) -> SigInfo {
        self.fields[0] &= !u64::from(u32::MAX);
        self
    }

    /// The timer that [`SigInfo::timer`] names.
    pub fn timer_id(&self) -> i32 {
        self.fields[0] as i32
    }

    /// How many were missed.
    pub fn set_overrun(&mut self, overrun: i32) {
        self.fields[0] = self.fields[0] & u64::from(u32::MAX) | u64::from(overrun as u32) << 32;
    }

    /// Caused by an access or an instruction at `address`.
    pub fn fault(signal: Signal, code: i32, address: u64) -> SigInfo {
        SigInfo::new(signal, code, [address, 0, 0, 0])
    }

    /// A filter refused a system call at `address`, with `data` to say why (`SYS_SECCOMP`).
    pub fn refused_call(address: u64, number: u32, architecture: u32, data: u32) -> SigInfo {
        let call = u64::from(number) | u64::from(architecture) << 32;
        SigInfo { errno: data as i32, ..SigInfo::new(Signal::SYS, code::SYS_SECCOMP, [address, call, 0, 0]) }
    }

    /// The program wants to hear itself of a system call at `address` (`SYS_USER_DISPATCH`).
    pub fn dispatched_call(address: u64, number: u32, architecture: u32) -> SigInfo {
        let info = SigInfo::refused_call(address, number, architecture, 0);
        SigInfo { code: code::SYS_USER_DISPATCH, ..info }
    }

    /// The thread may not do to memory with protection key `key` what it tried at `address` (`si_pkey`).
    pub fn key_fault(address: u64, key: ProtectionKey) -> SigInfo {
        SigInfo::new(Signal::SEGV, code::SEGV_PKUERR, [address, 0, key.number().into(), 0])
    }

    /// The memory has failed that an access at `address` needed: all of its page (`si_addr_lsb`).
    pub fn memory_failure(address: u64) -> SigInfo {
        SigInfo::new(Signal::BUS, code::BUS_MCEERR_AR, [address, PAGE_SHIFT.into(), 0, 0])
    }

    /// Tells a parent about a child; times in clock ticks.
    pub fn child(signal: Signal, code: i32, child: Child) -> SigInfo {
        let Child { pid, uid, status, utime, stime } = child;
        SigInfo::new(signal, code, [u64::from(pid) | u64::from(uid) << 32, u64::from(status as u32), utime, stime])
    }

    /// Copies one from a program (`rt_sigqueueinfo`); its signal number is replaced by `signal`.
    pub fn read(from: u64, signal: Signal) -> Result<SigInfo, Errno> {
        SigInfo::read_with_number(from, signal).map(|(_, info)| info)
    }

    /// The same, and the number that the program gave.
    pub fn read_with_number(from: u64, signal: Signal) -> Result<(i32, SigInfo), Errno> {
        let mut info: SigInfo = uaccess::read(from)?;
        let mut rest = [0u8; SIGINFO_SIZE - size_of::<SigInfo>()];
        uaccess::read_bytes(from.wrapping_add(size_of::<SigInfo>() as u64), &mut rest)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        let given = core::mem::replace(&mut info.signo, i32::from(signal.number()));
        Ok((given, info))
    }

    /// The union, as words.
    pub fn fields(&self) -> [u64; 4] {
        self.fields
    }

    /// Which signal it is about.
    pub fn signal(&self) -> Signal {
        Signal::new(self.signo as u64).expect("a SigInfo is made from a Signal")
    }

    /// All 128 bytes, as a program sees them.
    pub fn to_bytes(self) -> [u8; SIGINFO_SIZE] {
        let mut bytes = [0; SIGINFO_SIZE];
        bytes[..size_of::<SigInfo>()].copy_from_slice(self.as_bytes());
        bytes
    }
}

/// What a parent is told about a child.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    /// The child.
    pub pid: Pid,
    /// Its real user id.
    pub uid: u32,
    /// Exit code, or the number of a signal, by `si_code`.
    pub status: i32,
    /// User time, in clock ticks.
    pub utime: u64,
    /// System time, in clock ticks.
    pub stime: u64,
}
