//! Guests: address spaces for emulators. See the crate's page.

mod cpu;
pub(crate) mod line;
mod tlb;
mod watch;

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use foldspace::addr::Level;
use foldspace::platform::{Flush, Platform};
use foldspace::space::{Access, Difference, MapRequest, Placement, Snapshot};
use foldspace::vma::{Backing, VmaFlags};
use foldspace::{AddressSpace, Error, PageRange, Result, VirtAddr};

use crate::host::End;
use crate::mmu::{Cause, Rights, Translation, Upper, walk};
use crate::platform::{HostPlatform, Machine};
use crate::{Host, Layouts};
pub use cpu::{Cpu, Heed};
use watch::Watches;

/// Faults in a row on one page after which an access gives up: see [`crate::Processor`].
const MOST_FAULTS: usize = 1000;

/// Why an access stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{access:?} at {at}: {reason}")]
pub struct Stop {
    /// The first byte that was not accessed.
    pub at: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Why it was not done.
    pub reason: Reason,
}

/// See [`Stop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// Nothing is mapped there.
    #[error("nothing is mapped there")]
    NotMapped,
    /// What is mapped there does not allow it.
    #[error("it is not allowed")]
    Denied,
    /// A watch covers it.
    #[error("it is watched")]
    Watched,
    /// What is mapped there ends before.
    #[error("past the end of what is mapped")]
    PastEnd,
    /// The memory that held the page has failed.
    #[error("the memory that held it has failed")]
    Poisoned,
    /// The machine has no frame left.
    #[error("no memory left")]
    OutOfMemory,
    /// The tables are not in order: a mistake of the manager's.
    #[error("the tables are not in order")]
    Broken,
}

/// What a guest may do with memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permissions(VmaFlags);

impl Permissions {
    /// Nothing.
    pub const NONE: Permissions = Permissions(VmaFlags::empty());
    /// Loads.
    pub const READ: Permissions = Permissions(VmaFlags::READ);
    /// Loads and stores.
    pub const READ_WRITE: Permissions = Permissions(VmaFlags::READ.union(VmaFlags::WRITE));
    /// Loads and fetches.
    pub const READ_EXECUTE: Permissions = Permissions(VmaFlags::READ.union(VmaFlags::EXEC));
    /// Everything.
    pub const ALL: Permissions = Permissions(VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::EXEC));
}

/// The memory of a guest. Clones are the same guest. All of it may be used on any number of threads.
#[derive(Clone)]
pub struct Guest {
    machine: Arc<Machine>,
    space: Arc<AddressSpace>,
    watches: Arc<RwLock<Watches>>,
    /// Dropped after the space.
    _end: Arc<End>,
}

impl Host {
    /// A guest without memory.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn guest(&self) -> Result<Guest> {
        Ok(self.guest_of(AddressSpace::new(self.memory(), Layouts::process())?))
    }

    /// A guest with the memory that a snapshot holds. O(1), whatever that is; no watches.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::WrongKind`] if it is a snapshot on another machine.
    pub fn guest_from(&self, snapshot: &Snapshot) -> Result<Guest> {
        if !Arc::ptr_eq(snapshot.space().memory(), self.memory()) {
            return Err(Error::WrongKind);
        }
        Ok(self.guest_of(snapshot.spawn()?))
    }

    /// A guest whose memory is an address space that there is: everything of the manager's can be done to it.
    pub fn guest_of(&self, space: Arc<AddressSpace>) -> Guest {
        Guest { machine: self.machine().clone(), space, watches: Arc::default(), _end: self.end().clone() }
    }
}

impl Guest {
    /// Maps `len` bytes of zeros at `addr`, both whole pages. They take memory when they are stored to.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::AlreadyMapped`]; [`Error::OutOfMemory`].
    pub fn map(&self, addr: u64, len: u64, permissions: Permissions) -> Result<()> {
        let request = MapRequest {
            placement: Placement::FixedNoReplace(VirtAddr(addr)),
            len,
            flags: permissions.0 | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC,
            backing: Backing::Anonymous,
            page_offset: 0,
        };
        self.space.map(request).map(drop)
    }

    /// Unmaps; holes are fine.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::OutOfMemory`].
    pub fn unmap(&self, addr: u64, len: u64) -> Result<()> {
        self.space.unmap(range(addr, len)?)
    }

