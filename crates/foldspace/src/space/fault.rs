//! Page faults: lazily, what the VMAs say becomes present.
//!
//! A fault looks at one version of the tree, prepares the frame that it will need, and locks one last-level table. Under that lock it checks
//! that the version is still current, that no change of layout is replacing the place, and that its path still leads there; then it installs.
//! It takes no lock of the address space, and writes nothing that faults in other tables write.

use crossbeam_epoch::Guard;

use super::{Access, AddressSpace, Fault, retry_while};
use crate::addr::{Level, PageRange, USER_END, VirtAddr};
use crate::backing::{Block, Object, ReferenceTables, Shown};
use crate::error::Error;
use crate::frame::{Frame, Garbage, Home, Kind, Memory};
use crate::platform::Flush;
use crate::sync::hint::spin_loop;
use crate::table::{Common, Entry, Exclusive, Leaf, Supply};
use crate::vma::{Backing, ProtectionKey, VersionRef, Vma, VmaFlags};

/// Whether a store may go where its VMA does not allow stores (a debugger's, or a loader's: FOLL_FORCE on Linux).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    No,
    Yes,
}

/// How one attempt ended.
pub(super) enum Attempt {
    Done,
    /// Something changed meanwhile: look again.
    Again,
}

/// A frame that will be installed, allocated before any lock is taken, with its content if that cannot change any more.
struct Prepared<'m> {
    memory: &'m Memory,
    frame: Frame,
    start: Start,
}

/// What the content of a new page starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Zeros,
    /// A reference page all of whose bytes are this one.
    Bytes(u8),
    /// Another reference page.
    Reference(Frame),
    /// A frame, copied under the lock of the table: only while we hold a slot that maps it, and nobody can let others write it, is it sure
    /// to be what everyone sees here. (Copied earlier, it could be written by us and shared again in between.)
    Copy(Frame),
}

impl Prepared<'_> {
    fn new(memory: &Memory, start: Start) -> Result<Prepared<'_>, Error> {
        let frame = memory.alloc_frame()?;
        match start {
            Start::Zeros => memory.clear_frame(frame),
            Start::Bytes(byte) => memory.fill_frame(frame, byte),
            Start::Reference(page) => memory.copy_frame(page, frame),
            Start::Copy(_) => {}
        }
        Ok(Prepared { memory, frame, start })
    }

    /// The frame with its content: somebody's from now on. Under the lock of the table that it goes into.
    fn fill(self) -> Frame {
        let frame = self.frame;
        if let Start::Copy(from) = self.start {
            self.memory.copy_frame(from, frame);
        }
        core::mem::forget(self);
        frame
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        self.memory.free_frame(self.frame);
    }
}

impl AddressSpace {
    /// Resolves a page fault: afterwards the access succeeds, or faults again if somebody changed the mapping in between.
    ///
    /// # Errors
    ///
    /// Why the access is an error: [`Fault`].
    pub fn fault(&self, addr: VirtAddr, access: Access) -> Result<(), Fault> {
        self.fault_with(addr, access, Force::No)
    }

    pub(super) fn fault_with(&self, addr: VirtAddr, access: Access, force: Force) -> Result<(), Fault> {
        let once = |guard: &Guard| self.fault_pinned(guard, addr, access, force);
        retry_while(&self.memory, once, |result| *result == Err(Fault::OutOfMemory))
    }

    fn fault_pinned(&self, guard: &Guard, addr: VirtAddr, access: Access, force: Force) -> Result<(), Fault> {
        if addr >= USER_END {
            return Err(Fault::NotMapped);
        }
        loop {
            let version = self.vmas.load(guard);
            let Some(vma) = version.find(addr) else {
                // A change in flight must never look like a hole: its writer has the lock until it is done.
                if self.grow_stack(guard, addr).map_err(out_of_memory)? || !self.vmas.same(version) {
                    continue;
                }
                return Err(Fault::NotMapped);
            };
            check_access(vma, access, force)?;
            if vma.flags.intersects(VmaFlags::WATCHED) {
                self.ask_watcher(vma, addr, access)?;
            }
            let attempt = match access {
                Access::Write => self.write_fault(guard, version, vma, addr)?,
                Access::Read | Access::Execute => self.read_fault(guard, version, vma, addr, access)?,
            };
            match attempt {
                Attempt::Done => return Ok(()),
                Attempt::Again => {
                    #[cfg(feature = "watch")]
                    crate::sync::watch::again();
                    spin_loop();
                }
            }
        }
    }

