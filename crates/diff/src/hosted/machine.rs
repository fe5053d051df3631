//! A hosted machine on which sequences run, one after the other.

use std::sync::Arc;

use foldspace::space::{Layout, MapRequest, Placement};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Object, VirtAddr};
use foldspace_hosted::{Host, HostError, Layouts};

use super::world::World;
use crate::Step;
use crate::op::{NAMES, Op};
use crate::window::{BASE, ELSEWHERE, END, PAGE};

/// Memory of the machine: what four processes can have in the window, their tables, and files.
const MEMORY: u64 = 256 << 20;

/// Where a process keeps what system calls read and write: outside the window.
pub const BUFFER: u64 = ELSEWHERE;

/// Pages of it: one for names, one for what mincore says.
const BUFFER_PAGES: u64 = 2;

/// Where the heap is before a sequence moves it: as on Linux, above the window and where it cannot grow.
const HEAP: VirtAddr = VirtAddr(0x5555_5555_8000);

/// Rounds of collecting garbage, each of some epochs, after which the frames of processes that are gone must have come back.
const ROUNDS: usize = 8;

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The host gave no memory.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The manager did not make the first address space.
    #[error("no address space: {0}")]
    Space(#[from] foldspace::Error),
}

/// What came of a sequence.
pub struct Ran {
    /// One for each operation.
    pub steps: Vec<Step>,
    /// What is wrong with the manager's own records since then, if something is.
    pub unsound: Option<String>,
}

/// A machine.
pub struct Machine {
    pub(super) host: Host,
    filler: Arc<Object>,
}

impl Machine {
    /// A new one.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn new() -> Result<Machine, MachineError> {
        let host = Host::new(MEMORY)?;
        let filler = Object::anonymous(host.memory(), 0)?;
        Ok(Machine { host, filler })
    }

    /// Does `ops`, one after the other, from a process whose window is empty.
    ///
    /// # Errors
    /// See [`MachineError`].
    pub fn run(&self, ops: &[Op]) -> Result<Ran, MachineError> {
        let used = self.used();
        let mut world = World::new(self, self.new_space()?);
        let steps = world.run(ops);
        let checked = world.disturbed().and_then(|()| self.check(&world));
        drop(world);
        let unsound = checked.and(self.free_frames(used)).err();
        Ok(Ran { steps, unsound })
    }

    /// What the invariants' checker has to say of all that a sequence has left, and which translations are stale.
    fn check(&self, world: &World<'_>) -> Result<(), String> {
        // What waits for a grace period would be lost to the checker.
        self.host.memory().reclaim();
        let spaces: Vec<&AddressSpace> = world.spaces().collect();
        let objects: Vec<&Object> = world.objects().chain([&*self.filler]).collect();
        self.host
            .memory()
            .check(&spaces, &objects)
            .map_err(|violation| format!("an invariant is broken: {violation}"))?;
        match self.host.stale(&spaces).first() {
            Some(stale) => Err(format!("a translation is stale: {stale:?}")),
            None => Ok(()),
        }
    }

    /// Frames that are not free; those that have failed left out.
    fn used(&self) -> u64 {
        let stats = self.host.memory().stats();
        stats.total - stats.free - stats.reserved
    }

    /// Collects garbage until no more than `used` frames are; this thread alone uses the machine, so nobody holds it up.
    fn free_frames(&self, used: u64) -> Result<(), String> {
        for _ in 0..ROUNDS {
            self.host.memory().reclaim();
            if self.used() <= used {
                return Ok(());
            }
        }
        Err(format!(
            "{} frames are lost when all processes are gone: {:?}",
            self.used() - used,
            self.host.memory().stats()
        ))
    }

    /// An address space with nothing in the window, and no room elsewhere.
    fn new_space(&self) -> Result<Arc<AddressSpace>, MachineError> {
        let layout = Layout { start_brk: HEAP, brk: HEAP, ..Layouts::process() };
        let space = AddressSpace::new(self.host.memory(), layout)?;
        let map = |start: u64, end: u64, flags, backing| {
            let placement = Placement::Fixed(VirtAddr(start));
            space.map(MapRequest { placement, len: end - start, flags, backing, page_offset: 0 })
        };
        let filler = || Backing::Object(self.filler.clone());
        let buffer_end = BUFFER + BUFFER_BYTES;
        let top = foldspace::addr::USER_END.get();
        for (start, end) in [(0x1_0000, BASE), (END, BUFFER), (buffer_end, top)] {
            map(start, end, VmaFlags::SHARED, filler())?;
        }
        map(BUFFER, buffer_end, VmaFlags::READ | VmaFlags::WRITE, Backing::Anonymous)?;
        for (number, name) in NAMES.iter().enumerate() {
            let wrote = name.map_or(0, |name| space.write(VirtAddr(name_address(number)), name));
            debug_assert_eq!(wrote, name.map_or(0, <[u8]>::len));
        }
        Ok(space)
    }
}

/// Where name `number` is in the buffer.
pub fn name_address(number: usize) -> u64 {
    BUFFER + number as u64 * 128
}

/// All private memory outside the window.
pub const BUFFER_BYTES: u64 = BUFFER_PAGES * PAGE;

/// Where mincore's answers go.
pub const ANSWERS: u64 = BUFFER + PAGE;
