//! What is in the pages: loads, stores, and the objects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use foldspace::VirtAddr;
use foldspace::addr::USER_END;
use foldspace::space::{Access, Fault};
use foldspace::vma::VmaFlags;

use super::{Area, Content, Model, PAGE, Page};

/// What an object is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// Zero-filled shared memory.
    Anonymous,
    /// A file with this inode, and [`pattern`]s in so many bytes; what is written later is in none of its source's pages.
    File { inode: u64, source_len: u64 },
}

/// An object: its length, and the pages that were stored to.
#[derive(Clone)]
pub struct ModelObject {
    pub kind: ObjectKind,
    pub len: u64,
    pub pages: BTreeMap<u64, Vec<u8>>,
    /// Pages that were written to, and those that perhaps were: it depends on what was in memory.
    pub dirty: BTreeMap<u64, Dirty>,
    /// Pages that were lost with the memory that held them.
    pub lost: BTreeSet<u64>,
    /// Pages that are committed for it.
    pub committed: u64,
}

/// Whether a page was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dirty {
    Yes,
    Perhaps,
}

/// What page `index` of the file `inode` holds at first: a function of both, some pages zero.
pub fn pattern(inode: u64, index: u64, page: &mut [u8]) {
    let mut word = (inode << 32 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    if word >> 62 == 0 {
        return page.fill(0);
    }
    for piece in page.chunks_mut(8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}

/// What a reference page repeats: a page, a word, a byte, zeros.
pub fn reference_content(number: u8) -> Vec<u8> {
    match number % 4 {
        0 => (0..PAGE).map(|at| (at ^ at >> 8) as u8).collect(),
        1 => vec![0xef, 0xbe, 0xad, 0xde, 1, 2, 3, 4],
        2 => vec![0xaa],
        _ => vec![0, 0],
    }
}

impl ModelObject {
    /// Page `index`, zeros after the end.
    pub fn page(&self, index: u64) -> Vec<u8> {
        if let Some(page) = self.pages.get(&index) {
            return page.clone();
        }
        let mut page = vec![0; PAGE as usize];
        if let ObjectKind::File { inode, source_len } = self.kind {
            let bytes = source_len.saturating_sub(index * PAGE).min(PAGE) as usize;
            pattern(inode, index, &mut page[..bytes]);
        }
        page
    }

    /// How many bytes from `offset` on there are before one that was lost.
    pub fn before_lost(&self, offset: u64, len: usize) -> usize {
        let lost = self.lost.range(offset / PAGE..).next();
        lost.map_or(len, |index| len.min((index * PAGE).saturating_sub(offset) as usize))
    }

    /// A write to the file; nothing of it is lost.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len = self.len.max(offset + bytes.len() as u64);
        for (at, byte) in (offset..).zip(bytes) {
            let mut page = self.page(at / PAGE);
            page[(at % PAGE) as usize] = *byte;
            self.put(at / PAGE, page);
        }
    }

    /// A cut, or growth: what is new is zero, or what was stored past the end of the last page.
    fn set_len(&mut self, len: u64) {
        let grows = len > self.len;
        self.len = len;
        if grows {
            return;
        }
        if let ObjectKind::File { source_len, .. } = &mut self.kind {
            *source_len = len.min(*source_len);
        }
        self.pages.retain(|index, _| index * PAGE < len);
        self.lost.retain(|index| index * PAGE < len);
        self.dirty.retain(|index, _| index * PAGE < len);
        if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
            last[(len % PAGE) as usize..].fill(0);
        }
        if len % PAGE != 0 {
            self.dirty.entry(len / PAGE).or_insert(Dirty::Perhaps);
        }
    }

    /// A page as it is after a store.
    pub fn put(&mut self, index: u64, page: Vec<u8>) {
        self.pages.insert(index, page);
        self.dirty.insert(index, Dirty::Yes);
    }

    /// Pages for these bytes; as good as written to.
    pub fn ensure(&mut self, bytes: Range<u64>) {
        self.dirty.extend((bytes.start / PAGE..bytes.end.div_ceil(PAGE)).map(|index| (index, Dirty::Yes)));
    }

    /// Zeros in place of what was there.
    fn zero(&mut self, bytes: Range<u64>) {
        self.lost.retain(|index| index * PAGE < bytes.start || bytes.end < (index + 1) * PAGE);
        self.dirty.retain(|index, _| index * PAGE < bytes.start || bytes.end < (index + 1) * PAGE);
        for index in bytes.start / PAGE..bytes.end.min(self.len.next_multiple_of(PAGE)).div_ceil(PAGE) {
            let mut page = self.page(index);
            let start = bytes.start.saturating_sub(index * PAGE);
            let end = (bytes.end - index * PAGE).min(PAGE);
            page[start as usize..end as usize].fill(0);
            self.pages.insert(index, page);
            match end - start {
                PAGE => {}
                _ => {
                    self.dirty.entry(index).or_insert(Dirty::Perhaps);
                }
            }
        }
    }

    /// A read from the file, of what is not lost.
    pub fn read_at(&self, offset: u64, len: usize) -> Vec<u8> {
        let end = self.len.min(offset + len as u64);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let until = end.min((at / PAGE + 1) * PAGE);
            let page = self.page(at / PAGE);
            bytes.extend_from_slice(&page[(at % PAGE) as usize..][..(until - at) as usize]);
            at = until;
        }
        bytes
    }
}

/// Who makes an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    /// A program.
    No,
    /// A debugger, or exec: a private area that is not writable is written to all the same.
    Yes,
}

