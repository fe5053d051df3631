//! brk and the growth of stacks: areas that extend.

use crossbeam_epoch::Guard;

use super::change::Before;
use super::limits::{may_expand, may_lock};
use super::{AddressSpace, Layout, MapRequest, Marks, Placement, STACK_GUARD_GAP, retry_after_reclaim};
use crate::addr::{PAGE_SIZE, PageRange, USER_END, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Backing, Tag, Vma, VmaFlags};

/// What the heap allows.
const HEAP: VmaFlags = VmaFlags::READ
    .union(VmaFlags::WRITE)
    .union(VmaFlags::MAY_READ)
    .union(VmaFlags::MAY_WRITE)
    .union(VmaFlags::MAY_EXEC);

impl AddressSpace {
    /// Moves the end of the heap to `end` if that can be, and returns where it is then: brk(2) as the kernel has it
    /// (`mm/mmap.c`, `SYSCALL_DEFINE1(brk)`), which never fails but leaves the end where it was.
    pub fn brk(&self, end: VirtAddr) -> VirtAddr {
        let moved = retry_after_reclaim(&self.memory, |guard| self.brk_once(guard, end));
        moved.unwrap_or_else(|_| self.writer.lock().brk)
    }

    fn brk_once(&self, guard: &Guard, end: VirtAddr) -> Result<VirtAddr> {
        let mut layout = self.writer.lock();
        if end < layout.start_brk || end > USER_END {
            return Ok(layout.brk);
        }
        let data = layout.data.1.get().saturating_sub(layout.data.0.get());
        if (end.get() - layout.start_brk.get()).saturating_add(data) > layout.data_limit {
            return Ok(layout.brk);
        }
        let aligned = |addr: VirtAddr| addr.page_ceil().ok_or(Error::BadRange);
        let (old, new) = (aligned(layout.brk)?, aligned(end)?);
        if let Some(given_back) = PageRange::new(new, old) {
            if self.vmas.load(guard).range(given_back).next().is_none() {
                return Ok(layout.brk);
            }
            self.unmap_locked(guard, given_back)?;
        } else if let Some(wanted) = PageRange::new(old, new) {
            // A stack above keeps its guard gap, anything else one page.
            let next = self.vmas.load(guard).find_at_or_after(old);
            let room = next.map_or(USER_END.get(), |vma| {
                let guard = if vma.flags.contains(VmaFlags::GROWS_DOWN) { STACK_GUARD_GAP } else { 0 };
                vma.start().get().saturating_sub(guard)
            });
            if wanted.end().get().saturating_add(PAGE_SIZE) > room {
                return Ok(layout.brk);
            }
            // Before the larger heap can be seen: nothing else is mapped there.
            self.marks.set(Marks { brk: end, ..Marks::from(&*layout) });
            let extended = if old == layout.start_brk {
                self.begin_heap(guard, &layout, wanted)
            } else {
                let request = MapRequest {
                    placement: Placement::FixedNoReplace(old),
                    len: wanted.len(),
                    flags: HEAP,
                    backing: Backing::Anonymous,
                    page_offset: 0,
                };
                self.map_locked(guard, &layout, &request, wanted.len()).map(drop)
            };
            if extended.is_err() {
                self.marks.set(Marks::from(&*layout));
            }
            extended?;
            layout.brk = end;
            return Ok(end);
        }
        layout.brk = end;
        // After the smaller heap can be seen.
        self.marks.set(Marks::from(&*layout));
        Ok(end)
    }

    /// The first area of a heap that starts at a page. It does not become one with the program's zero-filled data right below, as anything else would:
    /// Linux looks for an area to extend only from the start of the heap on (`vma_prev_limit` in its brk).
    fn begin_heap(&self, guard: &Guard, layout: &Layout, range: PageRange) -> Result<()> {
        let totals = self.vmas.load(guard).summary().totals;
        let flags = self.new_flags(layout, HEAP);
        may_lock(layout, &totals.pages, flags, range.pages())?;
        may_expand(layout, &totals.pages, flags, range.pages())?;
        if totals.vmas as u64 > self.memory.max_map_count() {
            return Err(Error::TooManyVmas);
        }
        let heap = Vma { range, flags, page_offset: 0, backing: Backing::Anonymous, name: None, tag: Tag::NONE };
        let mut change = self.vmas.change(guard, range);
        change.splice([heap])?;
        self.apply(&mut change, guard, range)
    }

    /// Extends the stack above `addr` down to it, by Linux's rules (`expand_downwards` in `mm/vma.c`): within RLIMIT_STACK and what else limits
    /// memory, and no closer than the guard gap to what can be accessed below. `false` if there is no stack to extend, or it may not be.
    pub(super) fn grow_stack(&self, guard: &Guard, addr: VirtAddr) -> Result<bool> {
        let layout = self.writer.lock();
        let version = self.vmas.load(guard);
        let neighbours = version.neighbours(addr);
        let Some(stack) = neighbours.at_or_after else { return Ok(false) };
        if stack.start() <= addr {
            // Another thread has extended it, or mapped something, meanwhile.
            return Ok(true);
        }
        let Some(range) = PageRange::new(addr.page_floor(), stack.end()) else { return Ok(false) };
        let Some(added) = PageRange::new(addr.page_floor(), stack.start()) else { return Ok(false) };
        let (now, pages) = (&version.summary().totals.pages, added.pages());
        if !stack.flags.contains(VmaFlags::GROWS_DOWN)
            || addr < self.memory.lowest_address()
            || range.len() > layout.stack_limit
            || may_expand(&layout, now, stack.flags, pages).is_err()
            || may_lock(&layout, now, stack.flags, pages).is_err()
        {
            return Ok(false);
        }
        let below = neighbours.before;
        let is_too_near = |below: &Vma| {
            !below.flags.contains(VmaFlags::GROWS_DOWN)
                && below.flags.intersects(VmaFlags::ACCESS)
                && range.start().get() - below.end().get() < STACK_GUARD_GAP
        };
        if below.is_some_and(is_too_near) {
            return Ok(false);
        }
        let mut change = self.vmas.change(guard, added);
        // A stack that reaches another one stays a VMA of its own.
        let planned = if below.is_some_and(|below| below.end() == added.start() && stack.continues(below)) {
            drop(change);
            change = self.vmas.change(guard, range);
            change.splice([Vma { range, ..stack.clone() }])
        } else {
            change.put(Some(Vma { range: added, ..stack.clone() }))
        };
        planned?;
        match self.apply_where(&mut change, guard, added, Before::Hole) {
            Err(Error::CommitLimit) => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }
}
