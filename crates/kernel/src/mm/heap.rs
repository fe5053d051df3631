//! The kernel's heap: talc, over a region set aside at boot and then over frames of the manager. Small blocks that were freed are kept by size
//! in front of it: most of what is allocated is of a size that was freed a moment ago. What waits for its grace period can be many times what is
//! in use for good; [`trim`] gives the frames back afterwards.
//!
//! When programs have taken every frame, the kernel still needs heap to get rid of one of them: a reserve is kept for that.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sync::{Mutex, RawSpin};
use foldspace::addr::PAGE_SHIFT;
use foldspace::{Frame, Memory};
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use super::frames;

/// log2 of the frames that the heap grows by, where memory is not scarce: 1 MiB.
const GROWTH_ORDER: u8 = 8;

/// What talc needs for itself in a region, and the region's [`Footer`].
const OVERHEAD: usize = 64 + size_of::<Footer>();

/// log2 of the frames that are kept for when there are no others: 1 MiB.
const RESERVE_ORDER: u8 = 8;

/// Whether the reserve is in use.
static SCARCE: AtomicBool = AtomicBool::new(false);

static RESERVE: Mutex<Option<(Frame, u8)>> = Mutex::new(None);

/// Frames that the heap has taken from the manager, its reserve included.
static FRAMES: AtomicU64 = AtomicU64::new(0);

/// Bytes of its first region.
static FIRST: AtomicU64 = AtomicU64::new(0);

/// Blocks up to this size are kept when they are freed.
const SMALL: usize = 1024;
/// Sizes of small blocks are multiples of this, and it is their alignment.
const STEP: usize = 16;

#[global_allocator]
static HEAP: Heap = Heap {
    talc: TalcLock::new(Frames { regions: None, in_use: 0 }),
    small: [const { Mutex::new(FreeBlocks { first: ptr::null_mut() }) }; SMALL / STEP],
};

/// The heap.
struct Heap {
    talc: TalcLock<RawSpin, Frames>,
    /// Freed blocks of `STEP`, `2 * STEP`, ... bytes.
    small: [Mutex<FreeBlocks>; SMALL / STEP],
}

/// A list of free blocks of one size, linked through their first words.
///
/// # Invariants
/// Each is a block that talc has allocated with the list's size and alignment `STEP`, and nobody else refers to it.
struct FreeBlocks {
    first: *mut FreeBlock,
}

struct FreeBlock {
    next: *mut FreeBlock,
}

// SAFETY: it owns its blocks.
unsafe impl Send for FreeBlocks {}

impl FreeBlocks {
    fn pop(&mut self) -> Option<*mut u8> {
        if self.first.is_null() {
            return None;
        }
        let block = self.first;
        // SAFETY: by the invariants.
        self.first = unsafe { (*block).next };
        Some(block.cast())
    }
}

/// The list for blocks of a layout, and the layout that its blocks have in talc; `None` if they are not kept.
#[inline(always)]
fn small_class(layout: Layout) -> Option<(usize, Layout)> {
    if layout.size().wrapping_sub(1) >= SMALL || layout.align() > STEP {
        return None;
    }
    let class = (layout.size() - 1) / STEP;
    // SAFETY: not zero, a small multiple of `STEP`, which is a power of two.
    Some((class, unsafe { Layout::from_size_align_unchecked((class + 1) * STEP, STEP) }))
}

// SAFETY: a block is given to one caller at a time: it is either with its caller, in one list, or talc's. It has at least the size and the alignment asked for.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some((class, layout)) = small_class(layout) else { return self.alloc_slow(layout) };
        if let Some(block) = self.small[class].lock().pop() {
            return block;
        }
        self.alloc_slow(layout)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match small_class(layout) {
            Some((class, _)) => {
                let block = block.cast::<FreeBlock>();
                let mut list = self.small[class].lock();
                // SAFETY: the caller gives the block back; it has room for a pointer and its alignment.
                unsafe { block.write(FreeBlock { next: list.first }) };
                list.first = block;
            }
            // SAFETY: it came from talc with this layout.
            None => unsafe {
                let mut talc = self.talc.lock();
                talc.source.in_use -= layout.size();
                talc.deallocate(block, layout);
            },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: by the caller, `size` with this alignment is a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (small_class(layout), small_class(new)) {
            (Some((old, _)), Some((new, _))) if old == new => return block,
            (None, None) => {
                let mut talc = self.talc.lock();
                // SAFETY: it came from talc with this layout.
                if unsafe { talc.try_realloc_in_place(block, layout, size) } {
                    talc.source.in_use = talc.source.in_use - layout.size() + size;
                    return block;
                }
            }
            _ => {}
        }
        // SAFETY: two different blocks; the old one is the caller's.
        unsafe {
            let to = self.alloc(new);
            if !to.is_null() {
                to.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            to
        }
    }
}

