//! userfaultfd with write protection. As a snapshot: all is protected, a thread copies each page before its first store is let through, and going back copies
//! them back. As a list of what was stored to (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7): the host lets stores through by itself, and `PAGEMAP_SCAN` lists them.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;

use super::{PAGE, Region, Round, Way, content, timed};

/// `_IOWR('f', 16, struct pm_scan_arg)` of `linux/fs.h`.
const PAGEMAP_SCAN: u32 = 0xc060_6610;
/// `UFFDIO_WRITEPROTECT_MODE_WP`: a shift in the header, which the bindings leave out.
const PROTECT: u64 = 1;

/// Whether stores are announced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Messages {
    /// Each first store waits until it is let through.
    Sent,
    /// The host lets it through, and remembers it.
    Remembered,
}

/// A userfaultfd over a region.
struct Faults {
    descriptor: OwnedFd,
}

impl Faults {
    fn over(memory: &Region, messages: Messages) -> Result<Faults> {
        // SAFETY: no pointers.
        let number = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | raw::UFFD_USER_MODE_ONLY as i32) };
        ensure!(number >= 0, "userfaultfd: {}", io::Error::last_os_error());
        // SAFETY: it was made a moment ago, and nobody else has it.
        let faults = Faults { descriptor: unsafe { OwnedFd::from_raw_fd(number as i32) } };
        let wanted = match messages {
            Messages::Sent => 0,
            Messages::Remembered => u64::from(raw::UFFD_FEATURE_WP_ASYNC),
        };
        let mut api = raw::uffdio_api { api: raw::UFFD_API.into(), features: wanted, ioctls: 0 };
        faults.control(ioctl::UFFDIO_API, &mut api)?;
        let range = range_of(memory.base() as u64, memory.len());
        let mode = raw::UFFDIO_REGISTER_MODE_WP.into();
        faults.control(ioctl::UFFDIO_REGISTER, &mut raw::uffdio_register { range, mode, ioctls: 0 })?;
        Ok(faults)
    }

    fn control<T>(&self, request: u32, argument: &mut T) -> Result<()> {
        control(self.descriptor.as_raw_fd(), request, argument).map(drop)
    }

    fn protect(&self, start: u64, len: usize, mode: u64) -> Result<()> {
        self.control(ioctl::UFFDIO_WRITEPROTECT, &mut raw::uffdio_writeprotect { range: range_of(start, len), mode })
    }
}

fn range_of(start: u64, len: usize) -> raw::uffdio_range {
    raw::uffdio_range { start, len: len as u64 }
}

fn control<T>(descriptor: i32, request: u32, argument: &mut T) -> Result<i32> {
    // SAFETY: each caller passes the structure of its request.
    let result = unsafe { libc::ioctl(descriptor, request.into(), std::ptr::from_mut(argument)) };
    ensure!(result >= 0, "ioctl {request:#x}: {}", io::Error::last_os_error());
    Ok(result)
}

/// A page before its first store.
type Kept = (u64, Box<[u64; PAGE / 8]>);

/// See the module.
pub struct WriteProtect {
    kept: Arc<Mutex<Vec<Kept>>>,
    faults: Arc<Faults>,
    memory: Region,
}

impl WriteProtect {
    pub fn new(size: usize, resident: usize) -> Result<WriteProtect> {
        let memory = Region::anonymous(size)?.filled(resident);
        let faults = Arc::new(Faults::over(&memory, Messages::Sent)?);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (handler, pages) = (faults.clone(), kept.clone());
        // It waits for the next message until the program ends.
        thread::spawn(move || while handle(&handler, &pages).is_ok() {});
        Ok(WriteProtect { kept, faults, memory })
    }
}

