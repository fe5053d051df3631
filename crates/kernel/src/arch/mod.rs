//! The processor and the few devices that the kernel itself needs.
//!
//! Interrupts are enabled only in user mode and in [`idle`](crate::sched); nothing preempts the kernel. Every entry from user mode
//! saves the registers that compiled Rust uses in a [`UserContext`] at the top of the thread's kernel stack: the general ones and of the vector
//! registers the XMM ones. They may be clobbered by whatever runs in the kernel; what is in the context when the kernel is left is what the program
//! sees. The others keep the program's values meanwhile, and change hands when threads do ([`vectors`], [`live_registers`]).

mod apic;
pub mod breakpoints;
pub mod context;
pub mod cpu;
mod entry;
pub mod exceptions;
mod gdt;
pub mod live_registers;
mod memory_functions;
pub mod percpu;
mod port;
mod serial;
pub mod vectors;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use x86_64::instructions::{hlt, interrupts};

pub use apic::{XAPIC_BASE, init_timer, kick, set_timer, start_processor};
pub use breakpoints::Breakpoints;
pub use context::{FpuState, TrapFrame, UserContext};
pub use entry::{ContextPointer, new_thread_entry, switch_context};
pub use exceptions::Exception;
pub use gdt::{USER_CODE, USER_DATA};
pub use live_registers::LiveRegisters;
pub use percpu::{MAX_PROCESSORS, PerCpu, announce, existing, online};
pub use port::{poweroff, read_cmos};
pub use serial::{Serial, anybody_reads_serial, poll_input, serial};

/// Brings this processor into the state that everything else assumes: features on, descriptor tables, `syscall` entry.
///
/// # Safety
/// Once per processor, before interrupts are enabled.
pub unsafe fn init_processor() {
    // SAFETY: the caller's promise.
    unsafe {
        let percpu = percpu::init_boot_processor();
        init_tables(percpu, gdt::first_emergency_stacks());
    }
}

/// # Safety
/// Once per processor.
unsafe fn init_tables(percpu: &'static PerCpu, stacks: *mut gdt::EmergencyStacks) {
    // SAFETY: the caller's promise.
    unsafe {
        gdt::init(percpu, stacks);
        exceptions::init();
        cpu::enable_features();
        entry::init();
    }
}

/// A processor that is to be started: what it needs of its own.
pub struct NewProcessor {
    percpu: *mut PerCpu,
    stacks: *mut gdt::EmergencyStacks,
}

impl NewProcessor {
    /// Processor `number`, which the others call `apic_id`.
    pub fn new(number: usize, apic_id: u32) -> NewProcessor {
        NewProcessor { percpu: percpu::new_processor(number, apic_id), stacks: gdt::new_emergency_stacks() }
    }

    /// Brings the processor that runs this into the state that everything else assumes, its local APIC included. It is to be announced by [`announce`].
    ///
    /// # Safety
    /// On the processor that this was made for, once, on the kernel's tables.
    pub unsafe fn init(&self) -> &'static PerCpu {
        // SAFETY: the caller's promise: the structure and the stacks were made for this processor and are used once.
        unsafe {
            percpu::install(self.percpu);
            let percpu = &*self.percpu;
            init_tables(percpu, self.stacks);
            apic::init();
            percpu
        }
    }
}

/// Whether all processors but one are to stop at once.
static STOP: AtomicBool = AtomicBool::new(false);

/// Stops all other processors where they are, whatever they hold: the kernel has found itself wrong.
pub fn stop_others() {
    STOP.store(true, Ordering::SeqCst);
    if online() > 1 {
        for cpu in PerCpu::current().others() {
            apic::send_nmi(cpu);
        }
    }
}

/// Number of the processor that runs this; 0 before there are several.
pub fn processor() -> usize {
    if online() > 1 { PerCpu::current().number } else { 0 }
}

/// Stops this processor for ever if another one has told all to, and leaves word of where it was.
fn stop_if_told(frame: &TrapFrame) {
    if STOP.load(Ordering::SeqCst) {
        let place = &PerCpu::current().stopped_at;
        place.frame_pointer.store(frame.rbp, Ordering::Relaxed);
        // Release: who finds it finds the frame pointer too.
        place.instruction.store(frame.rip, Ordering::Release);
        halt();
    }
}

/// Where the other processors were when they were stopped: their numbers, instructions and frame pointers. Those that do not stop within a moment are
/// left out.
pub fn stopped_others() -> impl Iterator<Item = (usize, u64, u64)> {
    /// Turns of the loop, some tenths of a second.
    const TURNS: u32 = 10_000_000;
    let others = (online() > 1).then(|| PerCpu::current().others());
    others.into_iter().flatten().filter_map(|cpu| {
        let place = &cpu.stopped_at;
        let at = (0..TURNS).find_map(|_| {
            core::hint::spin_loop();
            Some(place.instruction.load(Ordering::Acquire)).filter(|at| *at != 0)
        })?;
        Some((cpu.number, at, place.frame_pointer.load(Ordering::Relaxed)))
    })
}

/// Whether all processors but one are to stop as soon as they hold nothing.
static PARK: AtomicBool = AtomicBool::new(false);
/// How many have.
static PARKED: AtomicUsize = AtomicUsize::new(0);

/// Stops all other processors, for ever, each on its way to user mode or in idle: where it holds nothing. Returns when all have. The caller holds no lock. False, if another
/// processor has begun to do the same: the caller is to [`park_if_told`].
pub fn park_others() -> bool {
    if PARK.swap(true, Ordering::SeqCst) {
        return false;
    }
    let own = PerCpu::current();
    while PARKED.load(Ordering::SeqCst) < online() - 1 {
        for cpu in own.others() {
            // Again and again: a request may be taken back by who finds another one moot.
            cpu.mode.want_attention();
            kick(cpu);
        }
        for _ in 0..1000 {
            core::hint::spin_loop();
        }
    }
    true
}

/// Stops this processor if another one waits for that. Called where this one holds nothing.
pub fn park_if_told() {
    if PARK.load(Ordering::Relaxed) {
        PARKED.fetch_add(1, Ordering::SeqCst);
        halt();
    }
}

/// Stops this processor for ever.
pub fn halt() -> ! {
    loop {
        interrupts::disable();
        hlt();
    }
}
