//! The same stream on Foldspace, in this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldspace::addr::{PAGE_SHIFT, PageRange};
use foldspace::backing::{Identity, Source};
use foldspace::reverse::ReverseStats;
use foldspace::space::{Access, Advice, Destination, Fault, Layout, Leave, MapRequest, Placement, RemapRequest};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, Object, VirtAddr};
use foldspace_classic::{self as classic, Area, Operation, Process};
use foldspace_hosted::{Host, HostError};
use thiserror::Error;

/// Bytes of every file: more than anyone maps.
const FILE: u64 = 1 << 46;

/// Why Foldspace could not go on.
#[derive(Debug, Error)]
pub enum ManagerError {
    /// There is no machine.
    #[error("the machine in this process cannot be made")]
    Host(#[from] HostError),
    /// An operation was refused that a log says has been done.
    #[error("{operation:?} was refused")]
    Refused {
        /// Which.
        operation: Operation,
        /// Why.
        #[source]
        error: Error,
    },
}

/// Address spaces of Foldspace by the processes of a stream.
pub struct Manager {
    spaces: BTreeMap<Process, Arc<AddressSpace>>,
    files: HashMap<u32, Arc<Object>>,
    /// Dropped after all that is on it.
    host: Host,
    /// Frames that forks took.
    fork_frames: u64,
}

/// A file: what it holds does not matter.
struct File(u32);

impl Source for File {
    fn fill(&self, _index: u64, _page: &mut [u8]) -> foldspace::error::Result<()> {
        Ok(())
    }
    fn identity(&self) -> Identity {
        Identity { inode: u64::from(self.0) + 1, ..Identity::default() }
    }
    fn path(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"/file");
    }
}

/// What there is at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Census {
    pub vmas: u64,
    pub tables: u64,
    pub data: u64,
    pub reverse: ReverseStats,
    pub fork_frames: u64,
}

impl Manager {
    /// One with so many bytes of memory, which the process pays for as they are used.
    ///
    /// # Errors
    /// [`ManagerError::Host`].
    pub fn new(bytes: u64) -> Result<Manager, ManagerError> {
        let host = Host::new(bytes)?;
        host.memory().set_lowest_address(VirtAddr(0));
        host.memory().set_max_map_count(u64::MAX);
        Ok(Manager { host, spaces: BTreeMap::new(), files: HashMap::new(), fork_frames: 0 })
    }

