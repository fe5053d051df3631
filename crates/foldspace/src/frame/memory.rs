//! [`Memory`]: all frames of a machine, and what every address space on them shares.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;

use arrayvec::ArrayVec;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;

use super::buddy::{Buddy, ORDERS};
use super::commit::Commit;
use super::direct_map::DirectMap;
use super::record::{Home, Kind, NONE, Record};
use super::{Entries, Frame};
use crate::addr::{ENTRIES, Index, Level, PAGE_SIZE, VirtAddr};
use crate::backing::{ReferenceTables, References};
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::reverse::Reverse;
use crate::space::Registry;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::glance;

/// What a [`Memory`] is made of.
pub struct MemoryConfig<'a> {
    /// Where frame 0 is mapped in the embedder's own address space; frame `n` is `4096 n` bytes further on.
    pub direct_map: NonNull<u8>,
    /// Frames that the manager may use, as ranges of frame numbers. The records (32 bytes a frame) are carved out of the largest.
    pub usable: &'a [Range<u32>],
    /// Entries that every root gets in its upper half (index, raw entry): the embedder's own mappings. Not tracked.
    pub kernel_entries: &'a [(usize, u64)],
    /// The embedder.
    pub platform: Box<dyn Platform>,
}

/// Frames by use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryStats {
    /// All frames that the manager got.
    pub total: u64,
    /// Free, those in caches included.
    pub free: u64,
    /// Dead, waiting out a grace period: free soon.
    pub deferred: u64,
    /// Content: of private memory, of objects, and of reference pages.
    pub data: u64,
    /// Page tables of all levels, those that backings own included.
    pub tables: u64,
    /// Taken by [`Memory::alloc_contiguous`], the records themselves, and the zero frame.
    pub reserved: u64,
}

/// Caches of single frames: processors share one if there are more of them.
const CACHES: usize = 16;
/// Frames in each half of a cache at most, 512 MiB. Large, because frames come back in bursts, when a grace period ends, and merging them
/// into blocks costs more than anything else about them; who needs a block drains the caches.
const CACHE_SIZE: u32 = 1 << 17;
/// Frames that are moved to the buddy lists at once when a cache is full, or somebody needs a block.
/// Linux's default for `vm.mmap_min_addr` (`CONFIG_DEFAULT_MMAP_MIN_ADDR`).
const DEFAULT_LOWEST_ADDRESS: VirtAddr = VirtAddr(0x1_0000);
const SPILL: u32 = 1 << 10;
/// A cache is filled with one block of this order.
const REFILL_ORDER: usize = 5;

/// Single frames close to a processor.
struct Cache {
    data: Stack,
    /// Frames full of zeros: dead tables are, since their entries are cleared as they are dropped.
    zeroed: Stack,
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
        Cache { data: Stack { head: NONE, len: 0 }, zeroed: Stack { head: NONE, len: 0 } }
    }

    fn len(&self) -> u64 {
        self.data.len as u64 + self.zeroed.len as u64
    }

    fn pop_any(&mut self, records: &[Record]) -> Option<Frame> {
        self.data.pop(records).or_else(|| self.zeroed.pop(records))
    }
}

/// All frames of a machine, or of an arena, and what is needed to manage them.
///
/// Lock order, outermost first: cutting of an object; writers' lock of an address space; tables, parent before child; pages of an object; the
/// list of homes; a lineage; a cache of frames; the buddy lists. The row of address spaces is locked below a writers' lock, or alone. None is held while another's wait could depend on it.
pub struct Memory {
    map: DirectMap,
    platform: Box<dyn Platform>,
    caches: [CachePadded<Mutex<Cache>>; CACHES],
    buddy: Mutex<Buddy>,
    pub(super) total: u64,
    reserved: AtomicU64,
    tables: AtomicU64,
    deferred: AtomicU64,
    objects: AtomicU64,
    next_space: AtomicU64,
    lowest_address: AtomicU64,
    kernel_entries: ArrayVec<(Index, u64), 16>,
    /// The default reference page, and the tables full of it.
    zero: ReferenceTables,
    references: References,
    pub(crate) reverse: Reverse,
    pub(crate) registry: Registry,
    pub(super) commit: Commit,
    #[cfg(feature = "fault-injection")]
    allowance: crate::sync::atomic::AtomicI64,
}

