//! The process that makes the calls, and how it is watched.

use crate::calls::{self, Call, Which};
use crate::values::{Kind, Places, VECTORS, Values, WINDOW, WINDOW_PAGES};
use crate::{CALLS_EACH, Options};
use foldspace_guest_measure::process::{self, Fork};
use foldspace_guest_measure::{PAGE, Shared};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a child may take, and how long it may take to die.
const PATIENCE: Duration = Duration::from_secs(4);
const FOLDER: &str = "/tmp/fuzz";

/// What a child has done, in memory that it shares with its parent: how many calls, and the last one. A call may well
/// spoil it.
pub struct Record(Shared);

const CALLS: usize = 0;
const LAST: usize = 1;

impl Record {
    pub fn new() -> Result<Self, String> {
        Shared::new().map(Self).map_err(|error| format!("no shared memory: {error}"))
    }

    /// The calls of the child that has ended; the next one begins at none.
    pub fn take_calls(&self) -> u64 {
        let calls = self.0.get(CALLS).min(CALLS_EACH);
        self.0.set(CALLS, 0);
        calls
    }

    fn note(&self, number: i64, arguments: &[u64; 6]) {
        self.0.set(CALLS, self.0.get(CALLS) + 1);
        self.0.set(LAST, number as u64);
        arguments.iter().enumerate().for_each(|(index, value)| self.0.set(LAST + 1 + index, *value));
    }

    /// The last call that was made.
    pub fn last(&self) -> String {
        let arguments: Vec<String> = (1..7).map(|index| format!("{:#x}", self.0.get(LAST + index))).collect();
        format!("{}({})", self.0.get(LAST) as i64, arguments.join(", "))
    }
}

/// How a child ended.
#[derive(Clone, Copy)]
pub struct End {
    pub pid: i32,
    pub how: How,
}

#[derive(Clone, Copy)]
pub enum How {
    Exited,
    Killed,
    /// It took too long.
    Late,
}

/// Runs the child with that number.
pub fn run(record: &Record, options: &Options, number: u64) -> Result<End, String> {
    let _ = fs::create_dir_all(FOLDER);
    match fork()? {
        Fork::Child => {
            work(record, options, number);
            process::exit(0)
        }
        Fork::Parent(child) => watch(record, child.pid()),
    }
}

/// A process for the next child. The memory of those that were killed may be on its way still: there it is Linux that waits, here whoever calls.
fn fork() -> Result<Fork, String> {
    let began = Instant::now();
    loop {
        match process::fork() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && began.elapsed() < 3 * PATIENCE => {
                sleep(Duration::from_millis(20));
            }
            outcome => return outcome.map_err(|error| format!("fork: {error}")),
        }
    }
}

/// Removes what a child has left in its folder.
pub fn clean_up() {
    let _ = fs::remove_dir_all(FOLDER);
}

fn watch(record: &Record, pid: i32) -> Result<End, String> {
    let began = Instant::now();
    let mut late = false;
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let got = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if got == pid {
            let how = match (late, libc::WIFEXITED(status)) {
                (true, _) => How::Late,
                (_, true) => How::Exited,
                _ => How::Killed,
            };
            return Ok(End { pid, how });
        }
        if got < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(format!("the child cannot be waited for: {}", io::Error::last_os_error()));
        }
        if began.elapsed() > 3 * PATIENCE {
            return Err(format!("a killed process does not end; its last call was {}", record.last()));
        }
        if began.elapsed() > PATIENCE {
            late = true;
            // SAFETY: sends a signal to the child, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        sleep(Duration::from_millis(if late { 50 } else { 2 }));
    }
}

