//! Reference pages: what a mapping shows where nothing has been stored to it. One frame, and tables all of whose entries are that frame, or the
//! table below. The zero page of anonymous memory is the default one; programs may have others.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::fmt;
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::Source;
use crate::addr::{ENTRIES, Level, PAGE_SIZE};
use crate::error::{Error, Result};
use crate::frame::{Frame, Garbage, Kind, Memory};
use crate::space::retry_after_reclaim;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, Rank};
use crate::table::{Entry, Supply};

const PAGE: usize = PAGE_SIZE as usize;

/// A frame that may be mapped anywhere, read-only, and the tables that map it 512, 512² and 512³ times. They are linked like any subtree,
/// never written, never counted: every entry that refers to one says so.
pub(crate) struct ReferenceTables {
    /// What reads see.
    pub(crate) page: Frame,
    /// Tables of level 1 to 3.
    pub(crate) tables: [Frame; 3],
}

impl ReferenceTables {
    /// All its frames.
    pub(crate) fn frames(&self) -> [Frame; 4] {
        let [l1, l2, l3] = self.tables;
        [self.page, l1, l2, l3]
    }

    /// What an entry of a table of `level` refers to: the page itself, or the table of the level below.
    pub(crate) fn at(&self, level: Level) -> Frame {
        match level {
            Level::L1 => self.page,
            Level::L2 => self.tables[0],
            Level::L3 => self.tables[1],
            Level::L4 => self.tables[2],
        }
    }

    /// Calls `visit(table, index, entry)` for each entry that its tables have.
    pub(crate) fn for_each_entry(&self, mut visit: impl FnMut(Frame, usize, u64)) {
        for (level, table) in [Level::L1, Level::L2, Level::L3].into_iter().zip(self.tables) {
            for index in 0..ENTRIES {
                visit(table, index, Entry::reference(self.at(level)).bits());
            }
        }
    }
}

/// A page of fixed content that mappings show until they are stored to: [`crate::vma::Backing::Reference`]. It costs four frames, whatever is
/// mapped of it: the page, and three tables. They go when the last mapping, and the last [`Arc`] of the embedder, has gone.
pub struct Reference {
    memory: Arc<Memory>,
    /// Of the content: where it is listed.
    hash: u64,
    /// `None`: the content is zeros, and so the tables are those of anonymous memory.
    own: Option<ReferenceTables>,
    /// All its bytes are this one, if they are all the same: to fill a page takes half the time of copying one.
    byte: Option<u8>,
    /// The file that it is private mappings of, if it is.
    file: Option<Box<dyn Source>>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reference").field(&self.tables().page).finish()
    }
}

impl Reference {
    /// The reference page that repeats `content`, of which the length is a power of two up to a page. As long as one with the same bytes
    /// lives it is the same one, so that mappings of equal content may merge.
    ///
    /// # Errors
    ///
    /// [`Error::BadRange`] for another length; [`Error::OutOfMemory`].
    pub fn new(memory: &Arc<Memory>, content: &[u8]) -> Result<Arc<Reference>> {
        if !content.len().is_power_of_two() || content.len() > PAGE {
            return Err(Error::BadRange);
        }
        let mut page = [0; PAGE];
        page.chunks_exact_mut(content.len()).for_each(|piece| piece.copy_from_slice(content));
        retry_after_reclaim(memory, |_| memory.references().find_or_make(memory, &page))
    }

    /// Zeros that are private mappings of a file (`/dev/zero`): `/proc` shows them as the file's, and they merge as those of a file do.
    pub fn zeros_of(memory: &Arc<Memory>, file: Box<dyn Source>) -> Arc<Reference> {
        // Not listed: another file of zeros is another reference.
        Arc::new(Reference { memory: Arc::clone(memory), hash: 0, own: None, byte: Some(0), file: Some(file) })
    }

    /// The file that it shows, if it does.
    pub fn file(&self) -> Option<&dyn Source> {
        self.file.as_deref()
    }

    /// Its content.
    pub fn read(&self, page: &mut [u8; PAGE]) {
        self.memory.read_frame(self.tables().page, 0, page);
    }

    /// What mappings link.
    #[inline]
    pub(crate) fn tables(&self) -> &ReferenceTables {
        self.own.as_ref().unwrap_or_else(|| self.memory.zero())
    }

