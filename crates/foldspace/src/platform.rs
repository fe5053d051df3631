//! What the embedder supplies.

use crate::addr::PageRange;
use crossbeam_epoch::Guard;

/// Names an address space to the platform. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub u64);

/// Which translations a shootdown drops. Each kind also drops cached upper-level entries of the whole address space,
/// as `INVLPG` does on x86 (Intel SDM vol. 3, 4.10.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// The pages of a range.
    Range(PageRange),
    /// Everything that the address space may have cached.
    All,
}

/// The embedder's side: how to shoot down translations, and how a processor announces that it reads shared nodes.
///
/// # Safety
///
/// The manager frees and reuses memory on the strength of these answers:
/// - when `shootdown` returns, no processor uses a translation of `space` covered by `flush` that it cached before the call;
/// - `pin` returns guards of one and the same [`crossbeam_epoch::Collector`].
pub unsafe trait Platform: Send + Sync {
    /// Drops cached translations of `space` on every processor that may hold some, and returns when that is done.
    /// Called with no spin lock of the manager held except the address space's writers' lock.
    fn shootdown(&self, space: SpaceId, flush: Flush);

    /// Pins the current epoch for this processor: what is retired from now on stays readable until the guard is dropped.
    fn pin(&self) -> Guard;

    /// An operation is out of memory, frames wait for a grace period, and reclaiming has not freed them `attempt` times: a reader that is pinned
    /// holds them. Where a pinned thread can be preempted, lets others run and returns true, or false when enough has been waited. Called
    /// with no lock of the manager held.
    fn wait_for_readers(&self, attempt: u32) -> bool {
        let _ = attempt;
        false
    }

    /// A small number for the processor that runs now; only a hint that picks a cache of frames.
    fn processor(&self) -> usize {
        0
    }
}
