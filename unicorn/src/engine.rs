//! An engine of Unicorn's whose physical memory is the arena and whose TLB is filled from a guest's tables.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_epoch::Guard;
use foldspace::platform::{Flush, Platform, SpaceId};
use foldspace::space::Access;
use foldspace_hosted::{Guest, Host, HostPlatform, Stop, Translation};
use unicorn_engine::unicorn_const::{Arch, MemType, Mode, Permission, TlbEntry, TlbType, uc_error};
use unicorn_engine::{RegisterRISCV, Unicorn};

/// A host whose shootdowns are counted: engines look at the number.
pub struct Machine {
    host: Host,
    shootdowns: Arc<AtomicU64>,
}

/// Ours around the hosted platform, which serves processors of its own.
struct Counting {
    inner: HostPlatform,
    shootdowns: Arc<AtomicU64>,
}

// SAFETY: all engines, and all who change their guests' memory, are on one thread here; an engine drops what it has cached when the number has
// changed, before it runs on (`Engine::run`, and the hook of `Engine::new`). The rest is as the inner platform has it.
unsafe impl Platform for Counting {
    fn shootdown(&self, space: SpaceId, flush: Flush) {
        self.inner.shootdown(space, flush);
        self.shootdowns.fetch_add(1, Ordering::Relaxed);
    }

    fn pin(&self) -> Guard {
        self.inner.pin()
    }

    fn wait_for_readers(&self, attempt: u32) -> bool {
        self.inner.wait_for_readers(attempt)
    }

    fn processor(&self) -> usize {
        self.inner.processor()
    }
}

impl Machine {
    pub fn new(bytes: u64) -> Result<Machine, Box<dyn Error>> {
        let shootdowns = Arc::new(AtomicU64::new(0));
        let count = shootdowns.clone();
        let host = Host::with_platform(bytes, |inner| Box::new(Counting { inner, shootdowns: count }))?;
        Ok(Machine { host, shootdowns })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }
}

/// Why it stopped without a mistake. The instruction is done: it goes on behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// ECALL.
    Call,
    /// EBREAK.
    Break,
}

/// Of one hardware thread.
#[derive(Clone, Debug)]
pub struct Registers {
    x: [u64; 32],
    pub pc: u64,
}

/// What the hooks leave.
#[derive(Default)]
struct Left {
    interrupt: Cell<Option<u32>>,
    stop: Cell<Option<Stop>>,
    fills: Cell<u64>,
    /// Shootdowns until which its TLB is good.
    seen: Cell<u64>,
}

/// An engine, and the guest that it runs.
pub struct Engine {
    unicorn: Unicorn<'static, ()>,
    shootdowns: Arc<AtomicU64>,
    left: Rc<Left>,
    guest: Guest,
    pc: u64,
}

/// RISC-V's numbers of exceptions (privileged specification, mcause).
const ECALL_FROM_USER: u32 = 8;
const ECALL_FROM_MACHINE: u32 = 11;
/// The instruction.
const EBREAK: u32 = 0x0010_0073;

