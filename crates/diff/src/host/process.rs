//! A process of a sequence: does its operations when it is its turn, and logs what came of them.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::access;
use super::shared::Shared;
use super::system::{call, exit, futex_wait, futex_wake, read_at};
use crate::look::entries;
use crate::op::{Call, NAMES, NOBODY, OUTSIDE, Op, Outcome, SAMPLES, heap_at, mix};
use crate::window::{BASE, END, FIRST_FD, PAGE, PAGES, contains};

/// Exit status of a process that did [`Call::Exit`].
pub const ASKED: i32 = 7;

/// Descriptors of a process' own files in /proc.
const SMAPS: i32 = 90;
const PAGEMAP: i32 = 91;
/// Where a file is while it is opened a second time.
const REOPENED: i32 = 92;

/// Bytes that one read of smaps asks for: it stops after as many, so what lies behind the window costs nothing.
const CHUNK: usize = 4096;

/// Words of a record of the log before its text: see [`crate::host::helper`].
pub const RECORD_WORDS: usize = 8;

/// Runs process 0 to its end. The window is empty.
pub fn run_first(shared: Shared) -> ! {
    run(shared, 0, used(libc::RLIMIT_DATA))
}

/// Runs process `me` to its end, which has `data_outside`: see [`Process`].
fn run(shared: Shared, me: u8, data_outside: u64) -> ! {
    let header = shared.header();
    // Nothing outlives the command, even if it ends in the middle of a sequence.
    call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
    let mut process = Process { shared, data_outside };
    process.open_own_files();
    loop {
        let turn = header.turn.load(Acquire);
        if header.over.load(Acquire) != 0 {
            exit(0);
        }
        if turn >= header.count.load(Acquire) || shared.op(turn).process != me {
            futex_wait(&header.turn, turn, None);
            continue;
        }
        let op = shared.op(turn);
        let outcome = process.perform(&op);
        if matches!(op.call, Call::Exit) {
            process.log(outcome, None);
            header.alive.fetch_and(!(1 << me), Relaxed);
            // The helper gives the turn on when nothing is left of this process.
            exit(ASKED);
        }
        let content = matches!(op.call, Call::LookDeep).then(|| process.load_everything());
        process.log(outcome, Some(content));
        give_turn_on(shared, turn + 1);
    }
}

/// From operation `next` on, to the first whose process exists.
pub fn give_turn_on(shared: Shared, mut next: u32) {
    let header = shared.header();
    let alive = header.alive.load(Relaxed);
    let count = header.count.load(Relaxed);
    while next < count && alive & 1 << shared.op(next).process == 0 {
        log(shared, Outcome { value: NOBODY, ..Outcome::default() }, |_| None);
        next += 1;
    }
    if next == count || alive == 0 {
        header.over.store(1, Release);
    }
    header.turn.store(next, Release);
    futex_wake(&header.turn);
}

struct Process {
    shared: Shared,
    /// Bytes that count against RLIMIT_DATA and are not in the window, which was empty when they were counted.
    data_outside: u64,
}

