//! Other flags for an area: mprotect, and advice that is kept in VMAs.

use super::World;
use super::map::Joins;
use crate::operation::{Area, Process, VmaFlags};
use crate::vma::{Vma, VmaId};

impl World {
    pub(super) fn change(&mut self, process: Process, area: Area, clear: VmaFlags, set: VmaFlags) {
        let mut at = area.start;
        // One VMA after the other; each may have become part of the one before.
        while let Some(rest) = Area::new(at, area.end) {
            let Some(id) = self.overlapping(process, rest).first().copied() else { return };
            let vma = self.vma(id);
            let Some(part) = vma.area.intersection(rest) else { return };
            let flags = (vma.flags - clear) | set;
            at = part.end;
            if flags != vma.flags {
                self.change_part(id, part, flags);
            }
        }
    }

    /// Gives part of a VMA other flags: it goes over to its neighbours where they are like it then, or is cut out (`vma_modify`).
    fn change_part(&mut self, id: VmaId, part: Area, flags: VmaFlags) {
        let whole = self.vma(id).clone();
        let piece = Vma { area: part, offset: whole.offset_of(part.start), flags, ..whole.clone() };
        let joins = self.joins(&piece);
        if joins.below.is_none() && joins.above.is_none() {
            let id = if part.start > whole.area.start { self.split(id, part.start) } else { id };
            if part.end < whole.area.end {
                self.split(id, part.end);
            }
            self.vma_mut(id).flags = flags;
            return;
        }
        // Those that are extended, first: where they had no anon_vma they get this one's, which may go with its VMA.
        for neighbour in [joins.below, joins.above].into_iter().flatten() {
            self.inherit_chain(neighbour, Some(id));
        }
        match (Area::new(whole.area.start, part.start), Area::new(part.end, whole.area.end)) {
            (Some(rest), _) | (_, Some(rest)) => self.resize(id, rest),
            (None, None) => self.remove(id),
        }
        let Joins { below, above } = joins;
        self.place(piece, None, Joins { below, above });
    }
}
