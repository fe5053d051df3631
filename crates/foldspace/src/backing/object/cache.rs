//! Which pages of an object are in memory, and how one gets there.

use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;

use super::tables::Block;
use super::{Content, Object};
use crate::addr::PAGE_SIZE;
use crate::error::{Error, Result};
use crate::frame::{Frame, Garbage, Home, Kind, Memory, NONE, Slot};
use crate::space::Fill;
use crate::sync::atomic::Ordering;

/// The pages of an object that are in memory, and how much of its source counts still.
pub(super) struct Cache {
    /// Each frame is pinned by the object.
    pages: HashMap<u64, Frame>,
    /// Where the source's content ends, in bytes: what was cut off once is zeros when the object grows again.
    source_end: u64,
    /// Pages before that whose content in the source does not count any more, ascending, with gaps between.
    holes: Vec<Range<u64>>,
    /// Tables of its own, by block, ascending.
    tables: Vec<(Block, Frame)>,
    /// How often something was cut out: whoever fills a page meanwhile fills it again.
    cuts: u64,
}

impl Cache {
    pub(super) fn new(len: u64) -> Cache {
        Cache { pages: HashMap::new(), source_end: len, holes: Vec::new(), tables: Vec::new(), cuts: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages in `range`.
    pub(super) fn count_in(&self, mut range: Range<u64>) -> u64 {
        if range.end.saturating_sub(range.start) < self.pages.len() as u64 {
            range.by_ref().filter(|index| self.pages.contains_key(index)).count() as u64
        } else {
            self.pages.keys().filter(|index| range.contains(index)).count() as u64
        }
    }

    pub(super) fn get(&self, index: u64) -> Option<Frame> {
        self.pages.get(&index).copied()
    }

    /// Page `index`, which is there, is in `frame` from now on. Needs no memory.
    pub(super) fn put_in_place(&mut self, index: u64, frame: Frame) {
        if let Some(place) = self.pages.get_mut(&index) {
            *place = frame;
        }
    }

    /// All frames; the cache is empty then.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        self.pages.drain().map(|(_, frame)| frame)
    }

    /// The object's table for a block.
    pub(super) fn table(&self, block: Block) -> Option<Frame> {
        let at = self.tables.binary_search_by_key(&block, |(block, _)| *block).ok()?;
        Some(self.tables[at].1)
    }

    /// The object's first table for `block` or a later one.
    pub(super) fn next_table(&self, block: Block) -> Option<(Block, Frame)> {
        self.tables.get(self.tables.partition_point(|(before, _)| *before < block)).copied()
    }

    /// `table` is that of `block`, which had none.
    pub(super) fn add_table(&mut self, block: Block, table: Frame) -> Result<()> {
        self.tables.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let at = self.tables.partition_point(|(before, _)| *before < block);
        self.tables.insert(at, (block, table));
        Ok(())
    }

    /// All tables; there are none then.
    pub(super) fn drain_tables(&mut self) -> impl Iterator<Item = Frame> {
        core::mem::take(&mut self.tables).into_iter().map(|(_, table)| table)
    }

    pub(super) fn for_each_table(&self, visit: impl FnMut(Frame)) {
        self.tables.iter().map(|(_, table)| *table).for_each(visit);
    }

    pub(super) fn for_each(&self, mut visit: impl FnMut(u64, Frame)) {
        self.pages.iter().for_each(|(index, frame)| visit(*index, *frame));
    }

    /// Takes the pages of `range` out. O(pages of the range or of the cache, whichever are fewer).
    pub(super) fn take(&mut self, range: Range<u64>, mut each: impl FnMut(Frame)) {
        self.cuts += 1;
        if range.end.saturating_sub(range.start) < self.pages.len() as u64 {
            range.filter_map(|index| self.pages.remove(&index)).for_each(each);
        } else {
            self.pages.extract_if(|index, _| range.contains(index)).for_each(|(_, frame)| each(frame));
        }
    }

    /// Takes those of `pages` out that nobody maps and nobody has written to. Returns how many.
    pub(super) fn forget_unused(&mut self, memory: &Memory, pages: &[u64], garbage: &mut Garbage) -> u64 {
        let mut forgotten = 0;
        for index in pages {
            let Some(frame) = self.get(*index) else { continue };
            let record = memory.record(frame);
            // Nobody can begin to map it without the lock of this cache.
            if !record.is_dirty() && record.is_alone() {
                self.pages.remove(index);
                memory.drop_page(frame, garbage);
                forgotten += 1;
            }
        }
        forgotten
    }

    /// The source's content ends at byte `end` at the latest.
    pub(super) fn cut_source(&mut self, end: u64) {
        self.source_end = self.source_end.min(end);
    }

    /// Makes room for [`Cache::add_hole`].
    pub(super) fn reserve_hole(&mut self) -> Result<()> {
        self.holes.try_reserve(1).map_err(|_| Error::OutOfMemory)
    }

    /// The source's content of these pages does not count any more. Room was made.
    pub(super) fn add_hole(&mut self, hole: Range<u64>) {
        let hole = hole.start..hole.end.min(self.source_end.div_ceil(PAGE_SIZE));
        if hole.is_empty() {
            return;
        }
        // Those that it touches become one with it.
        let first = self.holes.partition_point(|other| other.end < hole.start);
        let after = self.holes.partition_point(|other| other.start <= hole.end);
        let (mut start, mut end) = (hole.start, hole.end);
        for other in self.holes.drain(first..after) {
            (start, end) = (start.min(other.start), end.max(other.end));
        }
        self.holes.insert(first, start..end);
    }

    /// Whether page `index` is not in memory, and the source has something of it.
    pub(super) fn is_in_source_only(&self, index: u64) -> bool {
        !self.pages.contains_key(&index) && self.bytes_from_source(index) > 0
    }

    /// Bytes at the beginning of page `index` that the source has.
    fn bytes_from_source(&self, index: u64) -> usize {
        let after = self.holes.partition_point(|hole| hole.start <= index);
        let in_hole = after.checked_sub(1).and_then(|last| self.holes.get(last)).is_some_and(|hole| index < hole.end);
        let bytes = self.source_end.saturating_sub(index.saturating_mul(PAGE_SIZE)).min(PAGE_SIZE);
        if in_hole { 0 } else { bytes as usize }
    }
}

/// Whether a page past the end may be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PastEnd {
    No,
    /// The length is about to grow.
    Yes,
}