impl Process {
    fn open_own_files(&self) {
        for (path, fd) in [(c"/proc/self/smaps", SMAPS), (c"/proc/self/pagemap", PAGEMAP)] {
            let opened = call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0);
            if opened < 0 || call!(libc::SYS_dup2, opened, fd) < 0 {
                exit(99);
            }
            call!(libc::SYS_close, opened);
        }
    }

    fn perform(&mut self, op: &Op) -> Outcome {
        let mut read = 0;
        let mut signal = (0, 0);
        let fd = |file: u8| FIRST_FD + file as i32;
        let value = match op.call {
            Call::Map { addr, len, prot, flags, fd, offset } => {
                confine(call!(libc::SYS_mmap, addr, len, prot, flags, fd, offset), len)
            }
            Call::Unmap { addr, len } => call!(libc::SYS_munmap, addr, len),
            Call::Protect { addr, len, prot } => call!(libc::SYS_mprotect, addr, len, prot),
            Call::Remap { addr, old_len, new_len, flags, target } => {
                confine(call!(libc::SYS_mremap, addr, old_len, new_len, flags, target), new_len)
            }
            Call::Advise { addr, len, advice } => call!(libc::SYS_madvise, addr, len, advice),
            Call::Lock { addr, len } => call!(libc::SYS_mlock, addr, len),
            Call::Lock2 { addr, len, flags } => call!(libc::SYS_mlock2, addr, len, flags),
            Call::Unlock { addr, len } => call!(libc::SYS_munlock, addr, len),
            Call::LockAll { flags } => call!(libc::SYS_mlockall, flags),
            Call::UnlockAll => call!(libc::SYS_munlockall),
            Call::Sync { addr, len, flags } => call!(libc::SYS_msync, addr, len, flags),
            Call::InCore { addr, len } => {
                let mut pages = [0_u8; PAGES as usize];
                // What it says of each page is part of every look.
                call!(libc::SYS_mincore, addr, len, pages.as_mut_ptr())
            }
            Call::Name { addr, len, name } => {
                let pointer = NAMES.get(name as usize).map_or(8, |name| name.map_or(0, |name| name.as_ptr() as u64));
                // PR_SET_VMA, PR_SET_VMA_ANON_NAME
                call!(libc::SYS_prctl, 0x5356_4d41, 0, addr, len, pointer)
            }
            Call::Seal { addr, len, flags } => call!(462, addr, len, flags),
            Call::RemapPages { addr, len, prot, page, flags } => {
                call!(libc::SYS_remap_file_pages, addr, len, prot, page, flags)
            }
            Call::Create { file, flags, read_only } => create(fd(file), file, flags, read_only),
            Call::Close { file } => call!(libc::SYS_close, fd(file)),
            Call::Truncate { file, len } => call!(libc::SYS_ftruncate, fd(file), len),
            Call::Allocate { file, mode, offset, len } => call!(libc::SYS_fallocate, fd(file), mode, offset, len),
            Call::AddSeals { file, seals } => call!(libc::SYS_fcntl, fd(file), libc::F_ADD_SEALS, seals),
            Call::WriteFile { file, offset, value } => {
                let bytes = value.to_ne_bytes();
                call!(libc::SYS_pwrite64, fd(file), bytes.as_ptr(), bytes.len(), offset)
            }
            Call::ReadFile { file, offset } => {
                let mut bytes = [0_u8; 8];
                let result = call!(libc::SYS_pread64, fd(file), bytes.as_mut_ptr(), bytes.len(), offset);
                read = u64::from_ne_bytes(bytes);
                result
            }
            Call::Limit { resource, more } => limit(resource, more),
            Call::SetHeap { addr } => {
                let map = heap_at(addr, self.data_outside);
                call!(libc::SYS_prctl, libc::PR_SET_MM, libc::PR_SET_MM_MAP, map.as_ptr(), size_of_val(&map), 0)
            }
            Call::Break { addr } => match call!(libc::SYS_brk, addr) {
                end if contains(end as u64, end as u64) => end,
                _ => OUTSIDE,
            },
            Call::AdviseOther { other, ranges, advice, flags } => self.pid(other).map_or(NOBODY, |pid| {
                let pidfd = call!(libc::SYS_pidfd_open, pid, 0);
                let done =
                    call!(libc::SYS_process_madvise, pidfd, ranges.map(<[u64; 2]>::from).as_ptr(), 2, advice, flags);
                call!(libc::SYS_close, pidfd);
                done
            }),
            Call::Copy { other, addr, there, len, write } => self.pid(other).map_or(NOBODY, |pid| {
                let number = if write { libc::SYS_process_vm_writev } else { libc::SYS_process_vm_readv };
                call!(number, pid, [addr, len].as_ptr(), 1, [there, len].as_ptr(), 1, 0)
            }),
            Call::Store { addr, value, pages } => {
                let faulted = (0..pages as u64)
                    .find_map(|page| Some((page, access::store(addr + page * PAGE, value.wrapping_add(page)).err()?)));
                faulted.map_or(pages as i64, |(done, fault)| {
                    signal = fault;
                    done as i64
                })
            }
            Call::Load { addr, pages } => {
                let mut done = 0;
                while done < pages as i64 {
                    match access::load(addr + done as u64 * PAGE) {
                        Ok(word) => read = mix(read, word),
                        Err(fault) => {
                            signal = fault;
                            break;
                        }
                    }
                    done += 1;
                }
                done
            }
            Call::Fork { child } => self.fork(child),
            Call::Exit | Call::Look | Call::LookDeep => 0,
        };
        Outcome { value, read, signal }
    }

    /// The process ID of a process, if it exists.
    fn pid(&self, process: u8) -> Option<u32> {
        let header = self.shared.header();
        (header.alive.load(Relaxed) & 1 << process != 0).then(|| header.pids[process as usize].load(Acquire))
    }

    fn fork(&mut self, child: u8) -> i64 {
        let alive = &self.shared.header().alive;
        if alive.load(Relaxed) & 1 << child != 0 {
            return NOBODY;
        }
        // A brother, so that the helper waits for it.
        let result = call!(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0);
        if result == 0 {
            run(self.shared, child, self.data_outside);
        }
        if result < 0 {
            return result;
        }
        self.shared.header().pids[child as usize].store(result as u32, Release);
        alive.fetch_or(1 << child, Relaxed);
        0
    }

    /// A hash of every byte in the window that can be read, faulted in.
    fn load_everything(&self) -> u64 {
        let mut hash = 0;
        // The room of the log serves for the text; nothing is logged.
        self.shared.append(|room| {
            let text = read_smaps(room);
            for entry in entries(&room[..text]).filter(|entry| entry.access()[0] == b'r') {
                for page in (entry.start..entry.end).step_by(PAGE as usize) {
                    let of_page = hash_page(page);
                    if of_page != 0 {
                        hash = mix(mix(hash, page), of_page);
                    }
                }
            }
            0
        });
        hash
    }

    /// Logs `outcome` and, if `content` is given, what is to be seen; its inner value is the hash of content if that is known already.
    fn log(&self, outcome: Outcome, content: Option<Option<u64>>) {
        log(self.shared, outcome, |room| {
            let content = content?;
            let text = read_smaps(room);
            let (text_bytes, rest) = room.split_at_mut(text);
            let mut pages = 0;
            let mut hash = 0;
            for entry in entries(text_bytes) {
                let count = ((entry.end - entry.start) / PAGE) as usize;
                call!(libc::SYS_mincore, entry.start, entry.end - entry.start, rest[pages..].as_mut_ptr());
                pages += count;
                if content.is_none() && entry.access()[0] == b'r' && entry.size("Rss") != Some(0) {
                    hash = sample(entry.start, entry.end, hash);
                }
            }
            Some((text, pages, content.unwrap_or(hash)))
        });
    }
}

