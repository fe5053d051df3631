//! Private anonymous memory that is measured page by page.

use crate::{PAGE, TABLE_PAGES};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// What may be done with pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
    /// Everything.
    All,
}

impl Protection {
    fn bits(self) -> libc::c_int {
        match self {
            Protection::None => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Protection::All => libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        }
    }
}

/// A private anonymous mapping, unmapped when dropped. Its pages are small ones: huge pages are turned off where the
/// kernel has them, unless [`allow_huge_pages`] was called.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    pages: usize,
}

impl Region {
    /// Maps `pages` pages, readable and writable, not yet touched.
    ///
    /// # Errors
    /// What `mmap` says (`ENOMEM`).
    pub fn map(pages: usize) -> io::Result<Region> {
        let region = Region::map_only(pages)?;
        region.advise_page_size();
        Ok(region)
    }

    /// A kernel without huge pages answers EINVAL, which is as good.
    fn advise_page_size(&self) {
        let advice = if HUGE.load(Ordering::Relaxed) { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the range is this region's own; the advice changes no content.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.pages * PAGE, advice) };
    }

    /// As [`Region::map`], by the one system call and nothing else: what is measured as mmap.
    #[inline(always)]
    pub fn map_only(pages: usize) -> io::Result<Region> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, Protection::ReadWrite.bits(), flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Region { base, pages })
    }

    /// Maps and fills: every page holds its own number plus one.
    ///
    /// # Errors
    /// As [`Region::map`].
    pub fn filled(pages: usize) -> io::Result<Region> {
        let mut region = Region::map(pages)?;
        for page in 0..pages {
            region.write(page, page as u64 + 1);
        }
        Ok(region)
    }

    /// Maps `areas` areas of `pages_each` pages that cannot merge: they are writable and read-only in turns, the first
    /// one writable. No page is touched.
    ///
    /// # Errors
    /// What `mmap` and `mprotect` say; `ENOMEM` where the kernel's limit of areas is reached.
    pub fn alternating(areas: usize, pages_each: usize) -> io::Result<Region> {
        Region::alternating_with(areas, pages_each, Protection::Read)
    }

    /// As [`Region::alternating`], but all areas are writable: every second one can be executed, too.
    ///
    /// # Errors
    /// As [`Region::alternating`].
    pub fn alternating_writable(areas: usize, pages_each: usize) -> io::Result<Region> {
        Region::alternating_with(areas, pages_each, Protection::All)
    }

    fn alternating_with(areas: usize, pages_each: usize, other: Protection) -> io::Result<Region> {
        let mut region = Region::map(areas * pages_each)?;
        for area in (1..areas).step_by(2) {
            region.protect(area * pages_each..(area + 1) * pages_each, other)?;
        }
        Ok(region)
    }

    /// Maps `pages` pages at an address where nothing is, and fills them as [`Region::filled`] does.
    ///
    /// # Errors
    /// What `mmap` says (`ENOMEM`, `EEXIST`).
    pub fn filled_at(address: usize, pages: usize) -> io::Result<Region> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let place = std::ptr::without_provenance_mut(address);
        // SAFETY: the kernel maps nothing where something is.
        let base = unsafe { libc::mmap(place, pages * PAGE, Protection::ReadWrite.bits(), flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        let mut region = Region { base, pages };
        region.advise_page_size();
        (0..pages).for_each(|page| region.write(page, page as u64 + 1));
        Ok(region)
    }

    /// Maps the first `pages` pages of a file, privately, by the one system call.
    ///
    /// # Errors
    /// What `mmap` says.
    #[inline(always)]
    pub fn of_file(file: &File, pages: usize) -> io::Result<Region> {
        let protection = Protection::ReadWrite.bits();
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), pages * PAGE, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Region { base, pages })
    }

    /// Moves it all to another address, where nothing of this program may be.
    ///
    /// # Errors
    /// What `mremap` says (`ENOMEM`).
    #[inline(always)]
    pub fn move_to(&mut self, address: usize) -> io::Result<()> {
        let (length, flags) = (self.pages * PAGE, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let place: *mut libc::c_void = std::ptr::without_provenance_mut(address);
        // SAFETY: the mapping is this region's own and nothing refers into it; the caller has nothing at the new place.
        let base = unsafe { libc::mremap(self.base.as_ptr().cast(), length, length, flags, place) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mremap gave address 0"))?;
        Ok(())
    }

    /// Names some pages.
    ///
    /// # Errors
    /// `Unsupported` if the kernel has no names for anonymous memory (it says `EINVAL`).
    ///
    /// # Panics
    /// If the region has not all these pages.
    pub fn name(&mut self, pages: Range<usize>, name: &CStr) -> io::Result<()> {
        assert!(pages.start <= pages.end && pages.end <= self.pages);
        const PR_SET_VMA: libc::c_int = 0x5356_4d41;
        const PR_SET_VMA_ANON_NAME: libc::c_ulong = 0;
        let length = (pages.end - pages.start) * PAGE;
        // SAFETY: within the mapping, as was checked.
        let base = unsafe { self.base.as_ptr().add(pages.start * PAGE) };
        // SAFETY: a name changes no content.
        if unsafe { libc::prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, base, length, name.as_ptr()) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINVAL) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no names for anonymous memory"))
            }
            _ => Err(error),
        }
    }

    /// The first page that a last-level page table begins with.
    pub fn first_page_of_table(&self) -> usize {
        let page = self.base.addr().get() / PAGE;
        page.next_multiple_of(TABLE_PAGES) - page
    }

    /// Where it is, for calls that take an address.
    pub fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Writes the first word of a page.
    ///
    /// # Panics
    /// If the region has no such page.
    #[inline(always)]
    pub fn write(&mut self, page: usize, value: u64) {
        assert!(page < self.pages);
        // SAFETY: inside the mapping, aligned; nothing else refers to it. Where the page is protected the process gets
        // SIGSEGV, which is no undefined behaviour for a volatile access.
        unsafe { self.base.as_ptr().add(page * PAGE).cast::<u64>().write_volatile(value) }
    }

    /// Reads the first word of a page.
    ///
    /// # Panics
    /// If the region has no such page.
    #[inline(always)]
    pub fn read(&self, page: usize) -> u64 {
        assert!(page < self.pages);
        // SAFETY: as in `write`.
        unsafe { self.base.as_ptr().add(page * PAGE).cast::<u64>().read_volatile() }
    }

    /// Changes what may be done with some pages.
    ///
    /// # Errors
    /// What `mprotect` says (`ENOMEM`).
    ///
    /// # Panics
    /// If the region has not all these pages.
    #[inline(always)]
    pub fn protect(&mut self, pages: Range<usize>, protection: Protection) -> io::Result<()> {
        assert!(pages.start <= pages.end && pages.end <= self.pages);
        // SAFETY: the range lies in this region, to which there are no references.
        let result = unsafe {
            libc::mprotect(
                self.base.as_ptr().add(pages.start * PAGE).cast(),
                (pages.end - pages.start) * PAGE,
                protection.bits(),
            )
        };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Region {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.pages * PAGE) };
    }
}

/// Whether regions ask for huge pages.
static HUGE: AtomicBool = AtomicBool::new(false);

/// Regions that are made from now on ask for huge pages instead of turning them off.
pub fn allow_huge_pages() {
    HUGE.store(true, Ordering::Relaxed);
}

/// Turns huge pages off for this process and those that it makes, where the kernel has them.
pub fn small_pages_only() {
    // SAFETY: changes how the kernel maps later memory, nothing of what is mapped. EINVAL on a kernel without huge
    // pages is as good.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}