impl Object {
    /// The frame of page `index`, made if need be; `None` past the end.
    pub(crate) fn frame(&self, index: u64) -> Result<Option<Frame>> {
        if self.is_past_end(index) {
            return Ok(None);
        }
        self.page(index, PastEnd::No)
    }

    /// Whether page `index` is in the cache, before the end, and is `frame`. Asked under the lock of a table, it holds as far as whoever cuts
    /// the page out will look at that table afterwards.
    pub(crate) fn shows(&self, index: u64, frame: Frame) -> bool {
        let cache = self.cache.lock();
        cache.get(index) == Some(frame) && !self.is_past_end(index) && !self.memory.record(frame).is_lost()
    }

    /// Adds the reference of `slot` to `frame` if [`Object::shows`] says so, and its content is not on its way elsewhere; under the lock of the slot's
    /// table.
    ///
    /// # Errors
    ///
    /// As [`crate::frame::Memory::add_home`].
    pub(crate) fn lend(&self, index: u64, frame: Frame, slot: Slot) -> Result<bool> {
        // The lock is kept: the frame is pinned until the reference is there.
        let cache = self.cache.lock();
        if cache.get(index) != Some(frame) || self.is_past_end(index) || self.memory.record(frame).is_out_of_reach() {
            return Ok(false);
        }
        self.memory.add_home(frame, slot)?;
        Ok(true)
    }

    /// Whether page `index` is in the cache.
    pub(crate) fn has(&self, index: u64) -> bool {
        self.cache.lock().get(index).is_some()
    }

    /// Whether page `index` has ever had content, in memory or in the source.
    pub(crate) fn holds(&self, index: u64) -> bool {
        self.has_content(&self.cache.lock(), index)
    }

    fn has_content(&self, cache: &Cache, index: u64) -> bool {
        let from_source = matches!(self.source, Content::Source(_)) && cache.bytes_from_source(index) > 0;
        from_source || cache.get(index).is_some()
    }

