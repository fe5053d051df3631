//! What the loader tells: where RAM is, the initial archive, the command line. Copied, since it may lie in memory that is given away.

use core::alloc::Layout;
use core::ops::Range;

use pvh::start_info::reader::{MemMap, StartInfoReader};
use smallvec::SmallVec;
use spin::Once;

use super::processors::{self, Processors};
use crate::mm::phys_to_virt;

/// Type of a memory map entry: RAM.
const TYPE_RAM: u32 = 1;

/// What the loader told.
pub struct BootInfo {
    /// RAM, physical addresses, as the loader lists it.
    pub ram: SmallVec<[Range<u64>; 16]>,
    /// The initial archive.
    pub archive: Option<Range<u64>>,
    /// The processors.
    pub processors: Processors,
    command_line: SmallVec<[u8; 1024]>,
}

static INFO: Once<BootInfo> = Once::new();

/// What the loader told.
///
/// # Panics
/// Before [`read`].
pub fn info() -> &'static BootInfo {
    INFO.get().expect("the start info is read first thing at boot")
}

/// Physical addresses through the direct map that the boot tables have.
struct DirectMap;

impl MemMap for DirectMap {
    fn ptr(&self, paddr: usize, _layout: Layout) -> *const u8 {
        phys_to_virt(paddr as u64)
    }
}

/// Reads the start info.
///
/// # Safety
/// `address` is what the loader passed, and the boot tables are still in use.
///
/// # Panics
/// If it is not a start info with a memory map (version 1 or later).
pub unsafe fn read(address: u32) -> &'static BootInfo {
    // SAFETY: the caller's promise.
    let reader =
        unsafe { StartInfoReader::from_paddr(address, DirectMap) }.expect("no PVH start info: use QEMU's -kernel");
    let ram: SmallVec<[Range<u64>; 16]> = reader
        .memmap()
        .iter()
        .filter(|entry| entry.ty == TYPE_RAM)
        .map(|entry| entry.addr..entry.addr + entry.size)
        .collect();
    assert!(!ram.is_empty(), "the start info has no memory map");
    let archive = reader.modlist().next().map(|module| module.raw().paddr..module.raw().paddr + module.raw().size);
    let command_line = reader.cmdline().map(|line| SmallVec::from_slice(line.to_bytes())).unwrap_or_default();
    let processors = match reader.raw().rsdp_paddr {
        0 => Processors::default(),
        // SAFETY: the loader says that the root pointer is there, and the boot tables are in use.
        rsdp => unsafe { processors::find(rsdp) },
    };
    INFO.call_once(|| BootInfo { ram, archive, processors, command_line })
}

impl BootInfo {
    /// The whole command line; empty if it is not text.
    pub fn command_line(&self) -> &str {
        core::str::from_utf8(&self.command_line).unwrap_or_default()
    }

    /// The value of `name=value` on the command line, the last one if there are several.
    pub fn option(&self, name: &str) -> Option<&str> {
        let words = self.command_line().split_ascii_whitespace().rev();
        words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The initial archive's bytes; empty without one.
    pub fn archive_bytes(&self) -> &'static [u8] {
        match &self.archive {
            // SAFETY: RAM that `boot::memory` keeps out of the hands of the manager, mapped for ever.
            Some(range) => unsafe {
                core::slice::from_raw_parts(phys_to_virt(range.start), (range.end - range.start) as usize)
            },
            None => &[],
        }
    }
}
