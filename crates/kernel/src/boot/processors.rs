//! The other processors: which there are, and starting them.
//!
//! A processor that is started runs real-mode code at a page below 1 MiB ([`startup_code`], copied there), goes on in 32 bits and on the boot tables as the first one
//! did, then loads the kernel's own root and the stack that was made for it, and comes to [`further_processor`].

use core::arch::naked_asm;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use acpi::madt::{Madt, MadtEntry};
use acpi::{AcpiHandler, AcpiTables, PhysicalMapping};
use arrayvec::ArrayVec;

use crate::arch::{self, MAX_PROCESSORS, NewProcessor, PerCpu};
use crate::mm::stack::KernelStack;
use crate::mm::{self, phys_to_virt};
use crate::{sched, time};

/// Where the code that a processor starts with is copied to: free RAM in every PC, kept from the memory manager with all below 1 MiB.
const STARTUP_PAGE: u8 = 0x08;

/// How long a processor may take to come up, in microseconds: it needs a fraction of it, but its turn on a busy host may come late.
const PATIENCE_US: u64 = 5_000_000;

/// Bit of a processor's flags in the MADT: it can be used (ACPI 6.5, 5.2.12.2).
const ENABLED: u32 = 1;

/// What the firmware says about processors.
#[derive(Default)]
pub struct Processors {
    /// Numbers of the local APICs of all that can be used, up to the most that the kernel can.
    apic_ids: ArrayVec<u32, MAX_PROCESSORS>,
    /// How many there are altogether.
    count: usize,
}

/// ACPI's tables through the direct map of the boot tables.
#[derive(Clone)]
struct DirectMap;

impl AcpiHandler for DirectMap {
    unsafe fn map_physical_region<T>(&self, address: usize, size: usize) -> PhysicalMapping<Self, T> {
        let pointer = NonNull::new(phys_to_virt(address as u64).cast()).expect("the direct map is not at 0");
        // SAFETY: the boot tables map the first 4 GiB, where the firmware's tables are.
        unsafe { PhysicalMapping::new(address, pointer, size, size, DirectMap) }
    }

    fn unmap_physical_region<T>(_region: &PhysicalMapping<Self, T>) {}
}

/// Reads the MADT. Without one, there is the processor that runs.
///
/// # Safety
/// `rsdp` is the physical address of ACPI's root pointer, and the boot tables are in use.
pub unsafe fn find(rsdp: u64) -> Processors {
    let mut found = Processors::default();
    // SAFETY: the caller's promise.
    let tables = match unsafe { AcpiTables::from_rsdp(DirectMap, rsdp as usize) } {
        Ok(tables) => tables,
        Err(error) => {
            log::warn!("ACPI's tables cannot be read ({error:?}): one processor is used");
            return found;
        }
    };
    let Ok(madt) = tables.find_table::<Madt>() else {
        log::warn!("there is no MADT: one processor is used");
        return found;
    };
    for entry in madt.get().entries() {
        let (apic_id, flags) = match entry {
            MadtEntry::LocalApic(local) => (u32::from(local.apic_id), local.flags),
            MadtEntry::LocalX2Apic(local) => (local.x2apic_id, local.flags),
            _ => continue,
        };
        if flags & ENABLED != 0 {
            found.count += 1;
            let _too_many = found.apic_ids.try_push(apic_id);
        }
    }
    found
}

/// What the processor that is being started is to use. One is started at a time.
static ROOT: AtomicU64 = AtomicU64::new(0);
static STACK_TOP: AtomicU64 = AtomicU64::new(0);
static STARTING: AtomicPtr<NewProcessor> = AtomicPtr::new(core::ptr::null_mut());
/// Set by the started processor when it needs nothing of the above any more, and the boot tables neither.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Starts all other processors. They idle when it returns.
pub fn start_all(processors: &Processors) {
    if processors.count > MAX_PROCESSORS {
        log::warn!("the machine has {} processors, of which {MAX_PROCESSORS} are used", processors.count);
    }
    let own = PerCpu::current();
    ROOT.store(mm::kernel_root(), Ordering::Relaxed);
    copy_startup_code();
    for &apic_id in processors.apic_ids.iter().filter(|&&id| id != own.apic_id()) {
        let number = arch::online();
        if number == MAX_PROCESSORS || !start(number, apic_id) {
            break;
        }
    }
    log::debug!("{} processors", arch::online());
}

