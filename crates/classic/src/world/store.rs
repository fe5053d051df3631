//! A store: the first write fault of a page, or of one that is shared since a fork.

use super::World;
use crate::anon_vma::AnonVmaId;
use crate::operation::{Process, VmaFlags};
use crate::page::{Page, PageId};
use crate::vma::{Vma, VmaId};

impl World {
    pub(super) fn store(&mut self, process: Process, page: u64) {
        let Some(id) = self.find(process, page) else { return };
        let vma = self.vma(id);
        if !vma.is_private() || !vma.flags.contains(VmaFlags::WRITE) {
            return;
        }
        let offset = vma.offset_of(page);
        let anon_vma = self.prepare(id);
        let there = self.spaces[&process].pages.get(&page).copied();
        match there {
            Some(alone) if self.pages[alone.0].mapped == 1 => {
                // Nobody else has it any more: it is found through this VMA's own from now on (`folio_move_anon_rmap`).
                self.pages[alone.0].anon_vma = anon_vma;
            }
            shared => {
                let new = PageId(self.pages.insert(Page { anon_vma, offset, mapped: 1 }));
                self.space_mut(process).pages.insert(page, new);
                if let Some(shared) = shared {
                    self.release(shared);
                }
            }
        }
    }

    /// The anon_vma for a VMA's new pages: its own, a neighbour's, or a new one (`anon_vma_prepare`).
    fn prepare(&mut self, id: VmaId) -> AnonVmaId {
        if let Some(own) = self.vma(id).own {
            return own;
        }
        let anon_vma = self.neighbours_anon_vma(id).unwrap_or_else(|| self.anon_vmas.new_root());
        self.link(id, anon_vma);
        self.own(id, anon_vma);
        anon_vma
    }

    /// That of the VMA above, or below, if the two could be one but for their access, and nothing in its chain is inherited
    /// (`find_mergeable_anon_vma`).
    fn neighbours_anon_vma(&self, id: VmaId) -> Option<AnonVmaId> {
        let vma = self.vma(id);
        let (below, above) = self.neighbours(vma.process, vma.area);
        let single = |neighbour: &Vma| neighbour.own.filter(|_| neighbour.is_single());
        let above = above.map(|above| self.vma(above)).filter(|above| vma.may_share_with(above));
        let below = below.map(|below| self.vma(below)).filter(|below| below.may_share_with(vma));
        above.and_then(single).or_else(|| below.and_then(single))
    }
}
