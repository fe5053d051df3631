//! Changes of areas where they are, one area after the other as Linux does it: mprotect, madvise, names, locks, seals.

use foldspace::Error;
use foldspace::space::{Advice, LockMode};
use foldspace::vma::VmaFlags;

use super::layout::part;
use super::{Area, Content, LOCK, Model, ModelSpace, ObjectKind, PAGE, Page};

/// What a hole means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holes {
    End,
    Skip,
}

impl ModelSpace {
    /// Lets `turn` say what becomes of each area (it gets the space as it is then, where the area starts, the area, and how many of its pages
    /// are meant).
    fn modify(
        &mut self,
        start: Page,
        end: Page,
        holes: Holes,
        turn: impl Fn(&ModelSpace, Page, Area, u64) -> Result<Area, Error>,
    ) -> Result<(), Error> {
        let (mut at, mut has_holes) = (start, false);
        while at < end {
            let Some((from, area)) = self.area_or_next(at).filter(|(from, _)| *from < end) else {
                return Err(Error::NotMapped);
            };
            if from > at {
                has_holes = true;
                if holes == Holes::End {
                    return Err(Error::NotMapped);
                }
                at = from;
            }
            let until = area.end.min(end);
            let turned = turn(self, from, area, until - at)?;
            if (turned.flags, turned.name, turned.key) != (area.flags, area.name, area.key) {
                self.turn(at, until, turned)?;
            }
            at = until;
        }
        if has_holes { Err(Error::NotMapped) } else { Ok(()) }
    }

    /// Linux's vma_modify: merges if it may, cuts otherwise.
    fn turn(&mut self, start: Page, end: Page, into: Area) -> Result<(), Error> {
        let (from, area) = self.area(start).expect("it is there");
        let turned = Area { end, flags: into.flags, name: into.name, key: into.key, ..part(from, area, start) };
        let left = from == start && self.merges_left(start, turned);
        let right = area.end == end && self.merges_right(start, turned);
        if !left && !right {
            for (at, cuts) in [(start, from < start), (end, end < area.end)] {
                if cuts && self.areas.len() as u64 >= self.policy.max_map_count {
                    return Err(Error::TooManyVmas);
                }
                if cuts {
                    self.split_at(at);
                }
            }
        } else {
            self.split_at(start);
            self.split_at(end);
        }
        self.areas.insert(start, turned);
        self.merge_at(start);
        Ok(())
    }

    /// mprotect.
    pub fn protect(&mut self, start: Page, end: Page, access: VmaFlags, key: Option<u32>) -> Result<(), Error> {
        self.modify(start, end, Holes::End, |space, from, area, pages| {
            if !may(area.flags).contains(access) {
                return Err(Error::AccessDenied);
            }
            if area.flags.contains(VmaFlags::SEALED) {
                return Err(Error::Sealed);
            }
            let mut flags = (area.flags - VmaFlags::READ - VmaFlags::WRITE - VmaFlags::EXEC) | access;
            let area = Area { key: key.unwrap_or(area.key), ..area };
            if flags == area.flags {
                return Ok(area);
            }
            if access.contains(VmaFlags::WRITE) {
                if space.may_expand(flags, pages).is_err() && space.may_expand(area.flags, pages).is_ok() {
                    return Err(Error::NoRoom);
                }
                let counted = VmaFlags::ACCOUNT | VmaFlags::WRITE | VmaFlags::SHARED | VmaFlags::NO_RESERVE;
                if !area.flags.intersects(counted) {
                    space.may_commit(pages as i64)?;
                    flags |= VmaFlags::ACCOUNT;
                }
            } else if area.flags.contains(VmaFlags::ACCOUNT | VmaFlags::WRITE)
                && !matches!(area.content, Content::Object(_))
                && !space.was_written(from, area)
            {
                flags -= VmaFlags::ACCOUNT;
            }
            Ok(Area { flags, ..area })
        })
    }

    /// mprotect with PROT_GROWSDOWN.
    pub fn protect_stack(&mut self, start: Page, end: Page, access: VmaFlags) -> Result<(), Error> {
        match self.area_or_next(start) {
            Some((from, area)) if from < end => {
                if !area.flags.contains(VmaFlags::GROWS_DOWN) {
                    return Err(Error::WrongKind);
                }
                self.protect(from, end, access, None)
            }
            _ => Err(Error::NotMapped),
        }
    }

