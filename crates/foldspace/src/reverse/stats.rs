//! What the reverse map consists of now.

use super::lineage::Lineages;
use crate::frame::Memory;

/// Objects of the reverse map beside the homes in the records of frames, which are there whether or not anybody forks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReverseStats {
    /// Lineages that have tables.
    pub lineages: u64,
    /// Frames that are mapped at unrelated places, each with a list.
    pub listed_frames: u64,
    /// Places in those lists.
    pub listed_places: u64,
}

impl Memory {
    /// Counts them. O(lineages that ever were at the same time + listed frames), under the locks of both.
    pub fn reverse_stats(&self) -> ReverseStats {
        let (listed_frames, listed_places) = self.reverse.listed.lock().counts();
        ReverseStats { lineages: self.reverse.lineages.count(), listed_frames, listed_places }
    }
}

impl Lineages {
    fn count(&self) -> u64 {
        let heads = self.heads.lock();
        let mut count = heads.first.len() as u64;
        let mut free = heads.free;
        while let Some(id) = free {
            count -= 1;
            free = heads.next_free(id);
        }
        count
    }
}
