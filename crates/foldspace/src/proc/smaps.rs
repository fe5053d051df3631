//! `/proc/PID/smaps` and `smaps_rollup` (proc_pid_smaps(5), `show_smap` and `smaps_account` in Linux's `fs/proc/task_mmu.c`).

use alloc::vec::Vec;

use super::mapcount::Mapcounts;
use super::maps::{self, Maps};
use super::text::{decimal, kib};
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::error::Result;
use crate::platform::SpaceId;
use crate::space::AddressSpace;
use crate::table::{Entry, Stretch};
use crate::vma::{Backing, Vma, VmaFlags};

/// Kibibytes in a page.
const PAGE_KIB: u64 = PAGE_SIZE / 1024;
/// Proportional sizes are kept in bytes with so many binary places, as Linux does: the roundings add up alike.
const PSS_SHIFT: u32 = 12;
/// Column at which values begin to be aligned.
const VALUE_COLUMN: usize = 16;

/// The VMAs of one instant of an address space, to be read with their sizes piece by piece: the VMAs stay those of the moment when it was
/// made, their sizes are those of the moment when they are read.
pub struct Smaps {
    maps: Maps,
    space: SpaceId,
}

impl AddressSpace {
    /// What `/proc/PID/smaps` shows now. O(1).
    pub fn smaps(&self) -> Smaps {
        Smaps { maps: self.maps(), space: self.id() }
    }

