//! The processes of one sequence, and what each operation does to them.

use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::space::Fault;
use foldspace::{AddressSpace, Object, PageRange, VirtAddr};
use foldspace_hosted::{AccessError, CacheSize, Processor, Refusal};
use foldspace_linux::{self as linux, Vectors};
use std::sync::Arc;

use super::disturb::Disturber;
use super::file::{Open, unsigned};
use super::machine::{ANSWERS, BUFFER_BYTES, Machine, name_address};
use super::process::Process;
use crate::Step;
use crate::look::{Inodes, Look, entries};
use crate::op::{Call, NAMES, NOBODY, OUTSIDE, Op, Outcome, SAMPLES, heap_at, mix};
use crate::window::{self, BASE, END, PAGE, PROCESSES};

/// An address at which nothing is mapped.
const UNREADABLE: u64 = 8;

pub struct World<'m> {
    machine: &'m Machine,
    processes: [Option<Process>; PROCESSES],
    processor: Processor,
    inodes: Inodes,
    disturber: Disturber,
    /// What went wrong when frames were moved between two operations.
    disturbed: Option<String>,
}

impl<'m> World<'m> {
    pub fn new(machine: &'m Machine, space: Arc<AddressSpace>) -> World<'m> {
        let mut processes = [const { None }; PROCESSES];
        processes[0] = Some(Process { space, files: Default::default() });
        World {
            machine,
            processes,
            processor: machine.host.processor(CacheSize::Unbounded),
            inodes: Inodes::default(),
            disturber: Disturber::new(),
            disturbed: None,
        }
    }

    /// One step for each operation, until no process is left.
    pub fn run(&mut self, ops: &[Op]) -> Vec<Step> {
        let mut steps = Vec::with_capacity(ops.len());
        for op in ops {
            steps.push(self.step(op));
            self.disturb();
        }
        steps
    }

    /// Something that no process may notice.
    fn disturb(&mut self) {
        let spaces: Vec<&AddressSpace> = self.processes.iter().flatten().map(|process| &*process.space).collect();
        if let Err(problem) = self.disturber.disturb(&self.machine.host, &spaces) {
            self.disturbed.get_or_insert(problem);
        }
    }

    /// What went wrong when frames were moved between two operations.
    pub fn disturbed(&self) -> Result<(), String> {
        self.disturbed.clone().map_or(Ok(()), Err)
    }

    /// The address spaces of all processes.
    pub fn spaces(&self) -> impl Iterator<Item = &AddressSpace> {
        self.processes.iter().flatten().map(|process| &*process.space)
    }

    /// The objects of all files that are open.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.processes
            .iter()
            .flatten()
            .flat_map(|process| process.files.iter().flatten())
            .map(|open| &*open.file.object)
    }

    fn step(&mut self, op: &Op) -> Step {
        let who = op.process as usize;
        if self.processes[who].is_none() {
            return Step { outcome: Outcome { value: NOBODY, ..Outcome::default() }, look: None };
        }
        let outcome = self.perform(who, &op.call);
        if op.call == Call::Exit {
            return Step { outcome, look: None };
        }
        let deep = (op.call == Call::LookDeep).then(|| self.load_everything(who));
        let look = Some(self.look(who, deep));
        Step { outcome, look }
    }

