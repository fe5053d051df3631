//! What madvise and populating do to the pages.

use foldspace::Error;
use foldspace::space::{Access, Fault, PopulateError};
use foldspace::vma::VmaFlags;

use super::{Area, Content, Dirty, Model, ModelSpace, Page};

impl ModelSpace {
    /// What each area has of a range, up to the first that `may` refuses, or that is locked or does not fit; and how it ends.
    fn parts(
        &self,
        start: Page,
        end: Page,
        may: impl Fn(&Area) -> Result<(), Error>,
        fits: impl Fn(&Area) -> bool,
    ) -> (Vec<(Page, Page)>, Result<(), Error>) {
        let (mut at, mut holes, mut parts) = (start, false, Vec::new());
        for (from, area) in self.overlapping(start, end) {
            holes |= from > at;
            at = area.end.min(end);
            if let Err(error) = may(&area) {
                return (parts, Err(error));
            }
            if area.flags.contains(VmaFlags::LOCKED) || !fits(&area) {
                return (parts, Err(Error::WrongKind));
            }
            parts.push((from.max(start), at));
        }
        (parts, if holes || at < end { Err(Error::NotMapped) } else { Ok(()) })
    }

    /// madvise(MADV_FREE).
    pub fn free(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let (parts, outcome) =
            self.parts(start, end, Area::may_lose_content, |area| !matches!(area.content, Content::Object(_)));
        for (start, end) in parts {
            let pages: Vec<Page> = self.private.range(start..end).map(|(page, _)| *page).collect();
            self.lazy.extend(pages);
            self.lost.retain(|page| !(start..end).contains(page));
        }
        outcome
    }

    /// madvise(MADV_COLD).
    pub fn cold(&self, start: Page, end: Page) -> Result<(), Error> {
        self.parts(start, end, |_| Ok(()), |_| true).1
    }

    /// madvise(MADV_PAGEOUT); `alone` says of a page whether nobody else has it.
    pub fn pageout(&mut self, start: Page, end: Page, alone: impl Fn(Page) -> bool) -> Result<(), Error> {
        let (parts, outcome) = self.parts(start, end, |_| Ok(()), |_| true);
        for (start, end) in parts {
            let lazy: Vec<Page> = self.lazy.range(start..end).copied().filter(|page| alone(*page)).collect();
            for page in lazy {
                self.private.remove(&page);
            }
        }
        outcome
    }

    /// madvise(MADV_GUARD_INSTALL).
    pub fn guard_install(&mut self, start: Page, end: Page) -> Result<(), Error> {
        let (parts, outcome) = self.parts(start, end, Area::may_lose_content, |_| true);
        for (start, end) in parts {
            let (from, _) = self.area(start).expect("it is there");
            self.note_written(from);
            self.private.retain(|page, _| !(start..end).contains(page));
            self.lost.retain(|page| !(start..end).contains(page));
            self.guards.extend(start..end);
        }
        outcome
    }

    /// madvise(MADV_GUARD_REMOVE).
    pub fn guard_remove(&mut self, start: Page, end: Page) -> Result<(), Error> {
        self.guards.retain(|page| !(start..end).contains(page));
        if (start..end).all(|page| self.area(page).is_some()) { Ok(()) } else { Err(Error::NotMapped) }
    }
}

impl Model {
    /// madvise(MADV_POPULATE_READ) or (MADV_POPULATE_WRITE).
    pub fn populate(&mut self, space: usize, start: Page, end: Page, access: Access) -> Result<(), PopulateError> {
        let needed = if access == Access::Write { VmaFlags::WRITE } else { VmaFlags::READ };
        for page in start..end {
            let Some((from, area)) = self.spaces[space].area(page) else { return Err(PopulateError::NotMapped) };
            if !area.flags.contains(needed) {
                return Err(PopulateError::AccessDenied);
            }
            if self.spaces[space].guards.contains(&page) {
                return Err(PopulateError::Faulted(Fault::NotMapped));
            }
            if let Err(fault) = self.content_is_there(space, page, from, &area) {
                return Err(PopulateError::Faulted(fault));
            }
            if let (Content::Object(object), true, Access::Write) =
                (area.content, area.flags.contains(VmaFlags::SHARED), access)
            {
                self.objects[object].dirty.insert(area.offset + (page - from), Dirty::Yes);
            }
            if access == Access::Write && !area.flags.contains(VmaFlags::SHARED) {
                let content = self.page(space, page).expect("the area is there");
                self.spaces[space].private.insert(page, content);
                self.spaces[space].lazy.remove(&page);
            }
        }
        Ok(())
    }
}
