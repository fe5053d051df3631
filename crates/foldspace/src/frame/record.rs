//! The record of a frame: 32 bytes that say what it is, how many refer to it, and where those are.

use super::{Home, Left, LineageId};
use crate::addr::{Index, Level};
use crate::sync::hint::spin_loop;
use crate::sync::watched::{AtomicU32, AtomicU64, Ordering};

/// "No frame" in a link.
pub(crate) const NONE: u32 = u32::MAX;

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Not handed to the manager.
    Absent = 0,
    /// Head of a free block in the buddy lists.
    Free = 1,
    /// Inside a free block, not its head.
    FreeTail = 2,
    /// In a cache of single frames, or waiting out its grace period.
    Idle = 3,
    /// Content of private anonymous memory.
    Anon = 4,
    /// Content of an object.
    Object = 5,
    /// Zero frame, reference frames and the tables made of them: mapped anywhere, never counted, never moved.
    Reference = 6,
    /// The embedder's, and the records themselves.
    Reserved = 7,
    /// It has failed: used for nothing any more.
    Poisoned = 13,
    /// Free, and kept for a block that is being emptied.
    Isolated = 8,
    /// A page table of level 1 to 4: 8 + level.
    Table1 = 9,
    Table2 = 10,
    Table3 = 11,
    Table4 = 12,
}

impl Kind {
    /// The kind of a table of `level`.
    pub(crate) const fn table(level: Level) -> Kind {
        match level {
            Level::L1 => Kind::Table1,
            Level::L2 => Kind::Table2,
            Level::L3 => Kind::Table3,
            Level::L4 => Kind::Table4,
        }
    }

    /// Whether what refers to a frame of this kind is counted and can be found.
    pub(crate) const fn is_tracked(self) -> bool {
        matches!(self, Kind::Anon | Kind::Object | Kind::Table1 | Kind::Table2 | Kind::Table3)
    }

    #[inline]
    const fn from_bits(bits: u32) -> Kind {
        match bits & 0xf {
            1 => Kind::Free,
            2 => Kind::FreeTail,
            3 => Kind::Idle,
            4 => Kind::Anon,
            5 => Kind::Object,
            6 => Kind::Reference,
            7 => Kind::Reserved,
            8 => Kind::Isolated,
            9 => Kind::Table1,
            10 => Kind::Table2,
            11 => Kind::Table3,
            12 => Kind::Table4,
            13 => Kind::Poisoned,
            _ => Kind::Absent,
        }
    }
}

/// Entries of a table that are not empty, by what they refer to. Each at most 512: ten bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Private anonymous frames.
    pub(crate) anon: u32,
    /// Frames of objects.
    pub(crate) object: u32,
    /// Tables, and whatever is not counted (reference frames and tables, guard markers).
    pub(crate) other: u32,
}

impl Counts {
    pub(crate) const fn pack(self) -> u32 {
        self.anon | self.object << 10 | self.other << 20
    }
    pub(crate) const fn unpack(bits: u32) -> Counts {
        Counts { anon: bits & 0x3ff, object: bits >> 10 & 0x3ff, other: bits >> 20 & 0x3ff }
    }
    pub(crate) const fn is_empty(self) -> bool {
        self.pack() == 0
    }
    /// All of them.
    pub(crate) const fn used(self) -> u32 {
        self.anon + self.object + self.other
    }
}

/// In `refs` of private memory and of tables: their slots are counted in the list of homes, too, so who drops one has to say so there. There are several
/// places then, so several references: what is compared with one need not look at the bit by itself.
pub(super) const LISTED: u32 = 1 << 31;

/// Bit lock of a table: slots change only under it.
const LOCKED: u32 = 1 << 4;
/// Kept by the cache of an object: one of `refs` is not a slot.
const PINNED: u32 = 1 << 5;
/// Of a page of an object: it was written to, whatever the entries that map it now say.
const DIRTY: u32 = 1 << 6;
/// In a list of held frames: one of `refs` is not a slot.
const HELD: u32 = 1 << 7;
const ORDER_SHIFT: u32 = 8;
/// Its content is on its way to another frame, or has just come from one, and nobody lets it be written: of private memory, since one of `refs` is not
/// a slot.
const MOVING: u32 = 1 << 16;
/// Of a page of an object: the frame has failed, and the object remembers that there. Nobody maps it.
const LOST: u32 = 1 << 17;

