//! What an address space may have: sizes, and memory that is committed.

use foldspace::Error;
use foldspace::frame::Overcommit;
use foldspace::vma::VmaFlags;

use super::{Area, Content, LOCK, ModelSpace, PAGE, Page};

/// What holds for a whole machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    pub overcommit: Overcommit,
    /// Pages of the machine.
    pub memory: u64,
    /// Percent of them that may be committed.
    pub ratio: u64,
    pub max_map_count: u64,
    /// Pages that others have committed.
    pub elsewhere: u64,
}

const KINDS: VmaFlags = VmaFlags::WRITE.union(VmaFlags::SHARED).union(VmaFlags::GROWS_DOWN);

impl ModelSpace {
    /// Pages in areas with these of the flags `among`.
    fn pages(&self, flags: VmaFlags, among: VmaFlags) -> u64 {
        let areas = self.areas.iter().filter(|(_, area)| area.flags & among == flags);
        areas.map(|(start, area)| area.end - start).sum()
    }

    /// Pages in all areas.
    pub fn mapped(&self) -> u64 {
        self.pages(VmaFlags::empty(), VmaFlags::empty())
    }

    /// Pages that are promised to programs.
    pub fn committed(&self) -> u64 {
        self.pages(VmaFlags::ACCOUNT, VmaFlags::ACCOUNT)
    }

    /// Locked pages.
    pub fn locked(&self) -> u64 {
        self.pages(VmaFlags::LOCKED, VmaFlags::LOCKED)
    }

    /// Linux's may_expand_vm.
    pub fn may_expand(&self, flags: VmaFlags, more: u64) -> Result<(), Error> {
        let data = self.pages(VmaFlags::WRITE, KINDS);
        let limit = if self.layout.data_limit == 0 { self.layout.data_limit_hard } else { self.layout.data_limit };
        let is_data = flags & KINDS == VmaFlags::WRITE;
        if self.mapped() + more > self.layout.address_space_limit / PAGE || is_data && data + more > limit / PAGE {
            return Err(Error::NoRoom);
        }
        Ok(())
    }

    /// Linux's mlock_future_ok.
    pub fn may_lock(&self, flags: VmaFlags, more: u64) -> Result<(), Error> {
        let limit = self.layout.lock_limit;
        if flags.contains(VmaFlags::LOCKED) && limit != u64::MAX && self.locked() + more > limit / PAGE {
            return Err(Error::LockLimit);
        }
        Ok(())
    }

    /// Linux's __vm_enough_memory; `more` may be negative.
    pub fn may_commit(&self, more: i64) -> Result<(), Error> {
        self.policy.may_commit(self.committed(), self.mapped(), more)
    }

    /// Area by area.
    pub fn may_fork(&self) -> Result<(), Error> {
        let mut committed = self.committed();
        for (start, area) in &self.areas {
            if area.flags & (VmaFlags::ACCOUNT | VmaFlags::DONT_FORK) == VmaFlags::ACCOUNT {
                self.policy.may_commit(committed, self.mapped(), (area.end - start) as i64)?;
                committed += area.end - start;
            }
        }
        Ok(())
    }

    /// What a new area with these flags has.
    pub fn new_flags(&self, asked: VmaFlags) -> VmaFlags {
        let mut flags = asked | self.layout.future_lock;
        if self.policy.overcommit == Overcommit::Never {
            flags -= VmaFlags::NO_RESERVE;
        }
        let accountable = VmaFlags::WRITE | VmaFlags::SHARED | VmaFlags::NO_RESERVE;
        flags.set(VmaFlags::ACCOUNT, flags & accountable == VmaFlags::WRITE);
        if flags.contains(VmaFlags::DROPPABLE) {
            flags -= LOCK;
        }
        flags
    }

    /// Whether an area has a page of its own, or one of the four areas on either side that it may once have been one with.
    pub fn was_written(&self, start: Page, area: Area) -> bool {
        let kind = VmaFlags::SHARED
            | VmaFlags::GROWS_DOWN
            | VmaFlags::NO_RESERVE
            | VmaFlags::DROPPABLE
            | VmaFlags::MAY_READ
            | VmaFlags::MAY_WRITE
            | VmaFlags::MAY_EXEC
            | VmaFlags::ACCOUNT;
        let alike = |other: &Area| other.flags & kind == area.flags & kind && other.content == area.content;
        let (mut from, mut until) = (start, area.end);
        for _ in 0..4 {
            match self.areas.range(..from).next_back() {
                Some((below, other)) if other.end == from && alike(other) => from = *below,
                _ => break,
            }
        }
        for _ in 0..4 {
            match self.areas.get(&until) {
                Some(other) if alike(other) => until = other.end,
                _ => break,
            }
        }
        let noted = self.areas.range(from..until).any(|(_, area)| area.flags.contains(VmaFlags::WRITTEN));
        noted || self.has_private(from, until)
    }

    /// Whether there is a page of its own.
    pub fn has_private(&self, start: Page, end: Page) -> bool {
        self.private.range(start..end).next().is_some()
    }

    /// Notes of an area that it was stored to, before advice takes that away.
    pub fn note_written(&mut self, start: Page) {
        let area = self.areas.get_mut(&start).expect("it is there");
        if area.flags.contains(VmaFlags::ACCOUNT) && !matches!(area.content, Content::Object(_)) {
            area.flags |= VmaFlags::WRITTEN;
        }
    }
}

impl Policy {
    /// Whether somebody who has `own` pages committed and `mapped` pages mapped may have `more` committed.
    pub fn may_commit(&self, own: u64, mapped: u64, more: i64) -> Result<(), Error> {
        let reserve = (mapped / 32).min(self.memory / 32).min(32_768);
        let after = (self.elsewhere + own).wrapping_add_signed(more);
        let enough = match self.overcommit {
            Overcommit::Always => true,
            Overcommit::Heuristic => more <= self.memory as i64,
            Overcommit::Never => more <= 0 || after < (self.memory * self.ratio / 100).saturating_sub(reserve),
        };
        if enough { Ok(()) } else { Err(Error::CommitLimit) }
    }
}