    /// All pages in the cache.
    pub(crate) fn for_each_page(&self, visit: impl FnMut(u64, Frame)) {
        self.cache.lock().for_each(visit);
    }

    /// Whether no byte of page `index` is before the end.
    pub(crate) fn is_past_end(&self, index: u64) -> bool {
        // Acquire: what lies before the end was written.
        index.checked_mul(PAGE_SIZE).is_none_or(|start| start >= self.len.load(Ordering::Acquire))
    }

    /// Makes page `index`, which is not in the cache and not in the source, with this content.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyMapped`] if there is one; [`Error::BadRange`] past the end; [`Error::CommitLimit`]; [`Error::OutOfMemory`].
    pub(crate) fn put_new_page(&self, index: u64, fill: Fill<'_>) -> Result<()> {
        let frame = self.memory.alloc_frame()?;
        match fill {
            Fill::Bytes(bytes) => self.memory.write_frame(frame, 0, bytes),
            Fill::Zeros | Fill::Poison => self.memory.clear_frame(frame),
        }
        let mut cache = self.cache.lock();
        let refused = if self.is_past_end(index) {
            Some(Error::BadRange)
        } else if self.has_content(&cache, index) {
            Some(Error::AlreadyMapped)
        } else {
            cache.pages.try_reserve(1).is_err().then_some(Error::OutOfMemory)
        };
        let number = refused.map_or_else(|| self.number(), Err).and_then(|number| self.charge_page().map(|()| number));
        let number = match number {
            Ok(number) => number,
            Err(error) => {
                self.memory.free_frame(frame);
                return Err(error);
            }
        };
        let record = self.memory.record(frame);
        record.begin(Kind::Object, Home::None);
        record.set_owner(number, index);
        record.pin();
        record.set_dirty();
        cache.pages.insert(index, frame);
        Ok(())
    }

    /// The frame of page `index`, made if need be. `None` if it is past the end, and must not be.
    pub(super) fn page(&self, index: u64, past_end: PastEnd) -> Result<Option<Frame>> {
        loop {
            let (cuts, bytes) = {
                let cache = self.cache.lock();
                if let Some(frame) = cache.get(index) {
                    return if self.memory.record(frame).is_lost() { Err(Error::Poisoned) } else { Ok(Some(frame)) };
                }
                (cache.cuts, cache.bytes_from_source(index))
            };
            let frame = self.fill(index, bytes)?;
            let mut cache = self.cache.lock();
            let winner = cache.get(index);
            if winner.is_some() || past_end == PastEnd::No && self.is_past_end(index) {
                self.memory.free_frame(frame);
                return Ok(winner);
            }
            if cache.pages.try_reserve(1).is_err() {
                self.memory.free_frame(frame);
                return Err(Error::OutOfMemory);
            }
            if cache.cuts == cuts {
                let number = self.number().and_then(|number| self.charge_page().map(|()| number));
                let number = match number {
                    Ok(number) => number,
                    Err(error) => {
                        self.memory.free_frame(frame);
                        return Err(error);
                    }
                };
                let record = self.memory.record(frame);
                record.begin(Kind::Object, Home::None);
                record.set_owner(number, index);
                record.pin();
                cache.pages.insert(index, frame);
                return Ok(Some(frame));
            }
            self.memory.free_frame(frame);
        }
    }

    /// Its number, by which its frames lead to it. Under the lock of the cache.
    fn number(&self) -> Result<u32> {
        match self.number.load(Ordering::Relaxed) {
            NONE => {
                let number = self.memory.objects().join(&self.me)?;
                self.number.store(number, Ordering::Relaxed);
                Ok(number)
            }
            number => Ok(number),
        }
    }

    /// A frame with the first `bytes` of page `index` as the source has them, zeros after that.
    fn fill(&self, index: u64, bytes: usize) -> Result<Frame> {
        let frame = self.memory.alloc_frame()?;
        self.memory.clear_frame(frame);
        if let Content::Source(source) = &self.source {
            if bytes > 0 {
                let mut content = [0; PAGE_SIZE as usize];
                if let Err(error) = source.fill(index, &mut content) {
                    self.memory.free_frame(frame);
                    return Err(error);
                }
                self.memory.write_frame(frame, 0, &content[..bytes]);
            }
        }
        Ok(frame)
    }
}