impl Memory {
    /// Takes over the frames. The records take 32 bytes a frame up to the highest usable one.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if no range can hold the records, [`Error::BadRange`] if a range is empty or kernel entries are not in the upper half.
    ///
    /// # Safety
    ///
    /// `direct_map` maps every frame up to the highest usable one for reading and writing, for as long as the memory lives, and nobody
    /// else uses the usable ones.
    pub unsafe fn new(config: MemoryConfig<'_>) -> Result<Arc<Memory>> {
        let frames = config.usable.iter().map(|range| range.end).max().ok_or(Error::BadRange)?;
        let largest = config.usable.iter().max_by_key(|range| range.len()).ok_or(Error::BadRange)?;
        let records = (frames as u64 * size_of::<Record>() as u64).div_ceil(PAGE_SIZE) as u32;
        if largest.len() as u32 <= records {
            return Err(Error::OutOfMemory);
        }
        let mut kernel_entries = ArrayVec::new();
        for (index, entry) in config.kernel_entries {
            let index = Index::new(*index).filter(|index| index.get() >= ENTRIES / 2).ok_or(Error::BadRange)?;
            kernel_entries.try_push((index, *entry)).map_err(|_| Error::BadRange)?;
        }
        // SAFETY: by the caller, and checked above: the first `records` frames of the largest range hold the records.
        let map = unsafe { DirectMap::new(config.direct_map, frames, Frame(largest.start)) };
        let mut buddy = Buddy::new();
        for range in config.usable {
            let start = if range == largest { range.start + records } else { range.start };
            buddy.add_range(map.records(), start, range.end);
        }
        for frame in largest.start..largest.start + records {
            map.records()[frame as usize].mark(Kind::Reserved, 0);
        }
        let mut reference = || {
            let frame = buddy.take(map.records(), 0).ok_or(Error::OutOfMemory)?;
            map.clear(frame);
            Ok(frame)
        };
        let zero = ReferenceTables { page: reference()?, tables: [reference()?, reference()?, reference()?] };
        for frame in zero.frames() {
            map.records()[frame.0 as usize].mark(Kind::Reference, 0);
        }
        zero.for_each_entry(|table, index, entry| map.entries(table)[index].store(entry, Ordering::Relaxed));
        let memory = Memory {
            total: config.usable.iter().map(|range| range.len() as u64).sum(),
            reserved: AtomicU64::new(records as u64 + 1),
            tables: AtomicU64::new(3),
            deferred: AtomicU64::new(0),
            objects: AtomicU64::new(0),
            next_space: AtomicU64::new(1),
            lowest_address: AtomicU64::new(DEFAULT_LOWEST_ADDRESS.get()),
            caches: [const { CachePadded::new(Mutex::new(Cache::new())) }; CACHES],
            buddy: Mutex::new(buddy),
            platform: config.platform,
            reverse: Reverse::new(),
            registry: Registry::new(),
            commit: Commit::new(),
            #[cfg(feature = "fault-injection")]
            allowance: crate::sync::atomic::AtomicI64::new(i64::MAX),
            kernel_entries,
            map,
            zero,
            references: References::new(),
        };
        Ok(Arc::new(memory))
    }

    /// Addresses below are not given out unless asked for by address (`vm.mmap_min_addr`).
    pub fn lowest_address(&self) -> VirtAddr {
        VirtAddr(self.lowest_address.load(Ordering::Relaxed))
    }

    /// Sets it, rounded up to a page: for mappings made from now on.
    pub fn set_lowest_address(&self, address: VirtAddr) {
        let address = address.page_ceil().unwrap_or(address.page_floor());
        self.lowest_address.store(address.get(), Ordering::Relaxed);
    }