impl Heap {
    /// From talc; kept blocks go back to it if it has nothing else. Null if that does not help.
    #[cold]
    fn alloc_slow(&self, layout: Layout) -> *mut u8 {
        let allocate = || {
            let mut talc = self.talc.lock();
            // SAFETY: the size is not zero, as for every call of the global allocator.
            let block = unsafe { talc.allocate(layout) }?;
            talc.source.in_use += layout.size();
            Some(block)
        };
        let block = allocate().or_else(|| {
            self.give_back();
            allocate()
        });
        block.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Gives all kept blocks back to talc, which joins them.
    fn give_back(&self) {
        for (class, list) in self.small.iter().enumerate() {
            let size = (class + 1) * STEP;
            let Ok(layout) = Layout::from_size_align(size, STEP) else {
                unreachable!("a small multiple of a power of two")
            };
            while let Some(block) = list.lock().pop() {
                let mut talc = self.talc.lock();
                talc.source.in_use -= size;
                // SAFETY: by the invariants of the list.
                unsafe { talc.deallocate(block, layout) };
            }
        }
    }
}

/// Gives talc contiguous frames when it has no room left. They come back in [`trim`].
#[derive(Debug)]
struct Frames {
    /// The regions that talc has, but the first of all.
    regions: Option<NonNull<Footer>>,
    /// Bytes of the blocks that talc has given out, kept ones among them.
    in_use: usize,
}

/// What stands at the end of a region, where talc has no business.
struct Footer {
    next: Option<NonNull<Footer>>,
    /// Its frames, and log2 of their number.
    first: Frame,
    order: u8,
    /// Where talc says that the region ends.
    end: NonNull<u8>,
}

// SAFETY: it owns its regions.
unsafe impl Send for Frames {}

// SAFETY: taking frames does not use the heap (the manager's buddy allocator lives in its frame records).
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let memory = frames::memory_if_ready().ok_or(())?;
        let pages = (layout.size() + layout.align() + OVERHEAD).div_ceil(1 << PAGE_SHIFT);
        let (first, order) = take(memory, pages.next_power_of_two().trailing_zeros() as u8).ok_or(())?;
        let base = memory.frame_ptr(first);
        let len = (1 << (u32::from(order) + PAGE_SHIFT)) - size_of::<Footer>();
        // SAFETY: the frames are ours, mapped, and nobody else uses them. The footer is beyond what talc gets, and aligned as the frames' end is,
        // its size being a multiple of its alignment.
        unsafe {
            let end = talc.claim(base, len).ok_or(())?;
            let footer = base.add(len).cast::<Footer>();
            footer.write(Footer { next: talc.source.regions, first, order, end });
            talc.source.regions = NonNull::new(footer);
        }
        Ok(())
    }
}

/// Gives the frames back in whose regions nothing is in use. Returns whether there were any. O(kept blocks and regions), under the heap's locks.
pub fn trim() -> bool {
    HEAP.give_back();
    let mut talc = HEAP.talc.lock();
    let (mut region, mut kept, mut given) = (talc.source.regions.take(), None, 0);
    while let Some(mut at) = region {
        // SAFETY: footers in the list are those of regions that talc has, and nobody else refers to them. Where talc has given a region up, what is
        // in it has been read before its frames are.
        unsafe {
            let Footer { next, first, order, end } = ptr::read(at.as_ptr());
            region = next;
            if talc.reserved(end).any {
                at.as_mut().next = kept;
                kept = Some(at);
            } else {
                talc.truncate(end, ptr::null_mut());
                frames::memory().free_contiguous(first, order);
                given += 1 << order;
            }
        }
    }
    talc.source.regions = kept;
    FRAMES.fetch_sub(given, Ordering::Relaxed);
    given > 0
}

/// Frames for the heap: `2^least` at least, more while memory is not scarce, the reserve if there is nothing else.
fn take(memory: &Memory, least: u8) -> Option<(Frame, u8)> {
    let alloc = |order| {
        let first = memory.alloc_contiguous(order).ok()?;
        FRAMES.fetch_add(1 << order, Ordering::Relaxed);
        Some((first, order))
    };
    let mut reserve = RESERVE.lock();
    if let Some(taken) = (least..=least.max(GROWTH_ORDER)).rev().find_map(alloc) {
        return Some(taken);
    }
    if least > RESERVE_ORDER {
        return None;
    }
    SCARCE.store(true, Ordering::Relaxed);
    reserve.take()
}

/// Whether the heap lives on its reserve, which is for getting rid of processes: what would make more of them, or let them have more, is to be
/// refused then.
#[inline]
pub fn is_scarce() -> bool {
    SCARCE.load(Ordering::Relaxed) && !is_scarcity_over()
}

/// Sets the reserve aside again if that can be done, and gives back what the heap has grown by for nothing lasting.
#[cold]
fn is_scarcity_over() -> bool {
    let over = refill_reserve();
    if over {
        trim();
    }
    over
}

/// Sets the reserve aside again if there are frames for it now.
fn refill_reserve() -> bool {
    let mut reserve = RESERVE.lock();
    if reserve.is_none() {
        let Ok(first) = frames::memory().alloc_contiguous(RESERVE_ORDER) else { return false };
        FRAMES.fetch_add(1 << RESERVE_ORDER, Ordering::Relaxed);
        *reserve = Some((first, RESERVE_ORDER));
    }
    SCARCE.store(false, Ordering::Relaxed);
    true
}

/// Sets the reserve aside, once there are frames.
pub fn init_reserve() {
    SCARCE.store(!refill_reserve(), Ordering::Relaxed);
}

/// Gives the heap its first region.
///
/// # Safety
/// The region is mapped, writable and nobody else's, for ever.
pub unsafe fn init_early(region: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let claimed = unsafe { HEAP.talc.lock().claim(region, bytes) };
    assert!(claimed.is_some(), "the first heap region is too small");
    FIRST.store(bytes as u64, Ordering::Relaxed);
}

/// What of the heap's memory would be free if the blocks in use lay close together, in frames. Blocks kept after they were freed count as in use until
/// the next [`trim`].
pub fn idle_heap_frames() -> u64 {
    let in_use = HEAP.talc.lock().source.in_use as u64;
    let all = (heap_frames() << PAGE_SHIFT) + FIRST.load(Ordering::Relaxed);
    all.saturating_sub(in_use) >> PAGE_SHIFT
}

/// Frames that the heap holds, those of its first region left out.
pub fn heap_frames() -> u64 {
    FRAMES.load(Ordering::Relaxed)
}
