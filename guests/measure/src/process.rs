//! Processes by raw system calls: nothing of a C library's fork and exit is measured with them.

use crate::Counter;
use std::ffi::CStr;
use std::io;

/// On which side of a fork the caller is.
#[derive(Debug)]
pub enum Fork {
    /// In the new process.
    Child,
    /// In the process that forked.
    Parent(Child),
}

/// A process that this one made and has not waited for.
#[derive(Debug)]
#[must_use = "a child that nobody waits for stays as a zombie"]
pub struct Child {
    pid: libc::pid_t,
}

/// Forks. In the child only what needs no lock of the C library may be used if the program has other threads; the
/// measuring programs have none.
///
/// # Errors
/// What the system call says (`EAGAIN`, `ENOMEM`).
#[inline(always)]
pub fn fork() -> io::Result<Fork> {
    // SAFETY: fork shares no memory between the two but what is mapped as shared.
    match unsafe { libc::syscall(libc::SYS_fork) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Child { pid: pid as libc::pid_t })),
    }
}

/// A fork that was measured.
#[derive(Debug)]
pub struct TimedFork {
    /// The count just before the system call.
    pub start: u64,
    /// The count just after it, on each side its own.
    pub end: u64,
    /// On which side the caller is.
    pub side: Fork,
}

/// Forks between two readings of the counter. Instructions are read with nothing but registers in between, so that the
/// first write of the parent to its stack, which may cost it more than the fork, is no part of the figure.
///
/// # Errors
/// As [`fork`].
#[inline(always)]
pub fn timed_fork(counter: Counter) -> io::Result<TimedFork> {
    if counter != Counter::Instructions {
        let start = counter.now();
        let side = fork();
        let end = counter.now();
        return side.map(|side| TimedFork { start, end, side });
    }
    let (start, end, result): (u64, u64, i64);
    // SAFETY: reads a register, makes the system call fork, which shares no memory between the two but what is mapped as
    // shared, and reads the register again. `rdtsc` writes rax and rdx, `syscall` rax, rcx and r11.
    unsafe {
        core::arch::asm!(
            "rdtsc",
            "shl rdx, 32",
            "or rdx, rax",
            "mov r12, rdx",
            "mov eax, {fork}",
            "syscall",
            "mov r13, rax",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            fork = const libc::SYS_fork,
            out("rax") end,
            out("rdx") _,
            out("rcx") _,
            out("r11") _,
            out("r12") start,
            out("r13") result,
        );
    }
    let side = match result {
        0 => Fork::Child,
        error @ ..0 => return Err(io::Error::from_raw_os_error(-error as i32)),
        pid => Fork::Parent(Child { pid: pid as libc::pid_t }),
    };
    Ok(TimedFork { start, end, side })
}

/// Ends the process at once, with no exit handlers and nothing flushed.
#[inline(always)]
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

impl Child {
    /// The child's process number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// What the system call says, and an error that names the status if the child did not exit with 0.
    #[inline(always)]
    pub fn wait(self) -> io::Result<()> {
        let mut status: libc::c_int = 0;
        // SAFETY: `status` is a valid place for the result; no resource usage is asked for.
        let got = unsafe {
            libc::syscall(libc::SYS_wait4, self.pid, &mut status as *mut libc::c_int, 0, std::ptr::null_mut::<u8>())
        };
        if got == -1 {
            return Err(io::Error::last_os_error());
        }
        if status != 0 {
            return Err(io::Error::other(format!("the child ended with wait status {status:#x}")));
        }
        Ok(())
    }
}

/// Runs `work` in a child and waits for it. An error in the child is printed to stderr and gives exit status 1, which
/// is an error here.
///
/// # Errors
/// What fork and [`Child::wait`] say.
pub fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match fork()? {
        Fork::Child => match work() {
            Ok(()) => exit(0),
            Err(error) => {
                eprintln!("child: {error}");
                exit(1)
            }
        },
        Fork::Parent(child) => child.wait(),
    }
}

/// Replaces the program of this process; returns only if that failed.
pub fn execute(path: &CStr, arguments: &[&CStr]) -> io::Error {
    let mut argv: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    argv.push(std::ptr::null());
    let environment = [std::ptr::null::<libc::c_char>()];
    // SAFETY: the path and the arguments end with NUL, both lists end with a null pointer, and all outlive the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// The parent's process number, by a system call each time.
#[inline(always)]
pub fn parent_pid() -> i64 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_getppid) }
}

/// Lets another process run.
#[inline(always)]
pub fn give_way() {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_sched_yield) };
}

/// Forks so that neither side writes to its memory until both are let through their gates: the parent's call returns
/// when `own` is opened, the child waits at `childs` and then exits with 0. Meanwhile another process can see what the
/// fork alone has cost.
///
/// # Errors
/// What the system call says (`EAGAIN`, `ENOMEM`).
pub fn fork_and_stand_still(own: &Gate, childs: &Gate) -> io::Result<Child> {
    let result: i64;
    let mut byte = 0u8;
    // SAFETY: three system calls with nothing but registers in between, so no memory is written by the program. The
    // reads get one byte each, for which there is room; the child never leaves the block. `syscall` clobbers rcx and
    // r11 and no other register than rax.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "js 4f",
            "mov r12, rax",
            "jnz 2f",
            // The child: it takes its own gate, waits there, and ends.
            "mov rdi, r13",
            "xor eax, eax",
            "syscall",
            "mov eax, {exit_group}",
            "xor edi, edi",
            "syscall",
            "ud2",
            // The parent: waits at its gate.
            "2:",
            "xor eax, eax",
            "syscall",
            "mov rax, r12",
            "4:",
            exit_group = const libc::SYS_exit_group,
            inlateout("rax") libc::SYS_fork => result,
            inlateout("rdi") i64::from(own.read) => _,
            in("rsi") &raw mut byte,
            in("rdx") 1,
            in("r13") i64::from(childs.read),
            out("r12") _,
            out("rcx") _,
            out("r11") _,
        );
    }
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result as i32))
    } else {
        Ok(Child { pid: result as libc::pid_t })
    }
}

/// A place where one process waits until another lets it go on: a pipe.
#[derive(Debug)]
pub struct Gate {
    read: libc::c_int,
    write: libc::c_int,
}

impl Gate {
    /// A closed gate, shared with the processes that are forked afterwards.
    ///
    /// # Errors
    /// What `pipe` says (`EMFILE`, `ENFILE`).
    pub fn new() -> io::Result<Gate> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(Gate { read: ends[0], write: ends[1] })
    }

    /// Waits until one [`Gate::open`] that nobody else has used. After an error (there is none while both ends are
    /// open) it goes on.
    #[inline(always)]
    pub fn pass(&self) {
        let mut byte = 0u8;
        // SAFETY: one byte of room is given.
        unsafe { libc::syscall(libc::SYS_read, self.read, &mut byte as *mut u8, 1) };
    }

    /// Lets one waiter through.
    #[inline(always)]
    pub fn open(&self) {
        // SAFETY: one byte is given.
        unsafe { libc::syscall(libc::SYS_write, self.write, b"x".as_ptr(), 1) };
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: the descriptors are this value's own.
        unsafe {
            libc::close(self.read);
            libc::close(self.write);
        }
    }
}
