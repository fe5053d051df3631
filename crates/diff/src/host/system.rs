//! System calls, raw: results as the kernel gives them, minus the errno for an error.

use core::sync::atomic::AtomicU32;
use std::io;
use std::time::Duration;

/// A system call. What it may touch is the caller's business, so it is used in this module only.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {{
        // SAFETY: changes memory only in the window, where nothing of this program is, or memory that the caller has for the kernel to write.
        let result = unsafe { libc::syscall($number $(, $argument as u64)*) };
        if result == -1 {
            // SAFETY: the address of this thread's errno.
            -(unsafe { *libc::__errno_location() } as i64)
        } else {
            result
        }
    }};
}
pub(super) use call;

/// Zeroed memory that forked processes share.
pub fn map_shared(bytes: usize) -> io::Result<*mut u8> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping where the kernel has room.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// Sleeps until `word` is not `value` any more, or for no reason, or the time is over (false).
pub fn futex_wait(word: &AtomicU32, value: u32, timeout: Option<Duration>) -> bool {
    let time =
        timeout.map(|time| libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as i64 });
    let time = time.as_ref().map_or(core::ptr::null(), |time| time as *const libc::timespec);
    call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, time) != -i64::from(libc::ETIMEDOUT)
}

/// Wakes all who sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
    call!(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
}

/// Reads from `offset` on; 0 at the end and for an error.
pub fn read_at(fd: i32, out: &mut [u8], offset: u64) -> usize {
    call!(libc::SYS_pread64, fd, out.as_mut_ptr(), out.len(), offset).max(0) as usize
}

/// Ends this process.
pub fn exit(status: i32) -> ! {
    // SAFETY: ends this process.
    unsafe { libc::_exit(status) }
}