    /// Changes what may be done.
    ///
    /// # Errors
    /// [`Error::BadRange`]; [`Error::NotMapped`]; [`Error::OutOfMemory`].
    pub fn protect(&self, addr: u64, len: u64, permissions: Permissions) -> Result<()> {
        self.space.protect(range(addr, len)?, permissions.0)
    }

    /// Copies bytes in, whatever the guest itself may do there: for loaders. Returns how many came before the first address where nothing is mapped.
    pub fn load_image(&self, addr: u64, bytes: &[u8]) -> usize {
        self.space.write_forced(VirtAddr(addr), bytes)
    }

    /// Copies bytes out that the guest could load. Returns how many came before the first that it could not.
    pub fn read(&self, addr: u64, out: &mut [u8]) -> usize {
        self.space.read(VirtAddr(addr), out)
    }

    /// Copies bytes in that the guest could store. Returns how many came before the first that it could not.
    pub fn write(&self, addr: u64, bytes: &[u8]) -> usize {
        self.space.write(VirtAddr(addr), bytes)
    }

    /// A processor that runs it.
    pub fn cpu(&self) -> Cpu {
        Cpu::new(self)
    }

    /// Where the page of `addr` is for such an access, after faults that can be resolved: for engines with a translation cache of their own. Sets accessed and
    /// dirty bits as a processor does. It holds until a shootdown that covers it, of which a platform hears that is put around ours
    /// ([`Host::with_platform`]).
    ///
    /// # Errors
    /// [`Stop`]. Watches are not heeded.
    pub fn translate(&self, addr: u64, access: Access) -> Result<Translation, Stop> {
        let stop = |reason| Stop { at: VirtAddr(addr), access, reason };
        let platform = HostPlatform::new(self.machine.clone());
        for _ in 0..MOST_FAULTS {
            // Tables that are taken out meanwhile stay what they were until it is dropped.
            let pinned = platform.pin();
            let top = Upper { table: self.space.root(), rights: Rights::ALL };
            let found = walk::walk(&self.machine.arena, top, Level::L4, VirtAddr(addr), access, |_, _| {});
            drop(pinned);
            match found {
                Ok(translation) => return Ok(translation),
                Err(Cause::Malformed(_)) => return Err(stop(Reason::Broken)),
                Err(Cause::NotCanonical) => return Err(stop(Reason::NotMapped)),
                Err(_) => self.space.fault(VirtAddr(addr), access).map_err(|fault| stop(fault.into()))?,
            }
        }
        Err(stop(Reason::Broken))
    }

    /// What it is now, kept: O(1).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.space.snapshot()
    }

    /// Goes back to a snapshot of this guest, or of one that it comes from, or that comes from it, in the time of what has changed.
    ///
    /// # Errors
    /// [`Error::WrongKind`] if they are not related.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        self.space.restore(snapshot)
    }

    /// The pages that were stored to since a snapshot, in rows, upwards: what a checkpoint or a migration has to send.
    pub fn dirty_since(&self, snapshot: &Snapshot) -> Vec<PageRange> {
        let mut rows = Vec::new();
        snapshot.space().diff(&self.space, |difference| {
            if let Difference::Pages { range, .. } = difference {
                rows.push(range);
            }
        });
        rows
    }

    /// From now on accesses of this kind to these addresses stop with [`Reason::Watched`], on processors that heed watches. An access to another place of a
    /// watched page is slower than otherwise.
    pub fn watch(&self, addresses: Range<u64>, access: Access) {
        self.watches.write().unwrap_or_else(PoisonError::into_inner).add(addresses, access);
        // Processors forget what they know, and find the pages watched.
        HostPlatform::new(self.machine.clone()).shootdown(self.space.id(), Flush::All);
    }

    /// Ends what [`Guest::watch`] began with the same arguments; whether there was such a watch.
    pub fn unwatch(&self, addresses: &Range<u64>, access: Access) -> bool {
        self.watches.write().unwrap_or_else(PoisonError::into_inner).remove(addresses, access)
    }

    /// Its address space: everything of the manager's can be done to it.
    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    fn watches(&self) -> RwLockReadGuard<'_, Watches> {
        self.watches.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn range(addr: u64, len: u64) -> Result<PageRange> {
    PageRange::from_len(VirtAddr(addr), len).ok_or(Error::BadRange)
}
