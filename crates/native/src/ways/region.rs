//! Memory of the host, as guests of all other ways have it.

use std::io;

use anyhow::Result;

use super::{PAGE, content};

/// A mapping, unmapped when it is dropped. It is used by one thread, but for what a handler of faults does to it.
pub struct Region {
    base: *mut u8,
    len: usize,
}

impl Region {
    /// Anonymous and private, without huge pages: what is compared is pages.
    pub fn anonymous(len: usize) -> Result<Region> {
        let region = Region::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        // SAFETY: it is our mapping, and the advice changes no content.
        unsafe { libc::madvise(region.base.cast(), len, libc::MADV_NOHUGEPAGE) };
        Ok(region)
    }

    /// Of a file.
    pub fn of_file(len: usize, sharing: i32, file: i32) -> Result<Region> {
        Region::map(len, sharing, file)
    }

    fn map(len: usize, flags: i32, file: i32) -> Result<Region> {
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, file, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        Ok(Region { base: base.cast(), len })
    }

    /// The same with the first `resident` bytes filled, page by page.
    pub fn filled(self, resident: usize) -> Region {
        for page in 0..(resident / PAGE) as u64 {
            self.store(page, content(page));
        }
        self
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Stores to the first word of a page.
    #[inline]
    pub fn store(&self, page: u64, value: u64) {
        self.store_at(page as usize * PAGE, value);
    }

    /// The first word of a page.
    #[inline]
    pub fn load(&self, page: u64) -> u64 {
        self.load_at(page as usize * PAGE)
    }

    #[inline]
    pub fn store_at(&self, offset: usize, value: u64) {
        assert!(offset <= self.len - 8);
        // SAFETY: inside the mapping, which is writable; `offset` is a multiple of 8.
        unsafe { self.base.add(offset).cast::<u64>().write_volatile(value) };
    }

    #[inline]
    pub fn load_at(&self, offset: usize) -> u64 {
        assert!(offset <= self.len - 8);
        // SAFETY: inside the mapping, which is readable; `offset` is a multiple of 8.
        unsafe { self.base.add(offset).cast::<u64>().read_volatile() }
    }

    /// Copies the first `len` bytes of another.
    pub fn copy_from(&self, other: &Region, len: usize) {
        assert!(len <= self.len && len <= other.len);
        // SAFETY: both have `len` bytes, and are mappings of their own.
        unsafe { std::ptr::copy_nonoverlapping(other.base, self.base, len) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and nobody uses it any more.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}
