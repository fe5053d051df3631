//! The filter machine of BPF in its classic form, as seccomp(2) has it (Linux's `Documentation/networking/filter.rst`): a 32-bit accumulator, an index
//! register, sixteen words of memory, jumps forward only. What is loaded is the system call, word by word.

use alloc::vec::Vec;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;

/// Most instructions of a program (`BPF_MAXINSNS`).
pub const MOST: usize = 4096;
/// Words of memory (`BPF_MEMWORDS`).
const WORDS: u32 = 16;

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    /// How many to leave out where a comparison holds,
    then: u8,
    /// and where not.
    otherwise: u8,
    operand: u32,
}

/// `struct seccomp_data`: number, architecture, address of the instruction after the call, six arguments.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Call {
    /// Its number.
    pub number: u32,
    /// `AUDIT_ARCH_*`.
    pub architecture: u32,
    /// Where the program goes on.
    pub address: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// A program that has been checked: every jump leads into it, its last instruction returns, and no memory is read before it was written.
pub struct Program(Vec<Instruction>);

/// Codes (`linux/bpf_common.h`): classes, and what they are combined with.
mod code {
    pub const LD: u16 = 0;
    pub const LDX: u16 = 1;
    pub const ST: u16 = 2;
    pub const STX: u16 = 3;
    pub const ALU: u16 = 4;
    pub const JMP: u16 = 5;
    pub const RET: u16 = 6;
    pub const MISC: u16 = 7;

    pub const IMM: u16 = 0;
    pub const ABS: u16 = 0x20;
    pub const MEM: u16 = 0x60;
    pub const LEN: u16 = 0x80;

    pub const X: u16 = 8;
    /// Of a return: the accumulator.
    pub const A: u16 = 0x10;
    pub const TXA: u16 = 0x80;
}

/// What an instruction does, its operand aside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    LoadCall,
    Load(Register, Source),
    Store(Register),
    Arithmetic(Arithmetic, Operand),
    Negate,
    Jump,
    Compare(Comparison, Operand),
    Return(Operand),
    Transfer(Register),
}

