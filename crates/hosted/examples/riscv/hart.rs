//! A hardware thread of RISC-V: RV64IM, user mode (the unprivileged specification, chapters 2, 4 and 12).

use std::sync::Arc;

use foldspace_hosted::{Cpu, Stop};
use raki::{BaseIOpcode as I, Decode, Instruction, Isa, MOpcode as M, OpcodeKind};

/// Places for decoded words.
const PLACES: usize = 1024;

/// Why it stopped without a mistake. The instruction is done: it goes on behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// ECALL.
    Call,
    /// EBREAK.
    Break,
}

/// Why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Trap {
    /// Memory does not allow it.
    #[error("at {pc:#x}: {stop}")]
    Memory { pc: u64, stop: Stop },
    /// No instruction of RV64IM.
    #[error("at {pc:#x}: {word:#010x} is no instruction")]
    Illegal { pc: u64, word: u32 },
}

/// Registers, and a processor for memory.
pub struct Hart {
    pub registers: [u64; 32],
    pub pc: u64,
    pub cpu: Cpu,
    /// Instructions so far.
    pub executed: u64,
    /// Decoded words, each at a place of its own: decoding costs more than executing.
    decoded: Vec<Option<(u32, Arc<Instruction>)>>,
}

impl Hart {
    pub fn new(cpu: Cpu, pc: u64) -> Hart {
        Hart { registers: [0; 32], pc, cpu, executed: 0, decoded: vec![None; PLACES] }
    }

    /// The same registers, in another guest.
    pub fn in_guest(&self, cpu: Cpu) -> Hart {
        Hart { registers: self.registers, ..Hart::new(cpu, self.pc) }
    }

    /// Runs until something happens.
    pub fn run(&mut self) -> Result<Event, Trap> {
        loop {
            if let Some(event) = self.run_for(u64::MAX, |_, _| {})? {
                return Ok(event);
            }
        }
    }

    /// Runs until something happens, or for so many instructions: then nothing has. `jumped` hears of each jump and taken branch: from where to where.
    pub fn run_for(&mut self, instructions: u64, mut jumped: impl FnMut(u64, u64)) -> Result<Option<Event>, Trap> {
        for _ in 0..instructions {
            let pc = self.pc;
            let event = self.step().map_err(|trap| match trap {
                Err(stop) => Trap::Memory { pc, stop },
                Ok(word) => Trap::Illegal { pc, word },
            })?;
            self.executed += 1;
            if self.pc != pc.wrapping_add(4) {
                jumped(pc, self.pc);
            }
            if event.is_some() {
                return Ok(event);
            }
        }
        Ok(None)
    }

    /// One instruction. The error is what memory says, or the word that is no instruction.
    fn step(&mut self) -> Result<Option<Event>, Result<u32, Stop>> {
        let word = u32::from_le_bytes(self.cpu.fetch::<4>(self.pc).map_err(Err)?);
        let place = &mut self.decoded[(self.pc / 4) as usize % PLACES];
        let instruction = match place {
            Some((known, instruction)) if *known == word => instruction.clone(),
            _ => {
                let new = Arc::new(word.decode(Isa::Rv64).map_err(|_| Ok(word))?);
                place.insert((word, new)).1.clone()
            }
        };
        let mut next = self.pc.wrapping_add(4);
        let register = |number: Option<usize>| self.registers[number.unwrap_or(0)];
        let (a, b) = (register(instruction.rs1), register(instruction.rs2));
        let imm = i64::from(instruction.imm.unwrap_or(0)) as u64;
        let value = match &instruction.opc {
            OpcodeKind::BaseI(I::ECALL) => {
                self.pc = next;
                return Ok(Some(Event::Call));
            }
            OpcodeKind::BaseI(I::EBREAK) => {
                self.pc = next;
                return Ok(Some(Event::Break));
            }
            OpcodeKind::BaseI(opcode) => match opcode {
                I::JAL => {
                    let back = next;
                    next = self.pc.wrapping_add(imm);
                    Some(back)
                }
                I::JALR => {
                    let back = next;
                    next = a.wrapping_add(imm) & !1;
                    Some(back)
                }
                I::BEQ | I::BNE | I::BLT | I::BGE | I::BLTU | I::BGEU => {
                    if branches(opcode, a, b) {
                        next = self.pc.wrapping_add(imm);
                    }
                    None
                }
                I::SB | I::SH | I::SW | I::SD => {
                    self.store(opcode, a.wrapping_add(imm), b).map_err(Err)?;
                    None
                }
                I::LB | I::LH | I::LW | I::LD | I::LBU | I::LHU | I::LWU => {
                    Some(self.load(opcode, a.wrapping_add(imm)).map_err(Err)?)
                }
                I::LUI => Some((imm << 12) as i32 as u64),
                I::AUIPC => Some(self.pc.wrapping_add((imm << 12) as i32 as u64)),
                _ => Some(compute(opcode, a, b, imm).ok_or(Ok(word))?),
            },
            OpcodeKind::M(opcode) => Some(multiply(opcode, a, b)),
            _ => return Err(Ok(word)),
        };
        if let (Some(value), Some(register @ 1..)) = (value, instruction.rd) {
            self.registers[register] = value;
        }
        self.pc = next;
        Ok(None)
    }

