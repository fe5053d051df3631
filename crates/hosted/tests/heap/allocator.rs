//! A heap that can be made to run out for one thread, and that knows the largest piece one has asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations that this thread may still make; `None`: any number.
    static ALLOWED: Cell<Option<u64>> = const { Cell::new(None) };
    /// The largest piece since it was set to 0.
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Limited;

/// Whether one more allocation, of `size` bytes, is allowed.
fn spend(size: usize) -> bool {
    // What a thread allocates while it ends is nobody's.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
    let spent = ALLOWED.try_with(|allowed| match allowed.get() {
        None => true,
        Some(0) => false,
        Some(left) => {
            allowed.set(Some(left - 1));
            true
        }
    });
    spent.unwrap_or(true)
}

// SAFETY: it is the system's allocator, which may fail, and does so more often here.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        if spend(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        if spend(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by the caller.
        if spend(new_size) { unsafe { System.realloc(ptr, layout, new_size) } } else { std::ptr::null_mut() }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static HEAP: Limited = Limited;

/// Does something while this thread may allocate only so often.
pub fn with_allocations<T>(allowed: u64, act: impl FnOnce() -> T) -> T {
    ALLOWED.set(Some(allowed));
    let outcome = act();
    ALLOWED.set(None);
    outcome
}

/// Does something, and says what was the largest piece that this thread asked for.
pub fn largest_allocation<T>(act: impl FnOnce() -> T) -> (usize, T) {
    LARGEST.set(0);
    let outcome = act();
    (LARGEST.get(), outcome)
}
