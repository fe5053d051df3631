//! One VMA: a small immutable value.

use alloc::sync::Arc;

use bitflags::bitflags;

use crate::addr::{PageRange, VirtAddr};
use crate::backing::{Object, Reference, ReferenceTables};
use crate::frame::Memory;
use crate::vma::Name;

bitflags! {
    /// What a VMA allows and how it behaves. Bits have Linux's meaning (`include/linux/mm.h`, `VM_*`), not its values.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
    pub struct VmaFlags: u32 {
        /// Pages can be read.
        const READ = 1 << 0;
        /// Pages can be written.
        const WRITE = 1 << 1;
        /// Pages can be executed.
        const EXEC = 1 << 2;
        /// Stores go to the backing, and others see them (MAP_SHARED).
        const SHARED = 1 << 3;
        /// mprotect may set READ.
        const MAY_READ = 1 << 4;
        /// mprotect may set WRITE.
        const MAY_WRITE = 1 << 5;
        /// mprotect may set EXEC.
        const MAY_EXEC = 1 << 6;
        /// The area grows down when an address right below it is touched (a stack).
        const GROWS_DOWN = 1 << 7;
        /// Pages are to stay in memory (mlock).
        const LOCKED = 1 << 8;
        /// Not inherited by fork (MADV_DONTFORK).
        const DONT_FORK = 1 << 9;
        /// Empty in the child after fork (MADV_WIPEONFORK).
        const WIPE_ON_FORK = 1 << 10;
        /// No reservation against overcommit (MAP_NORESERVE).
        const NO_RESERVE = 1 << 11;
        /// Locked pages are faulted in as they are touched, not at once (MLOCK_ONFAULT). Only beside LOCKED.
        const LOCK_ON_FAULT = 1 << 12;
        /// Accesses are expected in no order (MADV_RANDOM).
        const RANDOM = 1 << 13;
        /// Accesses are expected in order (MADV_SEQUENTIAL).
        const SEQUENTIAL = 1 << 14;
        /// Left out of core dumps (MADV_DONTDUMP).
        const DONT_DUMP = 1 << 15;
        /// Huge pages are wanted (MADV_HUGEPAGE).
        const HUGE_PAGE = 1 << 16;
        /// Huge pages are not wanted (MADV_NOHUGEPAGE).
        const NO_HUGE_PAGE = 1 << 17;
        /// Pages of equal content may become one (MADV_MERGEABLE).
        const MERGEABLE = 1 << 18;
        /// Its pages count towards the memory that is committed (VM_ACCOUNT).
        const ACCOUNT = 1 << 19;
        /// May no longer be unmapped, moved, or given other permissions (mseal).
        const SEALED = 1 << 20;
        /// Pages may be dropped under pressure, and read as zeros then (MAP_DROPPABLE).
        const DROPPABLE = 1 << 21;
        /// It had private pages that advice has taken away. A hint for the commit accounting, as which two VMAs that differ in it may be one.
        const WRITTEN = 1 << 22;
        /// Only beside SHARED, without MAY_WRITE: what it shows was opened for writing, but may not be written through new mappings
        /// (F_SEAL_WRITE, F_SEAL_FUTURE_WRITE). Linux has VM_SHARED then, as with MAY_WRITE.
        const WRITE_SEALED = 1 << 23;
        /// Pages that have no content yet are the watcher's to supply ([`Tag::watcher`]).
        const WATCH_MISSING = 1 << 24;
        /// Stores to pages that are marked are the watcher's to allow.
        const WATCH_WRITES = 1 << 25;
        /// Pages that the object has and that are not mapped here are the watcher's to show.
        const WATCH_UNMAPPED = 1 << 26;
        /// What is watched here stays watched where mremap puts it. Only beside one of [`VmaFlags::WATCHED`].
        const WATCH_FOLLOWS = 1 << 27;
        /// Its pages can be reached through it and in no other way: not populated, read or written by who is not the program itself
        /// ([`crate::backing::Source::is_secret`]). Locks are not taken from it, nor given to it.
        const SECRET = 1 << 28;
        /// What it shows is a file that no path led to when it was mapped: it may be named, as anonymous memory may. Two VMAs that
        /// differ in it may be one, which then is what the first was (Linux keeps the `vm_ops` of the VMA that grows).
        const UNLINKED = 1 << 29;
        /// It shows zeros of a file ([`Reference::zeros_of`]). Set when it is mapped, for the tree's summaries.
        const FILE_OF_ZEROS = 1 << 30;
        /// It shows an object. Set when it is mapped, so that the tree's summaries say where there are such areas.
        const OBJECT = 1 << 31;
    }
}