    fn load(&mut self, opcode: &I, addr: u64) -> Result<u64, Stop> {
        Ok(match opcode {
            I::LB => i8::from_le_bytes(self.cpu.load(addr)?) as u64,
            I::LH => i16::from_le_bytes(self.cpu.load(addr)?) as u64,
            I::LW => i32::from_le_bytes(self.cpu.load(addr)?) as u64,
            I::LBU => u8::from_le_bytes(self.cpu.load(addr)?).into(),
            I::LHU => u16::from_le_bytes(self.cpu.load(addr)?).into(),
            I::LWU => u32::from_le_bytes(self.cpu.load(addr)?).into(),
            _ => u64::from_le_bytes(self.cpu.load(addr)?),
        })
    }

    fn store(&mut self, opcode: &I, addr: u64, value: u64) -> Result<(), Stop> {
        match opcode {
            I::SB => self.cpu.store(addr, (value as u8).to_le_bytes()),
            I::SH => self.cpu.store(addr, (value as u16).to_le_bytes()),
            I::SW => self.cpu.store(addr, (value as u32).to_le_bytes()),
            _ => self.cpu.store(addr, value.to_le_bytes()),
        }
    }
}

fn branches(opcode: &I, a: u64, b: u64) -> bool {
    match opcode {
        I::BEQ => a == b,
        I::BNE => a != b,
        I::BLT => (a as i64) < b as i64,
        I::BGE => a as i64 >= b as i64,
        I::BLTU => a < b,
        _ => a >= b,
    }
}

/// `None` for what computes nothing.
fn compute(opcode: &I, a: u64, b: u64, imm: u64) -> Option<u64> {
    let word = |value: u64| value as i32 as u64;
    Some(match opcode {
        I::ADDI => a.wrapping_add(imm),
        I::SLTI => ((a as i64) < imm as i64).into(),
        I::SLTIU => (a < imm).into(),
        I::XORI => a ^ imm,
        I::ORI => a | imm,
        I::ANDI => a & imm,
        I::SLLI => a << (imm & 63),
        I::SRLI => a >> (imm & 63),
        I::SRAI => (a as i64 >> (imm & 63)) as u64,
        I::ADD => a.wrapping_add(b),
        I::SUB => a.wrapping_sub(b),
        I::SLL => a << (b & 63),
        I::SLT => ((a as i64) < b as i64).into(),
        I::SLTU => (a < b).into(),
        I::XOR => a ^ b,
        I::SRL => a >> (b & 63),
        I::SRA => (a as i64 >> (b & 63)) as u64,
        I::OR => a | b,
        I::AND => a & b,
        I::ADDIW => word(a.wrapping_add(imm)),
        I::SLLIW => word(u64::from((a as u32) << (imm & 31))),
        I::SRLIW => word(u64::from(a as u32 >> (imm & 31))),
        I::SRAIW => (a as i32 >> (imm & 31)) as u64,
        I::ADDW => word(a.wrapping_add(b)),
        I::SUBW => word(a.wrapping_sub(b)),
        I::SLLW => word(u64::from((a as u32) << (b & 31))),
        I::SRLW => word(u64::from(a as u32 >> (b & 31))),
        I::SRAW => (a as i32 >> (b & 31)) as u64,
        _ => return None,
    })
}

/// Division by zero and overflow have results, and no trap (12.2).
fn multiply(opcode: &M, a: u64, b: u64) -> u64 {
    let word = |value: i32| value as u64;
    let (signed, words) = ((a as i64, b as i64), (a as i32, b as i32));
    match opcode {
        M::MUL => a.wrapping_mul(b),
        M::MULH => ((i128::from(signed.0) * i128::from(signed.1)) >> 64) as u64,
        M::MULHSU => ((i128::from(signed.0) * i128::from(b)) >> 64) as u64,
        M::MULHU => ((u128::from(a) * u128::from(b)) >> 64) as u64,
        M::DIV if b == 0 => u64::MAX,
        M::DIV => signed.0.wrapping_div(signed.1) as u64,
        M::DIVU => a.checked_div(b).unwrap_or(u64::MAX),
        M::REM if b == 0 => a,
        M::REM => signed.0.wrapping_rem(signed.1) as u64,
        M::REMU => a.checked_rem(b).unwrap_or(a),
        M::MULW => word(words.0.wrapping_mul(words.1)),
        M::DIVW if words.1 == 0 => u64::MAX,
        M::DIVW => word(words.0.wrapping_div(words.1)),
        M::DIVUW => (a as u32).checked_div(b as u32).map_or(u64::MAX, |quotient| word(quotient as i32)),
        M::REMW if words.1 == 0 => word(words.0),
        M::REMW => word(words.0.wrapping_rem(words.1)),
        M::REMUW => word((a as u32).checked_rem(b as u32).unwrap_or(a as u32) as i32),
    }
}
