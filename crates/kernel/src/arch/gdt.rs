//! Segments, with Linux's selectors: programs can see them.

use core::alloc::Layout;
use core::ptr;

use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::registers::model_specific::GsBase;
use x86_64::structures::gdt::{Descriptor, DescriptorFlags, SegmentSelector};

use super::PerCpu;

/// Selector of the kernel's code.
pub const KERNEL_CODE: u16 = 0x10;
/// Selector of the kernel's data.
pub const KERNEL_DATA: u16 = 0x18;
/// Base that `sysret` counts from: data 8 above, 64-bit code 16 above.
pub const SYSRET_BASE: u16 = 0x23;
/// Selector of a program's data and stack (`__USER_DS`).
pub const USER_DATA: u16 = 0x2b;
/// Selector of a program's 64-bit code (`__USER_CS`).
pub const USER_CODE: u16 = 0x33;
/// Selector of the task state segment.
const TASK_STATE: u16 = 0x40;

/// Stacks that an entry of the IDT can ask for, by index.
#[derive(Clone, Copy)]
pub enum InterruptStack {
    /// For double faults: the stack was bad.
    DoubleFault = 0,
    /// For interrupts that nothing holds off.
    NonMaskable = 1,
    /// For machine checks.
    MachineCheck = 2,
}

/// Bytes of a stack for exceptions that end in a panic.
const EMERGENCY_STACK_SIZE: usize = 16 * 1024;

#[repr(C, align(16))]
pub(super) struct EmergencyStack([u8; EMERGENCY_STACK_SIZE]);

/// A processor's three interrupt stacks, and one for exceptions in the kernel itself: whoever uses them is about to stop the machine.
pub(super) type EmergencyStacks = [EmergencyStack; 4];

/// Those of the first processor.
static mut EMERGENCY_STACKS: EmergencyStacks = [const { EmergencyStack([0; EMERGENCY_STACK_SIZE]) }; 4];

/// The first processor's stacks, which are there before anything can be allocated.
pub(super) fn first_emergency_stacks() -> *mut EmergencyStacks {
    &raw mut EMERGENCY_STACKS
}

/// Stacks for another processor. They live as long as the kernel.
pub(super) fn new_emergency_stacks() -> *mut EmergencyStacks {
    let layout = Layout::new::<EmergencyStacks>();
    // SAFETY: the size is not zero.
    let stacks = unsafe { alloc::alloc::alloc_zeroed(layout) };
    assert!(!stacks.is_null(), "no memory for the stacks of a processor");
    stacks.cast()
}

/// Loads segments and the task state segment.
///
/// # Safety
/// Once per processor, with GS base already set to `percpu` and stacks that nobody else uses.
pub unsafe fn init(percpu: &'static PerCpu, stacks: *mut EmergencyStacks) {
    let emergency_stack_top = |index: usize| stacks as u64 + (EMERGENCY_STACK_SIZE * (index + 1)) as u64;
    // SAFETY: boot: nobody else looks at these cells.
    let (gdt, tss) = unsafe { (&mut *percpu.gdt.get(), &mut *percpu.tss.get()) };
    for stack in [InterruptStack::DoubleFault, InterruptStack::NonMaskable, InterruptStack::MachineCheck] {
        tss.interrupt_stack_table[stack as usize] = VirtAddr::new(emergency_stack_top(stack as usize));
    }
    // SAFETY: as above.
    unsafe { *percpu.exception_stack.get() = emergency_stack_top(3) };

    // Slot 1 and slot 4 are where Linux has 32-bit code, which does not exist here: any descriptor fills them.
    gdt.append(Descriptor::kernel_code_segment());
    let kernel_code = gdt.append(Descriptor::kernel_code_segment());
    let kernel_data = gdt.append(Descriptor::kernel_data_segment());
    gdt.append(Descriptor::UserSegment(DescriptorFlags::USER_DATA.bits()));
    let user_data = gdt.append(Descriptor::user_data_segment());
    let user_code = gdt.append(Descriptor::user_code_segment());
    gdt.append(Descriptor::UserSegment(DescriptorFlags::USER_DATA.bits()));
    // SAFETY: the structure lives for ever.
    let task_state = gdt.append(unsafe { Descriptor::tss_segment_unchecked(ptr::from_ref(tss)) });
    assert!(kernel_code.0 == KERNEL_CODE && kernel_data.0 == KERNEL_DATA && task_state.0 == TASK_STATE);
    assert!(user_data.0 == USER_DATA && user_code.0 == USER_CODE);

    // SAFETY: the table lives for ever, and the selectors are those that were just put into it. Loading GS clears its base in
    // some processors, so it is set again.
    unsafe {
        gdt.load_unsafe();
        CS::set_reg(kernel_code);
        SS::set_reg(kernel_data);
        DS::set_reg(SegmentSelector::NULL);
        ES::set_reg(SegmentSelector::NULL);
        FS::set_reg(SegmentSelector::NULL);
        GS::set_reg(SegmentSelector::NULL);
        GsBase::write(VirtAddr::from_ptr(percpu));
        load_tss(task_state);
    }
}
