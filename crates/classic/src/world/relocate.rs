//! mremap: a mapping goes elsewhere with its pages, which keep what they are called.

use super::{Refusal, World};
use crate::operation::{Area, Process};
use crate::rule::Purpose;
use crate::vma::Vma;

impl World {
    pub(super) fn relocate(&mut self, process: Process, from: Area, to: u64) -> Result<(), Refusal> {
        let target = Area { start: to, end: to + from.pages() };
        let source = self.find(process, from.start).ok_or(Refusal::CannotMove)?;
        if self.vma(source).area.intersection(from) != Some(from) || from.intersection(target).is_some() {
            return Err(Refusal::CannotMove);
        }
        self.unmap(process, target);
        // Unmapping may have cut it off below.
        let source = self.find(process, from.start).ok_or(Refusal::CannotMove)?;
        let vma = self.vma(source).clone();
        // Nothing points to a place in it yet: it may be called by its new one, and merge there.
        let untouched = vma.file.is_none() && vma.own.is_none();
        let offset = if untouched { to } else { vma.offset_of(from.start) };
        let piece = Vma { area: target, offset, ..vma };
        let joins = self.joins(&piece);
        let alone = joins.below.is_none() && joins.above.is_none();
        let id = self.place(piece, None, joins);
        match alone {
            true => self.clone_chain(id, source, Purpose::Copy),
            // Memory that moves inside its own VMA may have made one of what was cut in two: its chain is there already.
            false => self.inherit_chain(id, Some(source).filter(|source| self.vmas.contains(source.0))),
        }
        let space = self.space_mut(process);
        let moved: Vec<_> = space.pages.range(from.start..from.end).map(|(at, page)| (*at, *page)).collect();
        for (at, page) in moved {
            space.pages.remove(&at);
            space.pages.insert(at - from.start + to, page);
        }
        self.unmap(process, from);
        Ok(())
    }
}