    /// Frames by use now. Exact when nothing else runs; O(caches).
    pub fn stats(&self) -> MemoryStats {
        let cached: u64 = self.caches.iter().map(|cache| cache.lock().len()).sum();
        let free = self.buddy.lock().free() + cached;
        let (deferred, tables) = (self.deferred.load(Ordering::Relaxed), self.tables.load(Ordering::Relaxed));
        let reserved = self.reserved.load(Ordering::Relaxed);
        let data = self.total.saturating_sub(free + deferred + tables + reserved);
        MemoryStats { total: self.total, free, deferred, data, tables, reserved }
    }

    /// `2^order` contiguous frames for the embedder itself (stacks, heap), aligned to their size; contents undefined. Order 10 at most.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if there is no such block, [`Error::BadRange`] for a larger order.
    pub fn alloc_contiguous(&self, order: u8) -> Result<Frame> {
        if order as usize >= ORDERS {
            return Err(Error::BadRange);
        }
        self.spend_allowance()?;
        let frame = loop {
            if let Some(block) = self.buddy.lock().take(self.records(), order as usize) {
                break block;
            }
            if !self.drain_caches() {
                return Err(Error::OutOfMemory);
            }
        };
        self.record(frame).mark(Kind::Reserved, order);
        self.reserved.fetch_add(1 << order, Ordering::Relaxed);
        Ok(frame)
    }

    /// Gives back what [`Memory::alloc_contiguous`] gave.
    pub fn free_contiguous(&self, first: Frame, order: u8) {
        let record = self.record(first);
        assert!(record.kind() == Kind::Reserved && record.order() == order, "not such a block");
        self.reserved.fetch_sub(1 << order, Ordering::Relaxed);
        record.mark(Kind::Idle, 0);
        self.buddy.lock().release(self.map.records(), first, order as usize);
    }

    /// Where a frame is mapped in the embedder's address space.
    pub fn frame_ptr(&self, frame: Frame) -> *mut u8 {
        self.map.ptr(frame).as_ptr()
    }

    /// Frees what has waited out its grace period, and moves the epoch on, without waiting for anyone.
    pub fn reclaim(&self) {
        // The collector's bags come from the heap and cannot be refused: without heap there is nothing to be done here.
        const BAG: usize = 4096;
        if Vec::<u8>::new().try_reserve_exact(BAG).is_err() {
            return;
        }
        // An epoch ends when all who were pinned in it have left; garbage is free two epochs on. Several times over, for what is freed may
        // retire something itself: the nodes of a tree its VMAs, the last VMA of an object its pages.
        for _ in 0..12 {
            self.platform.pin().flush();
        }
    }

    /// Lets `frames` more frames be allocated, then makes every allocation fail; `None` lifts that.
    #[cfg(feature = "fault-injection")]
    pub fn fail_after(&self, frames: Option<u32>) {
        self.allowance.store(frames.map_or(i64::MAX, i64::from), Ordering::SeqCst);
    }

    #[cfg(feature = "fault-injection")]
    fn spend_allowance(&self) -> Result<()> {
        if self.allowance.load(Ordering::SeqCst) == i64::MAX || self.allowance.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.allowance.store(0, Ordering::SeqCst);
        Err(Error::OutOfMemory)
    }

    #[cfg(not(feature = "fault-injection"))]
    #[inline]
    fn spend_allowance(&self) -> Result<()> {
        Ok(())
    }
}

/// For the rest of the manager.
impl Memory {
    #[inline]
    pub(crate) fn pin(&self) -> Guard {
        self.platform.pin()
    }

    #[inline]
    pub(crate) fn platform(&self) -> &dyn Platform {
        &*self.platform
    }

