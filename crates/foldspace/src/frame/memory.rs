//! [`Memory`]: all frames of a machine, and what every address space on them shares.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;

use arrayvec::ArrayVec;
use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;

use super::buddy::{Buddy, ORDERS};
use super::caches::Caches;
use super::commit::Commit;
use super::direct_map::DirectMap;
use super::record::{Kind, Record};
use super::{Entries, Frame};
use crate::addr::{ENTRIES, Index, PAGE_SIZE, VirtAddr};
use crate::backing::{Objects, ReferenceTables, References};
use crate::error::{Error, Result};
use crate::platform::Platform;
use crate::reverse::Reverse;
use crate::space::{Registry, Relinks};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Rank, glance};

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
    /// Taken by [`Memory::alloc_contiguous`], the records themselves, the zero frame, and frames that have failed.
    pub reserved: u64,
}

/// Linux's default for `vm.mmap_min_addr` (`CONFIG_DEFAULT_MMAP_MIN_ADDR`).
const DEFAULT_LOWEST_ADDRESS: VirtAddr = VirtAddr(0x1_0000);

/// All frames of a machine, or of an arena, and what is needed to manage them.
///
/// The order of its locks: `sync::Rank`.
///
/// What every fault reads and hardly anybody writes is apart from what is written: each of that has cache lines of its own.
pub struct Memory {
    map: DirectMap,
    platform: Box<dyn Platform>,
    pub(super) total: u64,
    lowest_address: AtomicU64,
    /// One of [`Ends`].
    ends: AtomicU64,
    kernel_entries: ArrayVec<(Index, u64), 16>,
    /// The default reference page, and the tables full of it.
    zero: ReferenceTables,
    /// Itself, for what it queues to be done later.
    me: Weak<Memory>,
    pub(super) caches: Caches,
    pub(super) buddy: CachePadded<Mutex<Buddy>>,
    pub(super) counters: CachePadded<Counters>,
    references: CachePadded<References>,
    objects: CachePadded<Objects>,
    pub(crate) reverse: CachePadded<Reverse>,
    pub(crate) registry: CachePadded<Registry>,
    pub(crate) relinks: CachePadded<Relinks>,
    pub(super) commit: CachePadded<Commit>,
    #[cfg(feature = "fault-injection")]
    allowance: crate::sync::atomic::AtomicI64,
}

/// What becomes of what is left when an address space or an object ends.
#[repr(u64)]
enum Ends {
    /// It waits for a grace period, which others will end.
    Left,
    /// Whoever ends it reclaims.
    Reclaimed,
    /// And somebody is doing that.
    Reclaiming,
}

