//! Moving the content of single pages within an address space (`UFFDIO_MOVE`): the frame goes to where it is missing, and is missing where it was.

use crossbeam_epoch::Guard;

use super::fault::execution_and_key;
use super::{AddressSpace, retry_after_reclaim};
use crate::addr::{Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::frame::Garbage;
use crate::table::{Entry, Supply};
use crate::vma::{Backing, VersionRef, Vma, VmaFlags, Watcher};

/// What becomes of pages that are not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Absent {
    /// They are passed over.
    Skip,
    /// They end the move.
    Refuse,
}

/// What is to be moved, in whole.
#[derive(Clone, Copy, Debug)]
pub struct Shift {
    /// Where the pages are.
    pub from: PageRange,
    /// Where they go: as many.
    pub to: PageRange,
    /// Who watches there.
    pub watcher: Watcher,
    /// What becomes of holes.
    pub absent: Absent,
}

impl AddressSpace {
    /// Moves page `index` of `shift`.
    ///
    /// # Errors
    ///
    /// As Linux's `move_pages` (`mm/userfaultfd.c`): [`Error::NotMapped`] if nothing is mapped at the start of a range (ENOENT), or the page is absent and
    /// that is refused; [`Error::WrongKind`] unless both are in one VMA of private anonymous memory each, of the same permissions, writable, both locked or
    /// neither, the target watched by the watcher (EINVAL); [`Error::AlreadyMapped`] if there is something already (EEXIST); [`Error::Busy`] if others have the page as well
    /// (EBUSY); [`Error::Poisoned`] if it is a guard or lost (EFAULT); [`Error::OutOfMemory`].
    pub fn shift_page(&self, shift: &Shift, index: u64) -> Result<()> {
        let page = |range: PageRange| {
            let start = range.start().checked_add(index * PAGE_SIZE);
            start.and_then(PageRange::page_of).filter(|page| page.end() <= range.end()).ok_or(Error::BadRange)
        };
        let (from, to) = (page(shift.from)?, page(shift.to)?);
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            let (source, target) = check(self.vmas.load(guard), shift)?;
            self.note_written(guard, source);
            let said = execution_and_key(target);
            // Faults of both that have looked before look again.
            self.in_change.begin_two(from, to);
            let done = self.shift_locked(guard, [from, to], said, shift.absent);
            self.in_change.end();
            done
        })
    }

    fn shift_locked(&self, guard: &Guard, [from, to]: [PageRange; 2], said: u64, absent: Absent) -> Result<()> {
        if !self.tables().look(to.start()).entry.is_empty() {
            return Err(Error::AlreadyMapped);
        }
        let found = self.tables().look(from.start()).entry;
        if found.is_marker() {
            return Err(Error::Poisoned);
        }
        if !found.is_present() {
            return if absent == Absent::Skip { Ok(()) } else { Err(Error::NotMapped) };
        }
        let mut garbage = Garbage::new();
        let done = match found.is_reference() {
            true => self.shift_zeros(from.start(), to.start(), said, &mut garbage),
            false => self.shift_frame(guard, from, to, &mut garbage),
        };
        garbage.stale = true;
        self.finish(&mut garbage, guard, from);
        done
    }

    fn shift_zeros(&self, from: VirtAddr, to: VirtAddr, said: u64, garbage: &mut Garbage) -> Result<()> {
        let mut supply = Supply::on_demand(&self.memory);
        let index = from.index(Level::L1);
        drop(self.tables().own(from, Level::L1, &mut supply, garbage)?);
        let mut target = self.tables().own(to, Level::L1, &mut supply, garbage)?;
        let zeros = Entry::reference(self.memory.zero().at(Level::L1));
        target.put(to.index(Level::L1), zeros.with(said));
        drop(target);
        self.tables().own(from, Level::L1, &mut supply, garbage)?.put(index, Entry::NONE);
        Ok(())
    }

    fn shift_frame(&self, guard: &Guard, from: PageRange, to: PageRange, garbage: &mut Garbage) -> Result<()> {
        let (mut supply, homes) = self.tables().prepare_to_relocate(from, from, to, garbage)?;
        // Its tables are ours alone now, so that whoever else has it is counted.
        let found = self.tables().look(from.start()).entry;
        if !found.is_private() || self.memory.record(found.frame()).is_shared() {
            return Err(Error::Busy);
        }
        let done = self.tables().relocate(from, to.start(), &mut supply, garbage);
        debug_assert!(done.is_ok(), "everything was set aside before");
        drop(homes);
        // Stores to it are watched where it was, if they were.
        self.tables().change_leaves(to, garbage, |table, index, entry| {
            if entry.is_marked() {
                table.change(index, 0, Entry::MARK);
            }
        });
        self.finish(garbage, guard, to);
        Ok(())
    }
}

/// Linux's `find_vmas_mm_locked`, `validate_move_areas` and what `move_pages` asks itself. The two VMAs.
fn check<'v>(version: VersionRef<'v>, shift: &Shift) -> Result<(&'v Vma, &'v Vma)> {
    let source = version.find(shift.from.start()).ok_or(Error::NotMapped)?;
    let target = version.find(shift.to.start()).ok_or(Error::NotMapped)?;
    let whole = |vma: &Vma, range: PageRange| range.end() <= vma.end() && !vma.flags.contains(VmaFlags::SHARED);
    let differ = source.flags ^ target.flags;
    let fits = whole(source, shift.from)
        && whole(target, shift.to)
        && !differ.intersects(VmaFlags::ACCESS | VmaFlags::LOCKED)
        && source.flags.contains(VmaFlags::WRITE)
        && matches!((&source.backing, &target.backing), (Backing::Anonymous, Backing::Anonymous))
        && source.tag.key() == target.tag.key()
        && target.tag.watcher() == shift.watcher
        && target.flags.intersects(VmaFlags::WATCHED);
    if fits { Ok((source, target)) } else { Err(Error::WrongKind) }
}
