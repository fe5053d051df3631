//! mremap that grows a mapping where it is.

use super::{Refusal, World};
use crate::operation::{Area, Process};
use crate::vma::Vma;

impl World {
    pub(super) fn grow(&mut self, process: Process, end: u64, pages: u64) -> Result<(), Refusal> {
        let more = Area::new(end, end.saturating_add(pages)).ok_or(Refusal::CannotGrow)?;
        let id = self.find(process, end.wrapping_sub(1)).ok_or(Refusal::CannotGrow)?;
        if self.vma(id).area.end != end {
            return Err(Refusal::CannotGrow);
        }
        self.unmap(process, more);
        let vma = self.vma(id).clone();
        let offset = vma.offset_of(end);
        // Part of the same VMA, whatever its chain is: it only becomes longer (`vma_merge_extend`).
        let piece = Vma { area: more, offset, ..vma };
        let mut joins = self.joins(&piece);
        joins.below = Some(id);
        self.place(piece, None, joins);
        Ok(())
    }
}