/// Which register is changed, or stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Register {
    Accumulator,
    Index,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Constant,
    /// How long what is looked at is.
    Length,
    Memory,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operand {
    Constant,
    /// The index register; of a return, the accumulator.
    Register,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    ExclusiveOr,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

impl Instruction {
    /// `None`: not for filters of system calls (`seccomp_check_filter` of Linux's `kernel/seccomp.c`).
    fn kind(&self) -> Option<Kind> {
        use Register::{Accumulator, Index};
        let operand = if self.code & code::X == 0 { Operand::Constant } else { Operand::Register };
        let class = self.code & 7;
        let rest = self.code & !7;
        Some(match class {
            code::LD | code::LDX => {
                let register = if class == code::LD { Accumulator } else { Index };
                match rest {
                    code::ABS if class == code::LD => Kind::LoadCall,
                    code::IMM => Kind::Load(register, Source::Constant),
                    code::LEN => Kind::Load(register, Source::Length),
                    code::MEM => Kind::Load(register, Source::Memory),
                    _ => return None,
                }
            }
            code::ST if rest == 0 => Kind::Store(Accumulator),
            code::STX if rest == 0 => Kind::Store(Index),
            code::ALU => {
                let what = match rest & !code::X {
                    0x00 => Arithmetic::Add,
                    0x10 => Arithmetic::Subtract,
                    0x20 => Arithmetic::Multiply,
                    0x30 => Arithmetic::Divide,
                    0x40 => Arithmetic::Or,
                    0x50 => Arithmetic::And,
                    0x60 => Arithmetic::ShiftLeft,
                    0x70 => Arithmetic::ShiftRight,
                    0x80 if operand == Operand::Constant => return Some(Kind::Negate),
                    0xa0 => Arithmetic::ExclusiveOr,
                    _ => return None,
                };
                Kind::Arithmetic(what, operand)
            }
            code::JMP => {
                let what = match rest & !code::X {
                    0x00 if operand == Operand::Constant => return Some(Kind::Jump),
                    0x10 => Comparison::Equal,
                    0x20 => Comparison::Greater,
                    0x30 => Comparison::GreaterOrEqual,
                    0x40 => Comparison::AnyBit,
                    _ => return None,
                };
                Kind::Compare(what, operand)
            }
            code::RET if rest == 0 => Kind::Return(Operand::Constant),
            code::RET if rest == code::A => Kind::Return(Operand::Register),
            code::MISC if rest == 0 => Kind::Transfer(Index),
            code::MISC if rest == code::TXA => Kind::Transfer(Accumulator),
            _ => return None,
        })
    }

    /// Whether its operand is one that it may have.
    fn operand_fits(&self, kind: Kind) -> bool {
        match kind {
            Kind::LoadCall => self.operand < size_of::<Call>() as u32 && self.operand.is_multiple_of(4),
            Kind::Load(_, Source::Memory) | Kind::Store(_) => self.operand < WORDS,
            Kind::Arithmetic(Arithmetic::Divide, Operand::Constant) => self.operand != 0,
            Kind::Arithmetic(Arithmetic::ShiftLeft | Arithmetic::ShiftRight, Operand::Constant) => self.operand < 32,
            _ => true,
        }
    }
}

impl Program {
    /// Checks it (`bpf_check_classic`, `check_load_and_stores` of Linux's `net/core/filter.c`). O(instructions).
    ///
    /// # Errors
    /// `EINVAL`; `ENOMEM`.
    pub fn new(instructions: Vec<Instruction>) -> Result<Program, Errno> {
        let len = instructions.len();
        // Which words have been written whichever way one came, as bits.
        let mut written: Vec<u16> = Vec::new();
        written.try_reserve_exact(len).map_err(|_| Errno::ENOMEM)?;
        written.resize(len, u16::MAX);
        let mut now = 0_u16;
        for (at, instruction) in instructions.iter().enumerate() {
            let kind = instruction.kind().filter(|&kind| instruction.operand_fits(kind)).ok_or(Errno::EINVAL)?;
            now &= written[at];
            let mut lead_to = |distance: usize| -> Result<(), Errno> {
                let to = written.get_mut(at + 1 + distance).ok_or(Errno::EINVAL)?;
                *to &= now;
                Ok(())
            };
            match kind {
                Kind::Store(_) => now |= 1 << instruction.operand,
                Kind::Load(_, Source::Memory) if now & 1 << instruction.operand == 0 => return Err(Errno::EINVAL),
                Kind::Jump => {
                    lead_to(instruction.operand as usize)?;
                    now = u16::MAX;
                }
                Kind::Compare(..) => {
                    lead_to(instruction.then.into())?;
                    lead_to(instruction.otherwise.into())?;
                    now = u16::MAX;
                }
                _ => {}
            }
        }
        let returns =
            instructions.last().and_then(Instruction::kind).is_some_and(|kind| matches!(kind, Kind::Return(_)));
        if returns { Ok(Program(instructions)) } else { Err(Errno::EINVAL) }
    }

    /// The instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// What it returns for a call. Each instruction is done at most once.
    pub fn run(&self, call: &Call) -> u32 {
        let bytes = call.as_bytes();
        let (mut accumulator, mut index, mut memory, mut at) = (0_u32, 0_u32, [0_u32; WORDS as usize], 0);
        loop {
            // By the checks a jump leads to an instruction, and the last returns.
            let (Some(instruction), constant) = (self.0.get(at), self.0.get(at).map_or(0, |i| i.operand)) else {
                return 0;
            };
            at += 1;
            let Some(kind) = instruction.kind() else { return 0 };
            let operand = |operand| if operand == Operand::Constant { constant } else { index };
            match kind {
                Kind::LoadCall => {
                    let word = bytes.get(constant as usize..).and_then(|rest| rest.first_chunk());
                    accumulator = word.map_or(0, |word| u32::from_le_bytes(*word));
                }
                Kind::Load(register, source) => {
                    let value = match source {
                        Source::Constant => constant,
                        Source::Length => size_of::<Call>() as u32,
                        Source::Memory => memory[(constant % WORDS) as usize],
                    };
                    match register {
                        Register::Accumulator => accumulator = value,
                        Register::Index => index = value,
                    }
                }
                Kind::Store(Register::Accumulator) => memory[(constant % WORDS) as usize] = accumulator,
                Kind::Store(Register::Index) => memory[(constant % WORDS) as usize] = index,
                Kind::Arithmetic(what, by) => {
                    let by = operand(by);
                    accumulator = match what {
                        Arithmetic::Add => accumulator.wrapping_add(by),
                        Arithmetic::Subtract => accumulator.wrapping_sub(by),
                        Arithmetic::Multiply => accumulator.wrapping_mul(by),
                        Arithmetic::Divide => match accumulator.checked_div(by) {
                            Some(quotient) => quotient,
                            None => return 0,
                        },
                        Arithmetic::Or => accumulator | by,
                        Arithmetic::And => accumulator & by,
                        Arithmetic::ShiftLeft => accumulator.wrapping_shl(by),
                        Arithmetic::ShiftRight => accumulator.wrapping_shr(by),
                        Arithmetic::ExclusiveOr => accumulator ^ by,
                    }
                }
                Kind::Negate => accumulator = accumulator.wrapping_neg(),
                Kind::Jump => at += constant as usize,
                Kind::Compare(what, with) => {
                    let with = operand(with);
                    let holds = match what {
                        Comparison::Equal => accumulator == with,
                        Comparison::Greater => accumulator > with,
                        Comparison::GreaterOrEqual => accumulator >= with,
                        Comparison::AnyBit => accumulator & with != 0,
                    };
                    at += usize::from(if holds { instruction.then } else { instruction.otherwise });
                }
                Kind::Return(Operand::Constant) => return constant,
                Kind::Return(Operand::Register) => return accumulator,
                Kind::Transfer(Register::Index) => index = accumulator,
                Kind::Transfer(Register::Accumulator) => accumulator = index,
            }
        }
    }
}