    fn perform(&mut self, who: usize, call: &Call) -> Outcome {
        let space_of = |number: u8| {
            let process = self.processes.get(number as usize)?.as_ref()?;
            Some(Arc::clone(&process.space))
        };
        let other = match *call {
            Call::AdviseOther { other, .. } | Call::Copy { other, .. } => space_of(other),
            _ => None,
        };
        let Some(process) = &mut self.processes[who] else { return Outcome::default() };
        let (mut read, mut signal) = (0, (0, 0));
        let value = match *call {
            Call::Map { addr, len, prot, flags, fd, offset } => {
                let result = linux::mmap(process, addr, len, prot.into(), flags.into(), fd, offset);
                confine(process, number(result), len)
            }
            Call::Unmap { addr, len } => nothing(linux::munmap(process, addr, len)),
            Call::Protect { addr, len, prot } => nothing(linux::mprotect(process, addr, len, prot.into())),
            Call::Remap { addr, old_len, new_len, flags, target } => {
                let result = linux::mremap(process, addr, old_len, new_len, flags.into(), target);
                confine(process, number(result), new_len)
            }
            Call::Advise { addr, len, advice } => nothing(linux::madvise(process, addr, len, advice)),
            Call::Lock { addr, len } => nothing(linux::mlock(process, addr, len)),
            Call::Lock2 { addr, len, flags } => nothing(linux::mlock2(process, addr, len, flags as i32)),
            Call::Unlock { addr, len } => nothing(linux::munlock(process, addr, len)),
            Call::LockAll { flags } => nothing(linux::mlockall(process, flags as i32)),
            Call::UnlockAll => nothing(linux::munlockall(process)),
            Call::Sync { addr, len, flags } => nothing(linux::msync(process, addr, len, flags as i32)),
            Call::InCore { addr, len } => nothing(linux::mincore(process, addr, len, ANSWERS)),
            Call::RemapPages { addr, len, prot, page, flags } => {
                nothing(linux::remap_file_pages(process, addr, len, prot.into(), page, flags.into()))
            }
            Call::Name { addr, len, name: number } => {
                let name = match NAMES.get(number as usize) {
                    None => UNREADABLE,
                    Some(name) => name.map_or(0, |_| name_address(number as usize)),
                };
                nothing(linux::prctl_set_vma(process, 0, addr, len, name))
            }
            Call::Seal { addr, len, flags } => nothing(linux::mseal(process, addr, len, flags)),
            Call::Limit { resource, more } => limit(&process.space, resource, more),
            Call::SetHeap { addr } => {
                let map = heap_at(addr, BUFFER_BYTES);
                write_words(&process.space, ANSWERS, &map);
                let option = libc::PR_SET_MM_MAP as u64;
                nothing(linux::prctl_set_mm(process, option, ANSWERS, size_of_val(&map) as u64, 0))
            }
            Call::Break { addr } => match linux::brk(process, addr) {
                end if window::contains(end, end) => end as i64,
                _ => OUTSIDE,
            },
            Call::AdviseOther { ranges, advice, flags, .. } => other.map_or(NOBODY, |other| {
                let [(a, b), (c, d)] = ranges;
                write_words(&process.space, ANSWERS, &[a, b, c, d]);
                number(linux::process_madvise(process, ANSWERS, 2, advice, flags, || Ok(other)))
            }),
            Call::Copy { addr, there, len, write, .. } => other.map_or(NOBODY, |other| {
                write_words(&process.space, ANSWERS, &[addr, len, there, len]);
                let vectors = Vectors { local: ANSWERS, local_count: 1, remote: ANSWERS + 16, remote_count: 1 };
                number(match write {
                    true => linux::process_vm_writev(process, vectors, 0, || Ok(other)),
                    false => linux::process_vm_readv(process, vectors, 0, || Ok(other)),
                })
            }),
            Call::Create { file, flags, read_only } => {
                of_file(Open::create(self.machine.host.memory(), file, flags, read_only).map(|open| {
                    process.files[file as usize] = Some(open);
                    0
                }))
            }
            Call::Close { file } => of_file(process.files[file as usize].take().map(|_| 0).ok_or(libc::EBADF)),
            Call::Truncate { file, len } => of_file(unsigned(len).and_then(|len| process.file(file)?.truncate(len))),
            Call::Allocate { file, mode, offset, len } => {
                of_file(process.file(file).and_then(|open| open.allocate(mode, offset, len)))
            }
            Call::AddSeals { file, seals } => of_file(process.file(file).and_then(|open| open.add_seals(seals))),
            Call::WriteFile { file, offset, value } => {
                of_file(unsigned(offset).and_then(|offset| process.file(file)?.write(offset, &value.to_ne_bytes())))
            }
            Call::ReadFile { file, offset } => {
                let mut bytes = [0; 8];
                let result = of_file(unsigned(offset).and_then(|offset| process.file(file)?.read(offset, &mut bytes)));
                read = u64::from_ne_bytes(bytes);
                result
            }
            Call::Store { addr, value, pages } => {
                self.processor.activate(&process.space);
                let mut done = 0;
                while done < u64::from(pages) {
                    let at = VirtAddr(addr + done * PAGE);
                    if let Err(error) = self.processor.store(at, &value.wrapping_add(done).to_ne_bytes()) {
                        signal = signal_of(&error);
                        break;
                    }
                    done += 1;
                }
                done as i64
            }
            Call::Load { addr, pages } => {
                self.processor.activate(&process.space);
                let mut done = 0;
                while done < u64::from(pages) {
                    match load(&mut self.processor, addr + done * PAGE) {
                        Ok(word) => read = mix(read, word),
                        Err(fault) => {
                            signal = fault;
                            break;
                        }
                    }
                    done += 1;
                }
                done as i64
            }
            Call::Fork { child } => self.fork(who, child as usize),
            Call::Exit => {
                self.processor.deactivate();
                self.processes[who] = None;
                0
            }
            Call::Look | Call::LookDeep => 0,
        };
        Outcome { value, read, signal }
    }