    /// madvise, as far as it notes something.
    pub fn advise(&mut self, start: Page, end: Page, advice: Advice) -> Result<(), Error> {
        self.modify(start, end, Holes::Skip, |_, _, area, _| {
            let (shared, droppable) = (area.flags.contains(VmaFlags::SHARED), area.flags.contains(VmaFlags::DROPPABLE));
            let (clear, set) = match advice {
                Advice::Normal => (VmaFlags::RANDOM | VmaFlags::SEQUENTIAL, VmaFlags::empty()),
                Advice::Random => (VmaFlags::SEQUENTIAL, VmaFlags::RANDOM),
                Advice::Sequential => (VmaFlags::RANDOM, VmaFlags::SEQUENTIAL),
                Advice::DontFork => (VmaFlags::empty(), VmaFlags::DONT_FORK),
                Advice::DoFork => (VmaFlags::DONT_FORK, VmaFlags::empty()),
                Advice::WipeOnFork => (VmaFlags::empty(), VmaFlags::WIPE_ON_FORK),
                Advice::KeepOnFork => (VmaFlags::WIPE_ON_FORK, VmaFlags::empty()),
                Advice::DontDump => (VmaFlags::empty(), VmaFlags::DONT_DUMP),
                Advice::DoDump => (VmaFlags::DONT_DUMP, VmaFlags::empty()),
                Advice::HugePage => (VmaFlags::NO_HUGE_PAGE, VmaFlags::HUGE_PAGE),
                Advice::NoHugePage => (VmaFlags::HUGE_PAGE, VmaFlags::NO_HUGE_PAGE),
                Advice::Mergeable if shared || droppable => (VmaFlags::empty(), VmaFlags::empty()),
                Advice::Mergeable => (VmaFlags::empty(), VmaFlags::MERGEABLE),
                Advice::Unmergeable => (VmaFlags::MERGEABLE, VmaFlags::empty()),
            };
            if matches!(advice, Advice::DontFork | Advice::WipeOnFork) {
                area.may_lose_content()?;
            }
            let of_object = matches!(area.content, Content::Object(_));
            if advice == Advice::WipeOnFork && (shared || of_object)
                || droppable && matches!(advice, Advice::KeepOnFork | Advice::DoDump)
            {
                return Err(Error::WrongKind);
            }
            Ok(Area { flags: (area.flags - clear) | set, ..area })
        })
    }

    /// mlock and mlock2.
    pub fn lock(&mut self, start: Page, end: Page, mode: LockMode) -> Result<(), Error> {
        if self.layout.lock_limit != u64::MAX {
            let mut outside = self.clone();
            outside.carve(start, end);
            if outside.locked() + (end - start) > self.layout.lock_limit / PAGE {
                return Err(Error::LockLimit);
            }
        }
        self.modify(start, end, Holes::End, |_, _, area, _| Ok(relocked(area, lock_flags(mode))))
    }

    /// munlock.
    pub fn unlock(&mut self, start: Page, end: Page) -> Result<(), Error> {
        self.modify(start, end, Holes::End, |_, _, area, _| Ok(relocked(area, VmaFlags::empty())))
    }

    /// mlockall.
    pub fn lock_all(&mut self, now: Option<LockMode>, future: Option<LockMode>) -> Result<(), Error> {
        let limit = self.layout.lock_limit;
        if now.is_some() && limit != u64::MAX && self.mapped() > limit / PAGE {
            return Err(Error::LockLimit);
        }
        self.layout.future_lock = future.map_or(VmaFlags::empty(), lock_flags);
        if let Some(now) = now {
            self.relock_all(lock_flags(now));
        }
        Ok(())
    }

    /// munlockall.
    pub fn unlock_all(&mut self) {
        self.layout.future_lock = VmaFlags::empty();
        self.relock_all(VmaFlags::empty());
    }

    fn relock_all(&mut self, lock: VmaFlags) {
        let _ = self.modify(0, super::layout::END, Holes::Skip, |_, _, area, _| Ok(relocked(area, lock)));
    }

    /// mseal.
    pub fn seal(&mut self, start: Page, end: Page) -> Result<(), Error> {
        // Changes nothing, and finds holes.
        self.clone().modify(start, end, Holes::End, |_, _, area, _| Ok(area))?;
        self.modify(start, end, Holes::End, |_, _, area, _| Ok(Area { flags: area.flags | VmaFlags::SEALED, ..area }))
    }
}

impl Model {
    /// PR_SET_VMA_ANON_NAME.
    pub fn set_name(&mut self, space: usize, start: Page, end: Page, name: Option<u8>) -> Result<(), Error> {
        let objects = &self.objects;
        self.spaces[space].modify(start, end, Holes::Skip, |_, _, area, _| match area.content {
            Content::Object(object) if matches!(objects[object].kind, ObjectKind::File { .. }) => Err(Error::WrongKind),
            _ => Ok(Area { name, ..area }),
        })
    }
}

impl Area {
    /// Linux's can_madvise_modify.
    pub fn may_lose_content(&self) -> Result<(), Error> {
        let lasting = matches!(self.content, Content::Object(_));
        if self.flags & (VmaFlags::SEALED | VmaFlags::WRITE) == VmaFlags::SEALED && !lasting {
            return Err(Error::Sealed);
        }
        Ok(())
    }
}

fn lock_flags(mode: LockMode) -> VmaFlags {
    match mode {
        LockMode::Now => VmaFlags::LOCKED,
        LockMode::OnFault => VmaFlags::LOCKED | VmaFlags::LOCK_ON_FAULT,
    }
}

fn relocked(area: Area, lock: VmaFlags) -> Area {
    match area.flags.contains(VmaFlags::DROPPABLE) {
        true => area,
        false => Area { flags: (area.flags - LOCK) | lock, ..area },
    }
}

/// The accesses that mprotect may give.
fn may(flags: VmaFlags) -> VmaFlags {
    let mut allowed = VmaFlags::empty();
    allowed.set(VmaFlags::READ, flags.contains(VmaFlags::MAY_READ));
    allowed.set(VmaFlags::WRITE, flags.contains(VmaFlags::MAY_WRITE));
    allowed.set(VmaFlags::EXEC, flags.contains(VmaFlags::MAY_EXEC));
    allowed
}