/// Keeps the page of one store, and lets the store through.
fn handle(faults: &Faults, kept: &Mutex<Vec<Kept>>) -> Result<()> {
    // SAFETY: integers only.
    let mut message: raw::uffd_msg = unsafe { std::mem::zeroed() };
    let size = size_of::<raw::uffd_msg>();
    // SAFETY: room for one message.
    let read = unsafe { libc::read(faults.descriptor.as_raw_fd(), (&raw mut message).cast(), size) };
    ensure!(read == size as isize, "no message: {}", io::Error::last_os_error());
    ensure!(u32::from(message.event) == raw::UFFD_EVENT_PAGEFAULT, "an event that was not asked for");
    // SAFETY: a fault has an address.
    let page = unsafe { message.arg.pagefault.address } & !(PAGE as u64 - 1);
    let mut bytes = Box::new([0; PAGE / 8]);
    // SAFETY: a page of the region, which outlives its faults; who would store to it waits for us.
    unsafe { std::ptr::copy_nonoverlapping(page as *const u64, bytes.as_mut_ptr(), PAGE / 8) };
    kept.lock().expect("nobody panics with it").push((page, bytes));
    faults.protect(page, PAGE, 0)
}

impl Way for WriteProtect {
    fn round(&mut self, pages: &[u64]) -> Result<Round> {
        let base = self.memory.base() as u64;
        let ((), snapshot) = timed(|| self.faults.protect(base, self.memory.len(), PROTECT))?;
        let ((), writes) = timed(|| {
            pages.iter().for_each(|page| self.memory.store(*page, 0));
            Ok(())
        })?;
        let bytes = (pages.len() * PAGE) as u64;
        let ((), restore) = timed(|| {
            for (page, content) in self.kept.lock().expect("nobody panics with it").drain(..) {
                // SAFETY: a page of the region, which nobody else uses now.
                unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), page as *mut u64, PAGE / 8) };
                self.faults.protect(page, PAGE, PROTECT)?;
            }
            Ok(())
        })?;
        ensure!(pages.iter().all(|page| self.memory.load(*page) == content(*page)), "userfaultfd came back wrong");
        self.faults.protect(base, self.memory.len(), 0)?;
        Ok(Round { snapshot, writes, restore, bytes })
    }
}

/// What was stored to, by the host's own list.
pub struct Scanned {
    _faults: Faults,
    pagemap: File,
    memory: Region,
}

impl Scanned {
    pub fn new(size: usize, resident: usize) -> Result<Scanned> {
        let memory = Region::anonymous(size)?.filled(resident);
        let faults = Faults::over(&memory, Messages::Remembered)?;
        Ok(Scanned { _faults: faults, pagemap: File::open("/proc/self/pagemap")?, memory })
    }

    /// How long it takes to list the pages that were stored to, and to begin the next list.
    pub fn list(&mut self, pages: &[u64]) -> Result<Duration> {
        self.scan()?;
        pages.iter().for_each(|page| self.memory.store(*page, 0));
        let (found, listed) = timed(|| self.scan())?;
        ensure!(found == pages.len() as u64, "{found} pages listed of {}", pages.len());
        Ok(listed)
    }

    fn scan(&self) -> Result<u64> {
        let (mut from, end) = (self.memory.base() as u64, self.memory.base() as u64 + self.memory.len() as u64);
        let (mut rows, mut pages) = ([[0_u64; 3]; 1024], 0);
        while from < end {
            let mut scan = raw::pm_scan_arg {
                size: size_of::<raw::pm_scan_arg>() as u64,
                flags: u64::from(raw::PM_SCAN_WP_MATCHING | raw::PM_SCAN_CHECK_WPASYNC),
                start: from,
                end,
                walk_end: 0,
                vec: rows.as_mut_ptr() as u64,
                vec_len: rows.len() as u64,
                max_pages: 0,
                category_inverted: 0,
                category_mask: raw::PAGE_IS_WRITTEN.into(),
                category_anyof_mask: 0,
                return_mask: raw::PAGE_IS_WRITTEN.into(),
            };
            let found = control(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &mut scan)?;
            pages += rows[..found as usize].iter().map(|row| (row[1] - row[0]) / PAGE as u64).sum::<u64>();
            from = scan.walk_end;
        }
        Ok(pages)
    }
}
