//! Which areas there are: mmap, munmap, mprotect, brk, growth of a stack.

use std::ops::Range;

use foldspace::addr::USER_END;
use foldspace::space::{Layout, MAX_MAP_COUNT, Placement};
use foldspace::vma::VmaFlags;
use foldspace::{Error, VirtAddr};

use super::{Area, Content, ModelSpace, PAGE, Page};

/// Objects, and bytes of each.
type Pieces = Vec<(usize, Range<u64>)>;

/// One past the last page of the user half.
pub const END: Page = USER_END.0 / PAGE;
/// Linux's default `vm.mmap_min_addr`: no mapping is placed lower unless it is told to.
const LOWEST: Page = 0x1_0000 / PAGE;
/// Pages in a huge page.
const HUGE: u64 = 512;
/// Linux's `stack_guard_gap`: pages that the search for a gap keeps free below an area that grows down.
pub const GUARD_GAP: Page = 256;

impl ModelSpace {
    pub fn new(layout: Layout) -> ModelSpace {
        ModelSpace {
            layout,
            areas: Default::default(),
            private: Default::default(),
            lazy: Default::default(),
            guards: Default::default(),
        }
    }

    /// The area that covers a page.
    pub fn area(&self, page: Page) -> Option<(Page, Area)> {
        let (&start, &area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some((start, area))
    }

    /// First area that ends above a page.
    fn area_or_next(&self, page: Page) -> Option<(Page, Area)> {
        self.area(page).or_else(|| self.areas.range(page..).next().map(|(start, area)| (*start, *area)))
    }

    pub(super) fn is_free(&self, start: Page, end: Page) -> bool {
        self.area_or_next(start).is_none_or(|(next, _)| next >= end)
    }

    /// Pages in all areas.
    pub fn mapped(&self) -> u64 {
        self.areas.iter().map(|(start, area)| area.end - start).sum()
    }

    /// Cuts `start..end` out of all areas, contents included.
    pub fn carve(&mut self, start: Page, end: Page) {
        for (from, area) in self.overlapping(start, end) {
            self.areas.remove(&from);
            if from < start {
                self.areas.insert(from, Area { end: start, ..area });
            }
            if area.end > end {
                self.areas.insert(end, part(from, area, end));
            }
        }
        self.private.retain(|page, _| !(start..end).contains(page));
        self.guards.retain(|page| !(start..end).contains(page));
    }

    pub(super) fn overlapping(&self, start: Page, end: Page) -> Vec<(Page, Area)> {
        let first = self.area(start).map_or(start, |(from, _)| from);
        self.areas.range(first..end).map(|(from, area)| (*from, *area)).collect()
    }

    /// Joins all areas that may be one.
    pub fn merge_neighbours(&mut self) {
        let mut merged: Vec<(Page, Area)> = Vec::new();
        for (&start, &area) in &self.areas {
            if let Some((from, last)) = merged.last_mut() {
                let continues = match area.content {
                    Content::Anonymous | Content::Reference(_) => true,
                    Content::Object(_) => last.offset + (last.end - *from) == area.offset,
                };
                if last.end == start && last.flags == area.flags && last.content == area.content && continues {
                    last.end = area.end;
                    continue;
                }
            }
            merged.push((start, area));
        }
        self.areas = merged.into_iter().collect();
    }

    /// mmap.
    pub fn map(
        &mut self,
        placement: Placement,
        len: u64,
        flags: VmaFlags,
        content: Content,
        offset: u64,
    ) -> Result<Page, Error> {
        if len == 0 {
            return Err(Error::BadRange);
        }
        let pages = VirtAddr(len).page_ceil().ok_or(Error::NoRoom)?.get() / PAGE;
        let start = match placement {
            Placement::Anywhere => self.anywhere_for(pages, content)?,
            Placement::Hint(hint) => match self.hinted(hint, pages) {
                Some(start) => start,
                None => self.anywhere(pages)?,
            },
            Placement::Low(_) => {
                aligned(pages, content, |pages| self.lowest_gap(pages, 0x4000_0000 / PAGE, 0x8000_0000 / PAGE))?
            }
            Placement::Fixed(at) | Placement::FixedNoReplace(at) => {
                if !at.is_page_aligned() {
                    return Err(Error::BadRange);
                }
                let start = at.get() / PAGE;
                if pages > END || start > END - pages {
                    return Err(Error::BadRange);
                }
                if matches!(placement, Placement::FixedNoReplace(_)) && !self.is_free(start, start + pages) {
                    return Err(Error::AlreadyMapped);
                }
                start
            }
        };
        let mut after = self.clone();
        after.carve(start, start + pages);
        if (after.mapped() + pages) * PAGE > self.layout.address_space_limit {
            return Err(Error::NoRoom);
        }
        after.areas.insert(start, Area { end: start + pages, flags, content, offset });
        after.merge_neighbours();
        if after.areas.len() as u64 > MAX_MAP_COUNT {
            return Err(Error::TooManyVmas);
        }
        *self = after;
        Ok(start)
    }

    /// First page that a gap before this area must leave alone.
    fn guarded_start(start: Page, area: &Area) -> Page {
        if area.flags.contains(VmaFlags::GROWS_DOWN) { start.saturating_sub(GUARD_GAP) } else { start }
    }

    /// Gaps, upwards, guard gaps left out.
    fn gaps(&self) -> Vec<(Page, Page)> {
        let mut gaps = Vec::new();
        let mut from = LOWEST;
        for (&start, area) in &self.areas {
            let until = Self::guarded_start(start, area);
            if until > from {
                gaps.push((from, until));
            }
            from = from.max(area.end);
        }
        if END > from {
            gaps.push((from, END));
        }
        gaps
    }

    /// The highest gap below the base, or else the lowest above a third of the user half, as Linux falls back to.
    pub(super) fn anywhere(&self, pages: u64) -> Result<Page, Error> {
        let base = self.layout.mmap_base.get() / PAGE;
        let below = self.gaps().into_iter().rev().find_map(|(from, until)| {
            let until = until.min(base);
            (until > from && until - from >= pages).then(|| until - pages)
        });
        below.map_or_else(|| self.lowest_gap(pages, END / 3, END), Ok)
    }

    fn lowest_gap(&self, pages: u64, low: Page, high: Page) -> Result<Page, Error> {
        let found = self.gaps().into_iter().find_map(|(from, until)| {
            let (from, until) = (from.max(low), until.min(high));
            (until > from && until - from >= pages).then_some(from)
        });
        found.ok_or(Error::NoRoom)
    }

    /// [`ModelSpace::anywhere`], aligned if that is how such memory is placed.
    pub(super) fn anywhere_for(&self, pages: u64, content: Content) -> Result<Page, Error> {
        aligned(pages, content, |pages| self.anywhere(pages))
    }

    pub(super) fn hinted(&self, hint: VirtAddr, pages: u64) -> Option<Page> {
        let start = hint.page_ceil()?.get() / PAGE;
        if start < LOWEST || pages > END || start > END - pages {
            return None;
        }
        self.gaps().into_iter().any(|(from, until)| from <= start && start + pages <= until).then_some(start)
    }

    /// munmap.
    pub fn unmap(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let mut after = self.clone();
        after.carve(start, end);
        if after.areas.len() as u64 > MAX_MAP_COUNT {
            return Err(Error::TooManyVmas);
        }
        *self = after;
        Ok(())
    }

    /// mprotect: like Linux's, changes what comes before a hole or an area that does not allow it.
    pub fn protect(&mut self, start: Page, end: Page, access: VmaFlags) -> Result<(), Error> {
        let mut at = start;
        let mut changed = Vec::new();
        let mut outcome = Ok(());
        for (from, area) in self.overlapping(start, end) {
            if from > at {
                break;
            }
            if !may(area.flags).contains(access) {
                outcome = Err(Error::AccessDenied);
                break;
            }
            let (from, area) = if from < start { (start, part(from, area, start)) } else { (from, area) };
            at = area.end.min(end);
            let flags = (area.flags - VmaFlags::READ - VmaFlags::WRITE - VmaFlags::EXEC) | access;
            changed.push((from, Area { end: at, flags, ..area }));
        }
        if outcome.is_ok() && at < end {
            outcome = Err(Error::NotMapped);
        }
        let (contents, guards) = (self.private.clone(), self.guards.clone());
        self.carve(start, at);
        (self.private, self.guards) = (contents, guards);
        self.areas.extend(changed);
        self.merge_neighbours();
        outcome
    }

    /// madvise(MADV_DONTNEED): up to the first locked area, holes passed over.
    pub fn discard(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let (mut at, mut holes) = (start, false);
        for (from, area) in self.overlapping(start, end) {
            holes |= from > at;
            at = area.end.min(end);
            if area.flags.contains(VmaFlags::LOCKED) {
                return Err(Error::AccessDenied);
            }
            self.private.retain(|page, _| !(from.max(start)..at).contains(page));
        }
        if holes || at < end { Err(Error::NotMapped) } else { Ok(()) }
    }

    /// madvise(MADV_REMOVE): which bytes of which objects go, and what it says.
    pub fn remove(&self, start: Page, end: Page) -> (Pieces, Result<(), Error>) {
        let (mut at, mut holes, mut gone) = (start, false, Vec::new());
        for (from, area) in self.overlapping(start, end) {
            holes |= from > at;
            at = area.end.min(end);
            let Content::Object(object) = area.content else { return (gone, Err(Error::WrongKind)) };
            if area.flags.contains(VmaFlags::LOCKED) {
                return (gone, Err(Error::WrongKind));
            }
            if !area.flags.contains(VmaFlags::SHARED | VmaFlags::MAY_WRITE) {
                return (gone, Err(Error::AccessDenied));
            }
            let first = area.offset + (from.max(start) - from);
            gone.push((object, first * PAGE..(first + at - from.max(start)) * PAGE));
        }
        (gone, if holes || at < end { Err(Error::NotMapped) } else { Ok(()) })
    }

    /// brk.
    pub fn brk(&mut self, end: VirtAddr) -> VirtAddr {
        let layout = &self.layout;
        let (start, old) = (layout.start_brk, layout.brk);
        let data = layout.data.1.get() - layout.data.0.get();
        if end < start || end.get() - start.get() + data > layout.data_limit {
            return old;
        }
        let (Some(new_end), Some(old_end)) = (end.page_ceil(), old.page_ceil()) else { return old };
        let (from, until) = (old_end.get() / PAGE, new_end.get() / PAGE);
        if until > END {
            return old;
        }
        if until < from {
            if self.unmap(until, from).is_err() {
                return old;
            }
        } else if until > from {
            // Linux's brk leaves a page free before the next area, and its guard gap if it grows down.
            let next = self.area_or_next(from);
            if next.is_some_and(|(next, area)| until + 1 > Self::guarded_start(next, &area)) {
                return old;
            }
            if (self.mapped() + until - from) * PAGE > layout.address_space_limit {
                return old;
            }
            let flags =
                VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC;
            self.areas.insert(from, Area { end: until, flags, content: Content::Anonymous, offset: 0 });
            self.merge_neighbours();
        }
        self.layout.brk = end;
        end
    }

    /// Makes the area above a page, if it grows down, grow over it. Whether it did.
    pub fn grow_down_to(&mut self, page: Page) -> bool {
        let Some((start, area)) = self.area_or_next(page) else { return false };
        if start <= page || !area.flags.contains(VmaFlags::GROWS_DOWN) {
            return false;
        }
        let below = self.areas.range(..page).next_back();
        let too_near = below.is_some_and(|(_, below)| {
            let accessible = below.flags.intersects(VmaFlags::READ | VmaFlags::WRITE | VmaFlags::EXEC);
            accessible && !below.flags.contains(VmaFlags::GROWS_DOWN) && page - below.end < GUARD_GAP
        });
        let limits = &self.layout;
        if too_near
            || page < LOWEST
            || (area.end - page) * PAGE > limits.stack_limit
            || (self.mapped() + start - page) * PAGE > limits.address_space_limit
        {
            return false;
        }
        self.areas.remove(&start);
        self.areas.insert(page, area);
        self.merge_neighbours();
        true
    }
}

/// Private memory of whole huge pages begins at one, if there is room for one more.
fn aligned(pages: u64, content: Content, search: impl Fn(u64) -> Result<Page, Error>) -> Result<Page, Error> {
    if pages.is_multiple_of(HUGE)
        && !matches!(content, Content::Object(_))
        && let Ok(at) = search(pages + HUGE)
    {
        return Ok(at / HUGE * HUGE + HUGE);
    }
    search(pages)
}

/// The accesses that mprotect may give.
fn may(flags: VmaFlags) -> VmaFlags {
    let mut allowed = VmaFlags::empty();
    allowed.set(VmaFlags::READ, flags.contains(VmaFlags::MAY_READ));
    allowed.set(VmaFlags::WRITE, flags.contains(VmaFlags::MAY_WRITE));
    allowed.set(VmaFlags::EXEC, flags.contains(VmaFlags::MAY_EXEC));
    allowed
}

/// The area that started at `start`, from `from` on.
pub(super) fn part(start: Page, area: Area, from: Page) -> Area {
    match area.content {
        Content::Anonymous | Content::Reference(_) => area,
        Content::Object(_) => Area { offset: area.offset + (from - start), ..area },
    }
}