fn work(record: &Record, options: &Options, number: u64) {
    let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
    let Some(places) = prepare(options.trace) else { process::exit(3) };
    let mut values = Values::new(seed, places);
    // Most children cannot take all memory, some can.
    if values.below(4) != 0 {
        let limit = libc::rlimit { rlim_cur: 256 << 20, rlim_max: 256 << 20 };
        // SAFETY: reads one structure, which is there.
        unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    }
    let whole_table = values.below(2) == 0 && options.which == Which::All;
    for _ in 0..CALLS_EACH {
        let (number, kinds) = choose(&mut values, whole_table);
        let arguments = kinds.map(|kind| values.of(kind));
        if is_suicide(number, &arguments) && values.below(20) != 0 {
            continue;
        }
        record.note(number, &arguments);
        if options.trace {
            eprintln!("{}", record.last());
        }
        let result = make(number, &arguments);
        if number == libc::SYS_fork && result == 0 {
            // A child of the child changes a little and goes.
            for _ in 0..10 {
                let Call { number, arguments } = memory_call(&mut values);
                if *number != libc::SYS_fork {
                    let arguments = arguments.map(|kind| values.of(kind));
                    make(*number, &arguments);
                }
            }
            process::exit(0);
        }
        touch(&mut values);
    }
}

fn memory_call(values: &mut Values) -> &'static Call {
    &calls::MEMORY[values.below(calls::MEMORY.len() as u64) as usize]
}

fn choose(values: &mut Values, whole_table: bool) -> (i64, [Kind; 6]) {
    if !whole_table || values.below(3) == 0 {
        let call = memory_call(values);
        return (call.number, call.arguments);
    }
    loop {
        let number = match values.below(30) {
            0 => calls::BEYOND[values.below(calls::BEYOND.len() as u64) as usize],
            _ => values.below(calls::NUMBERS as u64) as i64,
        };
        if !calls::is_left_out(number) {
            return (number, [Kind::Any; 6]);
        }
    }
}

/// Whether the call would take the process its code or its stack. Few shall do so: those that do make no more calls.
fn is_suicide(number: i64, a: &[u64; 6]) -> bool {
    let (start, length) = match number {
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect | libc::SYS_madvise => (a[0], a[1]),
        libc::SYS_mremap => (a[0], a[1].max(a[2])),
        libc::SYS_mmap if a[3] & libc::MAP_FIXED as u64 != 0 => (a[0], a[1]),
        libc::SYS_rt_sigreturn => return true,
        _ => return false,
    };
    let Some(end) = start.checked_add(length).filter(|end| *end <= 1 << 47) else { return false };
    let touches = |from: u64, to: u64| start < to && from < end;
    touches(0x40_0000, 0x1000_0000) || touches(0x7000_0000_0000, 1 << 47)
}

fn make(number: i64, a: &[u64; 6]) -> i64 {
    // SAFETY: none is given: the call may do anything to this process, whose only purpose is to suffer it. It shares no
    // memory with its parent but a page of numbers, of which the parent believes nothing.
    unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) }
}

/// Reads and writes some of the window, where the kernel says that it can be: through a pipe, so that a page that is not
/// there is an error and not the end.
fn touch(values: &mut Values) {
    let address = WINDOW + values.below(WINDOW_PAGES) * PAGE as u64;
    make(libc::SYS_pwrite64, &[4, address, 8, 0, 0, 0]);
    make(libc::SYS_pread64, &[4, address, 8, 0, 0, 0]);
}

