//! madvise, as far as it only notes something: what a VMA is to be like, not what is in it.

use super::limits::may_lose_content;
use super::modify::Holes;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::PageRange;
use crate::error::{Error, Result};
use crate::vma::{Backing, Vma, VmaFlags};

/// What is noted about memory (madvise(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// MADV_NORMAL: neither of the next two.
    Normal,
    /// MADV_RANDOM.
    Random,
    /// MADV_SEQUENTIAL.
    Sequential,
    /// MADV_DONTFORK: a child does not have it.
    DontFork,
    /// MADV_DOFORK.
    DoFork,
    /// MADV_WIPEONFORK: a child has it empty. Private anonymous memory only.
    WipeOnFork,
    /// MADV_KEEPONFORK.
    KeepOnFork,
    /// MADV_DONTDUMP.
    DontDump,
    /// MADV_DODUMP.
    DoDump,
    /// MADV_HUGEPAGE. Noted, and nothing else.
    HugePage,
    /// MADV_NOHUGEPAGE.
    NoHugePage,
    /// MADV_MERGEABLE. Noted, and nothing else; shared and droppable memory is passed over.
    Mergeable,
    /// MADV_UNMERGEABLE.
    Unmergeable,
}

impl AddressSpace {
    /// Notes `advice` about `range`. O(VMAs in it).
    ///
    /// # Errors
    ///
    /// As on Linux, holes are passed over and make it [`Error::NotMapped`] at the end; anything else ends it where it happens, and what
    /// comes before has the advice: [`Error::WrongKind`], [`Error::Sealed`] (advice that takes content from a child, about memory that cannot
    /// be written to), [`Error::TooManyVmas`] (EAGAIN on Linux). [`Error::OutOfMemory`] (EAGAIN): nothing has changed.
    pub fn advise(&self, range: PageRange, advice: Advice) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.modify(guard, range, Holes::Skip, |piece, vma| {
                piece.flags = advice.apply(vma)?;
                Ok(())
            })
        })
    }
}

impl Advice {
    /// The flags of `vma` once it is advised (`madvise_vma_behavior` in Linux's `mm/madvise.c`).
    fn apply(self, vma: &Vma) -> Result<VmaFlags> {
        const ORDER: VmaFlags = VmaFlags::RANDOM.union(VmaFlags::SEQUENTIAL);
        let flags = vma.flags;
        let droppable = flags.contains(VmaFlags::DROPPABLE);
        let shared = flags.contains(VmaFlags::SHARED);
        if matches!(self, Advice::DontFork | Advice::WipeOnFork) {
            may_lose_content(vma)?;
        }
        let refused = match self {
            Advice::WipeOnFork => shared || matches!(vma.backing, Backing::Object(_)),
            Advice::KeepOnFork | Advice::DoDump => droppable,
            _ => false,
        };
        if refused {
            return Err(Error::WrongKind);
        }
        Ok(match self {
            Advice::Normal => flags - ORDER,
            Advice::Random => (flags - ORDER) | VmaFlags::RANDOM,
            Advice::Sequential => (flags - ORDER) | VmaFlags::SEQUENTIAL,
            Advice::DontFork => flags | VmaFlags::DONT_FORK,
            Advice::DoFork => flags - VmaFlags::DONT_FORK,
            Advice::WipeOnFork => flags | VmaFlags::WIPE_ON_FORK,
            Advice::KeepOnFork => flags - VmaFlags::WIPE_ON_FORK,
            Advice::DontDump => flags | VmaFlags::DONT_DUMP,
            Advice::DoDump => flags - VmaFlags::DONT_DUMP,
            Advice::HugePage => (flags - VmaFlags::NO_HUGE_PAGE) | VmaFlags::HUGE_PAGE,
            Advice::NoHugePage => (flags - VmaFlags::HUGE_PAGE) | VmaFlags::NO_HUGE_PAGE,
            Advice::Mergeable if shared || droppable => flags,
            Advice::Mergeable => flags | VmaFlags::MERGEABLE,
            Advice::Unmergeable => flags - VmaFlags::MERGEABLE,
        })
    }
}