impl VmaFlags {
    /// What mprotect sets. An area with none of it (PROT_NONE) cannot be accessed.
    pub const ACCESS: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::EXEC);
    /// What a watcher can be told of.
    pub const WATCHED: VmaFlags = VmaFlags::WATCH_MISSING.union(VmaFlags::WATCH_WRITES).union(VmaFlags::WATCH_UNMAPPED);
    /// All that says how it is watched.
    pub const WATCHING: VmaFlags = VmaFlags::WATCHED.union(VmaFlags::WATCH_FOLLOWS);
    /// What says that there is a file behind it, be it one without a name (Linux's `vm_file`).
    pub const FILE: VmaFlags = VmaFlags::OBJECT.union(VmaFlags::FILE_OF_ZEROS);
}

/// Where the content of a VMA's pages comes from.
#[derive(Clone, Debug, Default)]
pub enum Backing {
    /// Zero-filled, private to the address space.
    #[default]
    Anonymous,
    /// Pages of an object: a file, or shared anonymous memory.
    Object(Arc<Object>),
    /// Everywhere the same page of fixed content, until it is stored to; private to the address space.
    Reference(Arc<Reference>),
}

impl Backing {
    /// Whether two areas with these backings could be one.
    pub fn same(&self, other: &Backing) -> bool {
        match (self, other) {
            (Backing::Anonymous, Backing::Anonymous) => true,
            (Backing::Object(a), Backing::Object(b)) => Arc::ptr_eq(a, b),
            (Backing::Reference(a), Backing::Reference(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Whether an area's page offset says which of its pages the area shows: those of an object, or of a file of zeros. Anonymous memory and
    /// reference pages are the same everywhere.
    #[inline]
    pub fn has_offsets(&self) -> bool {
        match self {
            Backing::Anonymous => false,
            Backing::Object(_) => true,
            Backing::Reference(reference) => reference.file().is_some(),
        }
    }

    /// What is linked where nothing has been stored to; an object has nothing of the kind.
    #[inline]
    pub(crate) fn reference_tables<'m>(&'m self, memory: &'m Memory) -> Option<&'m ReferenceTables> {
        match self {
            Backing::Anonymous => Some(memory.zero()),
            Backing::Reference(reference) => Some(reference.tables()),
            Backing::Object(_) => None,
        }
    }
}

/// Who answers the faults of a VMA with one of [`VmaFlags::WATCHED`]: a number below 2^28 that the embedder gives a meaning to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watcher(pub u32);

impl Watcher {
    /// Nobody does.
    pub const NOBODY: Watcher = Watcher(0);
}

/// Which of a thread's sixteen rights apply to the pages of a VMA, besides what the VMA allows (Intel SDM vol. 3, 4.6.2; pkeys(7)). The key is in
/// each entry that maps a page; a processor without keys ignores it there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtectionKey(u8);

impl ProtectionKey {
    /// How many there are.
    pub const COUNT: u32 = 16;
    /// That of all memory that was given no other.
    pub const DEFAULT: ProtectionKey = ProtectionKey(0);

    /// The key of a number below [`ProtectionKey::COUNT`].
    pub const fn new(number: u32) -> Option<ProtectionKey> {
        if number < ProtectionKey::COUNT { Some(ProtectionKey(number as u8)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }
}

/// What else stands before an access to a VMA: who watches it, and its protection key. One word, since VMAs are copied often.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Tag(u32);

impl Tag {
    /// Nobody, and the default key.
    pub const NONE: Tag = Tag(0);
    const KEY_SHIFT: u32 = 28;
    const WATCHER: u32 = (1 << Tag::KEY_SHIFT) - 1;

    /// Who answers its faults, if its flags say so.
    #[inline]
    pub const fn watcher(self) -> Watcher {
        Watcher(self.0 & Tag::WATCHER)
    }
    /// The key of its pages.
    #[inline]
    pub const fn key(self) -> ProtectionKey {
        ProtectionKey((self.0 >> Tag::KEY_SHIFT) as u8)
    }
    /// The same with another watcher.
    #[must_use]
    pub const fn with_watcher(self, watcher: Watcher) -> Tag {
        debug_assert!(watcher.0 <= Tag::WATCHER);
        Tag(self.0 & !Tag::WATCHER | watcher.0 & Tag::WATCHER)
    }
    /// The same with another key.
    #[must_use]
    pub const fn with_key(self, key: ProtectionKey) -> Tag {
        Tag(self.0 & Tag::WATCHER | (key.0 as u32) << Tag::KEY_SHIFT)
    }
}

impl core::fmt::Debug for Tag {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Tag").field("watcher", &self.watcher().0).field("key", &self.key().0).finish()
    }
}

/// A virtual memory area: one row of `/proc/PID/maps`. An immutable value in the leaves of the tree.
#[derive(Clone, Debug)]
pub struct Vma {
    /// Addresses that it covers.
    pub range: PageRange,
    /// Permissions and behaviour.
    pub flags: VmaFlags,
    /// Who watches it, and its protection key.
    pub tag: Tag,
    /// Page of the backing at which the area starts (0 for private anonymous memory until mremap gives it a meaning).
    pub page_offset: u64,
    /// Where content comes from.
    pub backing: Backing,
    /// Name given by `PR_SET_VMA_ANON_NAME`.
    pub name: Option<Name>,
}

impl Vma {
    /// First byte.
    pub fn start(&self) -> VirtAddr {
        self.range.start()
    }
    /// One past the last byte.
    pub fn end(&self) -> VirtAddr {
        self.range.end()
    }
    /// The page of the backing that belongs at `addr`.
    pub(crate) fn page_at(&self, addr: VirtAddr) -> u64 {
        self.page_offset + ((addr.get() - self.start().get()) >> crate::addr::PAGE_SHIFT)
    }
    /// The same area cut down to `range`, which must lie inside it.
    #[must_use]
    pub fn slice(&self, range: PageRange) -> Vma {
        debug_assert!(self.start() <= range.start() && range.end() <= self.end());
        let mut part = self.clone();
        if self.backing.has_offsets() {
            part.page_offset += (range.start().get() - self.start().get()) >> crate::addr::PAGE_SHIFT;
        }
        part.range = range;
        part
    }
    /// Whether both are the same area in every respect.
    pub fn is_same(&self, other: &Vma) -> bool {
        self.range == other.range
            && self.flags == other.flags
            && self.page_offset == other.page_offset
            && self.backing.same(&other.backing)
            && self.tag == other.tag
            && self.name == other.name
    }
    /// Whether this area shows at each address what `other` would show there if it reached that far: then what is left of both when one is cut
    /// where the other begins may be one VMA.
    pub fn continues(&self, other: &Vma) -> bool {
        // Forwards or backwards: page offsets are compared modulo 2^64.
        let pages = (self.start().get().wrapping_sub(other.start().get()) as i64 >> crate::addr::PAGE_SHIFT) as u64;
        (self.flags ^ other.flags).difference(VmaFlags::WRITTEN | VmaFlags::UNLINKED).is_empty()
            && self.backing.same(&other.backing)
            && (!self.backing.has_offsets() || other.page_offset.wrapping_add(pages) == self.page_offset)
            && self.tag == other.tag
            && self.name == other.name
    }
    /// Whether `self` and `next`, which must start where `self` ends, may be one VMA: Linux's rule (`can_vma_merge_after`
    /// in `mm/vma.c`) without anon_vmas, of which there are none here.
    pub fn merges_with(&self, next: &Vma) -> bool {
        self.end() == next.start() && next.continues(self)
    }
}
