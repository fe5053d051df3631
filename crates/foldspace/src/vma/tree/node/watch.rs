//! Test only: how many nodes are alive, and allocations that fail on demand. Per thread, so that tests do not see each other.

use core::cell::Cell;
use std::thread_local;

use crate::error::{Error, Result};

thread_local! {
    static ALIVE: Cell<isize> = const { Cell::new(0) };
    static MADE: Cell<usize> = const { Cell::new(0) };
    static UNTIL_FAILURE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Nodes that this thread allocated, less those it freed.
pub(crate) fn alive() -> isize {
    ALIVE.get()
}

/// Nodes that this thread ever allocated.
pub(crate) fn made() -> usize {
    MADE.get()
}

/// The allocation after `n` more fails, and every later one, until this is called with `None`.
pub(crate) fn fail_after(n: Option<usize>) {
    UNTIL_FAILURE.set(n);
}

/// What every allocation asks first.
pub(in super::super) fn about_to_allocate() -> Result<()> {
    match UNTIL_FAILURE.get() {
        None => Ok(()),
        Some(0) => Err(Error::OutOfMemory),
        Some(n) => {
            UNTIL_FAILURE.set(Some(n - 1));
            Ok(())
        }
    }
}

pub(super) fn allocated() {
    ALIVE.set(ALIVE.get() + 1);
    MADE.set(MADE.get() + 1);
}

pub(super) fn freed() {
    // While a thread ends, its garbage may be freed after its thread-locals are gone.
    let _ = ALIVE.try_with(|alive| alive.set(alive.get() - 1));
}