    /// Whether what we know of the place still holds. Asked under the lock of the table, which is kept until the store: a writer
    /// publishes first and takes things out of tables under their locks afterwards.
    #[inline]
    fn still_holds(&self, version: VersionRef<'_>, addr: VirtAddr) -> bool {
        self.vmas.same(version) && !self.in_change.contains(addr)
    }

    pub(super) fn read_fault(
        &self,
        guard: &Guard,
        version: VersionRef<'_>,
        vma: &Vma,
        addr: VirtAddr,
        access: Access,
    ) -> Result<Attempt, Fault> {
        let leaf = self.tables().look(addr);
        if leaf.entry.is_present() {
            // Somebody was faster, or a processor remembered an old entry. A change in progress finishes by itself.
            let allowed = leaf.rights.user() && (access != Access::Execute || leaf.rights.execute());
            return Ok(if allowed && !self.in_change.contains(addr) { Attempt::Done } else { Attempt::Again });
        }
        if leaf.entry.is_marker() {
            return Err(refusal(leaf.entry));
        }
        let mut garbage = Garbage::new();
        let attempt = match &vma.backing {
            Backing::Anonymous => self.link_reference(version, vma, addr, self.memory.zero(), &leaf, &mut garbage),
            Backing::Reference(reference) => {
                self.link_reference(version, vma, addr, reference.tables(), &leaf, &mut garbage)
            }
            Backing::Object(object) => self.map_object(version, vma, object, addr, &leaf, &mut garbage),
        };
        self.finish_fault(&mut garbage, guard, addr);
        attempt
    }

    /// Links a reference page at the highest level that fits between the edges of the VMA: a whole table of it costs no more than one page. In an area
    /// with a protection key page by page, since the processor has the key from the entry that maps a page.
    fn link_reference(
        &self,
        version: VersionRef<'_>,
        vma: &Vma,
        addr: VirtAddr,
        reference: &ReferenceTables,
        leaf: &Leaf,
        garbage: &mut Garbage,
    ) -> Result<Attempt, Fault> {
        let memory = &*self.memory;
        let mut level = leaf.level;
        while let Some(below) = level.below() {
            let span = level.entry_span();
            let start = VirtAddr(addr.get() & !(span - 1));
            let fits =
                vma.start() <= start && PageRange::from_len(start, span).is_some_and(|whole| whole.end() <= vma.end());
            if fits && vma.tag.key() == ProtectionKey::DEFAULT {
                break;
            }
            level = below;
        }
        let mut supply = Supply::on_demand(memory);
        let mut table = self.tables().own(addr, level, &mut supply, garbage).map_err(out_of_memory)?;
        let index = addr.index(level);
        if !self.still_holds(version, addr) || !table.entry(index).is_empty() {
            return Ok(Attempt::Again);
        }
        let link = Entry::reference(reference.at(level)).with(execution_and_key(vma));
        table.put(index, link);
        Ok(Attempt::Done)
    }

    /// Maps a page of an object to be loaded from: in a table of the object's, where the VMA covers the block of one and nobody may store
    /// through it, else in a table of our own.
    fn map_object(
        &self,
        version: VersionRef<'_>,
        vma: &Vma,
        object: &Object,
        addr: VirtAddr,
        leaf: &Leaf,
        garbage: &mut Garbage,
    ) -> Result<Attempt, Fault> {
        if leaf.level == Level::L1 && leaf.shared && self.memory.record(leaf.table()).is_pinned() {
            return match object.show_in(leaf.table(), vma.page_at(addr)).map_err(failed)? {
                Shown::Here => Ok(Attempt::Done),
                Shown::Elsewhere => Ok(Attempt::Again),
                Shown::PastEnd => Err(Fault::PastEnd),
            };
        }
        match block_at(vma, addr) {
            Some(block) if leaf.level > Level::L1 => self.link_object_table(version, vma, object, block, addr, garbage),
            _ => self.install_object(version, vma, object, addr, garbage, Access::Read),
        }
    }

