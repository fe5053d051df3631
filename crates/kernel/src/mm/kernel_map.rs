//! The kernel's own page tables: the upper half, which every root shares. Made at boot; later only stacks come and go.

use bitflags::bitflags;
use x86_64::structures::paging::PageTableFlags as Entry;

use super::phys_to_virt;
use crate::arch::cpu::{Features, features};

/// Bytes of a page, a large page and a huge page.
const SIZES: [u64; 3] = [1 << 12, 1 << 21, 1 << 30];

/// Bits of an entry that hold the physical address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

bitflags! {
    /// What the kernel may do with its own memory, beyond reading it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Rights: u8 {
        /// Store.
        const WRITE = 1;
        /// Execute.
        const EXECUTE = 1 << 1;
        /// It is a device: no caching.
        const DEVICE = 1 << 2;
    }
}

/// A page for a table could not be had.
#[derive(Debug)]
pub struct NoFrame;

/// The kernel's root table.
#[derive(Clone, Copy)]
pub struct KernelMap {
    /// Physical address.
    root: u64,
}

impl KernelMap {
    /// An empty one in a page from `alloc`, which returns physical addresses of pages for tables.
    pub fn new(alloc: &mut dyn FnMut() -> Option<u64>) -> Result<KernelMap, NoFrame> {
        Ok(KernelMap { root: new_table(alloc)? })
    }

    /// Physical address of the root.
    pub fn root(self) -> u64 {
        self.root
    }

    /// Maps `bytes` at `virt` to `phys` in the largest pages that fit. What was mapped there before is replaced.
    ///
    /// # Safety
    /// Nothing that the kernel relies on may change by it; stale translations are the caller's business.
    pub unsafe fn map(
        self,
        virt: u64,
        phys: u64,
        bytes: u64,
        rights: Rights,
        alloc: &mut dyn FnMut() -> Option<u64>,
    ) -> Result<(), NoFrame> {
        let largest = if features().contains(Features::PAGES_1G) { 2 } else { 1 };
        let mut done = 0;
        while done < bytes {
            let (virt, phys) = (virt + done, phys + done);
            let size = (0..=largest)
                .rev()
                .find(|&size| (virt | phys).is_multiple_of(SIZES[size]) && bytes - done >= SIZES[size])
                .unwrap_or(0);
            // SAFETY: the caller's promise.
            unsafe { self.set(virt, phys | leaf_flags(rights, size), size, alloc)? };
            done += SIZES[size];
        }
        Ok(())
    }

    /// Forgets the page at `virt` and drops this processor's translation of it.
    ///
    /// # Safety
    /// Nobody uses it any more, on no processor.
    pub unsafe fn unmap_page(self, virt: u64) {
        // SAFETY: the caller's promise; entries on the way exist if the page was mapped, or an empty one is found at once.
        unsafe {
            let mut table = self.root;
            for level in (1..4).rev() {
                let entry = *entry_pointer(table, virt, level);
                if entry & Entry::PRESENT.bits() == 0 {
                    return;
                }
                table = entry & ADDRESS;
            }
            *entry_pointer(table, virt, 0) = 0;
        }
        x86_64::instructions::tlb::flush(x86_64::VirtAddr::new(virt));
    }

    /// The entries of the root's upper half that are not empty.
    pub fn upper_entries(self) -> impl Iterator<Item = (usize, u64)> {
        (256..512).filter_map(move |index| {
            // SAFETY: the root is a mapped table of 512 entries.
            let entry = unsafe { *phys_to_virt(self.root).cast::<u64>().add(index) };
            (entry != 0).then_some((index, entry))
        })
    }

    /// Makes sure that the root has an entry for `virt`, so that it can be shared by all roots before anything is mapped there.
    pub fn reserve_root_entry(self, virt: u64, alloc: &mut dyn FnMut() -> Option<u64>) -> Result<(), NoFrame> {
        // SAFETY: adds an empty table where nothing is mapped.
        unsafe { next_table(self.root, virt, 3, alloc).map(|_table| ()) }
    }

    /// # Safety
    /// As for [`KernelMap::map`].
    unsafe fn set(
        self,
        virt: u64,
        entry: u64,
        size: usize,
        alloc: &mut dyn FnMut() -> Option<u64>,
    ) -> Result<(), NoFrame> {
        let mut table = self.root;
        for level in (size + 1..4).rev() {
            // SAFETY: `table` is a table of this level.
            table = unsafe { next_table(table, virt, level, alloc)? };
        }
        // SAFETY: the caller's promise.
        unsafe { *entry_pointer(table, virt, size) = entry };
        Ok(())
    }
}

fn leaf_flags(rights: Rights, size: usize) -> u64 {
    let mut flags = Entry::PRESENT | Entry::ACCESSED | Entry::DIRTY | Entry::GLOBAL;
    flags.set(Entry::WRITABLE, rights.contains(Rights::WRITE));
    flags.set(Entry::NO_EXECUTE, !rights.contains(Rights::EXECUTE));
    flags.set(Entry::NO_CACHE, rights.contains(Rights::DEVICE));
    flags.set(Entry::HUGE_PAGE, size > 0);
    flags.bits()
}

/// The entry for `virt` in a table whose entries span `4096 << 9 * level` bytes.
fn entry_pointer(table: u64, virt: u64, level: usize) -> *mut u64 {
    let index = (virt >> (12 + 9 * level)) & 511;
    phys_to_virt(table + index * 8).cast()
}

/// The table that the entry for `virt` refers to, a new one if there is none. A large page on the way is split.
///
/// # Safety
/// `table` is a table of that level.
unsafe fn next_table(
    table: u64,
    virt: u64,
    level: usize,
    alloc: &mut dyn FnMut() -> Option<u64>,
) -> Result<u64, NoFrame> {
    let pointer = entry_pointer(table, virt, level);
    // SAFETY: the caller's promise.
    let entry = unsafe { *pointer };
    if entry & Entry::PRESENT.bits() == 0 {
        let new = new_table(alloc)?;
        // SAFETY: as above.
        unsafe { *pointer = new | (Entry::PRESENT | Entry::WRITABLE).bits() };
        return Ok(new);
    }
    if entry & Entry::HUGE_PAGE.bits() == 0 {
        return Ok(entry & ADDRESS);
    }
    let new = new_table(alloc)?;
    let (base, mut flags) = (entry & ADDRESS & !(SIZES[level] - 1), entry & !ADDRESS);
    if level == 1 {
        flags &= !Entry::HUGE_PAGE.bits();
    }
    for part in 0..512 {
        // SAFETY: the new table is ours.
        unsafe { *phys_to_virt(new).cast::<u64>().add(part as usize) = (base + part * SIZES[level - 1]) | flags };
    }
    // SAFETY: the same translations, in smaller pages.
    unsafe { *pointer = new | (Entry::PRESENT | Entry::WRITABLE).bits() };
    Ok(new)
}

fn new_table(alloc: &mut dyn FnMut() -> Option<u64>) -> Result<u64, NoFrame> {
    let table = alloc().ok_or(NoFrame)?;
    // SAFETY: a page of RAM that `alloc` has given away.
    unsafe { phys_to_virt(table).write_bytes(0, 4096) };
    Ok(table)
}
