//! From what threads called to what happened to address spaces.

mod memory;
mod processes;

use std::collections::{BTreeMap, HashMap, VecDeque};

use foldspace_classic::{Area, Operation, Process, VmaFlags};

use crate::stores::{Recent, Stores};
use crate::strace::{Call, Damage, Event, Outcome};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// One past the last page of a program's half, of which the last page is not used (Linux's `TASK_SIZE_MAX`).
const USER_PAGES: u64 = (1 << 35) - 1;

const READ_WRITE: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE);

/// What was passed over, and what was seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Notes {
    /// Calls that succeeded and changed an address space.
    pub calls: u64,
    /// Calls that failed, or changed nothing.
    pub without_effect: u64,
    /// Programs that were started.
    pub execs: u64,
    /// Address spaces that were copied.
    pub forks: u64,
    /// Threads, and children that ran in their parent's address space.
    pub clones: u64,
    /// Threads whose beginning the log does not have: taken for processes of their own.
    pub orphans: u64,
}

/// Makes operations of events.
pub struct Translator {
    stores: Stores,
    recent: Recent,
    threads: HashMap<u32, Process>,
    spaces: BTreeMap<Process, About>,
    /// Events of threads that nobody has begun yet, as far as the log has been read.
    waiting: BTreeMap<u32, Vec<Numbered>>,
    /// Events that have waited and may be taken now.
    ready: VecDeque<Numbered>,
    files: HashMap<String, u32>,
    next: u32,
    notes: Notes,
    out: Done,
}

/// An event and its line.
type Numbered = (u64, Event);

/// What came of an event, and of those that have waited for it.
#[derive(Default, Debug)]
pub struct Done {
    /// What they did.
    pub operations: Vec<Operation>,
    /// Lines whose calls were passed over.
    pub damaged: Vec<(u64, Damage)>,
}

/// What is known of an address space beside its VMAs.
#[derive(Default)]
struct About {
    /// Threads in it.
    users: u32,
    /// The end of the heap, in bytes, once the program has asked for it.
    brk: Option<u64>,
    /// Where something is mapped, merged: to tell what exec has mapped without saying so.
    mapped: BTreeMap<u64, u64>,
}

impl Translator {
    /// One that has seen nothing.
    pub fn new(stores: Stores) -> Translator {
        Translator {
            stores,
            recent: Recent::default(),
            threads: HashMap::new(),
            spaces: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ready: VecDeque::new(),
            files: HashMap::new(),
            next: 0,
            notes: Notes::default(),
            out: Done::default(),
        }
    }

    /// What was seen so far.
    pub fn notes(&self) -> Notes {
        self.notes
    }

    /// What an event did that stands in a line of the log.
    pub fn event(&mut self, line: u64, event: Event) -> Done {
        self.ready.push_back((line, event));
        self.take_ready();
        std::mem::take(&mut self.out)
    }

    /// The end of the log: whoever still waits is taken for a process of its own.
    pub fn finish(&mut self) -> Done {
        while let Some((pid, events)) = self.waiting.pop_first() {
            self.notes.orphans += 1;
            self.begin_program(pid);
            self.ready.extend(events);
            self.take_ready();
        }
        std::mem::take(&mut self.out)
    }

    fn take_ready(&mut self) {
        while let Some((line, event)) = self.ready.pop_front() {
            if let Err(damage) = self.take(line, event) {
                self.out.damaged.push((line, damage));
            }
        }
    }

    fn take(&mut self, line: u64, event: Event) -> Result<(), Damage> {
        let pid = match &event {
            Event::Call { pid, .. } | Event::Exited { pid } | Event::Superseded { pid, .. } => *pid,
        };
        if self.threads.is_empty() && self.next == 0 {
            self.begin_program(pid);
        }
        let Some(&process) = self.threads.get(&pid) else {
            self.waiting.entry(pid).or_default().push((line, event));
            return Ok(());
        };
        match event {
            Event::Call { call, .. } => return self.call(pid, process, &call),
            Event::Exited { .. } => self.leave(pid),
            Event::Superseded { by, .. } => {
                self.leave(pid);
                if let Some(process) = self.threads.remove(&by) {
                    self.threads.insert(pid, process);
                }
            }
        }
        Ok(())
    }

    fn call(&mut self, pid: u32, process: Process, call: &Call) -> Result<(), Damage> {
        let Outcome::Value(result) = call.outcome else {
            self.notes.without_effect += 1;
            return Ok(());
        };
        let before = self.out.operations.len();
        match call.name.as_str() {
            "mmap" | "mmap2" => self.mmap(process, call, result)?,
            "munmap" => self.munmap(process, call)?,
            "mprotect" | "pkey_mprotect" => self.mprotect(process, call)?,
            "mremap" => self.mremap(process, call, result)?,
            "brk" => self.brk(process, result)?,
            "madvise" => self.madvise(process, call)?,
            "execve" | "execveat" => self.exec(pid),
            "fork" | "vfork" | "clone" | "clone3" => self.clone(process, call, result)?,
            _ => {}
        }
        if self.out.operations.len() > before {
            self.notes.calls += 1;
        } else {
            self.notes.without_effect += 1;
        }
        Ok(())
    }

    fn about(&mut self, process: Process) -> &mut About {
        self.spaces.entry(process).or_default()
    }

    /// Stores to what is new and private and writable.
    fn store_in(&mut self, process: Process, area: Area) {
        for page in self.stores.in_area(area) {
            self.store(process, page);
        }
    }

    fn store(&mut self, process: Process, page: u64) {
        self.out.operations.push(Operation::Store { process, page });
        self.recent.note(process, page, self.stores.after_fork);
    }
}

/// The whole pages that `len` bytes from `start` touch.
fn pages_of(start: u64, len: u64) -> Result<Area, Damage> {
    let end = start.checked_add(len).ok_or(Damage::BadArgument)?;
    let area = Area::new(start / PAGE, end.div_ceil(PAGE)).ok_or(Damage::BadArgument)?;
    if area.end > USER_PAGES { Err(Damage::BadArgument) } else { Ok(area) }
}

impl About {
    fn map(&mut self, area: Area) {
        self.unmap(area);
        self.mapped.insert(area.start, area.end);
    }

    fn unmap(&mut self, area: Area) {
        let first = self.mapped.range(..area.start).next_back().map_or(area.start, |(start, _)| *start);
        let touched: Vec<_> = self.mapped.range(first..area.end).map(|(start, end)| (*start, *end)).collect();
        for (start, end) in touched {
            if end <= area.start {
                continue;
            }
            self.mapped.remove(&start);
            if start < area.start {
                self.mapped.insert(start, area.start);
            }
            if end > area.end {
                self.mapped.insert(area.end, end);
            }
        }
    }

    fn is_mapped(&self, page: u64) -> bool {
        self.mapped.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
    }
}