/// Gives the process its folder, its descriptors (3 to 12) and its memory. `None` if the machine has not enough of
/// something.
fn prepare(trace: bool) -> Option<Places> {
    let path = |text: &'static CStr| text.as_ptr();
    let pages = |count: u64| count as usize * PAGE;
    // SAFETY: system calls with good arguments. What they map is new, or lies in the window, where nothing else is.
    unsafe {
        libc::chdir(path(c"/tmp/fuzz"));
        let null = libc::open(path(c"/dev/null"), libc::O_RDWR);
        (0..2).for_each(|fd| _ = libc::dup2(null, fd));
        if !trace {
            libc::dup2(null, 2);
        }
        let (anonymous, file) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::MAP_SHARED);
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let first = libc::syscall(libc::SYS_memfd_create, path(c"first"), 2) as i32;
        libc::dup2(first, 3);
        libc::ftruncate(3, 16 * PAGE as i64);
        let second = libc::syscall(libc::SYS_memfd_create, path(c"second"), 2) as i32;
        libc::dup2(second, 4);
        libc::ftruncate(4, 3 * PAGE as i64 + 77);
        let mut ends = [0; 2];
        libc::pipe(ends.as_mut_ptr());
        libc::dup2(ends[0], 5);
        libc::dup2(ends[1], 6);
        libc::dup2(libc::open(path(c"/dev/zero"), libc::O_RDWR), 7);
        libc::dup2(libc::open(path(c"."), libc::O_RDONLY), 8);
        libc::dup2(libc::open(path(c"/proc/self/maps"), libc::O_RDONLY), 9);
        libc::dup2(libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32, 10);
        libc::dup2(libc::open(path(c"a file"), libc::O_RDWR | libc::O_CREAT, 0o600), 11);
        libc::dup2(libc::open(path(c"/proc/self/smaps"), libc::O_RDONLY), 12);
        libc::fcntl(5, libc::F_SETFL, libc::O_NONBLOCK);
        libc::fcntl(6, libc::F_SETFL, libc::O_NONBLOCK);
        // Whatever waits is interrupted.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupted as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let often = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
        let timer = libc::itimerval { it_interval: often, it_value: often };
        libc::syscall(libc::SYS_setitimer, 0, &timer, 0);
        // The window: private and shared memory and a file, some of it touched, some not to be touched, and holes.
        let at = |page: u64| (WINDOW + page * PAGE as u64) as *mut libc::c_void;
        let fixed = libc::MAP_FIXED;
        libc::mmap(at(0), pages(600), rw, anonymous | fixed, -1, 0);
        libc::mmap(at(640), pages(200), rw, file | libc::MAP_ANONYMOUS | fixed, -1, 0);
        libc::mmap(at(860), pages(16), rw, file | fixed, 3, 0);
        libc::mmap(at(880), pages(8), rw, libc::MAP_PRIVATE | fixed, 4, 0);
        libc::mmap(at(900), pages(40), libc::PROT_READ, anonymous | fixed, -1, 0);
        libc::mmap(at(950), pages(40), libc::PROT_NONE, anonymous | fixed, -1, 0);
        libc::mmap(at(1000), pages(100), rw, anonymous | libc::MAP_GROWSDOWN | fixed, -1, 0);
        for page in (0..600).step_by(3).chain((640..840).step_by(5)) {
            at(page).cast::<u64>().write_volatile(page);
        }
        // A buffer, and nothing behind it.
        let buffer = libc::mmap(std::ptr::null_mut(), pages(5), rw, anonymous, -1, 0);
        if buffer == libc::MAP_FAILED {
            return None;
        }
        let end = buffer.cast::<u8>().add(4 * PAGE);
        libc::munmap(end.cast(), PAGE);
        // Names of files, and numbers.
        for (index, place) in (0..4 * PAGE).step_by(64).enumerate() {
            let text: &[u8] = [&b"a file\0"[..], b".\0", b"b\0", b"\0", b"a name with spaces\0", b"d/e\0"][index % 6];
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>().add(place), text.len());
            buffer.cast::<u8>().add(place + 32).cast::<u64>().write((index as u64) << (index % 40));
        }
        let vectors = libc::mmap(std::ptr::null_mut(), PAGE, rw, anonymous, -1, 0);
        if vectors == libc::MAP_FAILED {
            return None;
        }
        let vectors = vectors.cast::<[libc::iovec; VECTORS]>();
        Some(Places { buffer: buffer as u64, buffer_end: end as u64, vectors, own: libc::getpid() })
    }
}

extern "C" fn interrupted(_: i32) {}
