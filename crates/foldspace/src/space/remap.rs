//! mremap: areas that grow, shrink and move, with what is in them.
//!
//! A move is one instant to readers of the tree: one version has the area at its old place, the next at its new one. Meanwhile faults in both
//! ranges wait, and what is present moves ([`crate::table`], `relocate`): whole tables where both places are aligned alike.

use crossbeam_epoch::Guard;

use super::limits::{is_data, may_expand, may_lock};
use super::lock::LOCK;
use super::place::{Search, Wanted};
use super::{AddressSpace, Layout, Placement, retry_after_reclaim};
use crate::addr::{PAGE_SHIFT, PAGE_SIZE, PageRange, USER_END, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::vma::{PageCounts, Version, VersionCell, VersionRef, Vma, VmaFlags, Watcher};

/// Where an area may go that is remapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// It stays where it is.
    InPlace,
    /// Anywhere, if it cannot stay where it is (MREMAP_MAYMOVE).
    Anywhere,
    /// It moves, there if that is free (the hint that MREMAP_DONTUNMAP takes; 0 for none).
    Hint(VirtAddr),
    /// It moves there; what is mapped there goes away (MREMAP_FIXED).
    Fixed(VirtAddr),
}

/// What stays at the place that an area leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Nothing.
    Hole,
    /// The area, empty (MREMAP_DONTUNMAP). Lengths must be equal.
    Area,
}

/// An area, or a part of one, that is to have another length or place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemapRequest {
    /// Its first byte.
    pub start: VirtAddr,
    /// Bytes, whole pages. 0 asks for another mapping of what a shared area shows from `start` on.
    pub len: u64,
    /// Bytes that it is to have, whole pages, not 0.
    pub new_len: u64,
    /// Where.
    pub to: Destination,
    /// What stays there.
    pub leave: Leave,
}

/// A part of one area on its way.
struct Move {
    area: Vma,
    /// What leaves its place; `None` if it is only mapped a second time.
    from: Option<PageRange>,
    to: PageRange,
    leave: Leave,
}

impl AddressSpace {
    /// Gives an area another length or place, with what is in it: `mremap(2)` as Linux's `mm/mremap.c` has it since 6.17. Returns where it is.
    /// Time: the VMAs' O(log VMAs), and the tables in the range, or the entries where old and new place are not aligned alike.
    ///
    /// # Errors
    ///
    /// - [`Error::BadRange`]: not whole pages, outside the user half, old and new place overlap, or no shared area where `len` is 0. Where an area
    ///   would move and be cut to less than it is, its target has been unmapped.
    /// - [`Error::NotMapped`]: nothing at `start`, or the area ends before `len` (EFAULT on Linux). With [`Destination::Fixed`] and equal lengths
    ///   several areas move, with the holes between them.
    /// - [`Error::Sealed`]: it is sealed, or something is where it is to go.
    /// - [`Error::LockLimit`]: a locked area would grow beyond [`Layout::lock_limit`].
    /// - [`Error::NoRoom`], [`Error::CommitLimit`], [`Error::TooManyVmas`], [`Error::OutOfMemory`]: of a single area nothing has changed; of
    ///   several, those before have moved, as on Linux.
    pub fn remap(&self, request: RemapRequest) -> Result<VirtAddr> {
        let RemapRequest { start, len, new_len, .. } = request;
        let aligned = |bytes: u64| bytes % PAGE_SIZE == 0;
        if !start.is_page_aligned()
            || !aligned(len)
            || !aligned(new_len)
            || new_len == 0
            || request.leave == Leave::Area && (request.to == Destination::InPlace || len != new_len)
        {
            return Err(Error::BadRange);
        }
        // Of several areas, how many bytes have moved: what is tried again begins after them.
        let mut moved = 0;
        retry_after_reclaim(&self.memory, |guard| {
            let layout = self.writer.lock();
            match request.to {
                Destination::Fixed(to) if len == new_len => self.move_areas(guard, &layout, &request, to, &mut moved),
                _ => self.remap_area(guard, &layout, &request),
            }
        })
    }

    /// Moves every area in the range, with the holes between them, but for the first `moved` bytes, which says how far it has come.
    fn move_areas(
        &self,
        guard: &Guard,
        layout: &Layout,
        request: &RemapRequest,
        to: VirtAddr,
        moved: &mut u64,
    ) -> Result<VirtAddr> {
        let range = PageRange::from_len(request.start, request.len).ok_or(Error::NotMapped)?;
        let target = PageRange::from_len(to, request.len).ok_or(Error::BadRange)?;
        if range.intersect(target).is_some() {
            return Err(Error::BadRange);
        }
        let version = self.vmas.hold(guard);
        if *moved == 0 && version.view().find(range.start()).is_none() {
            return Err(Error::NotMapped);
        }
        let Some(rest) = PageRange::new(VirtAddr(range.start().get() + *moved), range.end()) else { return Ok(to) };
        for area in version.view().range(rest) {
            let Some(part) = area.range.intersect(rest) else { continue };
            let skipped = part.start().get() - range.start().get();
            let one = RemapRequest {
                start: part.start(),
                len: part.len(),
                new_len: part.len(),
                to: Destination::Fixed(VirtAddr(to.get() + skipped)),
                leave: request.leave,
            };
            self.remap_area(guard, layout, &one)?;
            *moved = part.end().get() - range.start().get();
        }
        Ok(to)
    }

