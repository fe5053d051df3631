//! From the boot tables and a memory map to proper kernel tables, a heap, and a manager that has all other frames.

use core::ops::Range;

use smallvec::SmallVec;

use super::info::BootInfo;
use crate::arch::{PerCpu, XAPIC_BASE};
use crate::mm::kernel_map::{KernelMap, NoFrame, Rights};
use crate::mm::{self, DIRECT_MAP, KERNEL_BASE, frames, image, phys_to_virt, stack};

const PAGE: u64 = 4096;

/// Below it lie the loader's data and the firmware's: not worth having.
const LOW_MEMORY: u64 = 1 << 20;

/// Bytes of the heap's first region.
const FIRST_HEAP: u64 = 1 << 20;

/// RAM that the boot tables reach.
const BOOT_MAP_END: u64 = 4 << 30;

/// Gives out RAM from the lowest free address upwards, never back.
struct EarlyMemory {
    /// Free RAM, page aligned, ascending.
    free: SmallVec<[Range<u64>; 16]>,
}

impl EarlyMemory {
    /// RAM without what is already in use.
    fn new(info: &BootInfo) -> EarlyMemory {
        let mut free: SmallVec<[Range<u64>; 16]> = SmallVec::new();
        for ram in &info.ram {
            let ram = ram.start.next_multiple_of(PAGE)..ram.end & !(PAGE - 1);
            if !ram.is_empty() {
                free.push(ram);
            }
        }
        free.sort_by_key(|range| range.start);
        let mut memory = EarlyMemory { free };
        memory.remove(0..LOW_MEMORY);
        memory.remove(LOW_MEMORY..image().end - KERNEL_BASE);
        if let Some(archive) = &info.archive {
            memory.remove(archive.start & !(PAGE - 1)..archive.end.next_multiple_of(PAGE));
        }
        memory
    }

    fn remove(&mut self, taken: Range<u64>) {
        let mut rest = SmallVec::new();
        for range in &self.free {
            for part in [range.start..range.end.min(taken.start), range.start.max(taken.end)..range.end] {
                if !part.is_empty() {
                    rest.push(part);
                }
            }
        }
        self.free = rest;
    }

    /// Physical address of `bytes` of page-aligned RAM that the boot tables map.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let range = self.free.iter_mut().find(|range| range.start + bytes <= range.end.min(BOOT_MAP_END))?;
        let start = range.start;
        range.start += bytes;
        Some(start)
    }
}

/// Sets everything up.
///
/// # Safety
/// Once, at boot, on the boot tables.
pub unsafe fn init(info: &BootInfo) {
    let mut early = EarlyMemory::new(info);
    let heap = early.take(FIRST_HEAP).expect("too little memory: give the machine at least 16 MiB");
    // SAFETY: RAM that nobody else has, mapped by the boot tables and by those that follow.
    unsafe { mm::init_early_heap(phys_to_virt(heap), FIRST_HEAP as usize) };

    // SAFETY: first thing after there is a heap.
    unsafe { PerCpu::current().memory.init() };

    // SAFETY: boot.
    let map = unsafe { kernel_map(info, &mut || early.take(PAGE)) }.expect("too little memory for the kernel's tables");
    // SAFETY: they map what the boot tables mapped, except the identity map, which is no longer used.
    unsafe { mm::load_kernel_map(map) };
    stack::init(map);

    let entries: SmallVec<[(usize, u64); 8]> = map.upper_entries().collect();
    let frame = |address: u64| u32::try_from(address / PAGE).unwrap_or(u32::MAX);
    let usable: SmallVec<[Range<u32>; 16]> =
        early.free.iter().map(|range| frame(range.start)..frame(range.end)).filter(|range| !range.is_empty()).collect();
    // SAFETY: what is left of the early memory is nobody's, and the direct map has all RAM.
    unsafe { frames::init(&usable, &entries) };
    mm::init_heap_reserve();
}

/// Tables with: all RAM in the direct map; the image with the rights of its parts, in the direct map too; the local APIC; an empty place for stacks.
///
/// # Safety
/// At boot.
unsafe fn kernel_map(info: &BootInfo, alloc: &mut dyn FnMut() -> Option<u64>) -> Result<KernelMap, NoFrame> {
    let map = KernelMap::new(alloc)?;
    let image = image();
    // SAFETY: the tables are not in use yet; RAM and the image are mapped as what they are.
    unsafe {
        for ram in &info.ram {
            let (start, end) = (ram.start & !(PAGE - 1), ram.end.next_multiple_of(PAGE));
            map.map(DIRECT_MAP + start, start, end - start, Rights::WRITE, alloc)?;
        }
        for (part, rights) in [
            (image.text_start..image.text_end, Rights::EXECUTE),
            (image.text_end..image.rodata_end, Rights::empty()),
            (image.rodata_end..image.end, Rights::WRITE),
        ] {
            let (physical, bytes) = (part.start - KERNEL_BASE, part.end - part.start);
            map.map(part.start, physical, bytes, rights, alloc)?;
            if !rights.contains(Rights::WRITE) {
                map.map(DIRECT_MAP + physical, physical, bytes, Rights::empty(), alloc)?;
            }
        }
        map.map(DIRECT_MAP + XAPIC_BASE, XAPIC_BASE, PAGE, Rights::WRITE | Rights::DEVICE, alloc)?;
    }
    map.reserve_root_entry(stack::REGION, alloc)?;
    Ok(map)
}