    /// Links the table that the object has for the block at `addr`.
    fn link_object_table(
        &self,
        version: VersionRef<'_>,
        vma: &Vma,
        object: &Object,
        block: Block,
        addr: VirtAddr,
        garbage: &mut Garbage,
    ) -> Result<Attempt, Fault> {
        // Made first if need be, so that the table will show it.
        object_frame(vma, object, addr)?;
        let shown = object.table(block).map_err(out_of_memory)?;
        let mut supply = Supply::on_demand(&self.memory);
        let mut table = self.tables().own(addr, Level::L2, &mut supply, garbage).map_err(out_of_memory)?;
        let index = addr.index(Level::L2);
        if !self.still_holds(version, addr) || !table.entry(index).is_empty() {
            return Ok(Attempt::Again);
        }
        // Under its own lock, since others may link it elsewhere: whoever holds that sees no further slot come.
        let locked = Common::of_object(&self.memory, shown);
        self.memory.add_home(shown, table.slot(index)).map_err(out_of_memory)?;
        drop(locked);
        table.put(index, Entry::object_table(shown).with(no_execute(vma.flags)));
        Ok(Attempt::Done)
    }

    /// Maps the object's own frame.
    pub(super) fn install_object(
        &self,
        version: VersionRef<'_>,
        vma: &Vma,
        object: &Object,
        addr: VirtAddr,
        garbage: &mut Garbage,
        access: Access,
    ) -> Result<Attempt, Fault> {
        // Before the object is asked: past its end, too, a guard is a guard.
        if access == Access::Write {
            let marker = self.tables().marker(addr);
            if marker.is_marker() {
                return Err(refusal(marker));
            }
        }
        let frame = object_frame(vma, object, addr)?;
        let mut supply = Supply::on_demand(&self.memory);
        let mut table = self.tables().own(addr, Level::L1, &mut supply, garbage).map_err(out_of_memory)?;
        let index = addr.index(Level::L1);
        let entry = table.entry(index);
        if !self.still_holds(version, addr) {
            return Ok(Attempt::Again);
        }
        let shared_write = vma.flags.contains(VmaFlags::SHARED | VmaFlags::WRITE) && access == Access::Write;
        let write = if shared_write { Entry::WRITE | Entry::ACCESSED | Entry::DIRTY } else { 0 };
        if entry.is_present() {
            // Its content is being copied elsewhere: stores wait for that.
            if write != 0 && self.memory.record(entry.frame()).is_moving() {
                return Ok(Attempt::Again);
            }
            // Perhaps a page that the object has lost a moment ago: it will be taken out.
            table.change(index, write, 0);
        } else if entry.is_marker() {
            return Ok(Attempt::Again);
        } else {
            // The object may have lost the page since we asked: what it has now decides.
            if !object.lend(vma.page_at(addr), frame, table.slot(index)).map_err(out_of_memory)? {
                return Ok(Attempt::Again);
            }
            let flags = Entry::USER | Entry::OBJECT | Entry::ACCESSED | write | execution_and_key(vma);
            table.put(index, Entry::new(frame, flags));
        }
        if write != 0 {
            self.memory.record(table.entry(index).frame()).set_dirty();
        }
        Ok(Attempt::Done)
    }

    pub(super) fn write_fault(
        &self,
        guard: &Guard,
        version: VersionRef<'_>,
        vma: &Vma,
        addr: VirtAddr,
    ) -> Result<Attempt, Fault> {
        let mut garbage = Garbage::new();
        let attempt = match &vma.backing {
            Backing::Object(object) if vma.flags.contains(VmaFlags::SHARED) => {
                self.install_object(version, vma, object, addr, &mut garbage, Access::Write)
            }
            _ => self.write_private(version, vma, addr, &mut garbage),
        };
        self.finish_fault(&mut garbage, guard, addr);
        attempt
    }

