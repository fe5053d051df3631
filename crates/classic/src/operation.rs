//! The stream of operations that all rules, and Foldspace, are given.

use std::fmt;

use bitflags::bitflags;

/// Names an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u32);

/// Pages from `start` up to, not including, `end`: numbers of pages, not bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Area {
    /// First page.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

impl Area {
    /// `None` if it were empty.
    pub fn new(start: u64, end: u64) -> Option<Area> {
        (start < end).then_some(Area { start, end })
    }

    /// How many pages.
    pub fn pages(self) -> u64 {
        self.end - self.start
    }

    /// Whether it holds a page.
    pub fn contains(self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// What both hold.
    pub fn intersection(self, other: Area) -> Option<Area> {
        Area::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start, self.end)
    }
}

bitflags! {
    /// What a VMA allows, and everything else that keeps two of them apart.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct VmaFlags: u32 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 1 << 1;
        /// Fetches.
        const EXECUTE = 1 << 2;
        /// Stores go to the object; nobody has pages of his own.
        const SHARED = 1 << 3;
        /// Not given to children.
        const DONT_FORK = 1 << 4;
        /// Bits whose meaning is the caller's: different ones keep VMAs apart.
        const NOTES = 0xffff << 8;
    }
}

impl VmaFlags {
    /// Those in which VMAs may differ that share an anon_vma: mprotect changes them for a part of what was one
    /// (`anon_vma_compatible` in `mm/rmap.c`).
    pub const ACCESS: VmaFlags = VmaFlags::READ.union(VmaFlags::WRITE).union(VmaFlags::EXECUTE);
}

/// What is behind a VMA.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// Zeros.
    Anonymous,
    /// A file, from a page of it on.
    File {
        /// Which.
        file: u32,
        /// The page at the area's start.
        offset: u64,
    },
}

/// One step. What is outside what is mapped is passed over, as the system calls do it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// An empty address space comes to be.
    Start {
        /// Not in use yet.
        process: Process,
    },
    /// A mapping in the place of whatever is there.
    Map {
        /// Whose.
        process: Process,
        /// Where.
        area: Area,
        /// What.
        backing: Backing,
        /// How.
        flags: VmaFlags,
    },
    /// Nothing any more.
    Unmap {
        /// Whose.
        process: Process,
        /// Where.
        area: Area,
    },
    /// Other flags: VMAs are split and merged.
    Change {
        /// Whose.
        process: Process,
        /// Where.
        area: Area,
        /// Taken away first.
        clear: VmaFlags,
        /// Added then.
        set: VmaFlags,
    },
    /// A mapping goes elsewhere, with its pages (mremap). It lies in one VMA; the two areas do not overlap.
    Move {
        /// Whose.
        process: Process,
        /// From where.
        from: Area,
        /// First page of where to; replaces what is there.
        to: u64,
    },
    /// The VMA that ends at `end` goes on behind it, in the place of whatever is there (mremap that grows where it is).
    Grow {
        /// Whose.
        process: Process,
        /// Where it ends now.
        end: u64,
        /// How many pages more.
        pages: u64,
    },
    /// A store: the page becomes the process' own.
    Store {
        /// Whose.
        process: Process,
        /// Where.
        page: u64,
    },
    /// Its own pages go (MADV_DONTNEED).
    Discard {
        /// Whose.
        process: Process,
        /// Where.
        area: Area,
    },
    /// A copy of an address space.
    Fork {
        /// Of which.
        parent: Process,
        /// Not in use yet.
        child: Process,
    },
    /// The address space goes (exit; exec: exit and start).
    Exit {
        /// Which.
        process: Process,
    },
}
