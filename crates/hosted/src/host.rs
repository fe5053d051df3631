//! A machine in a process: an arena, the manager over it, and its processors.

use std::io;
use std::sync::Arc;

use foldspace::addr::Level;
use foldspace::frame::{MemoryConfig, Overcommit};
use foldspace::platform::Platform;
use foldspace::{AddressSpace, Memory};

use crate::arena::Arena;
use crate::mmu::{self, CacheSize, Leaf, Processor, Refusal, Stale, Translation};
use crate::platform::{HostPlatform, Machine};

/// Why there is no [`Host`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The host gave no memory for the arena.
    #[error("no arena: {0}")]
    Arena(#[from] io::Error),
    /// The manager refused the frames: too few to hold their own records, most likely.
    #[error("the memory manager refused the arena: {0}")]
    Memory(foldspace::Error),
}

/// A machine whose frames are an arena of this process and whose processors are software.
///
/// The arena goes when the host, its guests, and all address spaces, snapshots and objects on it have gone, in any order.
pub struct Host {
    machine: Arc<Machine>,
    memory: Arc<Memory>,
    end: Arc<End>,
}

/// What the host and its guests share, and drop last.
pub(crate) struct End(Arc<Memory>);

impl Drop for End {
    /// What waits for a grace period keeps the memory alive: lets it go, as far as nobody is pinned, and has those do so who end something later.
    fn drop(&mut self) {
        self.0.reclaim_at_ends();
        self.0.reclaim();
    }
}

impl Host {
    /// A machine with `bytes` of memory (rounded up to frames), records included. The process pays for what is touched. An arena is small
    /// beside what programs map, so overcommit is [`Overcommit::Always`] until somebody sets it.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn new(bytes: u64) -> Result<Host, HostError> {
        Host::with_platform(bytes, |platform| Box::new(platform))
    }

    /// The same with a platform of the caller's around ours: to count shootdowns, or to see what happens without them.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn with_platform(bytes: u64, wrap: impl FnOnce(HostPlatform) -> Box<dyn Platform>) -> Result<Host, HostError> {
        let arena = Arc::new(Arena::new(bytes)?);
        let machine = Machine::new(arena.clone());
        let all = 0..arena.frames();
        let config = MemoryConfig {
            direct_map: arena.base(),
            usable: std::slice::from_ref(&all),
            kernel_entries: &[],
            platform: wrap(HostPlatform::new(machine.clone())),
        };
        // SAFETY: the arena maps every frame for reading and writing; the platform, which the memory owns, and `machine` keep it mapped; only
        // processors touch it beside the manager, through its own tables.
        let memory = unsafe { Memory::new(config) }.map_err(HostError::Memory)?;
        memory.set_overcommit(Overcommit::Always);
        let end = Arc::new(End(memory.clone()));
        Ok(Host { machine, memory, end })
    }

    /// The manager.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Its frames: to an engine with translations of its own, the physical memory of all guests. They stay mapped while the host or a guest is there.
    pub fn arena(&self) -> &Arena {
        &self.machine.arena
    }

    pub(crate) fn end(&self) -> &Arc<End> {
        &self.end
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Frames that the machine has, from frame 0 on.
    pub fn frames(&self) -> u32 {
        self.machine.arena.frames()
    }

    /// A new processor, which runs no address space yet.
    pub fn processor(&self, size: CacheSize) -> Processor {
        Processor::new(self.machine.clone(), size)
    }

    /// What a walk of the tables of `space` says about the page at `addr`, with no cache, no fault, and no accessed bit set.
    ///
    /// # Errors
    /// The reason why the walk ends early.
    pub fn translate(&self, space: &AddressSpace, addr: foldspace::VirtAddr) -> Result<Translation, mmu::Cause> {
        mmu::translate(&self.machine.arena, space.root(), addr)
    }

    /// Every page that the tables of `space` show, upwards, found by following every path: slow and obvious. Zero and reference pages are left out.
    pub fn leaves(&self, space: &AddressSpace) -> Vec<Leaf> {
        let mut found = Vec::new();
        mmu::leaves(&self.machine.arena, space.root(), Level::L4, 0, &mut found);
        found
    }

    /// Reads bytes of the frame that `translation` found.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if the frame is not in the arena, or `offset..offset + out.len()` not in a frame.
    pub fn peek(&self, translation: Translation, offset: usize, out: &mut [u8]) -> Result<(), Refusal> {
        self.machine.arena.load(translation.frame, offset, out).ok_or(Refusal::Malformed)
    }

    /// Cached translations of `spaces`, on any processor, that allow what the tables do not allow, or lead elsewhere: each is a shootdown that was
    /// forgotten. To be asked at rest; while something changes, stale entries are legal.
    pub fn stale(&self, spaces: &[&AddressSpace]) -> Vec<Stale> {
        let mut found = Vec::new();
        for caches in self.machine.caches() {
            let caches = caches.lock();
            for space in spaces {
                caches.audit(&self.machine.arena, space, &mut found);
            }
        }
        found
    }
}
