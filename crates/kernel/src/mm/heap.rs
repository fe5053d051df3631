//! The kernel's heap: talc, over a region set aside at boot and then over frames of the manager.

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering};

use foldspace::addr::PAGE_SHIFT;
use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use super::frames;

/// log2 of the frames that the heap grows by, where memory is not scarce: 1 MiB.
const GROWTH_ORDER: u8 = 8;

/// What talc needs for itself in a region.
const OVERHEAD: usize = 64;

/// Frames that the heap has taken from the manager.
static FRAMES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static HEAP: TalcLock<spin::Mutex<()>, Frames> = TalcLock::new(Frames);

/// Gives talc contiguous frames when it has no room left. They are never given back.
#[derive(Debug)]
struct Frames;

// SAFETY: taking frames does not use the heap (the manager's buddy allocator lives in its frame records).
unsafe impl Source for Frames {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let memory = frames::memory_if_ready().ok_or(())?;
        let pages = (layout.size() + layout.align() + OVERHEAD).div_ceil(1 << PAGE_SHIFT);
        let least = pages.next_power_of_two().trailing_zeros() as u8;
        // A smaller piece when memory is nearly full: better than none.
        for order in (least..=least.max(GROWTH_ORDER)).rev() {
            if let Ok(first) = memory.alloc_contiguous(order) {
                let bytes = 1 << (u32::from(order) + PAGE_SHIFT);
                // SAFETY: the frames are ours, mapped, and nobody else uses them.
                let claimed = unsafe { talc.claim(memory.frame_ptr(first), bytes) };
                FRAMES.fetch_add(1 << order, Ordering::Relaxed);
                return claimed.map(|_end| ()).ok_or(());
            }
        }
        Err(())
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
