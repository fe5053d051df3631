//! How a shootdown reaches a [`Cpu`](super::Cpu), which takes no lock for an access.
//!
//! ```text
//!   access                                     shootdown
//!   busy                                       request + 1
//!   (no barrier)                               a barrier on all threads of the process: membarrier(2)
//!   a new request? not busy, forget, again     busy? wait until it is not
//!   uses the translation
//!   not busy
//! ```
//!
//! The one who shoots pays for both barriers: after his either the access has seen the request, or he sees that it is busy. Where the host has no
//! membarrier, each access has a barrier of its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence, fence};

use foldspace::PageRange;
use foldspace::platform::{Flush, SpaceId};

use crate::platform::membarrier;

/// What a processor and those who shoot at it share. On a cache line of its own, so that processors do not meet in it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Line {
    busy: AtomicBool,
    /// Two for each.
    requests: AtomicU64,
    /// What it runs.
    space: AtomicU64,
    /// The pages of the last request. Meant for who finds one new request and no more.
    start: AtomicU64,
    end: AtomicU64,
}

/// What is to be forgotten.
pub(super) enum Forget {
    Nothing,
    /// Pages from the first number to before the second.
    Pages(u64, u64),
    Everything,
}

/// No space has this number.
const NOBODY: u64 = u64::MAX;

impl Line {
    pub(super) fn new() -> Line {
        has_membarrier();
        Line { space: AtomicU64::new(NOBODY), ..Line::default() }
    }

    pub(super) fn run(&self, space: SpaceId) {
        self.space.store(space.0, Ordering::SeqCst);
    }

    /// Begins an access if nothing is to be forgotten since `seen`. Ends with [`Line::end`].
    #[inline(always)]
    pub(super) fn begin(&self, seen: u64, barrier: Barrier) -> bool {
        self.busy.store(true, Ordering::Relaxed);
        match barrier {
            Barrier::Theirs => compiler_fence(Ordering::SeqCst),
            Barrier::Ours => fence(Ordering::SeqCst),
        }
        if self.requests.load(Ordering::Acquire) == seen {
            return true;
        }
        self.end();
        false
    }

    #[inline(always)]
    pub(super) fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// What has been asked for since `seen`, which becomes the present number.
    pub(super) fn news(&self, seen: &mut u64) -> Forget {
        let requests = self.requests.load(Ordering::SeqCst);
        let pages = (self.start.load(Ordering::SeqCst), self.end.load(Ordering::SeqCst));
        let since = requests.wrapping_sub(*seen);
        *seen = requests;
        match since {
            0 => Forget::Nothing,
            // One whole request, and no other began while its pages were read.
            2 if self.requests.load(Ordering::SeqCst) == requests => Forget::Pages(pages.0, pages.1),
            _ => Forget::Everything,
        }
    }

    /// Asks it to forget, if it runs the space; whether it does.
    pub(crate) fn ask(&self, space: SpaceId, flush: Flush) -> bool {
        let runs = self.space.load(Ordering::SeqCst) == space.0;
        if runs {
            let (start, end) = match flush {
                Flush::All => (0, u64::MAX),
                Flush::Range(range) => numbers(range),
            };
            // Odd while its pages are written: a sequence count.
            self.requests.fetch_add(1, Ordering::SeqCst);
            self.start.store(start, Ordering::SeqCst);
            self.end.store(end, Ordering::SeqCst);
            self.requests.fetch_add(1, Ordering::SeqCst);
        }
        runs
    }

    /// Waits until no access uses what it was asked to forget. After [`barrier`].
    pub(crate) fn wait(&self) {
        while self.busy.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
    }
}

fn numbers(range: PageRange) -> (u64, u64) {
    (range.start().get() >> foldspace::addr::PAGE_SHIFT, range.end().get() >> foldspace::addr::PAGE_SHIFT)
}

/// Who has the barrier between announcing an access and looking for requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Barrier {
    Ours,
    Theirs,
}

pub(super) fn whose_barrier() -> Barrier {
    if has_membarrier() { Barrier::Theirs } else { Barrier::Ours }
}

fn has_membarrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(membarrier::register)
}

/// The barrier of who shoots.
pub(crate) fn barrier() {
    fence(Ordering::SeqCst);
    if has_membarrier() {
        membarrier::run();
    }
}
