//! System calls, and memory that others may take away. All `unsafe` code of the program is here.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub const PAGE: usize = 4096;

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Exited(i32),
    Killed(i32),
}

/// Result of a system call.
fn checked(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks by the C library, so that the child may make threads.
pub fn fork() -> io::Result<i32> {
    // SAFETY: this program forks where it has one thread only, or the child does system calls only.
    checked(unsafe { libc::fork() }.into()).map(|pid| pid as i32)
}

fn end(status: i32) -> End {
    if libc::WIFEXITED(status) { End::Exited(libc::WEXITSTATUS(status)) } else { End::Killed(libc::WTERMSIG(status)) }
}

/// Waits for a child.
pub fn wait_for(pid: i32) -> (i32, End) {
    let mut status = 0;
    // SAFETY: room for a status.
    while unsafe { libc::waitpid(pid, &mut status, 0) } == -1 && interrupted() {}
    (pid, end(status))
}

/// A child that has ended, if one has.
pub fn wait_for_any() -> Option<(i32, End)> {
    let mut status = 0;
    // SAFETY: room for a status.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    (pid > 0).then(|| (pid, end(status)))
}

fn interrupted() -> bool {
    io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
}

/// Memory by its address: mapped, or not.
#[derive(Clone, Copy)]
pub struct Place(pub usize);

/// What mmap is asked for.
pub const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

impl Place {
    pub fn page(self, page: usize) -> Place {
        Place(self.0 + page * PAGE)
    }

    fn at(self) -> *mut libc::c_void {
        std::ptr::without_provenance_mut(self.0)
    }

    /// Private memory here, in the place of whatever was.
    pub fn map(self, pages: usize, protection: i32) -> io::Result<()> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: callers own the addresses that they name: windows that nothing of Rust's is in.
        checked(unsafe { libc::mmap(self.at(), pages * PAGE, protection, flags, -1, 0) } as i64).map(drop)
    }

    /// Pages of a file here.
    pub fn map_file(self, pages: usize, protection: i32, sharing: i32, file: i32, offset: usize) -> io::Result<()> {
        let flags = sharing | libc::MAP_FIXED;
        // SAFETY: as in `map`.
        checked(unsafe { libc::mmap(self.at(), pages * PAGE, protection, flags, file, offset as i64) } as i64).map(drop)
    }

    pub fn unmap(self, pages: usize) -> io::Result<()> {
        // SAFETY: as in `map`.
        checked(unsafe { libc::munmap(self.at(), pages * PAGE) }.into()).map(drop)
    }

    pub fn protect(self, pages: usize, protection: i32) -> io::Result<()> {
        // SAFETY: as in `map`.
        checked(unsafe { libc::mprotect(self.at(), pages * PAGE, protection) }.into()).map(drop)
    }

    pub fn advise(self, pages: usize, advice: i32) -> io::Result<()> {
        // SAFETY: as in `map`.
        checked(unsafe { libc::madvise(self.at(), pages * PAGE, advice) }.into()).map(drop)
    }

    /// mremap to a place that the caller owns, too.
    pub fn move_to(self, pages: usize, to: Place, new_pages: usize, flags: i32) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags;
        // SAFETY: as in `map`, for both.
        checked(unsafe { libc::mremap(self.at(), pages * PAGE, new_pages * PAGE, flags, to.at()) } as i64).map(drop)
    }

    /// mremap that stays where it is.
    pub fn resize(self, pages: usize, new_pages: usize) -> io::Result<()> {
        // SAFETY: as in `map`.
        checked(unsafe { libc::mremap(self.at(), pages * PAGE, new_pages * PAGE, 0) } as i64).map(drop)
    }

    /// Whether a page is mapped.
    pub fn is_mapped(self) -> bool {
        let mut resident = 0;
        // SAFETY: room for what is said of one page.
        unsafe { libc::mincore(self.at(), PAGE, &mut resident) == 0 }
    }

    /// A word of memory that is mapped and can be read (or whose fault a handler mends).
    pub fn load(self) -> u64 {
        // SAFETY: callers know that it is mapped, and aligned; others may store to it at any time, so it is an atomic.
        unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0)).load(Ordering::Relaxed) }
    }

    /// The same for a store.
    pub fn store(self, value: u64) {
        // SAFETY: as in `load`.
        unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(self.0)).store(value, Ordering::Relaxed) }
    }

    fn futex(self) -> &'static AtomicU32 {
        // SAFETY: as in `load`; it stays mapped as long as the process lives.
        unsafe { &*std::ptr::with_exposed_provenance::<AtomicU32>(self.0) }
    }

    /// Takes a lock between processes (0 free, 1 taken, 2 and others wait).
    pub fn lock(self, patience: Duration) -> Result<(), String> {
        let word = self.futex();
        let begin = std::time::Instant::now();
        if word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        while word.swap(2, Ordering::Acquire) != 0 {
            let wait = libc::timespec { tv_sec: 1, tv_nsec: 0 };
            // SAFETY: a futex, and a time to wait.
            unsafe { libc::syscall(libc::SYS_futex, self.0, libc::FUTEX_WAIT, 2, &raw const wait, 0, 0) };
            if begin.elapsed() > patience {
                return Err(format!("a futex is not free after {} seconds", patience.as_secs()));
            }
        }
        Ok(())
    }

    /// Gives it back.
    pub fn unlock(self) {
        if self.futex().swap(0, Ordering::Release) == 2 {
            // SAFETY: wakes who waits there.
            unsafe { libc::syscall(libc::SYS_futex, self.0, libc::FUTEX_WAKE, 1, 0, 0, 0) };
        }
    }
}

