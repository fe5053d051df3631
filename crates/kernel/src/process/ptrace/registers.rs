//! A tracee's registers as its tracer sees them: `struct user_regs_struct`, `user_fpregs_struct`, the XSAVE area.

use crate::arch::breakpoints::COUNT;
use crate::arch::context::XSAVE_SIZE;
use crate::arch::cpu::{KEY_RIGHTS_COMPONENT, KEY_RIGHTS_SIZE};
use crate::arch::{Breakpoints, FpuState, LiveRegisters, TrapFrame, USER_CODE, USER_DATA, cpu};
use crate::errno::Errno;
use crate::process::Task;

/// Words of `struct user_regs_struct`: the saved frame in its order, two bases, four selectors.
pub const WORDS: usize = FRAME_WORDS + 6;
const FRAME_WORDS: usize = size_of::<TrapFrame>() / 8;
/// Indices (`asm/ptrace-abi.h`).
const RIP: usize = 16;
const CS: usize = 17;
const FLAGS: usize = 18;
const SS: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;

/// Bytes of `struct user_fpregs_struct`: XSAVE's legacy region.
pub const LEGACY_SIZE: usize = 512;
/// Bytes that the whole area has at most: the rights to protection keys come last, where Intel's processors have them at 2,688.
pub const EXTENDED_MAX: usize = 2688 + KEY_RIGHTS_SIZE;
/// Where the area, as programs see it, says which components it has (`USER_XSTATE_FX_SW_WORDS`).
const COMPONENTS: usize = 464;

/// RFLAGS' trap flag.
pub const TRAP_FLAG: u64 = 1 << 8;
/// The flags that a tracer may change (Linux's `FLAG_MASK`).
const TRACER_FLAGS: u64 = 0x5_4dd5;

const _: () = assert!(WORDS == 27);

/// DR6, which has ones where nothing is said.
const STATUS: usize = 6;
const STATUS_IDLE: u64 = 0xffff_0ff0;
/// DR7.
const CONTROL: usize = 7;

/// Whether the processor is to be given these (`hw_breakpoint_arch_parse`).
fn check_breakpoints(wanted: &Breakpoints) -> Result<(), Errno> {
    const EXECUTION: u64 = 0;
    const PORTS: u64 = 2;
    for (index, &address) in wanted.addresses.iter().enumerate() {
        if address >= foldspace::addr::USER_END.get() {
            return Err(Errno::EINVAL);
        }
        if !wanted.is_on(index) {
            continue;
        }
        let (kind, len) = (wanted.control >> (16 + 4 * index) & 3, wanted.control >> (18 + 4 * index) & 3);
        let bytes = [1, 2, 8, 4][len as usize];
        if kind == PORTS || kind == EXECUTION && bytes != 1 || !address.is_multiple_of(bytes) {
            return Err(Errno::EINVAL);
        }
    }
    Ok(())
}

/// Where the rights to protection keys are in the area, if it has them.
fn key_rights_at() -> Option<usize> {
    cpu::key_rights_offset().filter(|offset| offset + KEY_RIGHTS_SIZE <= EXTENDED_MAX)
}

/// Bytes of the whole area.
pub fn extended_size() -> usize {
    key_rights_at().map_or(XSAVE_SIZE, |offset| offset + KEY_RIGHTS_SIZE)
}

/// Everything that a program's processor state is.
#[derive(Clone)]
pub struct Registers {
    frame: TrapFrame,
    live: LiveRegisters,
    fpu: FpuState,
    breakpoints: Breakpoints,
}

impl Registers {
    /// Those of the current thread.
    pub fn of(task: &Task, frame: &TrapFrame) -> Registers {
        Registers {
            frame: *frame,
            live: task.thread.live_registers(),
            fpu: *task.thread.fpu(),
            breakpoints: task.thread.breakpoints(),
        }
    }

    /// Makes them those of the current thread.
    pub fn restore(&self, task: &Task, frame: &mut TrapFrame) {
        *frame = self.frame;
        task.thread.set_live_registers(self.live);
        task.thread.set_fpu(&self.fpu);
        task.thread.set_breakpoints(self.breakpoints);
    }

    /// The general ones.
    pub fn frame(&self) -> &TrapFrame {
        &self.frame
    }

    /// Sets or clears the trap flag.
    pub fn set_trap_flag(&mut self, on: bool) {
        self.frame.rflags = self.frame.rflags & !TRAP_FLAG | if on { TRAP_FLAG } else { 0 };
    }

    /// As `struct user_regs_struct`.
    pub fn words(&self) -> [u64; WORDS] {
        let f = &self.frame;
        [
            f.r15,
            f.r14,
            f.r13,
            f.r12,
            f.rbp,
            f.rbx,
            f.r11,
            f.r10,
            f.r9,
            f.r8,
            f.rax,
            f.rcx,
            f.rdx,
            f.rsi,
            f.rdi,
            f.orig_rax,
            f.rip,
            f.cs,
            f.rflags,
            f.rsp,
            f.ss,
            self.live.fs,
            self.live.gs,
            0,
            0,
            0,
            0,
        ]
    }

