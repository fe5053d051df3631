//! Restores and cuts keep out of each other's way.
//!
//! A cut goes through the address spaces from the oldest to the youngest, which misses nothing as long as only the young inherit from the old. A
//! restore lets an old space inherit from a snapshot, which is younger: in the middle of a cut it could bring back what has just been taken out.
//!
//! ```text
//!   restore                                      cut
//!   restores + 1                                 cuts + 1
//!   a cut is there? restores - 1, wait, again    wait until there are no restores
//! ```
//!
//! Each announces itself first and looks for the other then, so one of the two sees the other. Any number of restores run at once, and of cuts.

use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::hint::spin_loop;
use crate::table::Alike;

/// Who is at work.
pub(crate) struct Relinks {
    restores: AtomicU32,
    cuts: AtomicU32,
    /// Restores until now, modulo 2^32.
    turns: AtomicU32,
}

/// Until it is dropped, those of the other kind wait.
pub(crate) struct AtWork<'t>(&'t AtomicU32);

impl Relinks {
    pub(crate) const fn new() -> Relinks {
        Relinks { restores: AtomicU32::new(0), cuts: AtomicU32::new(0), turns: AtomicU32::new(1) }
    }

    /// Waits for cuts. With no lock held.
    pub(super) fn restore(&self) -> AtWork<'_> {
        loop {
            self.restores.fetch_add(1, Ordering::SeqCst);
            let at_work = AtWork(&self.restores);
            if self.cuts.load(Ordering::SeqCst) == 0 {
                return at_work;
            }
            drop(at_work);
            while self.cuts.load(Ordering::Relaxed) != 0 {
                spin_loop();
            }
        }
    }

    /// What the restore that begins does with tables that it finds as they were. To look through them once more takes half as long as to copy one and let
    /// go of it again; so who restores often pays for tables that he has once stored to, and no more does, eight times or so, and then for the pages that
    /// have changed only.
    pub(super) fn alike(&self) -> Alike {
        const ONE_IN: u32 = 8;
        /// 2^32 divided by the golden ratio: whoever takes turns with others, in whatever rhythm, has his part of those.
        const STEP: u32 = 0x9e37_79b9;
        // Relaxed: a number, no more.
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        if turn.wrapping_mul(STEP) < u32::MAX / ONE_IN { Alike::GiveUp } else { Alike::Keep }
    }

    /// Waits for restores, of which no new one begins.
    pub(crate) fn cut(&self) -> AtWork<'_> {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        while self.restores.load(Ordering::SeqCst) != 0 {
            spin_loop();
        }
        AtWork(&self.cuts)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