fn start(number: usize, apic_id: u32) -> bool {
    // The stack lasts as long as the processor.
    let Ok(stack) = KernelStack::new() else {
        log::error!("no memory for the stack of processor {number}");
        return false;
    };
    let processor = NewProcessor::new(number, apic_id);
    STACK_TOP.store(stack.top(), Ordering::Relaxed);
    STARTING.store((&raw const processor).cast_mut(), Ordering::Relaxed);
    STARTED.store(false, Ordering::SeqCst);
    // SAFETY: the page has the startup code; the processor has not been started.
    unsafe { arch::start_processor(apic_id, STARTUP_PAGE, wait_us) };
    for _ in 0..PATIENCE_US / 100 {
        if STARTED.load(Ordering::Acquire) {
            return true;
        }
        wait_us(100);
    }
    // It may still come, and must find what it needs.
    panic!("processor {number} (APIC {apic_id}) does not start");
}

fn wait_us(micros: u64) {
    let until = time::monotonic_ns() + micros * 1000;
    while time::monotonic_ns() < until && !STARTED.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
}

/// First Rust code of a further processor, on its own stack and the kernel's tables.
unsafe extern "C" fn further_processor() -> ! {
    // SAFETY: whoever starts this processor waits for it, and the structure is made for it.
    let percpu = unsafe {
        let processor = &*STARTING.load(Ordering::Relaxed);
        let percpu = processor.init();
        percpu.memory.init();
        percpu
    };
    arch::announce(percpu);
    STARTED.store(true, Ordering::Release);
    sched::idle()
}

/// Copies the startup code to its page.
fn copy_startup_code() {
    let code = startup_code as *const () as *const u8;
    let end = startup_code_end as *const () as *const u8;
    // SAFETY: the code is linked at its physical address, and nobody else uses the page.
    unsafe {
        let bytes = end.offset_from_unsigned(code);
        assert!(bytes <= 4096, "the startup code is one page");
        let to = phys_to_virt(u64::from(STARTUP_PAGE) << 12);
        to.copy_from_nonoverlapping(phys_to_virt(code as u64), bytes);
    }
}

/// What a processor starts with: real mode, `cs:ip` = the page it has been copied to : 0. Position independent but for what it jumps to.
///
/// # Safety
/// For processors that are being started.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".boot.text.startup")]
unsafe extern "C" fn startup_code() -> ! {
    naked_asm!(
        ".code16",
        "cli",
        "cld",
        "movw %cs, %ax",
        "movw %ax, %ds",
        // The operand is here, in the copy: an offset in the page.
        "lgdtl 4f - {code}",
        // CR0: PE.
        "movl $1, %eax",
        "movl %eax, %cr0",
        "ljmpl $24, ${protected}",
        ".balign 4",
        "4: .word 31",
        ".long {gdt}",
        ".code64",
        code = sym startup_code,
        gdt = sym super::entry::BOOT_GDT,
        protected = sym startup_protected,
        options(att_syntax)
    )
}

/// Marks the end of [`startup_code`]: linked right behind it.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".boot.text.startup_end")]
unsafe extern "C" fn startup_code_end() -> ! {
    naked_asm!("ud2")
}

/// In 32 bits, without paging: to long mode on the boot tables, as `pvh_start32` does.
#[unsafe(naked)]
#[unsafe(link_section = ".boot.text")]
unsafe extern "C" fn startup_protected() -> ! {
    naked_asm!(
        ".code32",
        "movl $16, %eax",
        "movl %eax, %ds",
        "movl %eax, %es",
        "movl %eax, %ss",
        "movl ${l4}, %eax",
        "movl %eax, %cr3",
        // CR4: PAE, OSFXSR, OSXMMEXCPT.
        "movl $0x620, %eax",
        "movl %eax, %cr4",
        // EFER: LME, NXE, SCE.
        "movl $0xc0000080, %ecx",
        "rdmsr",
        "orl $0x901, %eax",
        "wrmsr",
        // CR0: PG, WP, NE, ET, MP, PE.
        "movl $0x80010033, %eax",
        "movl %eax, %cr0",
        "ljmp $8, $3f",
        ".code64",
        "3: movabsq ${high}, %rax",
        "jmpq *%rax",
        l4 = sym super::entry::BOOT_L4,
        high = sym startup_high,
        options(att_syntax)
    )
}

/// Where the kernel is linked: the boot tables' identity mapping goes away here.
#[unsafe(naked)]
unsafe extern "C" fn startup_high() -> ! {
    naked_asm!(
        "mov rax, [rip + {root}]",
        "mov cr3, rax",
        "xor eax, eax",
        "mov fs, eax",
        "mov gs, eax",
        "mov rsp, [rip + {stack}]",
        "xor ebp, ebp",
        "call {start}",
        "ud2",
        root = sym ROOT,
        stack = sym STACK_TOP,
        start = sym further_processor,
    )
}