/// What the manager knows about one frame.
///
/// # Invariants
///
/// - `refs` of a data frame: slots that map it plus one each if `PINNED`, `HELD` and, of private memory, `MOVING`; of a table: parent slots that link it; a root: 1. What is
///   taken out of a slot stays counted until its shootdown, so there may be more, and never fewer. [`LISTED`] in it if `home` is [`Home::Listed`], but for
///   frames of objects.
/// - `home` finds every such slot ([`Home`]); a table that it names is alive.
/// - `lineage`, `counts` and `prev` of a frame of an object: [`Record::owner`].
/// - `lineage`, and `next`/`prev` of a table: its lineage and neighbours there ([`NONE`] at the ends), under the lineage's lock.
///   `next`/`prev` of a free block: neighbours in the buddy list, under the buddy lock. `next` of an idle frame: garbage chain; of one that is held: the
///   list of those.
/// - `counts` of a table: present entries by kind, under the table's lock.
#[repr(C)]
pub(crate) struct Record {
    state: AtomicU32,
    refs: AtomicU32,
    home: AtomicU64,
    next: AtomicU32,
    prev: AtomicU32,
    lineage: AtomicU32,
    counts: AtomicU32,
}

#[cfg(not(foldspace_loom))]
const _: () = assert!(size_of::<Record>() == 32);

/// Orderings. Relaxed, where nothing else is said: `home`, links, `lineage` and `counts` are read and written under a lock (of a table, a lineage, a list
/// or a cache), or as a guess that is verified under one; bits of `state` beside the lock's are changed by who holds such a lock, or are each for themselves
/// (dirty: the store that it stands for is seen by who took the entry out, after the shootdown).
impl Record {
    pub(crate) fn kind(&self) -> Kind {
        Kind::from_bits(self.state.load(Ordering::Relaxed))
    }

    /// Level of a table, `None` for anything else.
    pub(crate) fn table_level(&self) -> Option<Level> {
        match self.kind() {
            Kind::Table1 => Some(Level::L1),
            Kind::Table2 => Some(Level::L2),
            Kind::Table3 => Some(Level::L3),
            Kind::Table4 => Some(Level::L4),
            _ => None,
        }
    }

    /// Becomes `kind` with one reference at `home`, unlocked, in no lineage, counting nothing. Only the owner of an idle frame may call this.
    #[inline]
    pub(crate) fn begin(&self, kind: Kind, home: Home) {
        // Relaxed, all of it: who finds the frame does so through an entry, which is stored with release.
        self.refs.store(1, Ordering::Relaxed);
        self.home.store(home.pack(), Ordering::Relaxed);
        self.lineage.store(NONE, Ordering::Relaxed);
        self.counts.store(0, Ordering::Relaxed);
        self.state.store(kind as u32, Ordering::Relaxed);
    }

    /// Becomes head of a block of `order`, free or reserved, or anything without references.
    pub(crate) fn mark(&self, kind: Kind, order: u8) {
        // Relaxed: it goes from hand to hand under the locks of caches and lists.
        self.state.store(kind as u32 | (order as u32) << ORDER_SHIFT, Ordering::Relaxed);
        self.refs.store(0, Ordering::Relaxed);
    }

