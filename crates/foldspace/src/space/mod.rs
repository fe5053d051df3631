//! Address spaces: the VMAs say what belongs where, the page table what is there. One operation a file.
//!
//! ```text
//!   fault       takes no lock of the address space: version of the tree, path, lock of one last-level table
//!   map, unmap, protect, brk, stack growth, fork, clear
//!               one at a time (writers' lock), in this order:
//!                 1 prepare the new version of the tree, make exclusive the tables that will change   (may run out of memory)
//!                 2 publish the version                                                               (cannot fail from here on)
//!                 3 change the tables
//!                 4 shoot translations down, then retire what was taken out
//! ```
//!
//! Between 2 and 4 of a change that replaces mappings the range is marked as in change: readers of maps see the new VMA at once, faults
//! there wait. Step 1 comes first also where nothing is present, for all sharers of a table must have the same VMAs over its span.

mod access;
mod advise;
mod brk;
mod change;
mod clear;
mod cut;
mod diff;
mod discard;
mod failure;
mod fault;
mod fork;
mod free;
mod guard;
mod keys;
mod limits;
mod lock;
mod map;
mod marks;
mod mincore;
mod modify;
mod name;
mod place;
mod populate;
mod protect;
mod registry;
mod relink;
mod remap;
mod remove;
mod seal;
mod shift;
mod snapshot;
mod types;
mod unmap;
mod usage;
mod watch;

use alloc::sync::Arc;

use crossbeam_epoch::Guard;

use crate::addr::{Level, PageRange, USER_END, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::{Frame, Home, Memory, NONE, Overcommit};
use crate::platform::SpaceId;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, Rank};
pub use crate::table::PageState;
use crate::table::Root;
use crate::vma::{Version, VersionCell, VersionRef, VmaFlags};
pub use advise::Advice;
use change::InChange;
pub use diff::Difference;
pub use keys::KeySet;
pub use lock::LockMode;
pub(crate) use marks::Marks;
use marks::MarksCell;
pub use populate::{Failures, PopulateError};
pub(crate) use registry::Registry;
pub use registry::Spaces;
pub(crate) use relink::Relinks;
pub use remap::{Destination, Leave, RemapRequest};
pub use shift::{Absent, Shift};
pub use snapshot::Snapshot;
pub use types::{Access, Fault, ForkMode, Layout, MAX_MAP_COUNT, MapRequest, Placement, STACK_GUARD_GAP, Usage};
pub use watch::{Fill, Protection, Watched};

/// An address space: a page table and the VMAs that say what belongs in it.
///
/// All operations take `&self` and may run on any number of threads. Its memory knows it while it lives ([`Memory::spaces`]), and holds it
/// for a moment when an object that it maps is cut. The embedder makes sure that no processor runs it (has [`AddressSpace::root`] loaded)
/// when the embedder's last `Arc` is dropped.
pub struct AddressSpace {
    memory: Arc<Memory>,
    id: SpaceId,
    root: Frame,
    /// Where the registry has it; [`NONE`] before it has joined.
    seat: AtomicU32,
    vmas: VersionCell,
    /// The writers' lock, and what it guards beside the tree: see [`Layout`].
    writer: Mutex<Layout>,
    marks: MarksCell,
    in_change: InChange,
    fork_mode: AtomicU8,
    role: Role,
    /// Whether guards were ever put into these tables: discarding looks for them then.
    has_guards: AtomicBool,
    /// Bytes of the commit limit that it may not use.
    commit_reserve: AtomicU64,
    /// Largest number of mapped pages so far.
    mapped_peak: AtomicU64,
    /// Largest number of resident pages that anyone has asked for so far.
    resident_peak: AtomicU64,
}

/// What an address space is there for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Processors run it.
    Live,
    /// A [`Snapshot`] holds it.
    Snapshot,
}

