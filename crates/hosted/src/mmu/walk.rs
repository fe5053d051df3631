//! The walk: from a root to a frame, as a processor does it.

use std::sync::atomic::Ordering;

use foldspace::addr::{ENTRIES, Index, Level, PAGE_SHIFT};
use foldspace::space::Access;
use foldspace::{Frame, VirtAddr};
use x86_64::structures::paging::PageTableFlags as Flags;

use crate::arena::Arena;
use crate::sync::AtomicU64;

/// Bits of an entry that hold a frame number, shifted by [`PAGE_SHIFT`]: bits 12 to 51.
const FRAME_MASK: u64 = 0x000f_ffff_ffff_f000;

/// What a path allows to a program, gathered from all its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// Every entry so far has its write bit.
    pub writable: bool,
    /// Every entry so far has its user bit.
    pub user: bool,
    /// No entry so far has its no-execute bit.
    pub executable: bool,
}

impl Rights {
    /// Before the first entry.
    pub(crate) const ALL: Rights = Rights { writable: true, user: true, executable: true };

    /// After one more entry.
    fn through(self, entry: Flags) -> Rights {
        Rights {
            writable: self.writable && entry.contains(Flags::WRITABLE),
            user: self.user && entry.contains(Flags::USER_ACCESSIBLE),
            executable: self.executable && !entry.contains(Flags::NO_EXECUTE),
        }
    }

    /// Whether `other` allows all that these allow.
    pub fn within(self, other: Rights) -> bool {
        self.writable <= other.writable && self.user <= other.user && self.executable <= other.executable
    }

    /// Whether a program may do this.
    pub(crate) fn permit(self, access: Access) -> Result<(), Cause> {
        if !self.user {
            return Err(Cause::Supervisor);
        }
        match access {
            Access::Write if !self.writable => Err(Cause::WriteProtected),
            Access::Execute if !self.executable => Err(Cause::NoExecute),
            Access::Read | Access::Write | Access::Execute => Ok(()),
        }
    }
}

/// Why a translation ends in a page fault (the error code) or, for [`Cause::NotCanonical`], in a general-protection fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Bits 47 to 63 are not all alike.
    NotCanonical,
    /// No entry in the table of this level.
    NotPresent(Level),
    /// A write, and an entry on the path without its write bit.
    WriteProtected,
    /// A fetch, and an entry on the path with its no-execute bit.
    NoExecute,
    /// An entry on the path without its user bit.
    Supervisor,
    /// An entry in the table of this level has a bit that must be clear, or leads out of memory. Huge pages count as such: the manager makes none.
    Malformed(Level),
}

/// A fault that a processor raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageFault {
    /// CR2: the address, not only its page.
    pub addr: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Why it failed.
    pub cause: Cause,
}

/// What a page translates to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The frame.
    pub frame: Frame,
    /// What the path allows.
    pub rights: Rights,
    /// The leaf's dirty bit.
    pub dirty: bool,
}

/// A page that the tables of an address space show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Its first byte.
    pub addr: VirtAddr,
    /// The frame.
    pub frame: Frame,
    /// The leaf's accessed bit.
    pub accessed: bool,
    /// The leaf's dirty bit.
    pub dirty: bool,
    /// The manager's mark: a page of an object.
    pub object: bool,
}

/// The manager's mark in what leads to zero and reference pages; a processor ignores it.
const REFERENCE: Flags = Flags::BIT_9;
/// The manager's mark in entries that refer to pages of objects.
const OBJECT: Flags = Flags::BIT_10;

/// Where a walk stands: a table to look into, and what the entries above it allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Upper {
    pub(crate) table: Frame,
    pub(crate) rights: Rights,
}

/// Whether bits 47 to 63 are all alike.
pub(crate) fn is_canonical(addr: VirtAddr) -> bool {
    let sign = addr.get() as i64 >> 47;
    sign == 0 || sign == -1
}

/// Walks from `start`, a table of `level`, to the leaf for `access`: sets the accessed bit of each entry that it goes through and, for a write, the
/// leaf's dirty bit. `passed` hears of each table it comes to, with that table's level.
pub(crate) fn walk(
    arena: &Arena,
    start: Upper,
    level: Level,
    addr: VirtAddr,
    access: Access,
    mut passed: impl FnMut(Level, Upper),
) -> Result<Translation, Cause> {
    let mut at = start;
    let mut level = level;
    while let Some(below) = level.below() {
        let slot = arena.entry(at.table, addr.index(level)).ok_or(Cause::Malformed(level))?;
        let entry = mark(slot, Flags::ACCESSED, |entry| checked(arena, entry, level))?;
        at = Upper { table: entry.frame, rights: at.rights.through(entry.flags) };
        passed(below, at);
        level = below;
    }
    let slot = arena.entry(at.table, addr.index(level)).ok_or(Cause::Malformed(level))?;
    let wanted = if access == Access::Write { Flags::ACCESSED | Flags::DIRTY } else { Flags::ACCESSED };
    let entry = mark(slot, wanted, |entry| {
        let entry = checked(arena, entry, level)?;
        // Only a walk that ends in a translation marks its leaf.
        at.rights.through(entry.flags).permit(access)?;
        Ok(entry)
    })?;
    let rights = at.rights.through(entry.flags);
    Ok(Translation { frame: entry.frame, rights, dirty: entry.flags.contains(Flags::DIRTY) })
}

