//! Objects: sequences of pages that many address spaces map and that are read and written as files. A page cache.
//!
//! What cuts a piece out (`cut.rs`) takes its pages out of the cache first, and out of the page tables of all who map them then. A fault
//! asks the cache once more under the lock of the table that it installs in, so nothing comes back in between.

mod access;
mod cache;
mod cut;
mod mapped;
mod moving;
mod tables;

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use crate::addr::PAGE_SIZE;
use crate::error::Result;
use crate::frame::{Garbage, Memory, NONE, Overcommit};
use crate::space::retry_after_reclaim;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, Rank};
use cache::Cache;
pub(crate) use moving::Pages;
pub(crate) use tables::{Block, Shown};

/// Device and inode, as `/proc/PID/maps` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
}

/// Where an object's pages come from when they are first needed: a file system's side of a file.
pub trait Source: Send + Sync {
    /// Fills page `index`, 4096 bytes, all zeros when this is called.
    ///
    /// # Errors
    ///
    /// Whatever it says becomes the error of the operation that needed the page.
    fn fill(&self, index: u64, page: &mut [u8]) -> Result<()>;
    /// Device and inode.
    fn identity(&self) -> Identity;
    /// Appends the path, as `/proc/PID/maps` is to show it (unescaped).
    fn path(&self, out: &mut Vec<u8>);
    /// Whether its pages have no other place than memory (a memfd, a System V segment) and so count as shared memory, not as a file's.
    fn is_shared_memory(&self) -> bool {
        false
    }
    /// Whether each page counts as committed for as long as the object has it: those that nothing but memory keeps, of objects that are not
    /// charged for their length (Linux's tmpfs and memfds). Does not change.
    fn commits_pages(&self) -> bool {
        false
    }
    /// Whether mappings of whole last-level tables of it are placed where these could be linked, unless an address is asked for: as Linux places those
    /// of file systems with huge pages (`thp_get_unmapped_area`: ext4, xfs, btrfs).
    fn is_placed_by_tables(&self) -> bool {
        false
    }
    /// Whether no path leads to it now: what is mapped then may be named, as shared anonymous memory may (`shmem_mmap` in Linux's `mm/shmem.c`).
    fn is_unlinked(&self) -> bool {
        false
    }
    /// Whether its pages are for those who map it alone: [`crate::vma::VmaFlags::SECRET`] is to be set where it is mapped (memfd_secret(2)). Does not change.
    fn is_secret(&self) -> bool {
        false
    }
}

/// A sequence of pages that can be mapped by many address spaces, and read and written as a file.
///
/// Its pages are pinned frames: each counts one reference for the object, and one for every slot that maps it.
pub struct Object {
    memory: Arc<Memory>,
    me: Weak<Object>,
    /// Its number, by which its frames lead to it; [`NONE`] before it has any. Set under the lock of the cache.
    number: AtomicU32,
    source: Content,
    /// In bytes. Becomes smaller only under the lock of the cache.
    len: AtomicU64,
    cache: Mutex<Cache>,
    /// Held while a piece is cut out, until no address space shows it any more, and while bytes are written. Outermost of all locks.
    cutting: Mutex<()>,
    /// Some address space maps it, or did once.
    mapped: AtomicBool,
    /// Its content is sealed: [`Object::seal`].
    sealed: AtomicBool,
    committed: Committed,
}

/// What of an object is charged as committed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    /// So many pages for as long as it lives.
    Length(u64),
    /// Each page in the cache.
    Cached,
}