    /// One area.
    fn remap_area(&self, guard: &Guard, layout: &Layout, request: &RemapRequest) -> Result<VirtAddr> {
        let RemapRequest { start, len, new_len, to, leave } = *request;
        let version = self.vmas.load(guard);
        let area = version.find(start).ok_or(Error::NotMapped)?;
        if area.flags.contains(VmaFlags::SEALED) {
            return Err(Error::Sealed);
        }
        let moves = matches!(to, Destination::Fixed(_) | Destination::Hint(_)) || leave == Leave::Area;
        if !moves && new_len <= len {
            self.cut(guard, start, new_len, len)?;
            return Ok(start);
        }
        if len == 0 && !area.flags.contains(VmaFlags::SHARED) {
            return Err(Error::BadRange);
        }
        let rest = area.end().get() - start.get();
        if len.min(new_len) > rest {
            return Err(Error::NotMapped);
        }
        if len > rest {
            if new_len > len {
                return Err(Error::NotMapped);
            }
            // What is cut off may be several areas, and holes. As on Linux its target goes first, whatever comes then.
            if let Destination::Fixed(to) = to {
                if let Some(target) = PageRange::from_len(to, new_len) {
                    self.unmap_locked(guard, target)?;
                    // A length that wraps can have its target where it starts.
                    if self.vmas.load(guard).find(start).is_none() {
                        return Err(Error::NotMapped);
                    }
                }
            }
            self.cut(guard, start, new_len, len)?;
            return self.remap_area(guard, layout, &RemapRequest { len: new_len, ..*request });
        }
        let offset = area.page_offset.wrapping_add((start.get() - area.start().get()) >> PAGE_SHIFT);
        if area.backing.has_offsets() && offset.checked_add(new_len >> PAGE_SHIFT).is_none() {
            return Err(Error::BadRange);
        }
        self.check_growth(guard, layout, area, request)?;
        if !moves && start.get() + len == area.end().get() && self.extend(guard, area, new_len - len)? {
            return Ok(start);
        }
        let placement = match to {
            Destination::InPlace => return Err(Error::NoRoom),
            Destination::Anywhere | Destination::Hint(VirtAddr(0)) => Placement::Anywhere,
            Destination::Hint(addr) => Placement::Hint(addr),
            Destination::Fixed(addr) => Placement::Fixed(addr),
        };
        let wanted = Wanted { backing: &area.backing, page_offset: offset, len: new_len };
        let target = Search::new(self, version, layout, wanted).place(placement)?;
        // As Linux has it (`vrm_overlaps`), also where only the first byte of what is mapped again lies inside.
        if start < target.end() && start.get() + len > target.start().get() {
            return Err(Error::BadRange);
        }
        if len == 0 && start == target.start() {
            // It is replaced before it could be mapped again.
            self.unmap_locked(guard, target)?;
            return Err(Error::NotMapped);
        }
        if matches!(to, Destination::Fixed(_)) {
            self.refuse_sealed(guard, version, target)?;
        }
        let mut moved = area.clone();
        (moved.range, moved.page_offset) = (target, if area.backing.has_offsets() { offset } else { 0 });
        // Elsewhere it is not watched, unless its watcher wants to be told that it moves.
        if !moved.flags.contains(VmaFlags::WATCH_FOLLOWS) {
            moved.flags -= VmaFlags::WATCHED;
            moved.tag = moved.tag.with_watcher(Watcher::NOBODY);
        }
        self.move_area(guard, &Move { area: moved, from: PageRange::from_len(start, len), to: target, leave })?;
        Ok(target.start())
    }

    /// Unmaps what there is from `new_len` to `len` bytes from `start`; both whole pages.
    fn cut(&self, guard: &Guard, start: VirtAddr, new_len: u64, len: u64) -> Result<()> {
        if new_len == len {
            return Ok(());
        }
        let end = start.checked_add(len).ok_or(Error::BadRange)?;
        let tail = PageRange::new(VirtAddr(start.get() + new_len), end).ok_or(Error::BadRange)?;
        self.unmap_locked(guard, tail)
    }

