//! The range of memory whose pages come and go, and the clocks. All `unsafe` code is here.

use std::io;
use std::ptr::NonNull;

/// Bytes in a page.
const PAGE: usize = 4096;
/// Pages of the range: 128 MiB.
pub const PAGES: usize = (128 << 20) / PAGE;

/// What each operation is timed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    Wall,
    Own,
    Tsc,
}

impl Clock {
    pub const ALL: [Clock; 3] = [Clock::Wall, Clock::Own, Clock::Tsc];

    pub fn name(self) -> &'static str {
        match self {
            Clock::Wall => "wall",
            Clock::Own => "own",
            Clock::Tsc => "tsc",
        }
    }

    /// Nanoseconds, or ticks.
    pub fn now(self) -> u64 {
        match self {
            Clock::Wall => time(libc::CLOCK_MONOTONIC),
            Clock::Own => time(libc::CLOCK_THREAD_CPUTIME_ID),
            // SAFETY: reads a register that every x86-64 processor has and user mode may read.
            Clock::Tsc => unsafe { core::arch::x86_64::_rdtsc() },
        }
    }
}

fn time(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the result.
    unsafe { libc::clock_gettime(clock, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits a millisecond.
pub fn rest() {
    let time = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: reads a structure.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
}

/// 128 MiB of addresses; each page is mapped or not.
pub struct Range {
    base: NonNull<u8>,
    mapped: Vec<bool>,
}

impl Range {
    /// Every second page is mapped, none is touched.
    ///
    /// # Errors
    /// What mmap and munmap say.
    pub fn half_mapped() -> io::Result<Range> {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), PAGES * PAGE, libc::PROT_NONE, FLAGS, -1, 0) };
        let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED);
        let mut range = Range { base: base.ok_or_else(io::Error::last_os_error)?, mapped: vec![true; PAGES] };
        for page in (0..PAGES).step_by(2) {
            range.change(page);
        }
        for page in (1..PAGES).step_by(2) {
            // Readable, like those that come later.
            range.change(page);
            range.change(page);
        }
        Ok(range)
    }

    /// Unmaps a page that is mapped, maps one that is not.
    ///
    /// # Panics
    /// If the call fails.
    #[inline(always)]
    pub fn change(&mut self, page: usize) {
        // SAFETY: the range is this value's own, and nothing of Rust's lies in it.
        let failed = unsafe {
            let at = self.base.as_ptr().add(page * PAGE).cast();
            if self.mapped[page] {
                libc::munmap(at, PAGE) == -1
            } else {
                libc::mmap(at, PAGE, libc::PROT_READ, FLAGS | libc::MAP_FIXED, -1, 0) == libc::MAP_FAILED
            }
        };
        assert!(!failed, "{}", io::Error::last_os_error());
        self.mapped[page] = !self.mapped[page];
    }
}

const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: as in `change`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGES * PAGE) };
    }
}
