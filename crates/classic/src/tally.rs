//! What it all costs.

/// Objects and links of one world.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Address spaces.
    pub processes: u64,
    /// VMAs.
    pub vmas: u64,
    /// anon_vmas that are alive.
    pub anon_vmas: u64,
    /// anon_vmas that were ever made.
    pub anon_vmas_made: u64,
    /// Links between VMAs and anon_vmas now.
    pub links: u64,
    /// Links that were ever made: the work of fork, split and move.
    pub links_made: u64,
    /// The longest chain of a VMA now.
    pub longest_chain: u64,
    /// Anonymous pages.
    pub pages: u64,
}

impl Tally {
    /// Bytes of an anon_vma (`/proc/slabinfo` of Linux 6.18, x86-64).
    pub const ANON_VMA_BYTES: u64 = 104;
    /// Bytes of a link (the same; `anon_vma_chain`).
    pub const LINK_BYTES: u64 = 64;

    /// Bytes of the reverse map's objects now.
    pub fn bytes(&self) -> u64 {
        self.anon_vmas * Tally::ANON_VMA_BYTES + self.links * Tally::LINK_BYTES
    }
}
