//! A process of the host that does nothing but the system calls that it is told to.

use std::fs;
use std::io::{Error, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use std::fs::File;

/// A system call: number and arguments.
pub type Call = [u64; 7];

/// The call with that number.
pub fn call(number: i64, arguments: [u64; 6]) -> Call {
    let [a, b, c, d, e, f] = arguments;
    [number as u64, a, b, c, d, e, f]
}

/// The child. Calls are numbers to it: nothing that it does is on behalf of Rust's memory, so it may lose any of it, and then it dies.
pub struct HostProcess {
    pid: libc::pid_t,
    orders: File,
    results: File,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "{}", Error::last_os_error());
    // SAFETY: just made, and nobody else's.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

impl HostProcess {
    /// A child of this process, with its descriptors.
    pub fn new() -> HostProcess {
        use std::os::fd::AsRawFd;
        let (orders_out, orders_in) = pipe();
        let (results_out, results_in) = pipe();
        // SAFETY: the child does system calls only, until it ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "{}", Error::last_os_error());
        if pid == 0 {
            obey(orders_out.as_raw_fd(), results_in.as_raw_fd());
        }
        HostProcess { pid, orders: orders_in.into(), results: results_out.into() }
    }

    /// Makes system calls; `None` once it has died of them.
    pub fn calls(&mut self, calls: &[Call]) -> Option<Vec<i64>> {
        let mut results = Vec::with_capacity(calls.len());
        for call in calls {
            let bytes: Vec<u8> = call.iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.orders.write_all(&bytes).ok()?;
            let mut result = [0; 8];
            self.results.read_exact(&mut result).ok()?;
            results.push(i64::from_ne_bytes(result));
        }
        Some(results)
    }

    /// Makes one system call; `None` once it has died of it.
    pub fn call(&mut self, call: Call) -> Option<i64> {
        Some(self.calls(&[call])?[0])
    }

    /// Stores bytes in its memory.
    pub fn poke(&self, address: u64, bytes: &[u8]) {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: reads `bytes`; what it writes is the child's, which this is about.
        let done = unsafe { libc::process_vm_writev(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
        assert_eq!(done, bytes.len() as isize, "{}", Error::last_os_error());
    }

    /// Loads bytes from its memory; returns how many.
    pub fn peek(&self, address: u64, bytes: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: writes `bytes`, and reads what is the child's.
        let done = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
        done.max(0) as usize
    }

    /// Its number.
    pub fn pid(&self) -> u64 {
        self.pid as u64
    }

    /// A file of its directory in /proc.
    pub fn proc(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid)).unwrap_or_default()
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        // SAFETY: our own child, which was not waited for yet.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The child's life: takes a call, does it, says what it returned.
fn obey(orders: i32, results: i32) -> ! {
    // SAFETY: buffers of its own stack; the calls are whatever the parent wants of this process, which is for that alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        loop {
            let mut call: Call = [0; 7];
            if libc::read(orders, call.as_mut_ptr().cast(), size_of::<Call>()) != size_of::<Call>() as isize {
                libc::_exit(0);
            }
            let [number, a, b, c, d, e, f] = call;
            let mut result = libc::syscall(number as i64, a, b, c, d, e, f);
            if result == -1 {
                result = -i64::from(*libc::__errno_location());
            }
            if libc::write(results, (&raw const result).cast(), 8) != 8 {
                libc::_exit(0);
            }
        }
    }
}