/// A hash of the page, 0 if all of it is zeros.
fn hash_page(page: u64) -> u64 {
    let mut hash = 0;
    for at in (page..page + PAGE).step_by(8) {
        match access::load(at) {
            Ok(0) => {}
            Ok(word) => hash = mix(mix(hash, word), at),
            Err((signal, code)) => return mix(mix(1, signal as u64), code as u64),
        }
    }
    hash
}

/// Adds samples of the pages of `start..end` that are in memory.
fn sample(start: u64, end: u64, mut hash: u64) -> u64 {
    let mut entries = [0_u8; PAGES as usize * 8];
    let count = ((end - start) / PAGE) as usize;
    read_at(PAGEMAP, &mut entries[..count * 8], start / PAGE * 8);
    for (page, entry) in (start..end).step_by(PAGE as usize).zip(entries.chunks_exact(8)) {
        // Bit 63: present; 61: of a file. Which pages of files are mapped is not the program's business: loads show what is in them.
        if entry[7] & 0xa0 != 0x80 {
            continue;
        }
        let words = SAMPLES.map(|offset| access::load(page + offset).unwrap_or(u64::MAX));
        if words != [0; SAMPLES.len()] {
            hash = words.iter().fold(mix(hash, page), |hash, word| mix(hash, *word));
        }
    }
    hash
}

/// Reads smaps as far as the window goes; returns how many bytes.
fn read_smaps(room: &mut [u8]) -> usize {
    let mut used = 0;
    loop {
        let Some(chunk) = room.get_mut(used..used + CHUNK) else { return used };
        let bytes = read_at(SMAPS, chunk, used as u64);
        used += bytes;
        if bytes == 0 || begins_behind_window(&room[used - bytes..used]) {
            return used;
        }
    }
}

/// Whether some line of maps in `text` is of an area behind the window.
fn begins_behind_window(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(line) = text[at..].iter().position(|byte| *byte == b'\n') {
        at += line + 1;
        let digits =
            text[at..].iter().map_while(|byte| (*byte as char).to_digit(16).filter(|_| !byte.is_ascii_uppercase()));
        let (count, start) = digits.fold((0, 0_u64), |(count, value), digit| (count + 1, value << 4 | digit as u64));
        // Not cut off, and a line of maps.
        if count >= 8 && text.get(at + count) == Some(&b'-') && start >= END {
            return true;
        }
    }
    false
}

