//! mremap.

use foldspace::Error;
use foldspace::space::{Destination, Leave};
use foldspace::vma::VmaFlags;

use super::layout::{END, part};
use super::{Area, LOCK, ModelSpace, PAGE, Page};

impl ModelSpace {
    /// mremap, in pages. What it refuses it leaves as it was, but of several areas those that moved before.
    pub fn remap(&mut self, start: Page, len: u64, new_len: u64, to: Destination, leave: Leave) -> Result<Page, Error> {
        if leave == Leave::Area && (to == Destination::InPlace || len != new_len) {
            return Err(Error::BadRange);
        }
        let Destination::Fixed(target) = to else { return self.remap_one(start, len, new_len, to, leave) };
        if len != new_len {
            return self.remap_one(start, len, new_len, to, leave);
        }
        let target = page(target)?;
        if start > END - len {
            return Err(Error::NotMapped);
        }
        if target > END.saturating_sub(len) || overlap(start, len, target, len) {
            return Err(Error::BadRange);
        }
        if self.area(start).is_none() {
            return Err(Error::NotMapped);
        }
        for (from, area) in self.overlapping(start, start + len) {
            let (from, until) = (from.max(start), area.end.min(start + len));
            let there = foldspace::VirtAddr((target + (from - start)) * PAGE);
            self.remap_one(from, until - from, until - from, Destination::Fixed(there), leave)?;
        }
        Ok(target)
    }

    fn remap_one(&mut self, start: Page, len: u64, new_len: u64, to: Destination, leave: Leave) -> Result<Page, Error> {
        let (from, area) = self.area(start).ok_or(Error::NotMapped)?;
        if area.flags.contains(VmaFlags::SEALED) {
            return Err(Error::Sealed);
        }
        let stays = matches!(to, Destination::InPlace | Destination::Anywhere) && leave == Leave::Hole;
        if stays && new_len <= len {
            self.cut(start, new_len, len)?;
            return Ok(start);
        }
        if len == 0 && !area.flags.contains(VmaFlags::SHARED) {
            return Err(Error::BadRange);
        }
        if len.min(new_len) > area.end - start {
            return Err(Error::NotMapped);
        }
        if len > area.end - start {
            if new_len > len {
                return Err(Error::NotMapped);
            }
            if let Destination::Fixed(to) = to {
                self.unmap(page(to)?, page(to)? + new_len)?;
            }
            self.cut(start, new_len, len)?;
            return self.remap_one(start, new_len, new_len, to, leave);
        }
        if new_len > len {
            self.may_lock(area.flags, new_len - len)?;
            self.may_expand(area.flags, new_len - len)?;
        }
        if leave == Leave::Area
            && let Err(error) = self.may_expand(area.flags, new_len)
        {
            // Asked when the target has gone.
            let Destination::Fixed(target) = to else { return Err(error) };
            let target = page(target)?;
            let mut without = self.clone();
            without.carve(target, target + new_len);
            if let Err(error) = without.may_expand(area.flags, new_len) {
                self.unmap(target, target + new_len)?;
                return Err(error);
            }
        }
        if self.areas.len() as u64 + 3 > self.policy.max_map_count {
            return Err(Error::TooManyVmas);
        }
        if stays && start + len == area.end && start + new_len <= END && self.is_free(area.end, start + new_len) {
            let more = Area { end: start + new_len, ..part(from, area, area.end) };
            if area.flags.contains(VmaFlags::ACCOUNT) {
                self.may_commit((new_len - len) as i64)?;
            }
            self.areas.insert(area.end, more);
            self.merge_at(area.end);
            return Ok(start);
        }
        let target = match to {
            Destination::InPlace => return Err(Error::NoRoom),
            Destination::Anywhere => self.anywhere_for(new_len, area.content)?,
            Destination::Hint(hint) if hint.get() == 0 => self.anywhere_for(new_len, area.content)?,
            Destination::Hint(hint) => match self.hinted(hint, new_len) {
                Some(page) => page,
                None => self.anywhere(new_len)?,
            },
            Destination::Fixed(addr) => page(addr)?,
        };
        if new_len > END || target > END - new_len || overlap(start, len, target, new_len) {
            return Err(Error::BadRange);
        }
        if len == 0 && start == target {
            self.unmap(target, target + new_len)?;
            return Err(Error::NotMapped);
        }
        if matches!(to, Destination::Fixed(_)) {
            self.refuse_sealed(target, target + new_len)?;
        }
        let before = self.clone();
        let moved: Vec<(Page, Vec<u8>)> = (self.private.range(start..start + len.min(new_len)))
            .map(|(page, content)| (page - start + target, content.clone()))
            .collect();
        let lazy: Vec<Page> =
            self.lazy.range(start..start + len.min(new_len)).map(|page| page - start + target).collect();
        let guards: Vec<Page> =
            self.guards.range(start..start + len.min(new_len)).map(|page| page - start + target).collect();
        let lost: Vec<Page> =
            self.lost.range(start..start + len.min(new_len)).map(|page| page - start + target).collect();
        let there = Area { end: target + new_len, ..part(from, area, start) };
        // A second mapping of what is there cuts nothing.
        if len > 0 {
            self.carve(start, start + len);
        }
        if leave == Leave::Area {
            self.areas.insert(start, Area { end: start + len, ..part(from, area, start) });
            self.merge_at(start);
            // All of the area is unlocked that is not cut off by the target.
            if area.flags.intersects(LOCK) {
                let low = if target + new_len <= start { from.max(target + new_len) } else { from };
                let high = if target >= start + len { area.end.min(target) } else { area.end };
                let max = core::mem::replace(&mut self.policy.max_map_count, u64::MAX);
                let unlocked = self.unlock(low, high);
                self.policy.max_map_count = max;
                debug_assert_eq!(unlocked, Ok(()));
            }
        }
        self.carve(target, target + new_len);
        self.areas.insert(target, there);
        self.merge_at(target);
        self.private.extend(moved);
        self.lazy.retain(|page| !(target..target + new_len).contains(page));
        self.lazy.extend(lazy);
        self.guards.extend(guards);
        self.lost.extend(lost);
        if let Err(error) = before.may_commit(self.committed().wrapping_sub(before.committed()) as i64) {
            *self = before;
            return Err(error);
        }
        Ok(target)
    }
}

impl ModelSpace {
    /// Unmaps what there is from page `new_len` to page `len` from `start`.
    fn cut(&mut self, start: Page, new_len: u64, len: u64) -> Result<(), Error> {
        match new_len < len {
            true if start + len > END => Err(Error::BadRange),
            true => self.unmap(start + new_len, start + len),
            false => Ok(()),
        }
    }
}

fn page(addr: foldspace::VirtAddr) -> Result<Page, Error> {
    if addr.is_page_aligned() { Ok(addr.get() / PAGE) } else { Err(Error::BadRange) }
}

fn overlap(a: Page, a_len: u64, b: Page, b_len: u64) -> bool {
    a < b + b_len && b < a + a_len
}