    pub(crate) fn order(&self) -> u8 {
        (self.state.load(Ordering::Relaxed) >> ORDER_SHIFT) as u8
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.state.load(Ordering::Relaxed) & PINNED != 0
    }
    pub(crate) fn pin(&self) {
        self.state.fetch_or(PINNED, Ordering::Relaxed);
    }
    pub(crate) fn unpin(&self) {
        self.state.fetch_and(!PINNED, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DIRTY != 0
    }
    /// By whoever has mapped it, or holds it otherwise.
    #[inline]
    pub(crate) fn set_dirty(&self) {
        if !self.is_dirty() {
            self.state.fetch_or(DIRTY, Ordering::Relaxed);
        }
    }

    /// False if it is held already. Under the lock of the lists, as are the next three, so that there pins agree with references.
    pub(crate) fn begin_hold(&self) -> bool {
        let first = self.state.fetch_or(HELD, Ordering::Relaxed) & HELD == 0;
        if first {
            self.add_ref();
        }
        first
    }
    /// Whether it is in a list of held frames. Stays so, or not, under the locks of all tables that have a slot to it.
    pub(crate) fn is_held(&self) -> bool {
        self.state.load(Ordering::Relaxed) & HELD != 0
    }
    pub(crate) fn end_hold(&self) -> Left {
        self.state.fetch_and(!HELD, Ordering::Relaxed);
        self.drop_ref()
    }

    /// Whether its content is on its way: then it is not to be made writable. Under the lock of a table that has a slot to it, or of the object's pages.
    #[inline]
    pub(crate) fn is_moving(&self) -> bool {
        self.state.load(Ordering::Relaxed) & MOVING != 0
    }
    /// Whether it is a page of an object that cannot be mapped now: its content is on its way, or lost. Under the lock of the object's pages.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (MOVING | LOST) != 0
    }
    /// Whether it is a page of an object of which the frame has failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOST != 0
    }
    /// Under the lock of the object's pages.
    pub(crate) fn lose(&self) {
        self.state.fetch_or(LOST, Ordering::Relaxed);
    }
    /// Keeps everybody from writing it in place, by a reference or, as an object's, by being asked; false if somebody else moves it. Under the locks of
    /// all tables that have a slot to it.
    pub(crate) fn begin_move(&self) -> bool {
        let before = self.state.fetch_or(MOVING, Ordering::Relaxed);
        if before & MOVING == 0 && Kind::from_bits(before) == Kind::Anon {
            self.add_ref();
        }
        before & MOVING == 0
    }
    /// Ends it.
    pub(crate) fn end_move(&self) -> Left {
        let before = self.state.fetch_and(!MOVING, Ordering::Release);
        if Kind::from_bits(before) == Kind::Anon {
            self.drop_ref()
        } else {
            Left::new(self.refs.load(Ordering::Acquire))
        }
    }
    /// Of `refs`, those that are no slots.
    pub(crate) fn pins(&self) -> u32 {
        let state = self.state.load(Ordering::Relaxed);
        (state & PINNED != 0) as u32
            + (state & HELD != 0) as u32
            + (state & MOVING != 0 && Kind::from_bits(state) == Kind::Anon) as u32
    }

    /// The lock of this table, if nobody has it.
    pub(crate) fn try_lock(&self) -> bool {
        let free = self.state.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0;
        #[cfg(feature = "watch")]
        if free {
            use crate::sync::{Rank, watch};
            core::mem::forget(watch::took(self.rank().unwrap_or(Rank::Table1), core::ptr::from_ref(self).addr()));
        }
        free
    }

    /// Spins until the lock of this table is ours. Acquire: what the last holder stored is seen.
    #[inline]
    #[cfg_attr(feature = "watch", track_caller)]
    pub(crate) fn lock(&self) {
        #[cfg(feature = "watch")]
        return self.lock_watched();
        #[cfg(not(feature = "watch"))]
        self.wait_for_lock();
    }

    /// Takes the lock of a table that nobody else knows yet: it waits for nobody, whatever else is locked.
    pub(crate) fn lock_new(&self) {
        self.wait_for_lock();
        #[cfg(feature = "watch")]
        core::mem::forget(crate::sync::watch::took(crate::sync::Rank::Table1, core::ptr::from_ref(self).addr()));
    }

    #[inline]
    fn wait_for_lock(&self) {
        while self.state.fetch_or(LOCKED, Ordering::Acquire) & LOCKED != 0 {
            // Relaxed: what takes the lock is above.
            while self.state.load(Ordering::Relaxed) & LOCKED != 0 {
                spin_loop();
            }
        }
    }

    #[cfg(feature = "watch")]
    fn rank(&self) -> Option<crate::sync::Rank> {
        use crate::sync::Rank;
        Some(match self.table_level()? {
            Level::L4 => Rank::Table4,
            Level::L3 => Rank::Table3,
            Level::L2 => Rank::Table2,
            Level::L1 => Rank::Table1,
        })
    }

    #[cfg(feature = "watch")]
    #[track_caller]
    fn lock_watched(&self) {
        use crate::sync::{Rank, watch};
        // Also what was one a moment ago: it will not be found linked.
        let rank = self.rank().unwrap_or(Rank::Table1);
        let wait = watch::wait(rank, core::ptr::from_ref(self).addr());
        let contended = self.is_locked();
        self.wait_for_lock();
        core::mem::forget(wait.over(contended));
    }

    /// Release: pairs with [`Record::lock`].
    #[inline]
    pub(crate) fn unlock(&self) {
        self.note_unlocked();
        self.state.fetch_and(!LOCKED, Ordering::Release);
    }
    /// For who watches locks: that of a dead table ends with it.
    #[inline]
    pub(crate) fn note_unlocked(&self) {
        #[cfg(feature = "watch")]
        crate::sync::watch::gave(core::ptr::from_ref(self).addr());
    }
    pub(crate) fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) & LOCKED != 0
    }

    /// How many refer to it.
    pub(crate) fn refs(&self) -> u32 {
        // Acquire: as below.
        self.refs.load(Ordering::Acquire) & !LISTED
    }
    /// Whether one refers to it, and no more.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        // Acquire: whoever sees that it became the only one also sees what the others did before they left.
        self.refs.load(Ordering::Acquire) == 1
    }
    /// Whether several refer to it.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        // Acquire: as above.
        self.refs.load(Ordering::Acquire) > 1
    }
    /// Under the lock of a table that has a slot to it (or by the object that pins it). Relaxed: who counts has a reference already, as with `Arc`.
    #[inline]
    pub(crate) fn add_ref(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }
    /// Returns what is left. AcqRel: the last one sees all that the others did.
    #[inline]
    pub(crate) fn drop_ref(&self) -> Left {
        Left::new(self.refs.fetch_sub(1, Ordering::AcqRel) - 1)
    }

    /// From here on the slots are listed; how many refer to it. Under the lock of the lists. Whoever has dropped a reference before is not counted,
    /// whoever does so from now on is told. AcqRel: as for them.
    pub(crate) fn begin_list(&self) -> u32 {
        self.refs.fetch_or(LISTED, Ordering::AcqRel) & !LISTED
    }
    /// From here on they are not listed any more, if `refs` still refer to it. Under the lock of the lists.
    pub(crate) fn end_list(&self, refs: u32) -> bool {
        // AcqRel: as for who drops one.
        self.refs.compare_exchange(LISTED | refs, refs, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
    /// No slots are left that could be listed. Relaxed: under the locks of the tables that had them.
    pub(crate) fn forget_list(&self) {
        self.refs.fetch_and(!LISTED, Ordering::Relaxed);
    }
    /// Whether the slots are listed.
    pub(crate) fn is_listed(&self) -> bool {
        // Acquire: as above.
        self.refs.load(Ordering::Acquire) & LISTED != 0
    }

    /// Of a frame that nobody knows yet: as many as will refer to it.
    pub(crate) fn set_refs(&self, refs: u32) {
        self.refs.store(refs, Ordering::Relaxed);
    }
    /// Drops many at once; how many are left.
    pub(crate) fn drop_refs(&self, many: u32) -> u32 {
        self.refs.fetch_sub(many, Ordering::AcqRel) - many
    }

    #[inline]
    pub(crate) fn home(&self) -> Home {
        Home::unpack(self.home.load(Ordering::Relaxed))
    }
    #[inline]
    pub(crate) fn set_home(&self, home: Home) {
        self.home.store(home.pack(), Ordering::Relaxed);
    }

    /// What is at `index` of a table, a private frame or a table, is now there in another of `lineage` too: adds the reference. False, and nothing is
    /// done, if its slots are listed.
    #[inline]
    pub(crate) fn share(&self, lineage: LineageId, index: Index) -> bool {
        // As they are packed: this is done for each entry of a table that is copied.
        let (now, home) = (self.home.load(Ordering::Relaxed), Home::Lineage(lineage, index).pack());
        if now != home {
            if now == Home::Listed.pack() {
                return false;
            }
            self.home.store(home, Ordering::Relaxed);
        }
        self.add_ref();
        true
    }

    /// Of a root, which has no home: where the registry of address spaces has its space.
    pub(crate) fn seat(&self) -> u32 {
        self.home.load(Ordering::Relaxed) as u32
    }
    pub(crate) fn set_seat(&self, seat: u32) {
        self.home.store(seat as u64, Ordering::Relaxed);
    }

    /// Of a frame of an object: its number among the objects of the memory, and which of its pages it is.
    pub(crate) fn owner(&self) -> (u32, u64) {
        let low = self.counts.load(Ordering::Relaxed) as u64;
        (self.lineage.load(Ordering::Relaxed), low | (self.prev.load(Ordering::Relaxed) as u64) << 32)
    }
    #[inline]
    pub(crate) fn set_owner(&self, object: u32, page: u64) {
        self.lineage.store(object, Ordering::Relaxed);
        self.counts.store(page as u32, Ordering::Relaxed);
        self.prev.store((page >> 32) as u32, Ordering::Relaxed);
    }

    pub(crate) fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }
    pub(crate) fn set_next(&self, frame: u32) {
        self.next.store(frame, Ordering::Relaxed);
    }
    pub(crate) fn prev(&self) -> u32 {
        self.prev.load(Ordering::Relaxed)
    }
    pub(crate) fn set_prev(&self, frame: u32) {
        self.prev.store(frame, Ordering::Relaxed);
    }

    pub(crate) fn lineage(&self) -> Option<LineageId> {
        Some(self.lineage.load(Ordering::Relaxed)).filter(|id| *id != NONE).map(LineageId)
    }
    pub(crate) fn set_lineage(&self, id: Option<LineageId>) {
        self.lineage.store(id.map_or(NONE, |id| id.0), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn counts(&self) -> Counts {
        Counts::unpack(self.counts.load(Ordering::Relaxed))
    }
    #[inline]
    pub(crate) fn set_counts(&self, counts: Counts) {
        self.counts.store(counts.pack(), Ordering::Relaxed);
    }
    /// Adds packed units, under the table's lock: no field overflows, since a table has 512 entries.
    #[inline]
    pub(crate) fn shift_counts(&self, removed: u32, added: u32) {
        let now = self.counts.load(Ordering::Relaxed);
        self.counts.store(now.wrapping_sub(removed).wrapping_add(added), Ordering::Relaxed);
    }
}

#[cfg(all(test, foldspace_loom))]
mod loom;
