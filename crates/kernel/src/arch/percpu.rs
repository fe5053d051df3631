//! What each processor has of its own, reached through its GS base.

use alloc::boxed::Box;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use x2apic::lapic::LocalApic;
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{GsBase, KernelGsBase};
use x86_64::structures::gdt::GlobalDescriptorTable;
use x86_64::structures::tss::TaskStateSegment;

use crate::{mm, sched};

/// Processors that the kernel can run on: sets of them are the bits of a word.
pub const MAX_PROCESSORS: usize = 64;

/// One processor's data. Offsets of the first fields are used by `entry`.
#[repr(C)]
pub struct PerCpu {
    /// Its own address: `mov rax, gs:[0]` makes a pointer of the base.
    this: *const PerCpu,
    /// Top of the current thread's kernel stack.
    pub(super) kernel_stack: UnsafeCell<u64>,
    /// User stack pointer between the first two instructions of a system call.
    pub(super) user_stack: UnsafeCell<u64>,
    /// The current thread's [`sched::Thread::work`], never null.
    pub(super) work: UnsafeCell<*const AtomicU32>,
    /// Top of the stack for exceptions in the kernel.
    pub(super) exception_stack: UnsafeCell<u64>,
    /// Where the processor is, and whether somebody asks for its attention.
    pub mode: Mode,
    /// Small number of this processor: 0 for the one that booted.
    pub number: usize,
    /// What the other processors call it.
    pub(super) apic_id: u32,
    /// Identifies the address space whose root is in CR3; `u64::MAX` for the kernel's own.
    pub active_space: AtomicU64,
    /// What others want of its translations; its epochs.
    pub memory: mm::CpuState,
    /// Spin locks that it holds: counted in debug builds.
    pub locks: AtomicU32,
    /// Where it was when it was stopped for ever.
    pub(super) stopped_at: StoppedAt,
    /// Run queue, current and previous thread.
    pub sched: sched::CpuState,
    pub(super) tss: UnsafeCell<TaskStateSegment>,
    pub(super) gdt: UnsafeCell<GlobalDescriptorTable<16>>,
    pub(super) apic: UnsafeCell<Option<LocalApic>>,
}

/// An instruction, 0 before there is one, and the frame pointer there.
pub(super) struct StoppedAt {
    pub(super) instruction: AtomicU64,
    pub(super) frame_pointer: AtomicU64,
}

// SAFETY: the cells are written only by the processor that owns the structure, with interrupts off.
unsafe impl Sync for PerCpu {}

/// Offsets for assembly.
pub(super) const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
pub(super) const USER_STACK: usize = offset_of!(PerCpu, user_stack);
pub(super) const WORK: usize = offset_of!(PerCpu, work);
pub(super) const EXCEPTION_STACK: usize = offset_of!(PerCpu, exception_stack);
pub(super) const MODE: usize = offset_of!(PerCpu, mode);

static NO_WORK: AtomicU32 = AtomicU32::new(0);

/// The structures of the processors that run, by number; null from the first that does not.
static ALL: [AtomicPtr<PerCpu>; MAX_PROCESSORS] = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_PROCESSORS];

/// How many there are.
static ONLINE: AtomicUsize = AtomicUsize::new(0);

/// Whether a processor runs a program, and whether it is asked for attention: one word, so that the way to user mode announces the one
/// and looks at the other with a single instruction, which is a full barrier. The protocol: who wants something of a processor writes it down
/// first and reads the mode then; the processor goes to user mode by announcing it first and looking for what is wanted then. One of the two sees the
/// other.
///
/// The entry from user mode stores a zero byte, which leaves the request alone; the exit increments the word.
#[repr(transparent)]
pub struct Mode(AtomicU32);

impl Mode {
    /// The low byte: 1 in user mode (or on the last instructions to it, interrupts off), 0 in the kernel.
    const USER: u32 = 1;
    /// The sign: attention is wanted.
    const ATTENTION: u32 = 1 << 31;

    /// Whether the processor runs a program. What was written before this call is seen by the processor before it goes to user mode, if the
    /// answer is no and the write was sequentially consistent.
    pub fn is_user(&self) -> bool {
        self.0.load(Ordering::SeqCst) & Mode::USER != 0
    }

    /// Makes the processor look before it next goes to user mode. Returns whether it is there now, and so has to be interrupted.
    pub fn want_attention(&self) -> bool {
        self.0.fetch_or(Mode::ATTENTION, Ordering::SeqCst) & Mode::USER != 0
    }

    /// Takes that back.
    pub fn attended(&self) {
        self.0.fetch_and(!Mode::ATTENTION, Ordering::SeqCst);
    }

    /// Whether attention is wanted.
    pub fn wants_attention(&self) -> bool {
        self.0.load(Ordering::SeqCst) & Mode::ATTENTION != 0
    }
}