impl Engine {
    pub fn new(machine: &Machine, guest: &Guest, pc: u64) -> Result<Engine, Box<dyn Error>> {
        let arena = machine.host.arena();
        let bytes = arena.frames() as usize * 4096;
        let mut unicorn = Unicorn::new(Arch::RISCV, Mode::RISCV64).map_err(failed)?;
        // SAFETY: the arena is so large, and lives longer: the guest, which the hook below holds, keeps its host's arena mapped.
        unsafe { unicorn.mem_map_ptr(0, bytes, Permission::ALL, arena.base().as_ptr().cast()) }.map_err(failed)?;
        unicorn.ctl_tlb_type(TlbType::VIRTUAL).map_err(failed)?;
        // No address at which it is to end: it would look for its page first, and take a hole for a fault.
        unicorn.ctl_exits_enable().map_err(failed)?;

        let left = Rc::new(Left::default());
        let (hook, shootdowns, of) = (left.clone(), machine.shootdowns.clone(), guest.clone());
        let fill = move |unicorn: &mut Unicorn<'_, ()>, addr: u64, kind: MemType| {
            let access = match kind {
                MemType::FETCH => Access::Execute,
                MemType::WRITE => Access::Write,
                _ => Access::Read,
            };
            hook.fills.set(hook.fills.get() + 1);
            let translation = of.translate(addr, access);
            // A fault may have shot down more than this page.
            forget_what_is_stale(unicorn, &shootdowns, &hook);
            match translation {
                Ok(translation) => Some(entry(&translation)),
                Err(stop) => {
                    hook.stop.set(Some(stop));
                    None
                }
            }
        };
        unicorn.add_tlb_hook(0, u64::MAX, fill).map_err(failed)?;
        let hook = left.clone();
        let interrupted = move |unicorn: &mut Unicorn<'_, ()>, number: u32| {
            hook.interrupt.set(Some(number));
            // Whether it did is seen at the end of `emu_start`.
            let _stopped = unicorn.emu_stop();
        };
        unicorn.add_intr_hook(interrupted).map_err(failed)?;
        Ok(Engine { unicorn, shootdowns: machine.shootdowns.clone(), left, guest: guest.clone(), pc })
    }

    /// Runs until something happens.
    pub fn run(&mut self) -> Result<Event, Box<dyn Error>> {
        forget_what_is_stale(&mut self.unicorn, &self.shootdowns, &self.left);
        self.left.interrupt.set(None);
        self.left.stop.set(None);
        let outcome = self.unicorn.emu_start(self.pc, u64::MAX, 0, 0);
        self.pc = self.unicorn.reg_read(RegisterRISCV::PC).map_err(failed)?;
        match (outcome, self.left.interrupt.take(), self.left.stop.take()) {
            (Ok(()), Some(ECALL_FROM_USER | ECALL_FROM_MACHINE), _) => Ok(Event::Call),
            // The engine takes EBREAK for an instruction that it does not know, and stays there.
            (Err(uc_error::INSN_INVALID), ..) if self.word_at_pc() == EBREAK => {
                self.pc += 4;
                Ok(Event::Break)
            }
            // A stop that was no probe of its own.
            (Err(uc_error::EXCEPTION), _, Some(stop)) => Err(stop.into()),
            (outcome, interrupt, _) => Err(format!("at {:#x}: {outcome:?}, interrupt {interrupt:?}", self.pc).into()),
        }
    }

    fn word_at_pc(&self) -> u32 {
        let mut word = [0; 4];
        self.guest.read(self.pc, &mut word);
        u32::from_le_bytes(word)
    }

    /// How often the engine asked for a translation.
    pub fn fills(&self) -> u64 {
        self.left.fills.get()
    }

    pub fn register(&self, number: i32) -> Result<u64, Box<dyn Error>> {
        Ok(self.unicorn.reg_read(RegisterRISCV::X0 as i32 + number).map_err(failed)?)
    }

    pub fn set_register(&mut self, number: i32, value: u64) -> Result<(), Box<dyn Error>> {
        Ok(self.unicorn.reg_write(RegisterRISCV::X0 as i32 + number, value).map_err(failed)?)
    }

    pub fn registers(&self) -> Result<Registers, Box<dyn Error>> {
        let mut x = [0; 32];
        for (number, register) in (0..).zip(&mut x) {
            *register = self.register(number)?;
        }
        Ok(Registers { x, pc: self.pc })
    }

    pub fn set_registers(&mut self, registers: &Registers) -> Result<(), Box<dyn Error>> {
        self.pc = registers.pc;
        (1..).zip(&registers.x[1..]).try_for_each(|(number, value)| self.set_register(number, *value))
    }
}

/// Empties the TLB if there were shootdowns since it was last empty.
fn forget_what_is_stale(unicorn: &mut Unicorn<'_, ()>, shootdowns: &AtomicU64, left: &Left) {
    let now = shootdowns.load(Ordering::Relaxed);
    if left.seen.replace(now) != now {
        unicorn.ctl_flush_tlb().expect("an engine can empty its TLB");
    }
}

fn entry(translation: &Translation) -> TlbEntry {
    let rights = translation.rights;
    let mut perms = Permission::READ;
    // The first store to a clean page asks again, and marks it.
    perms.set(Permission::WRITE, rights.writable && translation.dirty);
    perms.set(Permission::EXEC, rights.executable);
    TlbEntry { paddr: translation.frame.address(), perms }
}

fn failed(error: uc_error) -> String {
    format!("unicorn: {error:?}")
}