    fn fork(&mut self, who: usize, child: usize) -> i64 {
        let Some(parent) = &self.processes[who] else { return NOBODY };
        if self.processes[child].is_some() {
            return NOBODY;
        }
        match parent.space.fork() {
            Ok(space) => {
                self.processes[child] = Some(Process { space, files: parent.files.clone() });
                0
            }
            Err(_) => -i64::from(libc::ENOMEM),
        }
    }

    /// What is to be seen of a process; `content` is the hash if it is known already.
    fn look(&mut self, who: usize, content: Option<u64>) -> Look {
        let Some(process) = &self.processes[who] else { return Look::default() };
        let space = &process.space;
        let text = smaps(space);
        let (mut in_core, mut hash) = (Vec::new(), 0);
        for entry in entries(&text) {
            let Some(range) = PageRange::new(VirtAddr(entry.start), VirtAddr(entry.end)) else { continue };
            let at = in_core.len();
            in_core.resize(at + range.pages() as usize, 0);
            let answered = space.mincore(range, &mut in_core[at..]);
            debug_assert_eq!(answered, Ok(range.pages() as usize));
            if content.is_none() && entry.access()[0] == b'r' && entry.size("Rss") != Some(0) {
                hash = self.sample(space, range, hash);
            }
        }
        Look::new(&text, &in_core, content.unwrap_or(hash), &mut self.inodes)
    }

    /// Adds samples of the pages of `range` that are in memory and of no file.
    fn sample(&self, space: &AddressSpace, range: PageRange, mut hash: u64) -> u64 {
        let mut entries = vec![PagemapEntry::default(); range.pages() as usize];
        if space.pagemap(range, FrameNumbers::Hidden, &mut entries).is_err() {
            return hash;
        }
        for (page, entry) in (range.start().get()..range.end().get()).step_by(PAGE as usize).zip(entries) {
            if entry.0 >> 56 & 0xa0 != 0x80 {
                continue;
            }
            let Ok(translation) = self.machine.host.translate(space, VirtAddr(page)) else { continue };
            let words = SAMPLES.map(|offset| {
                let mut bytes = [0; 8];
                let read = self.machine.host.peek(translation, offset as usize, &mut bytes);
                read.map_or(u64::MAX, |()| u64::from_ne_bytes(bytes))
            });
            if words != [0; SAMPLES.len()] {
                hash = words.iter().fold(mix(hash, page), |hash, word| mix(hash, *word));
            }
        }
        hash
    }

    /// A hash of every byte in the window that can be read, faulted in.
    fn load_everything(&mut self, who: usize) -> u64 {
        let Some(process) = &self.processes[who] else { return 0 };
        self.processor.activate(&process.space);
        let mut hash = 0;
        for entry in entries(&smaps(&process.space)).filter(|entry| entry.access()[0] == b'r') {
            for page in (entry.start..entry.end).step_by(PAGE as usize) {
                let of_page = hash_page(&mut self.processor, page);
                if of_page != 0 {
                    hash = mix(mix(hash, page), of_page);
                }
            }
        }
        hash
    }
}

