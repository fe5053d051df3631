//! Single frames close to a processor: those that are free, and the dead ones that wait to be given to the epoch together.
//!
//! A fault takes its frame here, and an operation leaves here what it has taken out of use: one lock that other processors hardly ever take, on cache
//! lines that they hardly ever touch. The buddy lists, which all share, are asked once for 32 frames.

use alloc::sync::Arc;
use core::mem;

use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;

use super::garbage::Dead;
use super::home::Home;
use super::record::{Kind, NONE, Record};
use super::{Frame, Memory};
use crate::addr::Level;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, Rank, glance};

/// Caches: processors share one if there are more of them.
const CACHES: usize = 16;
/// Frames in each half of a cache at most, 512 MiB. Large, because frames come back in bursts, when a grace period ends, and merging them
/// into blocks costs more than anything else about them; who needs a block drains the caches.
const CACHE_SIZE: u32 = 1 << 17;
/// Frames that are moved to the buddy lists at once when a cache is full, or somebody needs a block; and that come back from a grace period
/// under one lock.
const SPILL: u32 = 1 << 10;
/// A cache is filled with one block of this order.
const REFILL_ORDER: usize = 5;
/// Dead frames that are given to the epoch as one.
const BATCH: u32 = 64;

/// All caches.
pub(super) struct Caches([CachePadded<Mutex<Cache>>; CACHES]);

/// One.
pub(super) struct Cache {
    data: Stack,
    /// Frames full of zeros: dead tables are, since their entries are cleared as they are dropped.
    zeroed: Stack,
    /// Frames for tables, from blocks of their own: tables cannot be moved, and one in each block of 2 MiB would keep all of these in pieces.
    for_tables: Stack,
    /// Not yet given to the epoch.
    dead: Dead,
    /// Tables that were made here less those that died here, modulo 2^64: of use only summed up.
    tables: u64,
    /// Frames that died here less those that came back here from their grace period, likewise.
    deferred: u64,
}

/// What is in all caches together.
pub(super) struct Cached {
    pub(super) free: u64,
    pub(super) deferred: u64,
    pub(super) tables: u64,
}

impl Caches {
    pub(super) fn new() -> Caches {
        Caches([const { CachePadded::new(Mutex::new(Rank::Frames, Cache::new())) }; CACHES])
    }

    /// What is in them. Each is looked at in its turn: what moves from one to another meanwhile may be counted on neither side, or be taken away on one
    /// and not yet added on the other; a sum is not less than nothing for that.
    pub(super) fn count(&self) -> Cached {
        let sum = self.0.iter().fold(Cached { free: 0, deferred: 0, tables: 0 }, |sum, cache| {
            let cache = cache.lock();
            Cached {
                free: sum.free + cache.len(),
                deferred: sum.deferred.wrapping_add(cache.deferred),
                tables: sum.tables.wrapping_add(cache.tables),
            }
        });
        let at_least_none = |sum: u64| if (sum as i64) < 0 { 0 } else { sum };
        Cached { deferred: at_least_none(sum.deferred), tables: at_least_none(sum.tables), ..sum }
    }
}

/// Idle frames, linked through their records.
struct Stack {
    head: u32,
    len: u32,
}

impl Stack {
    #[inline]
    fn push(&mut self, records: &[Record], frame: Frame) {
        records[frame.0 as usize].set_next(self.head);
        self.head = frame.0;
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self, records: &[Record]) -> Option<Frame> {
        if self.head == NONE {
            return None;
        }
        let frame = Frame(self.head);
        self.head = records[frame.0 as usize].next();
        self.len -= 1;
        Some(frame)
    }
}

impl Cache {
    const fn new() -> Cache {
        const EMPTY: Stack = Stack { head: NONE, len: 0 };
        Cache { data: EMPTY, zeroed: EMPTY, for_tables: EMPTY, dead: Dead::NONE, tables: 0, deferred: 0 }
    }

    fn len(&self) -> u64 {
        self.data.len as u64 + self.zeroed.len as u64 + self.for_tables.len as u64
    }

    fn pop_any(&mut self, records: &[Record]) -> Option<Frame> {
        self.data.pop(records).or_else(|| self.zeroed.pop(records)).or_else(|| self.for_tables.pop(records))
    }
}

/// Frames come and go.
impl Memory {
    #[inline]
    fn cache(&self) -> &Mutex<Cache> {
        &self.caches.0[self.platform().processor() % CACHES]
    }

