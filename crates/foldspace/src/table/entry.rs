//! A page-table entry, as the processor reads it (Intel SDM vol. 3, 4.5.4), with three of the bits that it ignores used by us.

use crate::addr::{Level, PAGE_SHIFT};
use crate::frame::{Counts, Frame};
use crate::sync::Word;
use crate::sync::atomic::Ordering;
use crate::vma::ProtectionKey;

/// What a slot holds: nothing, or a frame with permissions. Unlike most crates' entries it is a value: slots themselves are atomics,
/// for the processor sets bits in them at any time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    /// An empty slot.
    pub(crate) const NONE: Entry = Entry(0);
    /// A guard marker: nothing may be accessed here, whatever the VMA allows. A reference to nothing: it is copied with its table and counted
    /// like any reference, and no frame knows of it. In last-level tables only.
    pub(crate) const GUARD: Entry = Entry(Entry::REFERENCE | Entry::MARK);

    /// The content of the page that was here is lost, with the memory that held it. As a guard in everything, but that it goes when memory is discarded.
    pub(crate) const POISON: Entry = Entry(Entry::REFERENCE | Entry::MARK | Entry::LOST);

    /// Some private page, or some table: for what all entries of those have in common.
    pub(crate) const PRIVATE: Entry = Entry(Entry::PRESENT);

    pub(crate) const PRESENT: u64 = 1;
    pub(crate) const WRITE: u64 = 1 << 1;
    /// Clear in a leaf whose VMA allows no access at all (PROT_NONE): the frame stays, user mode faults.
    pub(crate) const USER: u64 = 1 << 2;
    pub(crate) const ACCESSED: u64 = 1 << 5;
    pub(crate) const DIRTY: u64 = 1 << 6;
    /// Ours: a reference frame or table. Not counted, never changed.
    pub(crate) const REFERENCE: u64 = 1 << 9;
    /// Ours: a frame of an object; in a table of level 2, a table that an object owns.
    pub(crate) const OBJECT: u64 = 1 << 10;
    /// Ours: what makes a guard marker of a reference that is not present; in a leaf that is, that stores to the page are watched.
    pub(crate) const MARK: u64 = 1 << 11;
    /// Ours: of a marker, that it is no guard.
    const LOST: u64 = 1 << 3;
    /// The protection key; the processor has it from entries that map a page only.
    pub(crate) const KEY: u64 = 0xf << Entry::KEY_SHIFT;
    const KEY_SHIFT: u32 = 59;
    pub(crate) const NO_EXECUTE: u64 = 1 << 63;
    const FRAME: u64 = 0x000f_ffff_ffff_f000;

    /// The bits of a protection key.
    #[inline]
    pub(crate) const fn key(key: ProtectionKey) -> u64 {
        (key.number() as u64) << Entry::KEY_SHIFT
    }

    /// From what a slot holds.
    pub(crate) const fn from_bits(bits: u64) -> Entry {
        Entry(bits)
    }
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// What a slot holds. Acquire: pairs with the store that linked what the entry refers to.
    #[inline(always)]
    pub(crate) fn load(slot: &impl Word) -> Entry {
        Entry(slot.load(Ordering::Acquire))
    }

    /// Puts it into a slot, and returns what was there. Release: who finds the entry also finds the content of what it refers to. Not acquire: what was
    /// there was put there under the same lock.
    #[inline(always)]
    pub(crate) fn swap_into(self, slot: &impl Word) -> Entry {
        Entry(slot.swap(self.0, Ordering::Release))
    }

    /// `frame` with `flags`.
    pub(crate) const fn new(frame: Frame, flags: u64) -> Entry {
        Entry((frame.0 as u64) << PAGE_SHIFT | flags | Entry::PRESENT)
    }

    /// A link to a table of one's own: everything allowed, entries below decide.
    pub(crate) const fn table(frame: Frame) -> Entry {
        Entry::new(frame, Entry::WRITE | Entry::USER)
    }

    /// A link to a table of an object: readable, and executable unless the link forbids it. Never written through: it is always shared.
    pub(crate) const fn object_table(frame: Frame) -> Entry {
        Entry::new(frame, Entry::USER | Entry::OBJECT | Entry::ACCESSED)
    }

    /// An entry of a reference table, or a link to one: readable, and executable unless the link above forbids it.
    pub(crate) const fn reference(frame: Frame) -> Entry {
        // The processor sets the accessed bit: set it now, so that shared tables are not written by it.
        Entry::new(frame, Entry::USER | Entry::REFERENCE | Entry::ACCESSED)
    }

    /// Whether the slot holds nothing at all.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub(crate) const fn is_guard(self) -> bool {
        self.0 == Entry::GUARD.0
    }
    /// Whether stores to the page, which is present, are watched.
    pub(crate) const fn is_marked(self) -> bool {
        self.0 & (Entry::PRESENT | Entry::MARK) == Entry::PRESENT | Entry::MARK
    }
    pub(crate) const fn is_poison(self) -> bool {
        self.0 == Entry::POISON.0
    }
    /// Whether nothing may be accessed here, and no fault changes that: a guard, or what is lost.
    pub(crate) const fn is_marker(self) -> bool {
        self.0 & (Entry::PRESENT | Entry::MARK) == Entry::MARK
    }
    pub(crate) const fn is_present(self) -> bool {
        self.0 & Entry::PRESENT != 0
    }
    pub(crate) const fn is_writable(self) -> bool {
        self.0 & Entry::WRITE != 0
    }
    pub(crate) const fn is_user(self) -> bool {
        self.0 & Entry::USER != 0
    }
    /// Loaded from, stored to or executed, by a processor or for a program.
    pub(crate) const fn is_accessed(self) -> bool {
        self.0 & Entry::ACCESSED != 0
    }
    /// Stored to. A private page always is, unless it was freed lazily since.
    pub(crate) const fn is_dirty(self) -> bool {
        self.0 & Entry::DIRTY != 0
    }
    pub(crate) const fn is_reference(self) -> bool {
        self.0 & Entry::REFERENCE != 0
    }
    pub(crate) const fn is_object(self) -> bool {
        self.0 & Entry::OBJECT != 0
    }
    /// Whether it refers to a frame whose record counts it.
    pub(crate) const fn is_tracked(self) -> bool {
        self.0 & (Entry::PRESENT | Entry::REFERENCE) == Entry::PRESENT
    }
    /// Whether it maps a page that belongs to address spaces only; asked of entries of last-level tables.
    pub(crate) const fn is_private(self) -> bool {
        self.is_present() && !self.is_reference() && !self.is_object()
    }
    pub(crate) const fn is_executable(self) -> bool {
        self.0 & Entry::NO_EXECUTE == 0
    }
    /// What it refers to, if present.
    pub(crate) const fn frame(self) -> Frame {
        Frame(((self.0 & Entry::FRAME) >> PAGE_SHIFT) as u32)
    }
    /// The same of another frame.
    pub(crate) const fn with_frame(self, frame: Frame) -> Entry {
        Entry(self.0 & !Entry::FRAME | (frame.0 as u64) << PAGE_SHIFT)
    }
    pub(crate) const fn with(self, flags: u64) -> Entry {
        Entry(self.0 | flags)
    }
    pub(crate) const fn without(self, flags: u64) -> Entry {
        Entry(self.0 & !flags)
    }

    /// One unit of the count that it belongs to in a table of `level`, packed ([`Counts`]).
    #[inline]
    pub(crate) const fn unit(self, level: Level) -> u32 {
        const ANON: u32 = Counts { anon: 1, object: 0, other: 0 }.pack();
        const OBJECT: u32 = Counts { anon: 0, object: 1, other: 0 }.pack();
        const OTHER: u32 = Counts { anon: 0, object: 0, other: 1 }.pack();
        if self.is_empty() {
            0
        } else if self.is_reference() || !matches!(level, Level::L1) {
            OTHER
        } else if self.is_object() {
            OBJECT
        } else {
            ANON
        }
    }
}