/// Fresh memory that is shared with children.
pub fn shared_pages(pages: usize) -> io::Result<Place> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping touches nothing that exists.
    checked(unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, RW, flags, -1, 0) } as i64)
        .map(|at| Place(at as usize))
}

/// A file in memory.
pub fn memory_file(pages: usize) -> io::Result<i32> {
    // SAFETY: a name that ends with NUL.
    let file = checked(unsafe { libc::memfd_create(c"soak".as_ptr(), libc::MFD_CLOEXEC) }.into())? as i32;
    truncate(file, pages * PAGE)?;
    Ok(file)
}

pub fn truncate(file: i32, len: usize) -> io::Result<()> {
    // SAFETY: numbers.
    checked(unsafe { libc::ftruncate(file, len as i64) }.into()).map(drop)
}

/// Punches a hole.
pub fn punch(file: i32, page: usize, pages: usize) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: numbers.
    checked(unsafe { libc::fallocate(file, mode, (page * PAGE) as i64, (pages * PAGE) as i64) }.into()).map(drop)
}

pub fn write_word(file: i32, offset: usize, word: u64) -> io::Result<()> {
    // SAFETY: eight bytes are given.
    checked(unsafe { libc::pwrite(file, (&raw const word).cast(), 8, offset as i64) } as i64).map(drop)
}

/// A handler for a signal, with the address of the fault.
pub type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

pub fn handle(signal: i32, handler: Handler) {
    // SAFETY: the structure is all there; handlers here do system calls and touch atomics only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// The page of the address that a fault is about.
pub fn fault_page(info: *mut libc::siginfo_t) -> Place {
    // SAFETY: the kernel gives a handler the information about its signal.
    Place(unsafe { (*info).si_addr() } as usize & !(PAGE - 1))
}

/// A timer that sends SIGALRM again and again; zero stops it.
pub fn alarm_every(micros: i64) {
    let time = libc::timeval { tv_sec: 0, tv_usec: micros };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: a structure that is all there.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
}

pub fn thread_id() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::gettid() }
}

/// Sends a signal to a thread of this process.
pub fn signal_thread(thread: i32, signal: i32) {
    // SAFETY: the caller has handlers for what it sends.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal) };
}
