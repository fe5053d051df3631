//! Write protection of one's own memory by userfaultfd (`userfaultfd(2)`, `ioctl_userfaultfd(2)`).

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};

use crate::{PAGE, Region};

/// `UFFD_USER_MODE_ONLY`: allowed without privileges.
const USER_MODE_ONLY: libc::c_int = 1;
const API: u64 = 0xaa;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1;
const REGISTER_MODE_WP: u64 = 2;
const WRITEPROTECT_MODE_WP: u64 = 1;

/// `_IOWR(0xaa, n, size)` of `linux/userfaultfd.h`.
const fn request(number: u32, size: usize) -> libc::c_ulong {
    (3 << 30 | (size as u32) << 16 | 0xaa << 8 | number) as libc::c_ulong
}

/// Bytes of `struct uffd_msg`, and where a page fault's address is in it.
const MESSAGE: usize = 32;
const ADDRESS: Range<usize> = 16..24;

/// A region whose first writes are told to whoever reads them.
#[derive(Debug)]
pub struct Userfault {
    file: File,
    base: usize,
}

impl Userfault {
    /// Watches a region, of which nothing is protected yet.
    ///
    /// # Errors
    /// `Unsupported` where the kernel has no userfaultfd, or cannot write-protect with it.
    pub fn over(region: &Region) -> io::Result<Userfault> {
        let unsupported =
            |_| io::Error::new(io::ErrorKind::Unsupported, "the kernel has no userfaultfd that write-protects");
        // SAFETY: makes a descriptor.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        if fd == -1 {
            return Err(unsupported(()));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(fd as libc::c_int) };
        let fault = Userfault { file, base: region.address() };
        fault.ask(request(0x3f, 24), &mut [API, FEATURE_PAGEFAULT_FLAG_WP, 0]).map_err(|_| unsupported(()))?;
        let length = (region.pages() * PAGE) as u64;
        fault
            .ask(request(0, 32), &mut [fault.base as u64, length, REGISTER_MODE_WP, 0])
            .map_err(|_| unsupported(()))?;
        Ok(fault)
    }

    /// Protects some pages.
    ///
    /// # Errors
    /// What `UFFDIO_WRITEPROTECT` says.
    pub fn protect(&self, pages: Range<usize>) -> io::Result<()> {
        let start = self.base + pages.start * PAGE;
        self.ask(request(6, 24), &mut [start as u64, (pages.len() * PAGE) as u64, WRITEPROTECT_MODE_WP])
    }

    /// Waits for `faults` writes and lets each pass.
    ///
    /// # Panics
    /// If the kernel refuses: the writer would wait for ever.
    pub fn let_pass(&self, faults: usize) {
        let mut message = [0; MESSAGE];
        for _ in 0..faults {
            (&self.file).read_exact(&mut message).expect("a fault is told");
            let address = u64::from_ne_bytes(message[ADDRESS].try_into().expect("eight bytes"));
            let page = address & !(PAGE as u64 - 1);
            self.ask(request(6, 24), &mut [page, PAGE as u64, 0]).expect("a page can be let free");
        }
    }

    fn ask<const N: usize>(&self, request: libc::c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: the request reads and writes as many words as its number says, which is how many there are; memory that it
        // names is a region's, whose content it does not change.
        match unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, words.as_mut_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