    /// One frame, contents undefined; idle until its record begins.
    #[inline]
    pub(crate) fn alloc_frame(&self) -> Result<Frame> {
        self.spend_allowance()?;
        let mut cache = self.cache().lock();
        match cache.data.pop(self.records()) {
            Some(frame) => Ok(frame),
            None => self.refill(&mut cache),
        }
    }

    #[cold]
    fn refill(&self, cache: &mut Cache) -> Result<Frame> {
        let records = self.records();
        let mut buddy = self.buddy.lock();
        if let Some(block) = buddy.take(records, REFILL_ORDER) {
            for frame in (block.0..block.0 + (1 << REFILL_ORDER)).rev().map(Frame) {
                self.record(frame).mark(Kind::Idle, 0);
                cache.data.push(records, frame);
            }
        } else if let Some((block, order)) =
            (0..REFILL_ORDER).rev().find_map(|order| Some((buddy.take(records, order)?, order)))
        {
            buddy.add_range(records, block.0 + 1, block.0 + (1 << order));
            return Ok(block);
        }
        drop(buddy);
        cache.pop_any(records).or_else(|| self.steal(cache)).ok_or(Error::OutOfMemory)
    }

    /// As [`Memory::refill`], for a table: a block for tables only, as long as there are blocks.
    #[cold]
    fn refill_for_tables(&self, cache: &mut Cache) -> Result<Frame> {
        let block = self.buddy.lock().take(self.records(), REFILL_ORDER);
        let Some(block) = block else {
            return cache.data.pop(self.records()).map_or_else(|| self.refill(cache), Ok);
        };
        for frame in (block.0 + 1..block.0 + (1 << REFILL_ORDER)).rev().map(Frame) {
            self.record(frame).mark(Kind::Idle, 0);
            cache.for_tables.push(self.records(), frame);
        }
        Ok(block)
    }

    /// From other processors' caches, when there is nothing else. Their locks are only tried: two thieves must not wait for each other.
    fn steal(&self, own: &mut Cache) -> Option<Frame> {
        for other in &self.caches.0 {
            let Some(mut other) = other.try_lock() else { continue };
            for _ in 0..1 << REFILL_ORDER {
                let Some(frame) = other.pop_any(self.records()) else { break };
                own.data.push(self.records(), frame);
            }
        }
        own.data.pop(self.records())
    }

    /// Gives a single frame back.
    #[inline]
    pub(crate) fn free_frame(&self, frame: Frame) {
        let mut cache = self.cache().lock();
        if cache.data.len >= CACHE_SIZE {
            self.spill(&mut cache.data, SPILL);
        }
        cache.data.push(self.records(), frame);
    }

    #[cold]
    fn spill(&self, stack: &mut Stack, frames: u32) {
        let mut buddy = self.buddy.lock();
        for _ in 0..frames {
            let Some(frame) = stack.pop(self.records()) else { break };
            buddy.release(self.records(), frame, 0);
        }
    }

    /// Gives some frames of the caches back, so that blocks can form; false if there are none.
    pub(super) fn drain_caches(&self) -> bool {
        let mut any = false;
        for cache in &self.caches.0 {
            let mut cache = cache.lock();
            any |= cache.len() > 0;
            self.spill(&mut cache.data, SPILL);
            self.spill(&mut cache.zeroed, SPILL);
            self.spill(&mut cache.for_tables, SPILL);
        }
        any
    }

    /// A frame full of zeros, to become a table of `level` with its only slot at `home`.
    pub(crate) fn alloc_table(&self, level: Level, home: Home) -> Result<Frame> {
        let frame = self.alloc_zeroed()?;
        self.record(frame).begin(Kind::table(level), home);
        Ok(frame)
    }

    /// A frame full of zeros for a table, counted as one; idle until its record begins.
    pub(crate) fn alloc_zeroed(&self) -> Result<Frame> {
        self.spend_allowance()?;
        let mut cache = self.cache().lock();
        let zeroed = cache.zeroed.pop(self.records());
        let frame = match zeroed.or_else(|| cache.for_tables.pop(self.records())) {
            Some(frame) => frame,
            None => self.refill_for_tables(&mut cache)?,
        };
        cache.tables = cache.tables.wrapping_add(1);
        drop(cache);
        if zeroed.is_none() {
            self.clear_frame(frame);
        }
        Ok(frame)
    }

