//! The ways to keep what a guest's memory is and to go back to it. Each does the same work, in its own fitting order.

mod copying;
mod foldspace;
mod fork;
mod private;
mod region;
mod write_protect;

use std::time::{Duration, Instant};

use anyhow::Result;

pub use copying::Copying;
pub use foldspace::{AT as FOLDSPACE_BASE, Foldspace};
pub use fork::Fork;
pub use private::Private;
pub use region::Region;
pub use write_protect::{Scanned, WriteProtect};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What was measured of one round.
pub struct Round {
    /// Keeping what the memory is.
    pub snapshot: Duration,
    /// Stores afterwards, one to each of the pages.
    pub writes: Duration,
    /// Going back.
    pub restore: Duration,
    /// Bytes that the kept state takes after the stores, beside the memory itself.
    pub bytes: u64,
}

/// One way, with a guest whose memory is filled as asked.
pub trait Way {
    /// Takes a snapshot, stores to each of `pages`, goes back, and has verified that all is as before.
    fn round(&mut self, pages: &[u64]) -> Result<Round>;
}

/// What page `page` of a guest begins with.
pub fn content(page: u64) -> u64 {
    page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// How long something takes.
pub fn timed<T>(act: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = Instant::now();
    let value = act()?;
    Ok((value, start.elapsed()))
}
