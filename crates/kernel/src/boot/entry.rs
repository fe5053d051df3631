//! From the PVH entry (32 bits, no paging, `ebx` = physical address of the start info) to Rust in long mode.
//!
//! Runs where it is loaded: `.boot` is linked at its physical address. The tables made here map the first 4 GiB three times:
//! at 0 (until we have jumped away), at [`DIRECT_MAP`](crate::mm::DIRECT_MAP), and the first GiB at the address that the
//! kernel is linked at. `boot::paging` replaces them by tables with proper rights.

use core::arch::naked_asm;

pvh::xen_elfnote_phys32_entry!(pvh_start32);

/// A page of zeroes that becomes a page table.
#[repr(C, align(4096))]
pub(super) struct Table([u64; 512]);

#[unsafe(link_section = ".boot.data")]
pub(super) static mut BOOT_L4: Table = Table([0; 512]);
#[unsafe(link_section = ".boot.data")]
static mut BOOT_L3_LOW: Table = Table([0; 512]);
#[unsafe(link_section = ".boot.data")]
static mut BOOT_L3_HIGH: Table = Table([0; 512]);
#[unsafe(link_section = ".boot.data")]
static mut BOOT_L2: [Table; 4] = [const { Table([0; 512]) }; 4];

/// Null, 64-bit code, data, 32-bit code: what it takes to get into long mode. `arch::gdt` has the real one.
#[unsafe(link_section = ".boot.data")]
pub(super) static BOOT_GDT: [u64; 4] = [0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff, 0x00cf_9b00_0000_ffff];

/// Operand of `lgdt`.
#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: &'static [u64; 4],
}
#[unsafe(link_section = ".boot.data")]
static BOOT_GDT_POINTER: Pointer = Pointer { limit: 31, base: &BOOT_GDT };

/// Bytes of the stack that the processor boots on and later idles on.
pub const BOOT_STACK_SIZE: usize = 64 * 1024;

/// The stack of the first processor's boot and idle context.
#[repr(C, align(4096))]
pub struct BootStack([u8; BOOT_STACK_SIZE]);
pub static mut BOOT_STACK: BootStack = BootStack([0; BOOT_STACK_SIZE]);

/// Where QEMU (or another PVH loader) jumps to.
///
/// # Safety
/// For the loader only.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".boot.text")]
unsafe extern "C" fn pvh_start32() -> ! {
    naked_asm!(
        ".code32",
        "cli",
        "cld",
        "movl %ebx, %esi",
        // Level 2: 2048 pages of 2 MiB, present, writable, large.
        "movl ${l2}, %edi",
        "movl $0x83, %eax",
        "movl $2048, %ecx",
        "2: movl %eax, (%edi)",
        "addl $8, %edi",
        "addl $0x200000, %eax",
        "decl %ecx",
        "jnz 2b",
        // Level 3.
        "movl ${l2} + 3, %eax",
        "movl %eax, {l3_low}",
        "movl %eax, {l3_high} + 510 * 8",
        "addl $4096, %eax",
        "movl %eax, {l3_low} + 8",
        "addl $4096, %eax",
        "movl %eax, {l3_low} + 16",
        "addl $4096, %eax",
        "movl %eax, {l3_low} + 24",
        // Level 4.
        "movl ${l3_low} + 3, {l4}",
        "movl ${l3_low} + 3, {l4} + {direct_map} * 8",
        "movl ${l3_high} + 3, {l4} + 511 * 8",
        "movl ${l4}, %eax",
        "movl %eax, %cr3",
        // CR4: PAE, OSFXSR, OSXMMEXCPT (core uses SSE).
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
        "lgdt {gdt}",
        "ljmp $8, $3f",
        ".code64",
        "3: movl $16, %eax",
        "movl %eax, %ds",
        "movl %eax, %es",
        "movl %eax, %ss",
        "xorl %eax, %eax",
        "movl %eax, %fs",
        "movl %eax, %gs",
        "movabsq ${stack} + {stack_size}, %rsp",
        "xorl %ebp, %ebp",
        "movl %esi, %edi",
        "movabsq ${start}, %rax",
        "callq *%rax",
        "ud2",
        l2 = sym BOOT_L2,
        l3_low = sym BOOT_L3_LOW,
        l3_high = sym BOOT_L3_HIGH,
        l4 = sym BOOT_L4,
        direct_map = const crate::mm::DIRECT_MAP_SLOT,
        gdt = sym BOOT_GDT_POINTER,
        stack = sym BOOT_STACK,
        stack_size = const BOOT_STACK_SIZE,
        start = sym super::start,
        options(att_syntax)
    )
}
