//! A new mapping: alone, or as part of its neighbours.

use super::World;
use crate::operation::{Area, Backing, Process, VmaFlags};
use crate::rule::Purpose;
use crate::vma::{Vma, VmaId, anon_vmas_merge};

/// With which neighbours a piece becomes one VMA.
pub(super) struct Joins {
    pub below: Option<VmaId>,
    pub above: Option<VmaId>,
}

impl World {
    pub(super) fn map(&mut self, process: Process, area: Area, backing: Backing, flags: VmaFlags) {
        self.unmap(process, area);
        let new = Vma::new(process, area, backing, flags);
        let joins = self.joins(&new);
        self.place(new, None, joins);
    }

    /// The neighbours that `piece` may become one with. Both only if they may be one themselves.
    pub(super) fn joins(&self, piece: &Vma) -> Joins {
        let (below, above) = self.neighbours(piece.process, piece.area);
        let below = below.filter(|id| {
            let below = self.vma(*id);
            below.is_like(piece) && anon_vmas_merge(self.rule(), below, piece)
        });
        let above = above.filter(|id| {
            let above = self.vma(*id);
            let both = |below: VmaId| match (self.vma(below).own, above.own) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            };
            piece.is_like(above) && anon_vmas_merge(self.rule(), above, piece) && below.is_none_or(both)
        });
        Joins { below, above }
    }

    /// Puts `piece` into a hole that is just as large, as part of the neighbours that it joins or as a VMA of its own. `like` has its chain.
    pub(super) fn place(&mut self, piece: Vma, like: Option<VmaId>, joins: Joins) -> VmaId {
        let area = piece.area;
        let id = match (joins.below, joins.above) {
            (Some(below), Some(above)) => {
                let end = self.vma(above).area.end;
                self.inherit_chain(below, Some(above));
                self.remove(above);
                self.resize(below, Area { start: self.vma(below).area.start, end });
                below
            }
            (Some(below), None) => {
                self.resize(below, Area { start: self.vma(below).area.start, end: area.end });
                below
            }
            (None, Some(above)) => {
                self.resize(above, Area { start: area.start, end: self.vma(above).area.end });
                above
            }
            (None, None) => self.insert(piece),
        };
        self.inherit_chain(id, like);
        id
    }

    /// A VMA without an anon_vma that was extended over one with, has its pages now (`dup_anon_vma`).
    pub(super) fn inherit_chain(&mut self, to: VmaId, from: Option<VmaId>) {
        if let Some(from) = from
            && self.vma(to).own.is_none()
            && self.vma(from).own.is_some()
        {
            self.clone_chain(to, from, Purpose::Copy);
        }
    }
}