    /// Appends the text of `/proc/PID/smaps_rollup`. O(VMAs and tables).
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`]; nothing is appended.
    pub fn smaps_rollup(&self, out: &mut Vec<u8>) -> Result<()> {
        let maps = self.maps();
        let mut counts = Mapcounts::new(self.memory());
        let mut sizes = Sizes::default();
        for vma in maps.vmas().view().iter() {
            sizes.add_vma(self, vma, &mut counts)?;
        }
        let summary = maps.vmas().view().summary();
        let line = out.len();
        // An address space without a VMA says so, too.
        maps::header((summary.start, summary.end), VmaFlags::empty(), 0, Default::default(), out);
        let name = out.len();
        out.extend_from_slice(b"[rollup]");
        maps::pad(line, name, out);
        out.push(b'\n');
        sizes.write(Form::Rollup, out);
        Ok(())
    }
}

impl Smaps {
    /// Appends what is said of the first VMA that ends above `from`, and returns where to go on; `None` (and no text) at the end. `space` is
    /// the address space that this was made of. O(log VMAs), and the tables of the VMA.
    ///
    /// # Errors
    ///
    /// [`crate::Error::OutOfMemory`]; nothing is appended.
    pub fn entry(&self, space: &AddressSpace, from: VirtAddr, out: &mut Vec<u8>) -> Result<Option<VirtAddr>> {
        debug_assert_eq!(space.id(), self.space, "sizes of another address space");
        let Some(vma) = self.maps.vmas().view().find_at_or_after(from) else { return Ok(None) };
        let mut sizes = Sizes::default();
        sizes.add_vma(space, vma, &mut Mapcounts::new(space.memory()))?;
        self.maps.write(vma, out);
        line("Size:", vma.range.len() / 1024, out);
        line("KernelPageSize:", PAGE_KIB, out);
        line("MMUPageSize:", PAGE_KIB, out);
        sizes.write(Form::Vma, out);
        out.extend_from_slice(b"THPeligible:    ");
        decimal(out, 0, 8);
        if space.memory().has_protection_keys() {
            out.extend_from_slice(b"\nProtectionKey:  ");
            decimal(out, vma.tag.key().number().into(), 8);
        }
        out.extend_from_slice(b"\nVmFlags: ");
        flags(vma.flags, sizes.guards, out);
        out.push(b'\n');
        Ok(Some(vma.end()))
    }

    /// All of it.
    ///
    /// # Errors
    ///
    /// As [`Smaps::entry`].
    pub fn text(&self, space: &AddressSpace) -> Result<Vec<u8>> {
        let (mut out, mut next) = (Vec::new(), Some(VirtAddr(0)));
        while let Some(from) = next {
            next = self.entry(space, from, &mut out)?;
        }
        Ok(out)
    }
}

/// In which file the sizes are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Vma,
    Rollup,
}

/// Sums over pages that are present: of zero and reference pages, which take no memory, nothing counts.
#[derive(Default)]
struct Sizes {
    /// Pages.
    resident: u64,
    shared_clean: u64,
    shared_dirty: u64,
    private_clean: u64,
    private_dirty: u64,
    referenced: u64,
    anonymous: u64,
    lazy_free: u64,
    /// Markers.
    guards: u64,
    /// Proportional: bytes, with [`PSS_SHIFT`] binary places.
    pss_dirty: u64,
    pss_anon: u64,
    pss_file: u64,
    pss_shmem: u64,
    locked: u64,
}

/// Whose a page is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Private,
    File,
    SharedMemory,
}

impl Sizes {
    fn add_vma(&mut self, space: &AddressSpace, vma: &Vma, counts: &mut Mapcounts<'_>) -> Result<()> {
        let memory = space.memory();
        let _guard = memory.pin();
        let object = match &vma.backing {
            Backing::Object(object) if object.is_shared_memory() => Owner::SharedMemory,
            _ => Owner::File,
        };
        space.tables().try_for_each_stretch(vma.range, |_, stretch| {
            let Stretch::Pages(pages) = stretch else { return Ok(()) };
            let Some(table) = pages.path.last().copied() else { return Ok(()) };
            let paths = counts.of_table(&pages.path)?;
            for (index, entry) in pages.iter() {
                self.guards += entry.is_guard() as u64;
                if entry.is_present() && !entry.is_reference() {
                    let owner = if entry.is_object() { object } else { Owner::Private };
                    let mapped = counts.of_page(entry, table, index, paths)?;
                    // A page of an object is dirty whoever has stored to it, and how.
                    let stored_to = entry.is_object() && memory.record(entry.frame()).is_dirty();
                    let entry = if stored_to { entry.with(Entry::DIRTY) } else { entry };
                    self.add_page(vma.flags, entry, owner, mapped);
                }
            }
            Ok(())
        })
    }

    /// Counts a page in that is mapped `mapped` times.
    fn add_page(&mut self, flags: VmaFlags, entry: Entry, owner: Owner, mapped: u64) {
        let dirty = entry.is_dirty();
        let share = (PAGE_SIZE << PSS_SHIFT) / mapped.max(1);
        self.resident += 1;
        self.referenced += entry.is_accessed() as u64;
        match owner {
            Owner::Private => {
                self.anonymous += 1;
                // A private page is one that was stored to: it is clean only since it was freed lazily.
                self.lazy_free += !dirty as u64;
                self.pss_anon += share;
            }
            Owner::File => self.pss_file += share,
            Owner::SharedMemory => self.pss_shmem += share,
        }
        if dirty {
            self.pss_dirty += share;
        }
        if flags.contains(VmaFlags::LOCKED) {
            self.locked += share;
        }
        let pages = match (mapped < 2, dirty) {
            (true, true) => &mut self.private_dirty,
            (true, false) => &mut self.private_clean,
            (false, true) => &mut self.shared_dirty,
            (false, false) => &mut self.shared_clean,
        };
        *pages += 1;
    }

    fn write(&self, form: Form, out: &mut Vec<u8>) {
        let proportional = |share: u64| share >> (PSS_SHIFT + 10);
        let pss = self.pss_anon + self.pss_file + self.pss_shmem;
        line("Rss:", self.resident * PAGE_KIB, out);
        line("Pss:", proportional(pss), out);
        line("Pss_Dirty:", proportional(self.pss_dirty), out);
        if form == Form::Rollup {
            line("Pss_Anon:", proportional(self.pss_anon), out);
            line("Pss_File:", proportional(self.pss_file), out);
            line("Pss_Shmem:", proportional(self.pss_shmem), out);
        }
        line("Shared_Clean:", self.shared_clean * PAGE_KIB, out);
        line("Shared_Dirty:", self.shared_dirty * PAGE_KIB, out);
        line("Private_Clean:", self.private_clean * PAGE_KIB, out);
        line("Private_Dirty:", self.private_dirty * PAGE_KIB, out);
        line("Referenced:", self.referenced * PAGE_KIB, out);
        line("Anonymous:", self.anonymous * PAGE_KIB, out);
        line("KSM:", 0, out);
        line("LazyFree:", self.lazy_free * PAGE_KIB, out);
        // No huge pages, no swap.
        for name in ["AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"] {
            line(name, 0, out);
        }
        line("Swap:", 0, out);
        line("SwapPss:", 0, out);
        line("Locked:", proportional(self.locked), out);
    }
}

fn line(name: &str, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend(core::iter::repeat_n(b' ', VALUE_COLUMN.saturating_sub(name.len())));
    kib(out, value);
}

/// Linux's two letters for each flag, in the order of its bits (`show_smap_vma_flags`), each with a space after it. `gu` says that there are guards now; Linux
/// says it, once there was one, for as long as the VMA lives.
fn flags(flags: VmaFlags, guards: u64, out: &mut Vec<u8>) {
    // Linux's VM_SHARED: a shared mapping of a file that was opened for reading keeps VM_MAYSHARE only.
    let opened_for_writing = VmaFlags::MAY_WRITE.union(VmaFlags::WRITE_SEALED);
    let has = |flag| flags.contains(flag);
    let letters = [
        (has(VmaFlags::READ), "rd"),
        (has(VmaFlags::WRITE), "wr"),
        (has(VmaFlags::EXEC), "ex"),
        (has(VmaFlags::SHARED) && flags.intersects(opened_for_writing), "sh"),
        (has(VmaFlags::MAY_READ), "mr"),
        (has(VmaFlags::MAY_WRITE), "mw"),
        (has(VmaFlags::MAY_EXEC), "me"),
        (has(VmaFlags::SHARED), "ms"),
        (has(VmaFlags::GROWS_DOWN), "gd"),
        (has(VmaFlags::WATCH_MISSING), "um"),
        (guards > 0, "gu"),
        (has(VmaFlags::WATCH_WRITES), "uw"),
        (has(VmaFlags::LOCKED), "lo"),
        (has(VmaFlags::SEQUENTIAL), "sr"),
        (has(VmaFlags::RANDOM), "rr"),
        (has(VmaFlags::DONT_FORK), "dc"),
        (has(VmaFlags::LOCK_ON_FAULT), "lf"),
        (has(VmaFlags::ACCOUNT), "ac"),
        (has(VmaFlags::NO_RESERVE), "nr"),
        (has(VmaFlags::WIPE_ON_FORK), "wf"),
        (has(VmaFlags::DONT_DUMP), "dd"),
        (has(VmaFlags::HUGE_PAGE), "hg"),
        (has(VmaFlags::NO_HUGE_PAGE), "nh"),
        (has(VmaFlags::MERGEABLE), "mg"),
        (has(VmaFlags::DROPPABLE), "dp"),
        (has(VmaFlags::WATCH_UNMAPPED), "ui"),
        (has(VmaFlags::SEALED), "sl"),
    ];
    for (_, letters) in letters.iter().filter(|(shown, _)| *shown) {
        out.extend_from_slice(letters.as_bytes());
        out.push(b' ');
    }
}