    pub(crate) fn next_space_id(&self) -> u64 {
        self.next_space.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn record(&self, frame: Frame) -> &Record {
        &self.map.records()[frame.0 as usize]
    }

    pub(crate) fn records(&self) -> &[Record] {
        self.map.records()
    }

    /// Entries of a table (or of a frame that was one a moment ago: the caller is pinned).
    #[inline]
    pub(crate) fn entries(&self, table: Frame) -> &Entries {
        self.map.entries(table)
    }

    pub(crate) fn zero(&self) -> &ReferenceTables {
        &self.zero
    }

    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// Entries that every root has in its upper half.
    pub(crate) fn kernel_entries(&self) -> &[(Index, u64)] {
        &self.kernel_entries
    }

    #[inline]
    pub(crate) fn clear_frame(&self, frame: Frame) {
        self.map.clear(frame);
    }

    #[inline]
    pub(crate) fn copy_frame(&self, from: Frame, to: Frame) {
        self.map.copy(from, to);
    }

    pub(crate) fn read_frame(&self, frame: Frame, offset: usize, out: &mut [u8]) {
        self.map.read(frame, offset, out);
    }

    pub(crate) fn write_frame(&self, frame: Frame, offset: usize, bytes: &[u8]) {
        self.map.write(frame, offset, bytes);
    }

    #[inline]
    fn cache(&self) -> &Mutex<Cache> {
        &self.caches[self.platform.processor() % CACHES]
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

    /// From other processors' caches, when there is nothing else. Their locks are only tried: two thieves must not wait for each other.
    fn steal(&self, own: &mut Cache) -> Option<Frame> {
        for other in &self.caches {
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
    fn drain_caches(&self) -> bool {
        let mut any = false;
        for cache in &self.caches {
            let mut cache = cache.lock();
            any |= cache.len() > 0;
            self.spill(&mut cache.data, SPILL);
            self.spill(&mut cache.zeroed, SPILL);
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
        let frame = match zeroed.or_else(|| cache.data.pop(self.records())) {
            Some(frame) => frame,
            None => self.refill(&mut cache)?,
        };
        drop(cache);
        if zeroed.is_none() {
            self.map.clear(frame);
        }
        self.tables.fetch_add(1, Ordering::Relaxed);
        Ok(frame)
    }

    /// Gives back a frame for a table that was not used, all zeros.
    pub(crate) fn free_table(&self, frame: Frame) {
        self.tables.fetch_sub(1, Ordering::Relaxed);
        self.free_zeroed(frame);
    }

    /// Gives back the frame of a dead table, all zeros.
    pub(crate) fn free_zeroed(&self, frame: Frame) {
        debug_assert!(
            self.entries(frame).iter().all(|entry| glance(entry, Ordering::Relaxed) == 0),
            "a freed table is empty"
        );
        let mut cache = self.cache().lock();
        if cache.zeroed.len >= CACHE_SIZE {
            self.spill(&mut cache.zeroed, SPILL);
        }
        cache.zeroed.push(self.records(), frame);
    }

    /// `frames` wait for a grace period from now on, `tables` of them are tables no longer.
    pub(crate) fn note_deferred(&self, tables: u32, frames: u64) {
        self.tables.fetch_sub(tables as u64, Ordering::Relaxed);
        self.deferred.fetch_add(frames, Ordering::Relaxed);
    }

    pub(crate) fn note_undeferred(&self, frames: u64) {
        self.deferred.fetch_sub(frames, Ordering::Relaxed);
    }

    /// Frees what it can for an operation that has run out of memory `attempt` times before; whether it is worth trying again.
    #[cold]
    pub(crate) fn reclaim_for(&self, attempt: u32) -> bool {
        let again = match attempt {
            0 => self.may_reclaim(),
            // Somebody is pinned for long: his processor may not even be running.
            _ => self.deferred.load(Ordering::Relaxed) != 0 && self.platform.wait_for_readers(attempt),
        };
        if again {
            self.reclaim();
        }
        again
    }

    /// Whether a grace period could free frames: some wait for one, or there are objects or reference pages, one of which may be held by
    /// nothing but a retired version of a tree.
    fn may_reclaim(&self) -> bool {
        self.deferred.load(Ordering::Relaxed) + self.objects.load(Ordering::Relaxed) != 0 || self.references.len() != 0
    }

    pub(crate) fn note_object(&self) {
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_object_gone(&self) {
        self.objects.fetch_sub(1, Ordering::Relaxed);
    }
}
