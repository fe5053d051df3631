//! Which areas there are: mmap, munmap, brk, growth of a stack.

use std::ops::Range;

use foldspace::addr::USER_END;
use foldspace::space::{Layout, Placement};
use foldspace::vma::VmaFlags;
use foldspace::{Error, VirtAddr};

use super::{Area, Content, ModelSpace, PAGE, Page, Policy};

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
    pub fn new(layout: Layout, policy: Policy, family: usize) -> ModelSpace {
        ModelSpace {
            family,
            layout,
            areas: Default::default(),
            private: Default::default(),
            lazy: Default::default(),
            guards: Default::default(),
            lost: Default::default(),
            policy,
        }
    }

    /// The area that covers a page.
    pub fn area(&self, page: Page) -> Option<(Page, Area)> {
        let (&start, &area) = self.areas.range(..=page).next_back()?;
        (page < area.end).then_some((start, area))
    }

    /// First area that ends above a page.
    pub fn area_or_next(&self, page: Page) -> Option<(Page, Area)> {
        self.area(page).or_else(|| self.areas.range(page..).next().map(|(start, area)| (*start, *area)))
    }

    pub(super) fn is_free(&self, start: Page, end: Page) -> bool {
        self.area_or_next(start).is_none_or(|(next, _)| next >= end)
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
        self.lost.retain(|page| !(start..end).contains(page));
    }

    pub(super) fn overlapping(&self, start: Page, end: Page) -> Vec<(Page, Area)> {
        let first = self.area(start).map_or(start, |(from, _)| from);
        self.areas.range(first..end).map(|(from, area)| (*from, *area)).collect()
    }

    /// Cuts the area that covers a page in two there.
    pub fn split_at(&mut self, page: Page) {
        if let Some((from, area)) = self.area(page).filter(|(from, _)| *from < page) {
            self.areas.insert(from, Area { end: page, ..area });
            self.areas.insert(page, part(from, area, page));
        }
    }

    /// Whether an area that starts there may be one with what ends there.
    pub fn merges_left(&self, start: Page, area: Area) -> bool {
        let below = self.areas.range(..start).next_back();
        below.is_some_and(|(from, below)| below.end == start && continues(*from, *below, start, area))
    }

    /// Whether an area may be one with what starts at its end.
    pub fn merges_right(&self, start: Page, area: Area) -> bool {
        self.areas.get(&area.end).is_some_and(|above| continues(start, area, area.end, *above))
    }

    /// Joins the area that starts there with its neighbours, where it may be one with them.
    pub fn merge_at(&mut self, start: Page) {
        let area = self.areas[&start];
        if self.merges_right(start, area) {
            let above = self.areas.remove(&area.end).expect("it is there");
            self.areas.insert(start, Area { end: above.end, flags: area.flags | above.flags, ..area });
        }
        let area = self.areas[&start];
        if self.merges_left(start, area) {
            self.areas.remove(&start);
            let (_, below) = self.areas.range_mut(..start).next_back().expect("it is there");
            below.end = area.end;
            below.flags |= area.flags;
        }
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
        if self.areas.len() as u64 > self.policy.max_map_count {
            return Err(Error::TooManyVmas);
        }
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
        let flags = self.new_flags(flags);
        self.may_lock(flags | self.layout.future_lock, pages)?;
        let mut after = self.clone();
        if matches!(placement, Placement::Fixed(_)) {
            let enclosing = self.area(start).filter(|(from, area)| *from < start && start + pages < area.end);
            if enclosing.is_some() && self.areas.len() as u64 >= self.policy.max_map_count {
                return Err(Error::TooManyVmas);
            }
            self.refuse_sealed(start, start + pages)?;
            after.carve(start, start + pages);
        }
        self.may_expand(flags, pages - (self.mapped() - after.mapped()))?;
        if flags.contains(VmaFlags::ACCOUNT) {
            self.may_commit(pages as i64 - (self.committed() - after.committed()) as i64)?;
        }
        after.areas.insert(start, Area { end: start + pages, flags, content, offset, name: None, key: 0 });
        after.merge_at(start);
        *self = after;
        Ok(start)
    }

    /// Refuses to take away what is sealed; Linux has cut the first area by then.
    pub fn refuse_sealed(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let touched = self.overlapping(start, end);
        if !touched.iter().any(|(_, area)| area.flags.contains(VmaFlags::SEALED)) {
            return Ok(());
        }
        if !touched[0].1.flags.contains(VmaFlags::SEALED) {
            self.split_at(start);
        }
        Err(Error::Sealed)
    }

    /// First page that a gap before this area must leave alone.
    fn guarded_start(start: Page, area: &Area) -> Page {
        if area.flags.contains(VmaFlags::GROWS_DOWN) { start.saturating_sub(GUARD_GAP) } else { start }
    }

    /// Gaps, upwards: from, until, and where the guard gap of the area above begins.
    fn gaps(&self) -> Vec<(Page, Page, Page)> {
        let mut gaps = Vec::new();
        let mut from = LOWEST;
        for (&start, area) in &self.areas {
            if start > from {
                gaps.push((from, start, Self::guarded_start(start, area)));
            }
            from = from.max(area.end);
        }
        if END > from {
            gaps.push((from, END, END));
        }
        gaps
    }

    /// The highest gap below the base, or else the lowest above a third of the user half, as Linux falls back to.
    pub(super) fn anywhere(&self, pages: u64) -> Result<Page, Error> {
        let mut limit = self.layout.mmap_base.get() / PAGE;
        let below = self.gaps().into_iter().rev().find_map(|(from, until, guarded)| {
            let fits = |until: Page| (until > from && until - from >= pages).then(|| until - pages);
            let until = until.min(limit);
            let found = fits(until)?;
            if guarded >= until {
                return Some(found);
            }
            // Only a gap that is large enough but for the guard makes Linux look below the guard, and no more beside it.
            limit = guarded;
            fits(guarded)
        });
        below.map_or_else(|| self.lowest_gap(pages, END / 3, END), Ok)
    }

    fn lowest_gap(&self, pages: u64, low: Page, high: Page) -> Result<Page, Error> {
        let found = self.gaps().into_iter().find_map(|(from, _, guarded)| {
            let (from, until) = (from.max(low), guarded.min(high));
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
        self.gaps().into_iter().any(|(from, _, guarded)| from <= start && start + pages <= guarded).then_some(start)
    }

    /// munmap.
    pub fn unmap(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let encloses = self.area(start).is_some_and(|(from, area)| from < start && end < area.end);
        if encloses && self.areas.len() as u64 >= self.policy.max_map_count {
            return Err(Error::TooManyVmas);
        }
        self.refuse_sealed(start, end)?;
        self.carve(start, end);
        Ok(())
    }

    /// madvise(MADV_DONTNEED): up to the first locked area, holes passed over.
    pub fn discard(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let (mut at, mut holes) = (start, false);
        for (from, area) in self.overlapping(start, end) {
            holes |= from > at;
            at = area.end.min(end);
            area.may_lose_content()?;
            if area.flags.contains(VmaFlags::LOCKED) {
                return Err(Error::AccessDenied);
            }
            if self.has_private(from.max(start), at) {
                self.note_written(from);
            }
            self.private.retain(|page, _| !(from.max(start)..at).contains(page));
            self.lost.retain(|page| !(from.max(start)..at).contains(page));
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
            if self.is_free(until, from) {
                return old;
            }
            if self.unmap(until, from).is_err() {
                return old;
            }
        } else if until > from {
            // Linux's brk leaves a page free before the next area, and its guard gap if it grows down.
            let next = self.area_or_next(from);
            if next.is_some_and(|(next, area)| until + 1 > Self::guarded_start(next, &area)) {
                return old;
            }
            let flags =
                VmaFlags::READ | VmaFlags::WRITE | VmaFlags::MAY_READ | VmaFlags::MAY_WRITE | VmaFlags::MAY_EXEC;
            let (flags, pages) = (self.new_flags(flags), until - from);
            if self.may_lock(flags, pages).is_err()
                || self.may_expand(flags, pages).is_err()
                || self.areas.len() as u64 > self.policy.max_map_count
                || self.may_commit(pages as i64).is_err()
            {
                return old;
            }
            self.areas
                .insert(from, Area { end: until, flags, content: Content::Anonymous, offset: 0, name: None, key: 0 });
            // The first area of the heap does not join the program's data.
            if from > start.page_ceil().map_or(0, |start| start.get() / PAGE) {
                self.merge_at(from);
            }
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
            || self.may_expand(area.flags, start - page).is_err()
            || self.may_lock(area.flags, start - page).is_err()
            || area.flags.contains(VmaFlags::ACCOUNT) && self.may_commit((start - page) as i64).is_err()
        {
            return false;
        }
        // It joins nothing below.
        self.areas.remove(&start);
        self.areas.insert(page, area);
        true
    }
}

/// Private memory of whole huge pages begins at one, if there is room for one more.
fn aligned(pages: u64, content: Content, search: impl Fn(u64) -> Result<Page, Error>) -> Result<Page, Error> {
    if pages % HUGE == 0
        && !matches!(content, Content::Object(_))
        && let Ok(at) = search(pages + HUGE)
    {
        return Ok(at / HUGE * HUGE + HUGE);
    }
    search(pages)
}

/// Whether an area and the one that follows it may be one.
fn continues(start: Page, area: Area, next_start: Page, next: Area) -> bool {
    let flags = |area: Area| area.flags - VmaFlags::WRITTEN;
    let same = (flags(next), next.content, next.name, next.key) == (flags(area), area.content, area.name, area.key);
    same && next.offset == part(start, area, next_start).offset
}

/// The area that started at `start`, from `from` on.
pub fn part(start: Page, area: Area, from: Page) -> Area {
    match area.content {
        Content::Anonymous | Content::Reference(_) => area,
        Content::Object(_) => Area { offset: area.offset + (from - start), ..area },
    }
}