    /// Copy-on-write, or the first touch.
    fn write_private(
        &self,
        version: VersionRef<'_>,
        vma: &Vma,
        addr: VirtAddr,
        garbage: &mut Garbage,
    ) -> Result<Attempt, Fault> {
        let memory = &*self.memory;
        let leaf = self.tables().look_to_store(addr);
        let prepared = self.prepare_private(vma, addr, &leaf)?;
        let mut supply = Supply::on_demand(memory);
        let mut table = self.tables().own_last(addr, &leaf, &mut supply, garbage).map_err(out_of_memory)?;
        let index = addr.index(Level::L1);
        if !self.still_holds(version, addr) {
            return Ok(Attempt::Again);
        }
        // Dirty also where the store is forced: a private page is clean only if it was freed lazily since.
        let may_write = vma.flags.contains(VmaFlags::WRITE);
        let marks = Entry::ACCESSED | Entry::DIRTY;
        let write = if may_write { Entry::WRITE | marks } else { marks };
        let entry = table.entry(index);
        if entry.is_present() && !entry.is_reference() && !entry.is_object() {
            if entry.is_writable() && entry.is_dirty() && may_write {
                return Ok(Attempt::Done);
            }
            let record = memory.record(entry.frame());
            if record.is_alone() {
                // Nobody else has it any more: it is ours as it is, and its home is exactly here again.
                record.set_home(Home::Slot(table.slot(index)));
                table.change(index, write, 0);
                return Ok(Attempt::Done);
            }
        }
        let prepared = prepared.filter(|prepared| self.still_starts(prepared.start, vma, addr, leaf.entry, entry));
        let Some(prepared) = prepared else { return Ok(Attempt::Again) };
        let flags = user(vma.flags) | write | execution_and_key(vma);
        install_anon(memory, &mut table, addr, prepared.fill(), flags, entry, garbage);
        Ok(Attempt::Done)
    }

    /// A guess, without locks, at the frame that a store will need: right unless something changes at the same moment.
    fn prepare_private(&self, vma: &Vma, addr: VirtAddr, leaf: &Leaf) -> Result<Option<Prepared<'_>>, Fault> {
        let entry = leaf.entry;
        let private = entry.is_present() && !entry.is_reference() && !entry.is_object();
        if private && !leaf.shared && self.memory.record(entry.frame()).is_alone() {
            return Ok(None);
        }
        let start = self.start_of(vma, addr, entry)?;
        Prepared::new(&self.memory, start).map(Some).map_err(out_of_memory)
    }

    /// What a private page at `addr` starts from when `entry` is there now.
    #[inline]
    fn start_of(&self, vma: &Vma, addr: VirtAddr, entry: Entry) -> Result<Start, Fault> {
        if entry.is_present() {
            if !entry.is_reference() {
                return Ok(Start::Copy(entry.frame()));
            }
        } else if entry.is_marker() {
            return Err(refusal(entry));
        }
        match &vma.backing {
            Backing::Anonymous => Ok(Start::Zeros),
            Backing::Reference(reference) => Ok(match (reference.page(), reference.byte()) {
                (None, _) => Start::Zeros,
                (Some(_), Some(byte)) => Start::Bytes(byte),
                (Some(page), None) => Start::Reference(page),
            }),
            Backing::Object(object) => object_frame(vma, object, addr).map(Start::Copy),
        }
    }

    /// Whether a private page still starts from what it was prepared from when `before` was there. Under the lock of the table that it goes into.
    #[inline]
    fn still_starts(&self, start: Start, vma: &Vma, addr: VirtAddr, before: Entry, entry: Entry) -> bool {
        match &vma.backing {
            Backing::Object(object) if entry.is_empty() => {
                matches!(start, Start::Copy(frame) if object.shows(vma.page_at(addr), frame))
            }
            _ => entry == before || self.start_of(vma, addr, entry) == Ok(start),
        }
    }

    /// The one shootdown of a fault, owed if a present entry on the path was replaced. Dropping the translation of the page drops cached
    /// upper-level entries too.
    #[inline]
    fn finish_fault(&self, garbage: &mut Garbage, guard: &Guard, addr: VirtAddr) {
        if !garbage.is_nothing() {
            self.finish_fault_with(garbage, guard, addr);
        }
    }

    #[inline(never)]
    fn finish_fault_with(&self, garbage: &mut Garbage, guard: &Guard, addr: VirtAddr) {
        if garbage.stale {
            if let Some(page) = PageRange::page_of(addr) {
                garbage.settle(&self.memory, self.id, Flush::Range(page));
            }
        }
        garbage.retire(&self.memory, guard);
    }
}

