//! The kernel's heap: talc, over a region set aside at boot and then over frames of the manager.
//!
//! When programs have taken every frame, the kernel still needs heap to get rid of one of them: a reserve is kept for that.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering};

use foldspace::addr::PAGE_SHIFT;
use foldspace::{Frame, Memory};
use spin::Mutex;
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use super::frames;

/// log2 of the frames that the heap grows by, where memory is not scarce: 1 MiB.
const GROWTH_ORDER: u8 = 8;

/// What talc needs for itself in a region.
const OVERHEAD: usize = 64;

/// log2 of the frames that are kept for when there are no others: 1 MiB.
const RESERVE_ORDER: u8 = 8;

static RESERVE: Mutex<Option<(Frame, u8)>> = Mutex::new(None);

/// Frames that the heap has taken from the manager, its reserve included.
static FRAMES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static HEAP: TalcLock<Mutex<()>, Frames> = TalcLock::new(Frames);

/// Gives talc contiguous frames when it has no room left. They are never given back.
#[derive(Debug)]
struct Frames;

// SAFETY: taking frames does not use the heap (the manager's buddy allocator lives in its frame records).
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let memory = frames::memory_if_ready().ok_or(())?;
        let pages = (layout.size() + layout.align() + OVERHEAD).div_ceil(1 << PAGE_SHIFT);
        let (first, order) = take(memory, pages.next_power_of_two().trailing_zeros() as u8).ok_or(())?;
        // SAFETY: the frames are ours, mapped, and nobody else uses them.
        let claimed = unsafe { talc.claim(memory.frame_ptr(first), 1 << (u32::from(order) + PAGE_SHIFT)) };
        claimed.map(|_end| ()).ok_or(())
    }
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
        // Used up when memory was scarce; it is less so now.
        if reserve.is_none() {
            *reserve = alloc(RESERVE_ORDER);
        }
        return Some(taken);
    }
    if least > RESERVE_ORDER {
        return None;
    }
    let taken = reserve.take();
    if taken.is_some() {
        log::warn!("no frames are left for the kernel's heap: it now lives on its reserve");
    }
    taken
}

/// Sets the reserve aside, once there are frames.
pub fn init_reserve() {
    let mut reserve = RESERVE.lock();
    if let Ok(first) = frames::memory().alloc_contiguous(RESERVE_ORDER) {
        FRAMES.fetch_add(1 << RESERVE_ORDER, Ordering::Relaxed);
        *reserve = Some((first, RESERVE_ORDER));
    }
}

/// Gives the heap its first region.
///
/// # Safety
/// The region is mapped, writable and nobody else's, for ever.
pub unsafe fn init_early(region: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    let claimed = unsafe { HEAP.lock().claim(region, bytes) };
    assert!(claimed.is_some(), "the first heap region is too small");
}

/// Frames that the heap holds, those of its first region left out.
pub fn heap_frames() -> u64 {
    FRAMES.load(Ordering::Relaxed)
}
