//! A processor: what a program's loads, stores and fetches go through.

use std::sync::Arc;

use foldspace::addr::PAGE_SIZE;
use foldspace::platform::SpaceId;
use foldspace::space::{Access, AddressSpace, Fault};
use foldspace::{Frame, VirtAddr};

use super::caches::{Answer, CacheSize, SharedCaches};
use super::walk::{Cause, PageFault};
use crate::arena::Arena;
use crate::platform::Machine;

/// Faults in a row on one page after which an access gives up. One is what a fault costs, a second comes from a stale translation; the rest is for
/// others who change the same page meanwhile.
const MOST_FAULTS: usize = 1000;

/// Why an access was not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The manager did not resolve the fault: a signal.
    #[error("the fault cannot be resolved: {0:?}")]
    Fault(Fault),
    /// Not an address: a general-protection fault.
    #[error("not a canonical address")]
    NotCanonical,
    /// The processor runs no address space.
    #[error("the processor runs no address space")]
    Idle,
    /// An entry on the path has a reserved bit set or leads out of the arena: a mistake of the manager's.
    #[error("malformed table")]
    Malformed,
    /// The manager says that it resolved the fault, and the processor faults again, again and again: a mistake of the manager's.
    #[error("resolved, but faults again: {0:?}")]
    Unresolved(PageFault),
}

/// An access that was not completed, or only in part: pages are accessed one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{refusal} at {at}, after {done} bytes")]
pub struct AccessError {
    /// Bytes before it that were loaded or stored.
    pub done: usize,
    /// The first that was not.
    pub at: VirtAddr,
    /// Why.
    pub refusal: Refusal,
}

/// Events since the processor was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorStats {
    /// Pages accessed through a cached translation.
    pub hits: u64,
    /// Pages accessed after a walk.
    pub walks: u64,
    /// Faults raised, resolved or not.
    pub faults: u64,
}

/// A software processor: see the crate's page. It is used by one thread at a time; shootdowns reach it from any.
pub struct Processor {
    machine: Arc<Machine>,
    caches: Arc<SharedCaches>,
    running: Option<Running>,
    stats: ProcessorStats,
}

/// What CR3 says, and whose fault handler a fault ends in.
struct Running {
    space: Arc<AddressSpace>,
    id: SpaceId,
    root: Frame,
}

impl Processor {
    pub(crate) fn new(machine: Arc<Machine>, size: CacheSize) -> Processor {
        let caches = Arc::new(SharedCaches::new(size));
        machine.join(&caches);
        Processor { machine, caches, running: None, stats: ProcessorStats::default() }
    }

    /// Runs `space` from now on, which stays alive as long. Loading an address space that runs already changes nothing.
    pub fn activate(&mut self, space: &Arc<AddressSpace>) {
        let id = space.id();
        if self.running.as_ref().is_some_and(|running| running.id == id) {
            return;
        }
        self.caches.lock().changed_space();
        // The space that ran before may be dropped here, and shoot down: no lock is held.
        self.running = Some(Running { space: space.clone(), id, root: space.root() });
    }

    /// Runs nothing from now on; what was cached stays as [`CacheSize`] says.
    pub fn deactivate(&mut self) {
        self.caches.lock().changed_space();
        self.running = None;
    }

    /// What it runs.
    pub fn running(&self) -> Option<&Arc<AddressSpace>> {
        self.running.as_ref().map(|running| &running.space)
    }

    /// What happened so far.
    pub fn stats(&self) -> ProcessorStats {
        self.stats
    }

    /// Loads `out.len()` bytes, page by page.
    ///
    /// # Errors
    /// See [`AccessError`]; bytes before the one that was refused are loaded.
    pub fn load(&mut self, addr: VirtAddr, out: &mut [u8]) -> Result<(), AccessError> {
        self.read(addr, out, Access::Read)
    }

    /// Loads bytes as instructions.
    ///
    /// # Errors
    /// See [`AccessError`]; bytes before the one that was refused are loaded.
    pub fn fetch(&mut self, addr: VirtAddr, out: &mut [u8]) -> Result<(), AccessError> {
        self.read(addr, out, Access::Execute)
    }

    /// Stores `bytes`, page by page.
    ///
    /// # Errors
    /// See [`AccessError`]; bytes before the one that was refused are stored.
    pub fn store(&mut self, addr: VirtAddr, bytes: &[u8]) -> Result<(), AccessError> {
        let mut done = 0;
        while done < bytes.len() {
            let (at, len) = piece(addr, done, bytes.len());
            let part = &bytes[done..done + len];
            self.page(at, Access::Write, |arena, frame| arena.store(frame, at.page_offset(), part))
                .map_err(|refusal| AccessError { done, at, refusal })?;
            done += len;
        }
        Ok(())
    }

    fn read(&mut self, addr: VirtAddr, out: &mut [u8], access: Access) -> Result<(), AccessError> {
        let mut done = 0;
        while done < out.len() {
            let (at, len) = piece(addr, done, out.len());
            let part = &mut out[done..done + len];
            self.page(at, access, |arena, frame| arena.load(frame, at.page_offset(), part))
                .map_err(|refusal| AccessError { done, at, refusal })?;
            done += len;
        }
        Ok(())
    }

    /// One access within a page: translated, and tried again after each fault that the manager resolves.
    fn page(
        &mut self,
        addr: VirtAddr,
        access: Access,
        mut perform: impl FnMut(&Arena, Frame) -> Option<()>,
    ) -> Result<(), Refusal> {
        let running = self.running.as_ref().ok_or(Refusal::Idle)?;
        let arena = &*self.machine.arena;
        let mut last = None;
        for _ in 0..MOST_FAULTS {
            let fault = {
                let mut caches = self.caches.lock();
                let translation = match caches.translate(arena, (running.id, running.root), addr, access) {
                    Ok(Answer::Hit(translation)) => {
                        self.stats.hits += 1;
                        Ok(translation)
                    }
                    Ok(Answer::Walked(translation)) => {
                        self.stats.walks += 1;
                        Ok(translation)
                    }
                    Err(fault) => Err(fault),
                };
                match translation {
                    // Still under the lock: a shootdown waits for the access.
                    Ok(translation) => return perform(arena, translation.frame).ok_or(Refusal::Malformed),
                    Err(fault) => fault,
                }
            };
            self.stats.faults += 1;
            match fault.cause {
                Cause::NotCanonical => return Err(Refusal::NotCanonical),
                Cause::Malformed(_) => return Err(Refusal::Malformed),
                Cause::NotPresent(_) | Cause::WriteProtected | Cause::NoExecute | Cause::Supervisor => {}
            }
            running.space.fault(addr, access).map_err(Refusal::Fault)?;
            last = Some(fault);
        }
        Err(last.map_or(Refusal::Malformed, Refusal::Unresolved))
    }
}

/// The part after `done` of `len` bytes from `addr` that lies in one page: where, and how many. Addresses wrap, as the processor's do.
fn piece(addr: VirtAddr, done: usize, len: usize) -> (VirtAddr, usize) {
    let at = VirtAddr(addr.get().wrapping_add(done as u64));
    (at, (len - done).min(PAGE_SIZE as usize - at.page_offset()))
}