impl AddressSpace {
    /// An empty address space: one frame for its root.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn new(memory: &Arc<Memory>, layout: Layout) -> Result<Arc<AddressSpace>> {
        retry_after_reclaim(memory, |_| {
            let space = registry::counted(memory, || {
                let root = new_root(memory)?;
                Ok(AddressSpace::from_parts(memory, root, Version::empty(), layout, ForkMode::Full))
            })?;
            memory.registry.join(&space)?;
            Ok(space)
        })
    }

    fn from_parts(memory: &Arc<Memory>, root: Frame, vmas: Version, layout: Layout, mode: ForkMode) -> AddressSpace {
        let mapped = vmas.view().summary().totals.pages.total;
        AddressSpace {
            id: SpaceId(memory.next_space_id()),
            memory: Arc::clone(memory),
            root,
            seat: AtomicU32::new(NONE),
            vmas: VersionCell::new(vmas),
            marks: MarksCell::new(&layout),
            writer: Mutex::new(Rank::Writers, layout),
            in_change: InChange::default(),
            fork_mode: AtomicU8::new(mode as u8),
            role: Role::Live,
            has_guards: AtomicBool::new(false),
            commit_reserve: AtomicU64::new(0),
            mapped_peak: AtomicU64::new(mapped),
            resident_peak: AtomicU64::new(0),
        }
    }

    /// Its name to the platform.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The frame of its root table: what CR3 is loaded with.
    pub fn root(&self) -> Frame {
        self.root
    }

    /// The memory that it lives on.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Addresses with a meaning of their own.
    pub fn layout(&self) -> Layout {
        *self.writer.lock()
    }

    /// Looks at them.
    #[inline]
    pub fn with_layout<R>(&self, look: impl FnOnce(&Layout) -> R) -> R {
        look(&self.writer.lock())
    }

    /// Changes them (exec, limits).
    pub fn update_layout<R>(&self, change: impl FnOnce(&mut Layout) -> R) -> R {
        let mut layout = self.writer.lock();
        let result = change(&mut layout);
        self.marks.set(Marks::from(&*layout));
        result
    }

    /// The VMAs as they are now, held: they stay so whatever happens to the address space. O(1).
    pub fn vmas(&self) -> Version {
        self.vmas.hold(&self.memory.pin())
    }

    /// The VMAs as they are now, for as long as the guard is there. One load.
    pub(crate) fn current<'t>(&'t self, guard: &'t Guard) -> VersionRef<'t> {
        self.vmas.load(guard)
    }

    /// Whether a VMA has one of `flags` now. O(1), and nothing is held.
    pub fn some_have(&self, flags: VmaFlags) -> bool {
        self.vmas.load(&self.memory.pin()).summary().flags.intersects(flags)
    }

    /// The mode of the next fork; children inherit it.
    pub fn fork_mode(&self) -> ForkMode {
        // Relaxed: a setting, as those below.
        match self.fork_mode.load(Ordering::Relaxed) {
            0 => ForkMode::Copy,
            1 => ForkMode::Leaf,
            _ => ForkMode::Full,
        }
    }

    /// Sets the mode of the next fork.
    pub fn set_fork_mode(&self, mode: ForkMode) {
        self.fork_mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Keeps so many bytes of the commit limit from it, and from its children: Linux keeps `vm.admin_reserve_kbytes` from whoever lacks
    /// CAP_SYS_ADMIN. 0 at first.
    pub fn set_commit_reserve(&self, bytes: u64) {
        self.commit_reserve.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn tables(&self) -> Root<'_> {
        Root { memory: &self.memory, frame: self.root, space: self.id }
    }

    /// Everything that a program may map.
    fn user_range() -> Option<PageRange> {
        PageRange::new(VirtAddr(0), USER_END)
    }
}

/// A root with the embedder's entries in its upper half.
fn new_root(memory: &Memory) -> Result<Frame> {
    let root = memory.alloc_table(Level::L4, Home::None)?;
    for (index, entry) in memory.kernel_entries() {
        // Relaxed: nobody else has it yet.
        memory.entries(root)[index.get()].store(*entry, Ordering::Relaxed);
    }
    Ok(root)
}

/// Runs an operation, and again after freeing what waits for a grace period if it ran out of memory, or of memory that may be promised while a
/// retired version of a tree may hold an object for which some is.
pub(crate) fn retry_after_reclaim<T>(memory: &Memory, operation: impl FnMut(&Guard) -> Result<T>) -> Result<T> {
    retry_while(memory, operation, |result| match result {
        Err(Error::OutOfMemory) => true,
        Err(Error::CommitLimit) => memory.overcommit() == Overcommit::Never && memory.committed_by_objects() > 0,
        _ => false,
    })
}

/// Runs an operation until it has not run out of memory, or nothing more can be freed.
#[inline]
fn retry_while<T>(memory: &Memory, mut operation: impl FnMut(&Guard) -> T, ran_out: impl Fn(&T) -> bool) -> T {
    let mut attempt = 0;
    loop {
        // Unpinned again before reclaiming: a grace period does not end while somebody from before it is pinned.
        let result = operation(&memory.pin());
        if !ran_out(&result) || !memory.reclaim_for(attempt) {
            return result;
        }
        attempt += 1;
    }
}