/// What the tables say, without leaving a mark in them.
pub(crate) fn translate(arena: &Arena, root: Frame, addr: VirtAddr) -> Result<Translation, Cause> {
    let at = table_at(arena, root, Level::L1, addr)?;
    let slot = arena.entry(at.table, addr.index(Level::L1)).ok_or(Cause::Malformed(Level::L1))?;
    let entry = checked(arena, slot.load(Ordering::Acquire), Level::L1)?;
    let rights = at.rights.through(entry.flags);
    Ok(Translation { frame: entry.frame, rights, dirty: entry.flags.contains(Flags::DIRTY) })
}

/// Every page that the lower half below `table` shows, path by path, upwards. Zero and reference pages are left out: there may be 2^27 of them.
pub(crate) fn leaves(arena: &Arena, table: Frame, level: Level, start: u64, found: &mut Vec<Leaf>) {
    let used = if level == Level::L4 { ENTRIES / 2 } else { ENTRIES };
    for index in Index::all().take(used) {
        let entry = arena.entry(table, index).map(|slot| checked(arena, slot.load(Ordering::Acquire), level));
        let Some(Ok(entry)) = entry else { continue };
        if entry.flags.contains(REFERENCE) {
            continue;
        }
        let start = start + index.get() as u64 * level.entry_span();
        match level.below() {
            Some(below) => leaves(arena, entry.frame, below, start, found),
            None => found.push(Leaf {
                addr: VirtAddr(start),
                frame: entry.frame,
                accessed: entry.flags.contains(Flags::ACCESSED),
                dirty: entry.flags.contains(Flags::DIRTY),
                object: entry.flags.contains(OBJECT),
            }),
        }
    }
}

/// The table of `wanted` level on the path of `addr`, without leaving a mark.
pub(crate) fn table_at(arena: &Arena, root: Frame, wanted: Level, addr: VirtAddr) -> Result<Upper, Cause> {
    if !is_canonical(addr) {
        return Err(Cause::NotCanonical);
    }
    let mut at = Upper { table: root, rights: Rights::ALL };
    let mut level = Level::L4;
    while level > wanted {
        let slot = arena.entry(at.table, addr.index(level)).ok_or(Cause::Malformed(level))?;
        let entry = checked(arena, slot.load(Ordering::Acquire), level)?;
        at = Upper { table: entry.frame, rights: at.rights.through(entry.flags) };
        level = level.below().expect("wanted is above nothing lower than L1");
    }
    Ok(at)
}

/// An entry taken apart.
#[derive(Clone, Copy)]
struct Entry {
    flags: Flags,
    frame: Frame,
}

/// Takes an entry of a table of `level` apart, as the processor's checks do.
fn checked(arena: &Arena, raw: u64, level: Level) -> Result<Entry, Cause> {
    let flags = Flags::from_bits_retain(raw & !FRAME_MASK);
    if !flags.contains(Flags::PRESENT) {
        return Err(Cause::NotPresent(level));
    }
    let number = (raw & FRAME_MASK) >> PAGE_SHIFT;
    // At the last level the bit of that name is PAT, which chooses a memory type: nothing here does.
    if flags.contains(Flags::HUGE_PAGE) || number >= u64::from(arena.frames()) {
        return Err(Cause::Malformed(level));
    }
    Ok(Entry { flags, frame: Frame(number as u32) })
}

/// Sets `marks` in an entry which passes `check`, if it still is what was checked; otherwise checks again what it is now. Returns it as it was
/// checked, with the marks.
fn mark(slot: &AtomicU64, marks: Flags, check: impl Fn(u64) -> Result<Entry, Cause>) -> Result<Entry, Cause> {
    let mut raw = slot.load(Ordering::Acquire);
    loop {
        let entry = check(raw)?;
        let marked = Entry { flags: entry.flags | marks, ..entry };
        if entry.flags.contains(marks) {
            return Ok(marked);
        }
        match slot.compare_exchange_weak(raw, raw | marks.bits(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return Ok(marked),
            Err(now) => raw = now,
        }
    }
}