/// Appends a record; `look` fills in what is to be seen: bytes of text, bytes of mincore, hash of content.
fn log(shared: Shared, outcome: Outcome, look: impl FnOnce(&mut [u8]) -> Option<(usize, usize, u64)>) {
    shared.append(|room| {
        let (head, rest) = room.split_at_mut(RECORD_WORDS * 8);
        let seen = look(rest);
        let (text, pages, content) = seen.unwrap_or_default();
        let Outcome { value, read, signal: (signal, code) } = outcome;
        let words = [
            value as u64,
            read,
            signal as u64,
            code as u64,
            u64::from(seen.is_some()),
            text as u64,
            pages as u64,
            content,
        ];
        for (bytes, word) in head.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        RECORD_WORDS * 8 + text + pages
    });
}

/// What mmap or mremap returned, if it is in the window; else it is unmapped again.
fn confine(result: i64, len: u64) -> i64 {
    if result < 0 {
        return result;
    }
    let (start, end) = (result as u64, result as u64 + len.next_multiple_of(PAGE));
    if contains(start, end) {
        return result;
    }
    call!(libc::SYS_munmap, start, end - start);
    OUTSIDE
}

fn create(fd: i32, file: u8, flags: u32, read_only: bool) -> i64 {
    let name = [b'f', b'0' + file, 0];
    let created = call!(libc::SYS_memfd_create, name.as_ptr(), flags);
    if created < 0 {
        return created;
    }
    let mut made = created;
    if read_only {
        call!(libc::SYS_dup2, created, REOPENED);
        made = call!(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/fd/92".as_ptr(), libc::O_RDONLY, 0);
        call!(libc::SYS_close, REOPENED);
    }
    let placed = if made < 0 { made } else { call!(libc::SYS_dup2, made, fd) };
    if read_only {
        call!(libc::SYS_close, made);
    }
    call!(libc::SYS_close, created);
    placed.min(0)
}

/// The soft limit of `resource`: as much as is used now, and `more` bytes.
fn limit(resource: u32, more: u64) -> i64 {
    let mut limit = [0_u64; 2];
    let got = call!(libc::SYS_prlimit64, 0, resource, 0, limit.as_mut_ptr());
    if got < 0 {
        return got;
    }
    if resource == libc::RLIMIT_MEMLOCK {
        give_up_locking();
        limit[0] = more.min(limit[1]);
        return call!(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), 0);
    }
    limit[0] = if more == u64::MAX { limit[1] } else { used(resource).saturating_add(more).min(limit[1]) };
    call!(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), 0)
}

/// Takes CAP_IPC_LOCK from this process.
fn give_up_locking() {
    const VERSION: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 1 << 14;
    // Effective, permitted, inheritable; the lower half of each, then the upper.
    let (head, mut sets) = ([VERSION, 0], [0_u32; 6]);
    call!(libc::SYS_capget, head.as_ptr(), sets.as_mut_ptr());
    sets[..2].iter_mut().for_each(|set| *set &= !IPC_LOCK);
    call!(libc::SYS_capset, head.as_ptr(), sets.as_ptr());
}

/// Bytes of a limited resource that this process uses.
fn used(resource: u32) -> u64 {
    let line: &[u8] = match resource as i32 {
        resource if resource == libc::RLIMIT_AS as i32 => b"VmSize:",
        resource if resource == libc::RLIMIT_DATA as i32 => b"VmData:",
        _ => return 0,
    };
    let mut text = [0; 2048];
    let opened = call!(libc::SYS_openat, libc::AT_FDCWD, c"/proc/self/status".as_ptr(), libc::O_RDONLY, 0);
    let bytes = read_at(opened as i32, &mut text, 0);
    call!(libc::SYS_close, opened);
    let text = &text[..bytes];
    let Some(at) = text.windows(line.len()).position(|window| window == line) else { return 0 };
    let digits = text[at + line.len()..]
        .iter()
        .skip_while(|byte| !byte.is_ascii_digit())
        .take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |value, digit| value * 10 + (digit - b'0') as u64) * 1024
}

const _: () = assert!(BASE.is_multiple_of(PAGE));
