//! Changes of VMAs where they are, of flags and names: what mprotect, madvise, mlock, mseal and PR_SET_VMA have in common
//! (`vma_modify` in Linux's `mm/vma.c`).
//!
//! ```text
//!   range               |-------------------------|
//!   before     |    A       |   B   |    C    |      D     |
//!   pieces              | A'|   B   |    C'   | D'|              each VMA cut to the range, turned into what it shall be
//!   after      |    A   |    A'B    |    C'   | D'|   D    |     a turned piece merges with its neighbours where it may;
//!                                                                two that were not turned stay as they were
//! ```
//!
//! A range with very many VMAs is changed in parts, each of which publishes, from the lowest address up. So what one call takes of the heap at a time is
//! bounded, and who reads meanwhile finds a first part changed and the rest not yet, as on Linux, which goes VMA by VMA.

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use super::AddressSpace;
use super::change::join;
use crate::addr::{PageRange, VirtAddr};
use crate::error::{Error, Result};
use crate::vma::{Change, VersionRef, Vma, VmaFlags};

/// VMAs that one part of a change has: what is planned for them takes some tens of kilobytes.
const PART: usize = 256;

/// What a hole in the range means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holes {
    /// It ends the change: what comes before it is changed (mprotect, mlock).
    End,
    /// It is passed over (madvise).
    Skip,
}

/// A VMA cut to the range, and whether it was turned into something else.
struct Piece {
    vma: Vma,
    turned: bool,
}

/// Turned parts of a range with their new flags.
pub(super) type Turned = SmallVec<[(PageRange, VmaFlags); 4]>;

/// What becomes of a range with any number of VMAs.
#[derive(Default)]
pub(super) struct Modification {
    pieces: SmallVec<[Piece; 4]>,
    /// What was turned.
    pub(super) turned: Turned,
    /// What is left of the range, if it has more VMAs than one part may have.
    pub(super) rest: Option<PageRange>,
}

impl AddressSpace {
    /// Turns each VMA in `range`, cut to it, into what `turn` makes of it; `turn` gets the piece and the VMA that it comes from. Nothing in
    /// the tables changes. The caller holds the writers' lock.
    ///
    /// # Errors
    ///
    /// As on Linux, what comes before a refusal of `turn`, [`Error::TooManyVmas`], or, with [`Holes::End`], a hole is changed all the
    /// same; [`Error::NotMapped`] if there are holes. [`Error::OutOfMemory`]: nothing is changed, but for whole parts of [`PART`] VMAs at the
    /// start of the range; `turn` must leave what it has turned, so that it can be tried again.
    pub(super) fn modify(
        &self,
        guard: &Guard,
        mut range: PageRange,
        holes: Holes,
        mut turn: impl FnMut(&mut Vma, &Vma) -> Result<()>,
    ) -> Result<()> {
        // Not moved about: a change is large.
        {
            let mut change = self.vmas.change(guard, range);
            if let Some(vma) = self.simple_case(&change, range) {
                let mut piece = vma.slice(range);
                turn(&mut piece, vma)?;
                if is_turned(&piece, vma) {
                    change.put(Some(piece))?;
                    change.publish();
                }
                return Ok(());
            }
        }
        let mut so_far = Ok(());
        loop {
            let (modification, outcome) = self.modify_many(guard, range, holes, &mut turn)?;
            let rest = modification.rest;
            if let Some(mut change) = self.plan_many(guard, modification)? {
                change.publish();
            }
            // A hole that is passed over is said at the end, if nothing else is.
            match rest {
                None => return outcome.and(so_far),
                Some(rest) => (range, so_far) = (rest, so_far.and(outcome)),
            }
        }
    }