    /// Linux's `check_prep_vma` where the area grows, and `mremap_to` where it also stays: that comes when the target has been unmapped.
    fn check_growth(&self, guard: &Guard, layout: &Layout, area: &Vma, request: &RemapRequest) -> Result<()> {
        let RemapRequest { len, new_len, to, leave, .. } = *request;
        let version = self.vmas.load(guard);
        let totals = version.summary().totals;
        let grows = |now: &PageCounts, bytes: u64| may_expand(layout, now, area.flags, bytes >> PAGE_SHIFT);
        if new_len > len {
            may_lock(layout, &totals.pages, area.flags, (new_len - len) >> PAGE_SHIFT)?;
            grows(&totals.pages, new_len - len)?;
        }
        if leave == Leave::Area {
            if let Err(error) = grows(&totals.pages, new_len) {
                let target = match to {
                    Destination::Fixed(to) => PageRange::from_len(to, new_len).ok_or(Error::BadRange)?,
                    _ => return Err(error),
                };
                if let Err(error) = grows(&totals.pages.minus(counted(version, target)), new_len) {
                    self.unmap_locked(guard, target)?;
                    return Err(error);
                }
            }
        }
        if totals.vmas as u64 + 3 > self.memory.max_map_count() {
            return Err(Error::TooManyVmas);
        }
        Ok(())
    }

    /// Extends an area upwards; false if something is in the way.
    fn extend(&self, guard: &Guard, area: &Vma, bytes: u64) -> Result<bool> {
        let Some(added) = PageRange::from_len(area.end(), bytes).filter(|added| added.end() <= USER_END) else {
            return Ok(false);
        };
        if self.vmas.load(guard).range(added).next().is_some() {
            return Ok(false);
        }
        let mut more = area.clone();
        more.range = added;
        if area.backing.has_offsets() {
            more.page_offset += area.range.pages();
        }
        self.replace(guard, added, Some(more))?;
        Ok(true)
    }

    fn move_area(&self, guard: &Guard, wanted: &Move) -> Result<()> {
        let version = self.version_after(guard, wanted)?;
        let Some(from) = wanted.from else {
            // Nothing moves: it is one more mapping.
            return self.replace(guard, wanted.to, Some(wanted.area.clone()));
        };
        let moved = PageRange::from_len(from.start(), from.len().min(wanted.to.len())).unwrap_or(from);
        let accounted = |version: VersionRef<'_>| version.summary().totals.pages.accounted;
        let now = self.vmas.load(guard);
        let growth = accounted(version.view()).wrapping_sub(accounted(now)) as i64;
        let charge = self.charge_growth(growth, || now.summary().totals.pages.total)?;
        // From here on, not only from publication on, so that nothing comes in while we count what there is.
        self.in_change.begin_two(from, wanted.to);
        let mut garbage = Garbage::new();
        let (mut supply, homes) = match self.tables().prepare_to_relocate(moved, from, wanted.to, &mut garbage) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.in_change.end();
                self.finish(&mut garbage, guard, from);
                return Err(error);
            }
        };
        self.vmas.replace(guard, version);
        charge.keep();
        let now = self.vmas.load(guard);
        let keep = |span: PageRange| now.find_at_or_after(span.start()).is_some_and(|vma| vma.start() < span.end());
        self.tables().clear_range(wanted.to, &mut garbage, &keep);
        // What was there must be out of use before anything else is: one shootdown of each range.
        self.finish(&mut garbage, guard, wanted.to);
        let done = self.tables().relocate(moved, wanted.to.start(), &mut supply, &mut garbage);
        debug_assert!(done.is_ok(), "everything was set aside before");
        drop(homes);
        self.tables().clear_emptied(from, &mut garbage, &keep);
        self.in_change.end();
        self.note_mapped(guard);
        self.finish(&mut garbage, guard, from);
        Ok(())
    }

    /// The tree as it will be, with both places changed at once.
    fn version_after(&self, guard: &Guard, wanted: &Move) -> Result<Version> {
        let draft = VersionCell::new(self.vmas.hold(guard));
        let put = |range: PageRange, vma: Option<Vma>| -> Result<()> {
            let mut change = draft.change(guard, range);
            change.put(vma)?;
            change.publish();
            Ok(())
        };
        if let Some(from) = wanted.from {
            let left = match wanted.leave {
                Leave::Hole => None,
                Leave::Area => draft.load(guard).find(from.start()).map(|area| {
                    let mut left =
                        area.slice(if area.flags.intersects(LOCK) { beside(area, from, wanted.to) } else { from });
                    left.flags.remove(LOCK);
                    left
                }),
            };
            put(left.as_ref().map_or(from, |left| left.range), left)?;
        }
        put(wanted.to, Some(wanted.area.clone()))?;
        Ok(draft.hold(guard))
    }
}

/// What Linux takes the locks from when `from`, a part of `area`, has moved to `target` and stays mapped: all of the area, up to where its target
/// was cut out of it (`dontunmap_complete`).
fn beside(area: &Vma, from: PageRange, target: PageRange) -> PageRange {
    let start = if target.end() <= from.start() { area.start().max(target.end()) } else { area.start() };
    let end = if target.start() >= from.end() { area.end().min(target.start()) } else { area.end() };
    PageRange::new(start, end).unwrap_or(from)
}

/// What the limits of size count in `range`.
fn counted(version: VersionRef<'_>, range: PageRange) -> PageCounts {
    let mut counts = PageCounts::default();
    for vma in version.range(range) {
        let pages = vma.range.intersect(range).map_or(0, PageRange::pages);
        counts.total += pages;
        counts.data += if is_data(vma.flags) { pages } else { 0 };
    }
    counts
}
