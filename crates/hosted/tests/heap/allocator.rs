//! A heap that can be made to run out for one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations that this thread may still make; `None`: any number.
    static ALLOWED: Cell<Option<u64>> = const { Cell::new(None) };
}

struct Limited;

/// Whether one more allocation is allowed.
fn spend() -> bool {
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
        if spend() { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller.
        if spend() { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: by the caller.
        if spend() { unsafe { System.realloc(ptr, layout, new_size) } } else { std::ptr::null_mut() }
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
