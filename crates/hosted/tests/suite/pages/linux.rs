//! The steps on the host's Linux: this program again as a process that does what it reads from a pipe, and its children.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command};
use std::time::Duration;
use std::{env, ptr};

use foldspace::addr::PAGE_SIZE;

use super::{Advice, BASE, PAGES, PROCESSES, Seen, Step};

/// Names the ends of the pipes to the process: of each that may be, what it reads and what it writes.
const PIPES: &str = "FOLDSPACE_TEST_PIPES";
/// Stand for calls of their own among the numbers of advice.
const LOCK: i32 = 10_001;
const UNLOCK: i32 = 10_002;
/// Ends what a process says.
const END: &str = "end";

/// The processes, as seen from the test.
pub struct Processes {
    first: Child,
    commands: Vec<File>,
    answers: Vec<BufReader<File>>,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0, "a pipe");
    // SAFETY: the kernel has just made them, and nobody else knows them.
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) }).into()
}

impl Processes {
    pub fn new() -> Processes {
        let (mut commands, mut answers, mut theirs, mut names) = (Vec::new(), Vec::new(), Vec::new(), String::new());
        for _ in 0..PROCESSES {
            let ((command_in, command_out), (answer_in, answer_out)) = (pipe(), pipe());
            write!(names, "{} {} ", command_in.as_raw_fd(), answer_out.as_raw_fd()).expect("text");
            theirs.extend([command_in, answer_out]);
            commands.push(File::from(command_out));
            answers.push(BufReader::new(File::from(answer_in)));
        }
        // Our ends are not for them: a process ends when nobody can tell it anything any more.
        for ours in commands.iter().chain(answers.iter().map(BufReader::get_ref)) {
            // SAFETY: it only changes a flag of a descriptor of ours.
            unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        let first = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", "pages::linux::process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(PIPES, names)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("this program");
        Processes { first, commands, answers }
    }

    fn ask(&mut self, process: usize, command: &str) -> Vec<String> {
        writeln!(self.commands[process], "{command}").expect("it listens");
        let mut said = Vec::new();
        loop {
            let mut line = String::new();
            let bytes = self.answers[process].read_line(&mut line).expect("it answers");
            assert!(bytes > 0, "process {process} ended instead of an answer to {command}");
            match line.trim_end_matches('\n') {
                END => return said,
                line => said.push(line.to_owned()),
            }
        }
    }

    pub fn step(&mut self, process: usize, step: Step) {
        let command = match step {
            Step::Map(at, len, access, kind) => format!("map {at} {len} {access} {kind:?}"),
            Step::Store(at, len) => format!("store {at} {len}"),
            Step::Load(at, len) => format!("load {at} {len}"),
            Step::Protect(at, len, access) => format!("protect {at} {len} {access}"),
            Step::Unmap(at, len) => format!("unmap {at} {len}"),
            Step::Advise(at, len, advice) => format!("advise {at} {len} {}", number(advice)),
            Step::Fork(child) => format!("fork {child}"),
            Step::Exit => "exit".to_owned(),
        };
        let said = self.ask(process, &command);
        match (step, &said[..]) {
            (Step::Exit, [pid]) => wait_for_end(pid),
            (_, said) => assert!(said.is_empty(), "{command} on Linux: {said:?}"),
        }
    }

    pub fn seen(&mut self, process: usize) -> Seen {
        let said = self.ask(process, "look");
        let [smaps @ .., resident, pagemap] = &said[..] else { panic!("{said:?}") };
        let resident = resident.split_whitespace().map(|page| page.parse().ok()).collect();
        let pagemap = pagemap.split_whitespace().map(|entry| entry.parse().expect("a number")).collect();
        Seen { smaps: smaps.iter().flat_map(|line| [line, "\n"]).collect(), resident, pagemap }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.commands.clear();
        let _ = self.first.wait();
    }
}

/// Until a process has let go of its memory.
fn wait_for_end(pid: &str) {
    // The state follows the name, which is in brackets.
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next();
    while state().is_some_and(|state| !matches!(state, 'Z' | 'X')) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn number(advice: Advice) -> i32 {
    match advice {
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Free => libc::MADV_FREE,
        Advice::Cold => libc::MADV_COLD,
        Advice::Pageout => libc::MADV_PAGEOUT,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        // MADV_GUARD_INSTALL, which the crate of constants does not have yet.
        Advice::Guard => 102,
        Advice::Lock => LOCK,
        Advice::Unlock => UNLOCK,
    }
}

/// The other side: a process that does what it is told.
#[test]
#[ignore = "started by other tests"]
fn process() {
    let Ok(pipes) = env::var(PIPES) else { return };
    let ends: Vec<RawFd> = pipes.split_whitespace().map(|end| end.parse().expect("a descriptor")).collect();
    // Linux counts pages that were freed lazily when a list of the processor they were freed on is full, or it is asked to empty it: so all of
    // it happens on one processor, and twice.
    // SAFETY: a set of processors is plain bits, of which all may be clear.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and large enough for a number that the kernel has just told.
    unsafe {
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one);
    }
    let mut number = 0;
    loop {
        number = serve(ends[2 * number], ends[2 * number + 1]);
    }
}

/// Does what it reads, until it is forked: then the child returns its number.
fn serve(commands: RawFd, answers: RawFd) -> usize {
    loop {
        let command = read_line(commands);
        let words: Vec<&str> = command.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().skip(1).map_while(|word| word.parse().ok()).collect();
        let mut said = String::new();
        match (words[0], &numbers[..]) {
            ("fork", [child]) => {
                // SAFETY: a child of one thread that goes on with what is its own.
                if unsafe { libc::fork() } == 0 {
                    return *child as usize;
                }
            }
            ("exit", _) => {
                say(answers, &format!("{}\n{END}\n", std::process::id()));
                // SAFETY: it ends here.
                unsafe { libc::_exit(0) };
            }
            ("look", _) => look(&mut said),
            (name, [at, len, rest @ ..]) => {
                let done = act(name, BASE + at * PAGE_SIZE, *len, rest, &words[3..]);
                if done != 0 {
                    writeln!(said, "{}", std::io::Error::last_os_error()).expect("text");
                }
            }
            _ => writeln!(said, "what is {command}?").expect("text"),
        }
        said += END;
        said.push('\n');
        say(answers, &said);
    }
}

fn act(name: &str, at: u64, pages: u64, numbers: &[u64], words: &[&str]) -> i32 {
    let (pointer, bytes) = (at as *mut c_void, (pages * PAGE_SIZE) as usize);
    let access = |letters: &str| {
        let letter = |letter, bit| if letters.contains(letter) { bit } else { 0 };
        letter('r', libc::PROT_READ) | letter('w', libc::PROT_WRITE) | letter('x', libc::PROT_EXEC)
    };
    // SAFETY: for all of it, nothing of this program is in the window.
    unsafe {
        match name {
            "map" => {
                let kind = match words[1] {
                    "Shared" => libc::MAP_SHARED,
                    "Locked" => libc::MAP_PRIVATE | libc::MAP_LOCKED,
                    _ => libc::MAP_PRIVATE,
                };
                let flags = kind | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                (libc::mmap(pointer, bytes, access(words[0]), flags, -1, 0) != pointer) as i32
            }
            "store" => {
                for page in 0..pages {
                    ptr::write_volatile((at + page * PAGE_SIZE) as *mut u8, 1);
                }
                0
            }
            "load" => {
                for page in 0..pages {
                    ptr::read_volatile((at + page * PAGE_SIZE) as *const u8);
                }
                0
            }
            "protect" => libc::mprotect(pointer, bytes, access(words[0])),
            "unmap" => libc::munmap(pointer, bytes),
            "advise" if numbers[0] as i32 == LOCK => libc::mlock(pointer, bytes),
            "advise" if numbers[0] as i32 == UNLOCK => libc::munlock(pointer, bytes),
            "advise" => {
                let advice = numbers[0] as i32;
                let first = libc::madvise(pointer, bytes, advice);
                if advice == libc::MADV_FREE { libc::madvise(pointer, bytes, advice) } else { first }
            }
            _ => -1,
        }
    }
}

/// What can be seen of the window.
fn look(said: &mut String) {
    let smaps = fs::read_to_string("/proc/self/smaps").expect("this is Linux");
    let mut ours = false;
    for line in smaps.lines() {
        let start = line.split_once('-').and_then(|(start, _)| u64::from_str_radix(start, 16).ok());
        if let Some(start) = start {
            ours = (BASE..BASE + PAGES * PAGE_SIZE).contains(&start);
        }
        if ours {
            said.push_str(line);
            said.push('\n');
        }
    }
    for page in 0..PAGES {
        let mut resident = 0;
        // SAFETY: one page, one byte.
        match unsafe { libc::mincore((BASE + page * PAGE_SIZE) as *mut c_void, PAGE_SIZE as usize, &mut resident) } {
            0 => write!(said, "{} ", resident & 1).expect("text"),
            _ => said.push_str("- "),
        }
    }
    said.push('\n');
    let pagemap = File::open("/proc/self/pagemap").expect("this is Linux");
    for page in 0..PAGES {
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, (BASE / PAGE_SIZE + page) * 8).expect("eight bytes a page");
        write!(said, "{} ", u64::from_le_bytes(entry)).expect("text");
    }
    said.push('\n');
}

/// A line; the process ends with the pipe.
fn read_line(from: RawFd) -> String {
    let mut line = Vec::new();
    loop {
        let mut byte = 0_u8;
        // SAFETY: one byte, into one byte.
        if unsafe { libc::read(from, (&raw mut byte).cast(), 1) } != 1 {
            // SAFETY: it ends here.
            unsafe { libc::_exit(0) };
        }
        match byte {
            b'\n' => return String::from_utf8(line).expect("text"),
            byte => line.push(byte),
        }
    }
}

fn say(to: RawFd, text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: these bytes are ours.
        let done = unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) };
        assert!(done > 0, "somebody listens");
        rest = &rest[done as usize..];
    }
}