impl Model {
    /// Whether any area shows an object, and has any of these flags.
    pub fn is_mapped(&self, object: usize, flags: VmaFlags) -> bool {
        let mut areas = self.all().flat_map(|space| space.areas.values());
        areas.any(|area| area.content == Content::Object(object) && area.flags.contains(flags))
    }

    /// Sets the length of an object. Private copies of pages past its end go.
    pub fn set_len(&mut self, object: usize, len: u64) {
        self.objects[object].set_len(len);
        for space in self.spaces.iter_mut().chain(&mut self.snapshots) {
            let areas = &space.areas;
            let stays = |page: &Page| {
                let (start, area) = areas.range(..=page).next_back().expect("what is private is mapped");
                area.content != Content::Object(object) || (area.offset + (page - start)) * PAGE < len
            };
            space.private.retain(|page, _| stays(page));
            space.lost.retain(stays);
        }
    }

    /// Punches a hole into an object. Private copies stay.
    pub fn punch_hole(&mut self, object: usize, bytes: Range<u64>) {
        self.objects[object].zero(bytes);
    }

    /// What a page shows.
    pub fn page(&self, space: usize, page: Page) -> Option<Vec<u8>> {
        let space = &self.spaces[space];
        let (start, area) = space.area(page)?;
        if let Some(own) = space.private.get(&page) {
            return Some(own.clone());
        }
        Some(match area.content {
            Content::Anonymous => vec![0; PAGE as usize],
            Content::Reference(number) => reference_content(number).into_iter().cycle().take(PAGE as usize).collect(),
            Content::Object(object) => self.objects[object].page(area.offset + (page - start)),
        })
    }

    /// What an access to one page meets: the area, or a fault. Makes a stack grow.
    fn access(&mut self, space: usize, page: Page, access: Access, force: Force) -> Result<(Page, Area), Fault> {
        let found = {
            let space = &mut self.spaces[space];
            if page >= USER_END.get() / PAGE {
                return Err(Fault::NotMapped);
            }
            match space.area(page) {
                Some(found) => found,
                None if space.grow_down_to(page) => space.area(page).ok_or(Fault::NotMapped)?,
                None => return Err(Fault::NotMapped),
            }
        };
        let (start, area) = found;
        let any = VmaFlags::READ | VmaFlags::WRITE | VmaFlags::EXEC;
        let allowed = match access {
            // The processor cannot forbid a load from a page that can be written or executed.
            Access::Read => area.flags.intersects(any),
            Access::Write => {
                area.flags.contains(VmaFlags::WRITE) || force == Force::Yes && !area.flags.contains(VmaFlags::SHARED)
            }
            Access::Execute => area.flags.contains(VmaFlags::EXEC),
        };
        if !allowed {
            return Err(Fault::AccessDenied);
        }
        if self.spaces[space].guards.contains(&page) {
            return Err(Fault::NotMapped);
        }
        self.content_is_there(space, page, start, &area)?;
        Ok(found)
    }

    /// Why there is nothing to access at a page of an area that begins at `start`, if there is not: it is past an object's end, or was lost.
    pub fn content_is_there(&self, space: usize, page: Page, start: Page, area: &Area) -> Result<(), Fault> {
        let space = &self.spaces[space];
        if space.lost.contains(&page) {
            return Err(Fault::Poisoned);
        }
        let Content::Object(object) = area.content else { return Ok(()) };
        let (object, index) = (&self.objects[object], area.offset + (page - start));
        if space.private.contains_key(&page) {
            return Ok(());
        }
        if index >= object.len.div_ceil(PAGE) {
            return Err(Fault::PastEnd);
        }
        if object.lost.contains(&index) { Err(Fault::Poisoned) } else { Ok(()) }
    }

    /// Loads bytes, or as many as there are before a fault, and that.
    pub fn load(&mut self, space: usize, addr: VirtAddr, len: usize, access: Access) -> (Vec<u8>, Option<Fault>) {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let at = VirtAddr(addr.get() + bytes.len() as u64);
            let page = at.get() / PAGE;
            if let Err(fault) = self.access(space, page, access, Force::No) {
                return (bytes, Some(fault));
            }
            let content = self.page(space, page).expect("the area is there");
            let part = &content[at.page_offset()..];
            bytes.extend_from_slice(&part[..part.len().min(len - bytes.len())]);
        }
        (bytes, None)
    }

    /// Stores bytes, or as many as go before a fault, and that.
    pub fn store(&mut self, space: usize, addr: VirtAddr, bytes: &[u8], force: Force) -> (usize, Option<Fault>) {
        let mut done = 0;
        while done < bytes.len() {
            let at = VirtAddr(addr.get() + done as u64);
            let page = at.get() / PAGE;
            let (start, area) = match self.access(space, page, Access::Write, force) {
                Ok(found) => found,
                Err(fault) => return (done, Some(fault)),
            };
            let mut content = self.page(space, page).expect("the area is there");
            let len = (PAGE as usize - at.page_offset()).min(bytes.len() - done);
            content[at.page_offset()..][..len].copy_from_slice(&bytes[done..done + len]);
            match area.content {
                Content::Object(object) if area.flags.contains(VmaFlags::SHARED) => {
                    self.objects[object].put(area.offset + (page - start), content);
                }
                Content::Object(_) | Content::Anonymous | Content::Reference(_) => {
                    self.spaces[space].private.insert(page, content);
                    self.spaces[space].lazy.remove(&page);
                }
            }
            done += len;
        }
        (done, None)
    }
}