/// A hash of the page, 0 if all of it is zeros.
fn hash_page(processor: &mut Processor, page: u64) -> u64 {
    let mut bytes = [0; PAGE as usize];
    if let Err(error) = processor.load(VirtAddr(page), &mut bytes) {
        let (signal, code) = signal_of(&error);
        return mix(mix(1, signal as u64), code as u64);
    }
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    words.zip((page..).step_by(8)).filter(|(word, _)| *word != 0).fold(0, |hash, (word, at)| mix(mix(hash, word), at))
}

/// The entries of smaps in the window.
fn smaps(space: &AddressSpace) -> Vec<u8> {
    let smaps = space.smaps();
    let mut text = Vec::new();
    let mut from = VirtAddr(BASE);
    while from < VirtAddr(END)
        && let Ok(Some(next)) = smaps.entry(space, from, &mut text)
    {
        from = next;
    }
    text
}

/// Puts words where system calls of this process read them.
fn write_words(space: &AddressSpace, at: u64, words: &[u64]) {
    for (word, at) in words.iter().zip((at..).step_by(8)) {
        let wrote = space.write(VirtAddr(at), &word.to_ne_bytes());
        debug_assert_eq!(wrote, 8);
    }
}

/// setrlimit of the soft limit, relative to what is used now: what each side has outside the window does not matter then.
fn limit(space: &AddressSpace, resource: u32, more: u64) -> i64 {
    let usage = space.usage();
    let soft = |pages: u64| (pages * PAGE).saturating_add(more);
    space.update_layout(|layout| match resource {
        libc::RLIMIT_AS => layout.address_space_limit = soft(usage.mapped),
        libc::RLIMIT_DATA => layout.data_limit = soft(usage.data),
        libc::RLIMIT_STACK => layout.stack_limit = soft(0),
        libc::RLIMIT_MEMLOCK => layout.lock_limit = more,
        _ => {}
    });
    0
}

fn load(processor: &mut Processor, addr: u64) -> Result<u64, (i32, i32)> {
    let mut bytes = [0; 8];
    processor.load(VirtAddr(addr), &mut bytes).map_err(|error| signal_of(&error))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// The signal of an access that was refused, and its code.
fn signal_of(error: &AccessError) -> (i32, i32) {
    match error.refusal {
        Refusal::Fault(Fault::NotMapped) => (libc::SIGSEGV, 1),
        Refusal::Fault(Fault::AccessDenied) => (libc::SIGSEGV, 2),
        Refusal::Fault(Fault::PastEnd) => (libc::SIGBUS, 2),
        Refusal::Fault(Fault::Poisoned) => (libc::SIGBUS, 4),
        // None of these may happen: whatever Linux says is another thing.
        Refusal::Fault(Fault::OutOfMemory | Fault::Watched { .. })
        | Refusal::NotCanonical
        | Refusal::Idle
        | Refusal::Malformed
        | Refusal::Unresolved(_) => (libc::SIGKILL, 0),
    }
}

/// What mmap or mremap returned, if it is in the window; else it is unmapped again.
fn confine(process: &Process, result: i64, len: u64) -> i64 {
    if result < 0 {
        return result;
    }
    let (start, end) = (result as u64, result as u64 + len.next_multiple_of(PAGE));
    if window::contains(start, end) {
        return result;
    }
    nothing(linux::munmap(process, start, end - start));
    OUTSIDE
}

fn number(result: Result<u64, linux::Errno>) -> i64 {
    result.map_or_else(|errno| -i64::from(errno.number()), |value| value as i64)
}

fn nothing(result: Result<(), linux::Errno>) -> i64 {
    number(result.map(|()| 0))
}

fn of_file(result: Result<i64, i32>) -> i64 {
    result.unwrap_or_else(|errno| -i64::from(errno))
}

const _: () = assert!(NAMES.len() * 128 <= PAGE as usize);