enum Content {
    Source(Box<dyn Source>),
    /// Zero-filled shared memory, with a number of its own.
    Anonymous(u64),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("identity", &self.identity()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Object {
    /// An object of `len` bytes whose pages come from `source`: a file.
    ///
    /// # Errors
    ///
    /// None today; pages are allocated as they are needed.
    pub fn new(memory: &Arc<Memory>, source: Box<dyn Source>, len: u64) -> Result<Arc<Object>> {
        let committed = if source.commits_pages() { Committed::Cached } else { Committed::Length(0) };
        Ok(Object::with_content(memory, Content::Source(source), len, committed))
    }

    /// Zero-filled shared memory of `len` bytes (MAP_SHARED with MAP_ANONYMOUS). All of it is charged as committed, for as long as it lives.
    ///
    /// # Errors
    ///
    /// As [`Object::new`]; [`crate::Error::CommitLimit`].
    pub fn anonymous(memory: &Arc<Memory>, len: u64) -> Result<Arc<Object>> {
        let pages = len.div_ceil(PAGE_SIZE);
        retry_after_reclaim(memory, |_| memory.charge_object(pages))?;
        Ok(Object::zeros(memory, len, Committed::Length(pages)))
    }

    /// As [`Object::new`], and charged as [`Object::anonymous`]: memory that has a name of its own (a System V segment).
    ///
    /// # Errors
    ///
    /// As [`Object::anonymous`].
    pub fn reserved(memory: &Arc<Memory>, source: Box<dyn Source>, len: u64) -> Result<Arc<Object>> {
        let pages = len.div_ceil(PAGE_SIZE);
        retry_after_reclaim(memory, |_| memory.charge_object(pages))?;
        Ok(Object::with_content(memory, Content::Source(source), len, Committed::Length(pages)))
    }

    /// As [`Object::anonymous`], charged for the pages that it has (MAP_NORESERVE), unless overcommit is [`Overcommit::Never`].
    ///
    /// # Errors
    ///
    /// As [`Object::anonymous`].
    pub fn anonymous_unreserved(memory: &Arc<Memory>, len: u64) -> Result<Arc<Object>> {
        match memory.overcommit() {
            Overcommit::Never => Object::anonymous(memory, len),
            Overcommit::Heuristic | Overcommit::Always => Ok(Object::zeros(memory, len, Committed::Cached)),
        }
    }

    fn zeros(memory: &Arc<Memory>, len: u64, committed: Committed) -> Arc<Object> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        // Relaxed: a number, no more.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Object::with_content(memory, Content::Anonymous(number), len, committed)
    }

    fn with_content(memory: &Arc<Memory>, source: Content, len: u64, committed: Committed) -> Arc<Object> {
        memory.note_object();
        Arc::new_cyclic(|me| Object {
            memory: Arc::clone(memory),
            me: Weak::clone(me),
            number: AtomicU32::new(NONE),
            source,
            len: AtomicU64::new(len),
            cache: Mutex::new(Rank::Pages, Cache::new(len)),
            cutting: Mutex::new(Rank::Cutting, ()),
            mapped: AtomicBool::new(false),
            sealed: AtomicBool::new(false),
            committed,
        })
    }

    /// Whether it is shared anonymous memory rather than a file.
    pub fn is_anonymous(&self) -> bool {
        matches!(self.source, Content::Anonymous(_))
    }

    /// Whether its pages count as shared memory (RssShmem) rather than as a file's (RssFile).
    pub fn is_shared_memory(&self) -> bool {
        match &self.source {
            Content::Source(source) => source.is_shared_memory(),
            Content::Anonymous(_) => true,
        }
    }

    /// Whether it is a file to which no path leads now ([`Source::is_unlinked`]).
    pub fn is_unlinked(&self) -> bool {
        matches!(&self.source, Content::Source(source) if source.is_unlinked())
    }

    /// Whether its pages are for those who map it alone ([`Source::is_secret`]).
    pub fn is_secret(&self) -> bool {
        matches!(&self.source, Content::Source(source) if source.is_secret())
    }

    /// See [`Source::is_placed_by_tables`].
    pub(crate) fn is_placed_by_tables(&self) -> bool {
        matches!(&self.source, Content::Source(source) if source.is_placed_by_tables())
    }

    /// Charges a page that is about to enter the cache, if each is.
    ///
    /// # Errors
    ///
    /// [`crate::Error::CommitLimit`].
    fn charge_page(&self) -> Result<()> {
        match self.committed {
            Committed::Length(_) => Ok(()),
            Committed::Cached => self.memory.charge_object(1),
        }
    }

    /// Gives back what [`Object::charge_page`] took for each of `pages`, which have left the cache.
    fn uncharge_pages(&self, pages: u64) {
        if self.committed == Committed::Cached {
            self.memory.uncharge_object(pages);
        }
    }

    /// Device and inode. Shared anonymous memory has device 0:1, as Linux's internal tmpfs usually has.
    pub fn identity(&self) -> Identity {
        match &self.source {
            Content::Source(source) => source.identity(),
            Content::Anonymous(number) => Identity { major: 0, minor: 1, inode: *number },
        }
    }

    /// Appends what `/proc/PID/maps` calls it.
    pub fn path(&self, out: &mut Vec<u8>) {
        match &self.source {
            Content::Source(source) => source.path(out),
            Content::Anonymous(_) => out.extend_from_slice(b"/dev/zero (deleted)"),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        // Acquire: what lies before the end was written.
        self.len.load(Ordering::Acquire)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether page `index` is in the cache and was written to since it was made: by write_at, by ensure, in part by a cut or a hole, or through a
    /// mapping; what a mapping that is still there has stored may not be known yet. As Linux marks pages of a tmpfs, which is never written back.
    pub fn is_dirty(&self, index: u64) -> bool {
        self.cache.lock().get(index).is_some_and(|frame| self.memory.record(frame).is_dirty())
    }

    /// Pages in the cache.
    pub fn resident_pages(&self) -> u64 {
        self.cache.lock().len() as u64
    }

    /// Those of them that are in `range`, in pages. O(pages of the range or of the cache, whichever are fewer).
    pub fn resident_in(&self, range: core::ops::Range<u64>) -> u64 {
        self.cache.lock().count_in(range)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.memory.note_object_gone();
        let committed = match self.committed {
            Committed::Length(pages) => pages,
            Committed::Cached => self.cache.get_mut().len() as u64,
        };
        self.memory.uncharge_object(committed);
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        self.drop_tables(&mut garbage);
        for frame in self.cache.get_mut().drain() {
            self.memory.drop_page(frame, &mut garbage);
        }
        garbage.retire(&self.memory, &guard);
        match *self.number.get_mut() {
            NONE => {}
            number => self.memory.objects().leave(number),
        }
        drop(guard);
        self.memory.ended();
    }
}