    /// Changes one word of `struct user_regs_struct` (Linux's `putreg`).
    ///
    /// # Errors
    /// `EIO`: a selector that is not a program's, a base outside the user half.
    pub fn set_word(&mut self, index: usize, value: u64) -> Result<(), Errno> {
        let f = &mut self.frame;
        let slot = match index {
            0 => &mut f.r15,
            1 => &mut f.r14,
            2 => &mut f.r13,
            3 => &mut f.r12,
            4 => &mut f.rbp,
            5 => &mut f.rbx,
            6 => &mut f.r11,
            7 => &mut f.r10,
            8 => &mut f.r9,
            9 => &mut f.r8,
            10 => &mut f.rax,
            11 => &mut f.rcx,
            12 => &mut f.rdx,
            13 => &mut f.rsi,
            14 => &mut f.rdi,
            15 => &mut f.orig_rax,
            RIP => &mut f.rip,
            19 => &mut f.rsp,
            FLAGS => {
                f.rflags = f.rflags & !TRACER_FLAGS | value & TRACER_FLAGS;
                return Ok(());
            }
            // Programs have one code and one data segment.
            CS => return if value & 0xffff == u64::from(USER_CODE) { Ok(()) } else { Err(Errno::EIO) },
            SS => return if value & 0xffff == u64::from(USER_DATA) { Ok(()) } else { Err(Errno::EIO) },
            FS_BASE | GS_BASE if value >= foldspace::addr::USER_END.get() => return Err(Errno::EIO),
            FS_BASE => &mut self.live.fs,
            GS_BASE => &mut self.live.gs,
            // ds, es, fs, gs: loaded with nothing.
            _ => return if value & 0xffff == 0 || value & 3 == 3 { Ok(()) } else { Err(Errno::EIO) },
        };
        *slot = value;
        Ok(())
    }

    /// DR`index`, as a tracer sees it (`ptrace_get_debugreg`).
    pub fn debug_word(&self, index: usize) -> u64 {
        match index {
            0..COUNT => self.breakpoints.addresses[index],
            STATUS => self.breakpoints.status ^ STATUS_IDLE,
            CONTROL => self.breakpoints.control,
            _ => 0,
        }
    }

    /// Sets DR`index` (`ptrace_set_debugreg`).
    ///
    /// # Errors
    /// `EIO`: there is no such register. `EINVAL`: an address outside the user half, or not a multiple of the bytes that are watched there; a breakpoint that there is
    /// not.
    pub fn set_debug_word(&mut self, index: usize, value: u64) -> Result<(), Errno> {
        let mut changed = self.breakpoints;
        match index {
            0..COUNT => changed.addresses[index] = value,
            STATUS => changed.status = value ^ STATUS_IDLE,
            CONTROL => changed.control = value,
            _ => return Err(Errno::EIO),
        }
        check_breakpoints(&changed)?;
        self.breakpoints = changed;
        Ok(())
    }

    /// The XSAVE area, with the components that the processor has where programs look for them. [`extended_size`] bytes count.
    pub fn extended(&self) -> [u8; EXTENDED_MAX] {
        let mut bytes = [0; EXTENDED_MAX];
        bytes[..XSAVE_SIZE].copy_from_slice(self.fpu.as_bytes());
        let mut features = cpu::xfeatures() & u64::from(cpu::XSTATE_MASK);
        if let Some(at) = key_rights_at() {
            features |= KEY_RIGHTS_COMPONENT;
            bytes[at..at + 4].copy_from_slice(&self.live.key_rights.to_le_bytes());
            let header = word(&bytes, LEGACY_SIZE) | KEY_RIGHTS_COMPONENT;
            bytes[LEGACY_SIZE..LEGACY_SIZE + 8].copy_from_slice(&header.to_le_bytes());
        }
        bytes[COMPONENTS..COMPONENTS + 8].copy_from_slice(&features.to_le_bytes());
        bytes
    }

    /// The legacy region of it.
    pub fn legacy(&self) -> [u8; LEGACY_SIZE] {
        let mut bytes = [0; LEGACY_SIZE];
        bytes.copy_from_slice(&self.fpu.as_bytes()[..LEGACY_SIZE]);
        bytes
    }

    /// Replaces the legacy region.
    ///
    /// # Errors
    /// `EINVAL`: bits of MXCSR that do not exist.
    pub fn set_legacy(&mut self, bytes: &[u8; LEGACY_SIZE]) -> Result<(), Errno> {
        let mut area = self.extended();
        area[..LEGACY_SIZE].copy_from_slice(bytes);
        // What is given counts, whatever was in use before.
        area[LEGACY_SIZE] |= 3;
        self.set_extended(&area)
    }

    /// Replaces the whole area. Rights to protection keys that the header does not name are none that are taken away (`copy_uabi_to_xstate`).
    ///
    /// # Errors
    /// `EINVAL`: bits of MXCSR or of the header that do not exist.
    pub fn set_extended(&mut self, bytes: &[u8; EXTENDED_MAX]) -> Result<(), Errno> {
        const MXCSR_RESERVED: u32 = 0xffff_0000;
        let mxcsr = u32::from_le_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]);
        let rights_at = key_rights_at();
        let known = u64::from(cpu::XSTATE_MASK) | rights_at.map_or(0, |_| KEY_RIGHTS_COMPONENT);
        let components = word(bytes, LEGACY_SIZE);
        if mxcsr & MXCSR_RESERVED != 0
            || components & !known != 0
            || bytes[LEGACY_SIZE + 8..LEGACY_SIZE + 64] != [0; 56]
        {
            return Err(Errno::EINVAL);
        }
        let mut area = [0; XSAVE_SIZE];
        area.copy_from_slice(&bytes[..XSAVE_SIZE]);
        self.fpu = FpuState::from_user(area);
        if let Some(at) = rights_at {
            let given = components & KEY_RIGHTS_COMPONENT != 0;
            self.live.key_rights = if given { word(bytes, at) as u32 } else { 0 };
        }
        Ok(())
    }
}

/// The eight bytes at `at`.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