    /// The page that it shows; `None` if it is full of zeros.
    #[inline]
    pub(crate) fn page(&self) -> Option<Frame> {
        self.own.as_ref().map(|own| own.page)
    }

    /// The byte that all of it is, if it is one.
    #[inline]
    pub(crate) fn byte(&self) -> Option<u8> {
        self.byte
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.memory.references().forget(self);
        let Some(own) = self.own.take() else { return };
        // No table links ours any more, for every mapping had a count of this. Whoever is pinned may still read what it found there.
        let guard = self.memory.pin();
        let mut garbage = Garbage::new();
        garbage.push_data(&self.memory, own.page);
        for table in own.tables {
            // Relaxed: it goes from hand to hand under the locks of caches. Who still reads there finds one or the other.
            self.memory.entries(table).iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
            garbage.push_table(&self.memory, table);
        }
        garbage.retire(&self.memory, &guard);
    }
}

/// The reference pages that live, by content.
pub(crate) struct References {
    live: Mutex<HashTable<Live>>,
    hasher: DefaultHashBuilder,
}

struct Live {
    hash: u64,
    /// Holds the content for as long as this is listed.
    page: Frame,
    reference: Weak<Reference>,
}

impl References {
    pub(crate) fn new() -> References {
        References { live: Mutex::new(Rank::References, HashTable::new()), hasher: DefaultHashBuilder::default() }
    }

    /// How many are listed that nobody has any more: none, at rest.
    pub(crate) fn dead(&self) -> usize {
        self.live.lock().iter().filter(|live| live.reference.strong_count() == 0).count()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.live.lock().len()
    }

    /// Calls `visit` with the tables of each that has some of its own.
    pub(crate) fn for_each_own(&self, mut visit: impl FnMut(&ReferenceTables)) {
        // Counted while the list is looked at, and let go of afterwards: the last one to let go needs the lock.
        let live: alloc::vec::Vec<_> = self.live.lock().iter().filter_map(|live| live.reference.upgrade()).collect();
        live.iter().filter_map(|reference| reference.own.as_ref()).for_each(&mut visit);
    }

    fn find_or_make(&self, memory: &Arc<Memory>, content: &[u8; PAGE]) -> Result<Arc<Reference>> {
        let hash = self.hasher.hash_one(content);
        let mut live = self.live.lock();
        let found = live.find(hash, |live| live.hash == hash && holds(memory, live.page, content));
        // One that nobody counts any more is about to be forgotten: then another takes its place.
        if let Some(reference) = found.and_then(|live| live.reference.upgrade()) {
            return Ok(reference);
        }
        live.try_reserve(1, |live| live.hash).map_err(|_| Error::OutOfMemory)?;
        let byte = Some(content[0]).filter(|first| content.iter().all(|byte| byte == first));
        let own = if byte == Some(0) { None } else { Some(make(memory, content)?) };
        let reference = Arc::new(Reference { memory: Arc::clone(memory), hash, own, byte, file: None });
        let entry = Live { hash, page: reference.tables().page, reference: Arc::downgrade(&reference) };
        live.insert_unique(hash, entry, |live| live.hash);
        Ok(reference)
    }

    fn forget(&self, reference: &Reference) {
        let mut live = self.live.lock();
        if let Ok(entry) = live.find_entry(reference.hash, |live| core::ptr::eq(live.reference.as_ptr(), reference)) {
            entry.remove();
        }
    }
}

fn holds(memory: &Memory, page: Frame, content: &[u8; PAGE]) -> bool {
    const AT_ONCE: usize = 64;
    content.chunks_exact(AT_ONCE).enumerate().all(|(number, expected)| {
        let mut seen = [0; AT_ONCE];
        memory.read_frame(page, number * AT_ONCE, &mut seen);
        seen == expected
    })
}

/// A page with this content, and its tables.
fn make(memory: &Memory, content: &[u8; PAGE]) -> Result<ReferenceTables> {
    let mut supply = Supply::reserve(memory, 3)?;
    let page = memory.alloc_frame()?;
    memory.write_frame(page, 0, content);
    // Reserved, so there is one each time.
    let own = ReferenceTables { page, tables: [supply.take()?, supply.take()?, supply.take()?] };
    for frame in own.frames() {
        memory.record(frame).mark(Kind::Reference, 0);
    }
    // Relaxed: published by the first entry that links one.
    own.for_each_entry(|table, index, entry| memory.entries(table)[index].store(entry, Ordering::Relaxed));
    Ok(own)
}