/// What is counted of all processors together: nothing that a fault changes.
pub(super) struct Counters {
    reserved: AtomicU64,
    objects: AtomicU64,
    next_space: AtomicU64,
    /// Blocks that are being emptied: what is freed meanwhile may be in one of them.
    pub(super) emptying: AtomicU64,
    moved: AtomicU64,
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
        // Relaxed: nobody else is there yet.
        zero.for_each_entry(|table, index, entry| map.entries(table)[index].store(entry, Ordering::Relaxed));
        let total = config.usable.iter().map(|range| range.len() as u64).sum();
        let counters = Counters {
            reserved: AtomicU64::new(records as u64 + 1),
            objects: AtomicU64::new(0),
            next_space: AtomicU64::new(1),
            emptying: AtomicU64::new(0),
            moved: AtomicU64::new(0),
        };
        let platform = config.platform;
        Ok(Arc::new_cyclic(|me| Memory {
            total,
            lowest_address: AtomicU64::new(DEFAULT_LOWEST_ADDRESS.get()),
            ends: AtomicU64::new(Ends::Left as u64),
            platform,
            me: Weak::clone(me),
            caches: Caches::new(),
            buddy: CachePadded::new(Mutex::new(Rank::Buddy, buddy)),
            counters: CachePadded::new(counters),
            reverse: CachePadded::new(Reverse::new()),
            registry: CachePadded::new(Registry::new()),
            relinks: CachePadded::new(Relinks::new()),
            commit: CachePadded::new(Commit::new()),
            #[cfg(feature = "fault-injection")]
            allowance: crate::sync::atomic::AtomicI64::new(i64::MAX),
            kernel_entries,
            map,
            zero,
            references: CachePadded::new(References::new()),
            objects: CachePadded::new(Objects::new()),
        }))
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
        /// Those of the zero page.
        const ALWAYS: u64 = 3;
        let cached = self.caches.count();
        let free = self.buddy.lock().free() + cached.free;
        let (deferred, tables) = (cached.deferred, cached.tables + ALWAYS);
        let reserved = self.counters.reserved.load(Ordering::Relaxed);
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
        self.counters.reserved.fetch_add(1 << order, Ordering::Relaxed);
        Ok(frame)
    }

    /// Gives back what [`Memory::alloc_contiguous`] gave.
    pub fn free_contiguous(&self, first: Frame, order: u8) {
        let record = self.record(first);
        assert!(record.kind() == Kind::Reserved && record.order() == order, "not such a block");
        self.counters.reserved.fetch_sub(1 << order, Ordering::Relaxed);
        record.mark(Kind::Idle, 0);
        self.buddy.lock().release(self.map.records(), first, order as usize);
    }

    /// Frames of which the content was moved to others so far ([`Memory::migrate`], [`Memory::compact`]).
    pub fn moved_frames(&self) -> u64 {
        self.counters.moved.load(Ordering::Relaxed)
    }

    /// A frame is used for nothing any more, but counted.
    pub(crate) fn retire_frame(&self, frame: Frame) {
        self.record(frame).mark(Kind::Poisoned, 0);
        self.counters.reserved.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_moved(&self) {
        self.counters.moved.fetch_add(1, Ordering::Relaxed);
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
        let Some(me) = self.me.upgrade() else { return };
        // An epoch ends when all who were pinned in it have left; garbage is free two epochs on. Several times over, for what is freed may
        // retire something itself: the nodes of a tree its VMAs, the last VMA of an object its pages.
        for _ in 0..12 {
            me.defer_queued();
            self.platform.pin().flush();
        }
    }

    /// From now on whoever drops an address space, a snapshot or an object reclaims, too, as far as nobody is pinned. For an embedder that goes before them: what
    /// they leave keeps the memory alive until its grace period ends, and nobody would call [`Memory::reclaim`] any more.
    pub fn reclaim_at_ends(&self) {
        self.ends.store(Ends::Reclaimed as u64, Ordering::Relaxed);
    }

    /// An address space or an object has ended; its guard is dropped.
    #[inline]
    pub(crate) fn ended(&self) {
        // Relaxed: who has asked for it knows that others may end meanwhile.
        if glance(&self.ends, Ordering::Relaxed) != Ends::Left as u64 {
            self.reclaim_at_end();
        }
    }

    #[cold]
    fn reclaim_at_end(&self) {
        let (idle, busy) = (Ends::Reclaimed as u64, Ends::Reclaiming as u64);
        // What is reclaimed may end something itself: that is seen to by who has begun.
        if self.ends.compare_exchange(idle, busy, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.reclaim();
            self.ends.store(idle, Ordering::Relaxed);
        }
    }

    /// Lets `frames` more frames be allocated, then makes every allocation fail; `None` lifts that. (For tests, which want the order of all threads.)
    #[cfg(feature = "fault-injection")]
    pub fn fail_after(&self, frames: Option<u32>) {
        self.allowance.store(frames.map_or(i64::MAX, i64::from), Ordering::SeqCst);
    }

    #[cfg(feature = "fault-injection")]
    pub(super) fn spend_allowance(&self) -> Result<()> {
        if self.allowance.load(Ordering::SeqCst) == i64::MAX || self.allowance.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.allowance.store(0, Ordering::SeqCst);
        Err(Error::OutOfMemory)
    }

    #[cfg(not(feature = "fault-injection"))]
    #[inline]
    pub(super) fn spend_allowance(&self) -> Result<()> {
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
        // Relaxed: a number, no more.
        self.counters.next_space.fetch_add(1, Ordering::Relaxed)
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

    pub(crate) fn objects(&self) -> &Objects {
        &self.objects
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
    pub(crate) fn fill_frame(&self, frame: Frame, byte: u8) {
        self.map.fill(frame, byte);
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

    pub(crate) fn move_bytes(&self, from: (Frame, usize), to: (Frame, usize), len: usize) {
        self.map.move_bytes(from, to, len);
    }

    pub(crate) fn word_of_frame(&self, frame: Frame, offset: usize) -> &core::sync::atomic::AtomicU32 {
        self.map.word(frame, offset)
    }

    /// Frees what it can for an operation that has run out of memory `attempt` times before; whether it is worth trying again.
    #[cold]
    pub(crate) fn reclaim_for(&self, attempt: u32) -> bool {
        #[cfg(feature = "watch")]
        crate::sync::watch::may_hold_up_to(None);
        let again = match attempt {
            0 => self.may_reclaim(),
            // Somebody is pinned for long: his processor may not even be running.
            _ => self.caches.count().deferred != 0 && self.platform.wait_for_readers(attempt),
        };
        if again {
            self.reclaim();
        }
        again
    }

    /// Whether a grace period could free frames: some wait for one, or there are objects or reference pages, one of which may be held by
    /// nothing but a retired version of a tree.
    fn may_reclaim(&self) -> bool {
        let objects = self.counters.objects.load(Ordering::Relaxed);
        self.caches.count().deferred + objects != 0 || self.references.len() != 0
    }

    pub(crate) fn note_object(&self) {
        self.counters.objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_object_gone(&self) {
        self.counters.objects.fetch_sub(1, Ordering::Relaxed);
    }
}