/// Puts a private frame of our own into a slot, and lets go of what was there.
pub(super) fn install_anon(
    memory: &Memory,
    table: &mut Exclusive<'_>,
    addr: VirtAddr,
    frame: Frame,
    flags: u64,
    old: Entry,
    garbage: &mut Garbage,
) {
    let index = addr.index(Level::L1);
    let slot = table.slot(index);
    memory.record(frame).begin(Kind::Anon, Home::Slot(slot));
    table.put(index, Entry::new(frame, flags));
    if old.is_present() {
        garbage.give_up(memory, old, Level::L1, slot);
    }
}

fn check_access(vma: &Vma, access: Access, force: Force) -> Result<(), Fault> {
    let allowed = match access {
        // As on x86: what can be written or executed can be read.
        Access::Read => vma.flags.intersects(VmaFlags::ACCESS),
        Access::Write => {
            vma.flags.contains(VmaFlags::WRITE) || force == Force::Yes && !vma.flags.contains(VmaFlags::SHARED)
        }
        Access::Execute => vma.flags.contains(VmaFlags::EXEC),
    };
    if allowed { Ok(()) } else { Err(Fault::AccessDenied) }
}

/// Pages of areas that allow nothing stay out of reach of user mode.
pub(super) fn user(flags: VmaFlags) -> u64 {
    if flags.intersects(VmaFlags::ACCESS) { Entry::USER } else { 0 }
}

pub(super) fn no_execute(flags: VmaFlags) -> u64 {
    if flags.contains(VmaFlags::EXEC) { 0 } else { Entry::NO_EXECUTE }
}

/// What of an entry that maps a page is its VMA's to say, whether or not it allows anything.
pub(super) fn execution_and_key(vma: &Vma) -> u64 {
    no_execute(vma.flags) | Entry::key(vma.tag.key())
}

/// The block of the object that the VMA shows around `addr`, if it covers one whole, nobody stores to it through this mapping, and it has the
/// key that entries of the object's tables have.
fn block_at(vma: &Vma, addr: VirtAddr) -> Option<Block> {
    let span = Level::L2.entry_span();
    let whole = PageRange::from_len(VirtAddr(addr.get() & !(span - 1)), span)?;
    let covered = vma.start() <= whole.start() && whole.end() <= vma.end();
    let stored_to = vma.flags.contains(VmaFlags::SHARED | VmaFlags::WRITE);
    if covered && !stored_to && vma.tag.key() == ProtectionKey::DEFAULT {
        Block::at(vma.page_at(whole.start()))
    } else {
        None
    }
}

fn object_frame(vma: &Vma, object: &Object, addr: VirtAddr) -> Result<Frame, Fault> {
    match object.frame(vma.page_at(addr)) {
        Ok(Some(frame)) => Ok(frame),
        Ok(None) => Err(Fault::PastEnd),
        Err(error) => Err(failed(error)),
    }
}

fn out_of_memory(_: Error) -> Fault {
    Fault::OutOfMemory
}

/// Why an object has no page to give.
fn failed(error: Error) -> Fault {
    match error {
        Error::Poisoned => Fault::Poisoned,
        // A page of an object may not be promised: SIGBUS, as past the end (`shmem_fault` in Linux's `mm/shmem.c`).
        Error::CommitLimit => Fault::PastEnd,
        _ => Fault::OutOfMemory,
    }
}

/// What an access to a marker is.
fn refusal(marker: Entry) -> Fault {
    if marker.is_poison() { Fault::Poisoned } else { Fault::NotMapped }
}