    /// The VMA that covers all of the range of a change, if it may be cut at both ends.
    #[inline]
    pub(super) fn simple_case<'t>(&self, change: &Change<'t>, range: PageRange) -> Option<&'t Vma> {
        let vmas = change.base().summary().totals.vmas as u64;
        change.first_touched().filter(|vma| {
            vma.start() <= range.start() && range.end() <= vma.end() && vmas + 2 <= self.memory.max_map_count()
        })
    }

    /// Turns what is in the range, as far as that goes and one part reaches, and says how it ended. An error of the function itself is [`Error::OutOfMemory`].
    pub(super) fn modify_many(
        &self,
        guard: &Guard,
        range: PageRange,
        holes: Holes,
        turn: &mut dyn FnMut(&mut Vma, &Vma) -> Result<()>,
    ) -> Result<(Modification, Result<()>)> {
        let version = self.vmas.load(guard);
        let mut modification = Modification::default();
        let mut vmas = version.summary().totals.vmas as u64;
        let (mut reached, mut has_holes) = (range.start(), false);
        for (count, vma) in version.range(range).enumerate() {
            let Some(part) = vma.range.intersect(range) else { continue };
            if count == PART {
                modification.rest = PageRange::new(reached, range.end());
                return Ok((modification, if has_holes { Err(Error::NotMapped) } else { Ok(()) }));
            }
            has_holes |= part.start() > reached;
            if has_holes && holes == Holes::End {
                return Ok((modification, Err(Error::NotMapped)));
            }
            let mut piece = vma.slice(part);
            if let Err(error) = turn(&mut piece, vma) {
                return Ok((modification, Err(error)));
            }
            let turned = is_turned(&piece, vma);
            if turned {
                if let Err(cut) = self.count_vmas(version, &modification, &piece, vma, &mut vmas) {
                    if let Some(at) = cut {
                        self.split(guard, at)?;
                    }
                    return Ok((modification, Err(Error::TooManyVmas)));
                }
            }
            vmas -= modification.push(Piece { vma: piece, turned }, part)?;
            reached = part.end();
        }
        let complete = !has_holes && reached >= range.end();
        Ok((modification, if complete { Ok(()) } else { Err(Error::NotMapped) }))
    }

    /// Counts the VMAs that come from cutting `piece` out of `vma`, less one if it merges with what is below the range. Where a piece
    /// merges with what is beyond the cut, Linux only moves the border between the two, and asks nothing.
    ///
    /// `Err`: one too many, and where the VMA is cut all the same.
    fn count_vmas(
        &self,
        version: VersionRef<'_>,
        before: &Modification,
        piece: &Vma,
        vma: &Vma,
        vmas: &mut u64,
    ) -> Result<(), Option<VirtAddr>> {
        let max = self.memory.max_map_count();
        let (cut_below, cut_above) = (vma.start() < piece.start(), piece.end() < vma.end());
        let merges_above = !cut_above && version.find(piece.end()).is_some_and(|next| piece.merges_with(next));
        let merges_below = !cut_below
            && match before.pieces.last() {
                Some(last) => last.vma.merges_with(piece),
                None => version.find_before(piece.start()).is_some_and(|last| last.merges_with(piece)),
            };
        if !merges_below && !merges_above {
            if cut_below && *vmas >= max {
                return Err(None);
            }
            if cut_above && *vmas + u64::from(cut_below) >= max {
                return Err(cut_below.then_some(piece.start()));
            }
        }
        *vmas += u64::from(cut_below) + u64::from(cut_above);
        *vmas -= u64::from(merges_below && before.pieces.is_empty());
        Ok(())
    }

    /// Plans what [`AddressSpace::modify_many`] made; `None` if nothing is to be changed.
    pub(super) fn plan_many<'t>(
        &'t self,
        guard: &'t Guard,
        mut modification: Modification,
    ) -> Result<Option<Change<'t>>> {
        let version = self.vmas.load(guard);
        let pieces = &mut modification.pieces;
        // What was not turned at either end stays as it is.
        let Some(last) = pieces.iter().rposition(|piece| piece.turned) else { return Ok(None) };
        pieces.truncate(last + 1);
        let from = pieces.iter().position(|piece| piece.turned).unwrap_or(0);
        let Some((first, rest)) = pieces.get_mut(from..).and_then(<[Piece]>::split_first_mut) else { return Ok(None) };
        match rest.last_mut() {
            None => first.vma = version.joined(first.vma.clone()),
            Some(last) => {
                // Only outwards: what is next to a piece inside the range has been merged, or differs.
                let (low, high) = (version.joined(first.vma.clone()), version.joined(last.vma.clone()));
                if let Some(range) = PageRange::new(low.start(), first.vma.end()) {
                    if low.start() < first.vma.start() {
                        (first.vma.range, first.vma.page_offset) = (range, low.page_offset);
                        first.vma.flags |= version.find(low.start()).map_or(first.vma.flags, |below| below.flags);
                    }
                }
                if let Some(range) = PageRange::new(last.vma.start(), high.end()) {
                    if high.end() > last.vma.end() {
                        last.vma.flags |= version.find(last.vma.end()).map_or(last.vma.flags, |above| above.flags);
                        last.vma.range = range;
                    }
                }
            }
        }
        let (start, end) = (first.vma.start(), rest.last().unwrap_or(first).vma.end());
        let Some(range) = PageRange::new(start, end) else { return Ok(None) };
        pieces.drain(..from);
        let mut change = self.vmas.change(guard, range);
        change.splice(modification.pieces.into_iter().map(|piece| piece.vma))?;
        Ok(Some(change))
    }

    /// Cuts the VMA that covers `at` there; what Linux leaves behind where it cut a VMA and was refused after that.
    #[cold]
    pub(super) fn split(&self, guard: &Guard, at: VirtAddr) -> Result<()> {
        let Some(vma) = self.vmas.load(guard).find(at) else { return Ok(()) };
        let halves = PageRange::new(vma.start(), at).zip(PageRange::new(at, vma.end()));
        let Some((low, high)) = halves else { return Ok(()) };
        let mut change = self.vmas.change(guard, vma.range);
        change.splice([vma.slice(low), vma.slice(high)])?;
        change.publish();
        Ok(())
    }
}

/// Whether a piece differs from the VMA that it was cut from.
#[inline]
pub(super) fn is_turned(piece: &Vma, vma: &Vma) -> bool {
    piece.flags != vma.flags || piece.tag != vma.tag || piece.name != vma.name
}

impl Modification {
    /// Adds a piece, as one with the last where one of them was turned and they may be. Returns by how many pieces there are fewer than VMAs.
    fn push(&mut self, mut piece: Piece, part: PageRange) -> Result<u64> {
        if piece.turned {
            self.turned.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
            self.turned.push((part, piece.vma.flags));
        }
        self.pieces.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let mut merged = 0;
        if let Some(last) = self.pieces.last() {
            if (last.turned || piece.turned) && last.vma.merges_with(&piece.vma) {
                piece = Piece { vma: join(&last.vma, piece.vma), turned: true };
                self.pieces.pop();
                merged = 1;
            }
        }
        self.pieces.push(piece);
        Ok(merged)
    }
}
