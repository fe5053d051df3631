//! The steps, hosted.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::proc::{FrameNumbers, PagemapEntry};
use foldspace::space::{self, Failures, LockMode, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, PageRange, VirtAddr};
use foldspace_hosted::{Host, Layouts};

use super::{Access, Advice, BASE, Kind, PAGES, PROCESSES, Seen, Step};

pub struct Processes {
    host: Host,
    spaces: [Option<Arc<AddressSpace>>; PROCESSES],
}

pub fn range(at: u64, len: u64) -> PageRange {
    PageRange::from_len(VirtAddr(BASE + at * PAGE_SIZE), len * PAGE_SIZE).expect("in the user half")
}

fn access(letters: Access) -> VmaFlags {
    let letter = |letter: char, flag: VmaFlags| if letters.contains(letter) { flag } else { VmaFlags::empty() };
    letter('r', VmaFlags::READ) | letter('w', VmaFlags::WRITE) | letter('x', VmaFlags::EXEC)
}

impl Processes {
    pub fn new() -> Processes {
        let host = Host::new(16 << 20).expect("an arena");
        let mut spaces = [const { None }; PROCESSES];
        spaces[0] = Some(AddressSpace::new(host.memory(), Layouts::process()).expect("a root"));
        Processes { host, spaces }
    }

    pub fn living(&self) -> impl Iterator<Item = usize> + use<> {
        let living: Vec<usize> = (0..PROCESSES).filter(|process| self.spaces[*process].is_some()).collect();
        living.into_iter()
    }

    fn space(&self, process: usize) -> &Arc<AddressSpace> {
        self.spaces[process].as_ref().expect("it lives")
    }

    pub fn step(&mut self, process: usize, step: Step) {
        match step {
            Step::Map(at, len, letters, kind) => self.map(process, range(at, len), access(letters), kind),
            Step::Store(at, len) => {
                for page in at..at + len {
                    assert_eq!(self.space(process).write(range(page, 1).start(), &[1]), 1, "store to page {page}");
                }
            }
            Step::Load(at, len) => {
                for page in at..at + len {
                    assert_eq!(self.space(process).read(range(page, 1).start(), &mut [0]), 1, "load of page {page}");
                }
            }
            Step::Protect(at, len, letters) => {
                self.space(process).protect(range(at, len), access(letters)).expect("it may");
            }
            Step::Unmap(at, len) => self.space(process).unmap(range(at, len)).expect("it may"),
            Step::Advise(at, len, advice) => {
                let (space, range) = (self.space(process), range(at, len));
                let mut go_on = || false;
                match advice {
                    Advice::DontNeed => space.discard(range).expect("it may"),
                    Advice::Free => space.free(range).expect("it may"),
                    Advice::Cold => space.cold(range).expect("it may"),
                    Advice::Pageout => space.pageout(range).expect("it may"),
                    Advice::Lock => {
                        space.lock(range, LockMode::Now).expect("it may");
                        space.populate_mapped(range, Failures::Stop, &mut go_on).expect("it may");
                    }
                    Advice::Unlock => space.unlock(range).expect("it may"),
                    Advice::Guard => space.guard_install(range).expect("it may"),
                    Advice::PopulateRead => space.populate(range, space::Access::Read, &mut go_on).expect("it may"),
                    Advice::PopulateWrite => space.populate(range, space::Access::Write, &mut go_on).expect("it may"),
                }
            }
            Step::Fork(child) => self.spaces[child] = Some(self.space(process).fork().expect("enough memory")),
            Step::Exit => self.spaces[process] = None,
        }
        let spaces: Vec<&AddressSpace> = self.spaces.iter().flatten().map(|space| &**space).collect();
        self.host.memory().check(&spaces, &[]).expect("in order");
    }

    fn map(&self, process: usize, range: PageRange, access: VmaFlags, kind: Kind) {
        const MAY: VmaFlags = VmaFlags::MAY_READ.union(VmaFlags::MAY_WRITE).union(VmaFlags::MAY_EXEC);
        let mut flags = access | MAY;
        let mut backing = Backing::Anonymous;
        match kind {
            Kind::Private => {}
            Kind::Locked => flags |= VmaFlags::LOCKED,
            Kind::Shared => {
                flags |= VmaFlags::SHARED;
                backing = Backing::Object(Object::anonymous(self.host.memory(), range.len()).expect("enough memory"));
            }
        }
        if kind != Kind::Shared && access.contains(VmaFlags::WRITE) {
            flags |= VmaFlags::ACCOUNT;
        }
        let placement = Placement::Fixed(range.start());
        let request = MapRequest { placement, len: range.len(), flags, backing, page_offset: 0 };
        let space = self.space(process);
        space.map(request).expect("it may");
        if kind == Kind::Locked {
            space.populate_mapped(range, Failures::Skip, &mut || false).expect("nobody interrupts");
        }
    }

    pub fn seen(&self, process: usize) -> Seen {
        let space = self.space(process);
        let smaps = String::from_utf8(space.smaps().text(space).expect("heap")).expect("text");
        let window = range(0, PAGES);
        let mut pagemap = vec![PagemapEntry::default(); PAGES as usize];
        space.pagemap(window, FrameNumbers::Hidden, &mut pagemap).expect("heap");
        let resident = (0..PAGES).map(|page| {
            let mut resident = [2];
            match space.mincore(range(page, 1), &mut resident) {
                Ok(_) => Some(resident[0]),
                Err(Error::NotMapped) => None,
                Err(error) => panic!("{error}"),
            }
        });
        Seen { smaps, resident: resident.collect(), pagemap: pagemap.into_iter().map(|entry| entry.0).collect() }
    }
}

/// The letters that smaps has for an area with these flags.
pub fn flags_shown(flags: VmaFlags) -> String {
    let processes = Processes::new();
    let (range, backing) = (range(0, 1), Backing::Anonymous);
    let request =
        MapRequest { placement: Placement::Fixed(range.start()), len: range.len(), flags, backing, page_offset: 0 };
    processes.space(0).map(request).expect("it may");
    let smaps = processes.seen(0).smaps;
    smaps.lines().find_map(|line| line.strip_prefix("VmFlags: ")).expect("the last line").to_owned()
}