impl PerCpu {
    /// The structure of processor `number`, to be installed by [`install`].
    const fn new(number: usize, apic_id: u32) -> PerCpu {
        PerCpu {
            this: ptr::null(),
            kernel_stack: UnsafeCell::new(0),
            user_stack: UnsafeCell::new(0),
            work: UnsafeCell::new(&raw const NO_WORK),
            exception_stack: UnsafeCell::new(0),
            mode: Mode(AtomicU32::new(0)),
            number,
            apic_id,
            active_space: AtomicU64::new(u64::MAX),
            memory: mm::CpuState::new(),
            locks: AtomicU32::new(0),
            stopped_at: StoppedAt { instruction: AtomicU64::new(0), frame_pointer: AtomicU64::new(0) },
            sched: sched::CpuState::new(),
            tss: UnsafeCell::new(TaskStateSegment::new()),
            gdt: UnsafeCell::new(GlobalDescriptorTable::empty()),
            apic: UnsafeCell::new(None),
        }
    }

    /// The processor that runs this.
    #[inline(always)]
    pub fn current() -> &'static PerCpu {
        let this: *const PerCpu;
        // SAFETY: GS base points to this processor's structure from boot on, and its first word to itself.
        unsafe { asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags, readonly)) };
        // SAFETY: the structure lives for ever and is changed through cells and atomics only.
        unsafe { &*this }
    }

    /// What the other processors call it.
    pub fn apic_id(&self) -> u32 {
        self.apic_id
    }

    /// Processor `number`, if it runs.
    pub fn get(number: usize) -> Option<&'static PerCpu> {
        let this = ALL.get(number)?.load(Ordering::Acquire);
        // SAFETY: as above.
        unsafe { this.as_ref() }
    }

    /// All processors that run.
    pub fn all() -> impl Iterator<Item = &'static PerCpu> {
        (0..online()).filter_map(PerCpu::get)
    }

    /// All processors that run but this one.
    pub fn others(&self) -> impl Iterator<Item = &'static PerCpu> {
        let own = self.number;
        PerCpu::all().filter(move |cpu| cpu.number != own)
    }

    /// Makes a thread's kernel stack and work word those that entries from user mode use.
    ///
    /// # Safety
    /// Both stay valid until the next call on this processor; `stack_top` is the end of a stack with a
    /// [`super::UserContext`] at its top.
    pub unsafe fn set_thread(&self, stack_top: u64, work: *const AtomicU32) {
        // SAFETY: only this processor writes its cells, and interrupts are off in the kernel.
        unsafe {
            *self.kernel_stack.get() = stack_top;
            *self.work.get() = work;
            (*self.tss.get()).privilege_stack_table[0] = VirtAddr::new(stack_top);
        }
    }

    /// Between threads: no work word but the shared empty one.
    pub fn clear_thread(&self) {
        // SAFETY: as in `set_thread`.
        unsafe { *self.work.get() = &raw const NO_WORK };
    }
}

/// How many processors run; their numbers go from 0 to one less.
#[inline]
pub fn online() -> usize {
    ONLINE.load(Ordering::Acquire)
}

/// The processors that run, as bits.
pub fn existing() -> u64 {
    u64::MAX >> (MAX_PROCESSORS - online().max(1))
}

/// Sets up the boot processor's structure and GS base.
///
/// # Safety
/// Once, at boot.
pub(super) unsafe fn init_boot_processor() -> &'static PerCpu {
    static mut BOOT: PerCpu = PerCpu::new(0, 0);
    let boot = &raw mut BOOT;
    // SAFETY: called once, at boot.
    unsafe {
        (*boot).apic_id = super::apic::initial_id();
        install(boot)
    };
    // SAFETY: from now on only shared.
    unsafe { announce(&*boot) }
}

/// Makes the structure of a further processor, which that processor is to [`install`].
pub(super) fn new_processor(number: usize, apic_id: u32) -> *mut PerCpu {
    Box::into_raw(Box::new(PerCpu::new(number, apic_id)))
}

/// Sets GS base of this processor.
///
/// # Safety
/// Once per processor, with a structure that lives for ever and that nobody else refers to yet.
pub(super) unsafe fn install(percpu: *mut PerCpu) {
    // SAFETY: the caller's promise.
    unsafe { (*percpu).this = percpu };
    GsBase::write(VirtAddr::from_ptr(percpu));
    KernelGsBase::write(VirtAddr::zero());
}

/// Lets the others know that this processor runs. One at a time, in the order of their numbers.
pub fn announce(percpu: &'static PerCpu) -> &'static PerCpu {
    ALL[percpu.number].store(ptr::from_ref(percpu).cast_mut(), Ordering::Release);
    ONLINE.store(percpu.number + 1, Ordering::Release);
    percpu
}
