//! Tables that an object owns: last-level tables, each of which shows 512 of its pages in a row. A mapping that covers such a block whole, at an
//! address aligned as the block is in the object, links the table instead of having one of its own, and what one mapper faults in is
//! there for all.
//!
//! A table has one reference of the object's, so nobody who links it ever has it alone: whoever stores copies it first, as any shared table.
//! Only the object puts pages into it.

use core::ops::Range;

use super::Object;
use crate::addr::{ENTRIES, Index, Level, PAGE_SHIFT, PageRange, VirtAddr};
use crate::error::Result;
use crate::frame::{Frame, Garbage, Held};
use crate::table::{Common, Supply, release_table};

/// Pages that one table shows.
const BLOCK: u64 = ENTRIES as u64;

/// 512 pages of an object, from a multiple of 512 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Block(u64);

impl Block {
    /// The block that begins at page `index`, if one does.
    pub(crate) fn at(index: u64) -> Option<Block> {
        (index % BLOCK == 0).then_some(Block(index / BLOCK))
    }

    fn of(index: u64) -> Block {
        Block(index / BLOCK)
    }

    fn pages(self) -> Range<u64> {
        self.0 * BLOCK..self.0.saturating_add(1).saturating_mul(BLOCK)
    }
}

impl Object {
    /// The table of a block, made if need be, with the pages of the block that are in the cache.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(crate) fn table(&self, block: Block) -> Result<Frame> {
        if let Some(table) = self.cache.lock().table(block) {
            return Ok(table);
        }
        let mut supply = Supply::on_demand(&self.memory);
        let table = supply.take()?;
        let mut cache = self.cache.lock();
        if let Some(winner) = cache.table(block) {
            self.memory.free_table(table);
            return Ok(winner);
        }
        if let Err(error) = cache.add_table(block, table) {
            self.memory.free_table(table);
            return Err(error);
        }
        let locked = Common::begin(&self.memory, table);
        for index in block.pages() {
            let can_be_shown = |frame: &Frame| !self.is_past_end(index) && !self.memory.record(*frame).is_lost();
            if let Some(frame) = cache.get(index).filter(can_be_shown) {
                if locked.show(Index::truncate(index), frame).is_err() {
                    // No memory for lists of places: the rest comes with the faults.
                    break;
                }
            }
        }
        Ok(table)
    }

    /// Puts page `index` into `table`, if that is the table of its block, for all who link it.
    ///
    /// # Errors
    ///
    /// As [`crate::frame::Memory::add_home`]; or there is no memory for the page.
    pub(crate) fn show_in(&self, table: Frame, index: u64) -> Result<Shown> {
        let Some(frame) = self.frame(index)? else { return Ok(Shown::PastEnd) };
        let locked = Common::of_object(&self.memory, table);
        // The cache is asked under the lock of the table: a cut that takes the page out of the cache now looks at the table afterwards.
        let cache = self.cache.lock();
        if cache.table(Block::of(index)) != Some(table) {
            return Ok(Shown::Elsewhere);
        }
        if cache.get(index) == Some(frame) && !self.is_past_end(index) && !self.memory.record(frame).is_lost() {
            locked.show(Index::truncate(index), frame)?;
        }
        Ok(Shown::Here)
    }

    /// Takes the pages of `lost`, which have left the cache, out of the object's tables.
    pub(super) fn take_from_own_tables(&self, lost: &Range<u64>, held: &mut Held) {
        let mut at = lost.start;
        loop {
            // Asked and unlocked again: who fills a table locks it first, and then the cache.
            let next = self.cache.lock().next_table(Block::of(at));
            let Some((block, table)) = next else { return };
            let pages = block.pages();
            if pages.start >= lost.end {
                return;
            }
            let first = lost.start.max(pages.start) - pages.start;
            let end = lost.end.min(pages.end) - pages.start;
            if let Some(part) = PageRange::new(VirtAddr(first << PAGE_SHIFT), VirtAddr(end << PAGE_SHIFT)) {
                Common::of_object(&self.memory, table).cut(part, held);
            }
            at = pages.end;
        }
    }

    /// Lets go of all tables, which nobody links any more.
    pub(super) fn drop_tables(&mut self, garbage: &mut Garbage) {
        let memory = &self.memory;
        for table in self.cache.get_mut().drain_tables() {
            let left = memory.unpin_object(table);
            debug_assert!(left == 0, "who links a table of an object maps the object");
            if left == 0 {
                memory.record(table).lock();
                release_table(memory, table, Level::L1, garbage);
            }
        }
    }

    /// The table of a block, if it has one (for the checker).
    pub(crate) fn table_of(&self, block: Block) -> Option<Frame> {
        self.cache.lock().table(block)
    }

    /// All tables.
    pub(crate) fn for_each_table(&self, visit: impl FnMut(Frame)) {
        self.cache.lock().for_each_table(visit);
    }
}

/// How [`Object::show_in`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// The page is there, or was cut a moment ago.
    Here,
    /// There is another table for the block.
    Elsewhere,
    /// The object ends before.
    PastEnd,
}
