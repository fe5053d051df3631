//! mprotect.

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use super::change::join;
use super::{AddressSpace, MAX_MAP_COUNT, retry_after_reclaim};
use crate::addr::{Index, PageRange};
use crate::error::{Error, Result};
use crate::frame::{Garbage, Memory};
use crate::table::{Entry, Exclusive, Touch};
use crate::vma::{Change, VersionRef, Vma, VmaFlags};

/// The VMAs of a range as they will be.
type Pieces = SmallVec<[Vma; 4]>;
/// Parts of a range with new flags.
type Changed = SmallVec<[(PageRange, VmaFlags); 4]>;

impl AddressSpace {
    /// Sets the permissions of `range` to `access` (of READ, WRITE and EXEC).
    ///
    /// # Errors
    ///
    /// As on Linux, what comes before the first hole ([`Error::NotMapped`]) or VMA that does not allow it ([`Error::AccessDenied`]) is
    /// changed all the same. [`Error::TooManyVmas`] and [`Error::OutOfMemory`]: nothing is.
    pub fn protect(&self, range: PageRange, access: VmaFlags) -> Result<()> {
        retry_after_reclaim(&self.memory, |guard| {
            let _layout = self.writer.lock();
            self.protect_locked(guard, range, access & VmaFlags::ACCESS)
        })
    }

    fn protect_locked(&self, guard: &Guard, range: PageRange, access: VmaFlags) -> Result<()> {
        let mut change = self.vmas.change(guard, range);
        match change.first_touched() {
            Some(vma) if vma.start() <= range.start() && range.end() <= vma.end() => {
                let flags = vma.flags.difference(VmaFlags::ACCESS) | access;
                if !may(vma.flags).contains(access) {
                    return Err(Error::AccessDenied);
                }
                if flags == vma.flags {
                    return Ok(());
                }
                check_count(change.base(), range)?;
                change.put(Some(Vma { flags, ..vma.slice(range) }))?;
                self.publish_access(&mut change, guard, range, &[(range, flags)])
            }
            _ => {
                drop(change);
                self.protect_many(guard, range, access)
            }
        }
    }

    /// Any number of VMAs, and holes.
    fn protect_many(&self, guard: &Guard, range: PageRange, access: VmaFlags) -> Result<()> {
        let version = self.vmas.load(guard);
        let (mut reached, mut outcome) = (range.start(), Ok(()));
        let (mut changed, mut pieces) = (Changed::new(), Pieces::new());
        for vma in version.range(range) {
            if vma.start() > reached {
                break;
            }
            if !may(vma.flags).contains(access) {
                outcome = Err(Error::AccessDenied);
                break;
            }
            let Some(part) = vma.range.intersect(range) else { break };
            reached = part.end();
            let piece = Vma { flags: vma.flags.difference(VmaFlags::ACCESS) | access, ..vma.slice(part) };
            if piece.flags != vma.flags {
                changed.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
                changed.push((part, piece.flags));
            }
            push(&mut pieces, piece)?;
        }
        if outcome.is_ok() && reached < range.end() {
            outcome = Err(Error::NotMapped);
        }
        let (Some(first), Some(last)) = (changed.first(), changed.last()) else { return outcome };
        let Some(touched) = PageRange::new(first.0.start(), last.0.end()) else { return outcome };
        check_count(version, touched)?;
        merge_ends(version, &mut pieces);
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return outcome };
        let Some(spliced) = PageRange::new(first.start(), last.end()) else { return outcome };
        let mut change = self.vmas.change(guard, spliced);
        change.splice(pieces)?;
        self.publish_access(&mut change, guard, touched, &changed)?;
        outcome
    }

    /// Publishes a change of permissions and brings the tables under it in line: `changed` are the parts of `touched` with their new flags.
    #[inline]
    fn publish_access(
        &self,
        change: &mut Change<'_>,
        guard: &Guard,
        touched: PageRange,
        changed: &[(PageRange, VmaFlags)],
    ) -> Result<()> {
        let mut garbage = Garbage::new();
        if let Err(error) = self.tables().own_range(touched, Touch::All, &mut garbage) {
            self.finish(&mut garbage, guard, touched);
            return Err(error);
        }
        change.publish();
        for (range, flags) in changed {
            let memory = &*self.memory;
            self.tables().change_leaves(*range, &mut garbage, &mut |table, index, entry| {
                set_access(memory, table, index, entry, *flags);
            });
        }
        self.finish(&mut garbage, guard, touched);
        Ok(())
    }
}

/// The permissions that a VMA may be given.
fn may(flags: VmaFlags) -> VmaFlags {
    let mut may = VmaFlags::empty();
    may.set(VmaFlags::READ, flags.contains(VmaFlags::MAY_READ));
    may.set(VmaFlags::WRITE, flags.contains(VmaFlags::MAY_WRITE));
    may.set(VmaFlags::EXEC, flags.contains(VmaFlags::MAY_EXEC));
    may
}

fn push(pieces: &mut Pieces, piece: Vma) -> Result<()> {
    pieces.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
    let piece = match pieces.last() {
        Some(last) if last.merges_with(&piece) => {
            let piece = join(last, piece);
            pieces.pop();
            piece
        }
        _ => piece,
    };
    pieces.push(piece);
    Ok(())
}

/// Merges the first and the last piece with what is outside.
fn merge_ends(version: VersionRef<'_>, pieces: &mut Pieces) {
    // Only outwards: what is next to a piece inside the range has been merged, or differs.
    if let [only] = &mut pieces[..] {
        *only = version.joined(only.clone());
    } else if let [first, .., last] = &mut pieces[..] {
        let (start, end) = (first.start(), last.end());
        let low = version.joined(first.clone());
        let high = version.joined(last.clone());
        if low.start() < start
            && let Some(range) = PageRange::new(low.start(), first.end())
        {
            (first.range, first.page_offset) = (range, low.page_offset);
        }
        if high.end() > end
            && let Some(range) = PageRange::new(last.start(), high.end())
        {
            last.range = range;
        }
    }
}

/// Whether VMAs may be cut at both ends of `range`: one becomes three at most.
fn check_count(version: VersionRef<'_>, range: PageRange) -> Result<()> {
    let cut_at = |addr| version.find(addr).is_some_and(|vma| vma.start() < addr);
    if version.summary().totals.vmas as u64 + 2 > MAX_MAP_COUNT && (cut_at(range.start()) || cut_at(range.end())) {
        return Err(Error::TooManyVmas);
    }
    Ok(())
}

/// Brings a leaf in line with its VMA. What becomes writable stays to be found out by a fault if it may be shared.
fn set_access(memory: &Memory, table: &mut Exclusive<'_>, index: Index, entry: Entry, flags: VmaFlags) {
    if entry.is_reference() {
        table.put(index, Entry::NONE);
        return;
    }
    let (mut set, mut clear) = (0, 0);
    let mut give = |bit: u64, yes: bool| if yes { set |= bit } else { clear |= bit };
    let ours =
        if entry.is_object() { flags.contains(VmaFlags::SHARED) } else { memory.record(entry.frame()).refs() == 1 };
    give(Entry::USER, flags.intersects(VmaFlags::ACCESS));
    give(Entry::NO_EXECUTE, !flags.contains(VmaFlags::EXEC));
    give(Entry::WRITE, flags.contains(VmaFlags::WRITE) && ours);
    table.change(index, set, clear);
}