    /// Gives back a frame for a table that was not used, all zeros.
    pub(crate) fn free_table(&self, frame: Frame) {
        let mut cache = self.cache().lock();
        cache.tables = cache.tables.wrapping_sub(1);
        self.put_zeroed(&mut cache, frame);
    }

    fn put_zeroed(&self, cache: &mut Cache, frame: Frame) {
        debug_assert!(
            // Relaxed: it is ours.
            self.entries(frame).iter().all(|entry| glance(entry, Ordering::Relaxed) == 0),
            "a freed table is empty"
        );
        if cache.zeroed.len >= CACHE_SIZE {
            self.spill(&mut cache.zeroed, SPILL);
        }
        cache.zeroed.push(self.records(), frame);
    }
}

/// Dead frames.
impl Memory {
    /// Queues frames that are out of use. They are free once no processor that is pinned now can still look at them.
    pub(super) fn bury(self: &Arc<Memory>, dead: Dead, guard: &Guard) {
        let mut cache = self.cache().lock();
        cache.tables = cache.tables.wrapping_sub(dead.tables.len() as u64);
        cache.deferred = cache.deferred.wrapping_add(dead.len() as u64);
        let batch = if dead.len() < BATCH {
            cache.dead.append(self, dead);
            if cache.dead.len() < BATCH {
                return;
            }
            mem::replace(&mut cache.dead, Dead::NONE)
        } else {
            dead
        };
        drop(cache);
        self.defer(batch, guard);
        // At once, not only when the processor's bag is full: these are many frames.
        guard.flush();
    }

    /// Gives what this processor has queued to the epoch now, and moves that on.
    pub(crate) fn hand_over(self: &Arc<Memory>, guard: &Guard) {
        let dead = mem::replace(&mut self.cache().lock().dead, Dead::NONE);
        self.defer(dead, guard);
        guard.flush();
    }

    /// Gives what all processors have queued to the epoch.
    pub(super) fn defer_queued(self: &Arc<Memory>) {
        for cache in &self.caches.0 {
            let dead = mem::replace(&mut cache.lock().dead, Dead::NONE);
            if dead.len() > 0 {
                self.defer(dead, &self.pin());
            }
        }
    }

    /// Frees frames after the grace period that begins now: what was queued before now went out of use before now.
    fn defer(self: &Arc<Memory>, dead: Dead, guard: &Guard) {
        if dead.len() == 0 {
            return;
        }
        let owner = Arc::clone(self);
        let (tables, data) = (dead.tables.head(), dead.data.head());
        // No more than three words: a larger closure would need memory.
        guard.defer(move || {
            owner.free_all(tables, |cache, frame| owner.put_zeroed(cache, frame));
            owner.free_all(data, |cache, frame| {
                if cache.data.len >= CACHE_SIZE {
                    owner.spill(&mut cache.data, SPILL);
                }
                cache.data.push(owner.records(), frame);
            });
        });
    }

    /// Gives each frame of a chain back, many under one lock.
    fn free_all(&self, head: u32, put: impl Fn(&mut Cache, Frame)) {
        let mut at = head;
        if self.is_emptying_blocks() {
            at = self.collect(at, |frames| {
                let mut cache = self.cache().lock();
                cache.deferred = cache.deferred.wrapping_sub(frames);
            });
        }
        while at != NONE {
            let mut cache = self.cache().lock();
            let mut left = SPILL;
            while at != NONE && left > 0 {
                let next = self.record(Frame(at)).next();
                put(&mut cache, Frame(at));
                (at, left) = (next, left - 1);
            }
            cache.deferred = cache.deferred.wrapping_sub(u64::from(SPILL - left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame died at one cache after that was looked at, and comes back at another before that is.
    #[test]
    fn a_sum_is_never_less_than_nothing() {
        let caches = Caches::new();
        caches.0[1].lock().deferred = 1_u64.wrapping_neg();
        caches.0[1].lock().tables = 2_u64.wrapping_neg();
        let seen = caches.count();
        assert_eq!((seen.free, seen.deferred, seen.tables), (0, 0, 0));
        // And the other way round.
        caches.0[0].lock().deferred = 3;
        caches.0[0].lock().tables = 2;
        let seen = caches.count();
        assert_eq!((seen.deferred, seen.tables), (2, 0));
    }
}