    /// Verifies every invariant of the manager. O(everything).
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        self.host.memory().reclaim();
        let spaces: Vec<&AddressSpace> = self.spaces.values().map(|space| &**space).collect();
        self.host
            .memory()
            .check(&spaces, &self.files.values().map(|file| &**file).collect::<Vec<_>>())
            .map_err(|wrong| wrong.to_string())
    }

    /// The address spaces that there are.
    pub fn spaces(&self) -> impl Iterator<Item = (Process, &Arc<AddressSpace>)> {
        self.spaces.iter().map(|(process, space)| (*process, space))
    }

    /// That of a process.
    pub fn space_of(&self, process: Process) -> Option<&Arc<AddressSpace>> {
        self.spaces.get(&process)
    }

    /// The machine that they are on.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Pages of memory in use: no tables. What has died counts no more.
    pub fn pages(&self) -> u64 {
        self.host.memory().reclaim();
        self.host.memory().stats().data
    }

    /// Carries an operation out. What is not mapped is passed over.
    ///
    /// # Errors
    /// [`ManagerError::Refused`].
    pub fn apply(&mut self, operation: &Operation) -> Result<(), ManagerError> {
        match self.carry_out(operation) {
            // As the system calls that such an operation stands for: what is mapped of the area has been changed.
            Ok(()) | Err(Error::NotMapped) => Ok(()),
            Err(error) => Err(ManagerError::Refused { operation: *operation, error }),
        }
    }

    fn carry_out(&mut self, operation: &Operation) -> foldspace::error::Result<()> {
        let memory = self.host.memory();
        match *operation {
            Operation::Start { process } => {
                let space = AddressSpace::new(memory, Layout::default())?;
                self.spaces.insert(process, space);
            }
            Operation::Map { process, area, backing, flags } => {
                let (backing, page_offset) = self.backing(backing, flags, area)?;
                let Some(space) = self.spaces.get(&process) else { return Err(Error::NotMapped) };
                let all = VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC;
                let request = MapRequest {
                    placement: Placement::Fixed(address(area.start)),
                    len: area.pages() << PAGE_SHIFT,
                    flags: flags_of(flags) | all,
                    backing,
                    page_offset,
                };
                space.map(request)?;
            }
            Operation::Unmap { process, area } => self.space(process)?.unmap(range(area)?)?,
            Operation::Change { process, area, clear, set } => {
                let space = self.space(process)?;
                if clear.contains(classic::VmaFlags::ACCESS) {
                    space.protect(range(area)?, flags_of(set & classic::VmaFlags::ACCESS))?;
                }
                if set.contains(classic::VmaFlags::DONT_FORK) {
                    space.advise(range(area)?, Advice::DontFork)?;
                } else if clear.contains(classic::VmaFlags::DONT_FORK) {
                    space.advise(range(area)?, Advice::DoFork)?;
                }
            }
            Operation::Move { process, from, to } => {
                let len = from.pages() << PAGE_SHIFT;
                let to = Destination::Fixed(address(to));
                let request = RemapRequest { start: address(from.start), len, new_len: len, to, leave: Leave::Hole };
                self.space(process)?.remap(request)?;
            }
            Operation::Grow { process, end, pages } => {
                let space = self.space(process)?;
                let more = Area { start: end, end: end + pages };
                space.unmap(range(more)?)?;
                let start = address(end - 1);
                let (len, new_len) = (1 << PAGE_SHIFT, (pages + 1) << PAGE_SHIFT);
                space.remap(RemapRequest { start, len, new_len, to: Destination::InPlace, leave: Leave::Hole })?;
            }
            Operation::Store { process, page } => {
                // The model stores where it thinks that something is writable; a program would have known better.
                let stored = self.space(process)?.fault(address(page), Access::Write);
                if stored == Err(Fault::OutOfMemory) {
                    return Err(Error::OutOfMemory);
                }
            }
            Operation::Discard { process, area } => self.space(process)?.discard(range(area)?)?,
            Operation::Fork { parent, child } => {
                let before = memory.stats();
                let space = self.space(parent)?.fork()?;
                let after = self.host.memory().stats();
                self.fork_frames += (after.tables + after.data).saturating_sub(before.tables + before.data);
                self.spaces.insert(child, space);
            }
            Operation::Exit { process } => {
                self.spaces.remove(&process);
            }
        }
        Ok(())
    }

    fn space(&self, process: Process) -> foldspace::error::Result<&Arc<AddressSpace>> {
        self.spaces.get(&process).ok_or(Error::NotMapped)
    }

    fn backing(
        &mut self,
        backing: classic::Backing,
        flags: classic::VmaFlags,
        area: Area,
    ) -> foldspace::error::Result<(Backing, u64)> {
        let memory = self.host.memory();
        Ok(match backing {
            classic::Backing::Anonymous if flags.contains(classic::VmaFlags::SHARED) => {
                (Backing::Object(Object::anonymous(memory, area.pages() << PAGE_SHIFT)?), 0)
            }
            classic::Backing::Anonymous => (Backing::Anonymous, 0),
            classic::Backing::File { file, offset } => {
                let object = match self.files.get(&file) {
                    Some(object) => object.clone(),
                    None => {
                        let object = Object::new(memory, Box::new(File(file)), FILE)?;
                        self.files.insert(file, object.clone());
                        object
                    }
                };
                (Backing::Object(object), offset)
            }
        })
    }

    pub(crate) fn census(&self) -> Census {
        let memory = self.host.memory();
        memory.reclaim();
        let stats = memory.stats();
        let vmas = self.spaces.values().map(|space| space.vmas().view().summary().totals.vmas as u64).sum();
        Census {
            vmas,
            tables: stats.tables,
            data: stats.data,
            reverse: memory.reverse_stats(),
            fork_frames: self.fork_frames,
        }
    }
}

fn address(page: u64) -> VirtAddr {
    VirtAddr(page << PAGE_SHIFT)
}

fn range(area: Area) -> foldspace::error::Result<PageRange> {
    PageRange::new(address(area.start), address(area.end)).ok_or(Error::BadRange)
}

fn flags_of(flags: classic::VmaFlags) -> VmaFlags {
    let mut all = VmaFlags::empty();
    all.set(VmaFlags::READ, flags.contains(classic::VmaFlags::READ));
    all.set(VmaFlags::WRITE, flags.contains(classic::VmaFlags::WRITE));
    all.set(VmaFlags::EXEC, flags.contains(classic::VmaFlags::EXECUTE));
    all.set(VmaFlags::SHARED, flags.contains(classic::VmaFlags::SHARED));
    all.set(VmaFlags::DONT_FORK, flags.contains(classic::VmaFlags::DONT_FORK));
    // Keeps it apart from its neighbours, as growing down does; growing itself is not asked for here.
    all.set(VmaFlags::DONT_DUMP, flags.intersects(classic::VmaFlags::NOTES));
    all
}
