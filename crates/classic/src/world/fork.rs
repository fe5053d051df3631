//! Fork: the child's VMAs are linked to all that the parent's are linked to.

use super::{Space, World};
use crate::operation::{Process, VmaFlags};
use crate::rule::Purpose;
use crate::vma::{Vma, VmaId};

impl World {
    pub(super) fn fork(&mut self, parent: Process, child: Process) {
        self.spaces.insert(child, Space::default());
        let vmas: Vec<VmaId> = self.spaces[&parent].vmas.values().copied().collect();
        // What was right below in the parent, and its copy.
        let mut below: Option<(VmaId, VmaId)> = None;
        for original in vmas {
            let vma = self.vma(original).clone();
            if vma.flags.contains(VmaFlags::DONT_FORK) {
                // The one above has no predecessor that corresponds to its parent's.
                below = None;
                continue;
            }
            let area = vma.area;
            let copy = self.insert(Vma { process: child, ..vma });
            self.anon_vma_fork(copy, original, below);
            below = Some((original, copy));
            let pages: Vec<_> = self.spaces[&parent].pages.range(area.start..area.end).map(|(a, p)| (*a, *p)).collect();
            for &(_, page) in &pages {
                self.pages[page.0].mapped += 1;
            }
            self.space_mut(child).pages.extend(pages);
        }
    }

    /// The chain of a child's VMA and its own anon_vma (`anon_vma_fork`).
    fn anon_vma_fork(&mut self, child: VmaId, parent: VmaId, below: Option<(VmaId, VmaId)>) {
        let Some(parents) = self.vma(parent).own else { return };
        // As the description of patch 2/2 has it. As applied, it took the predecessor of the parent's VMA for that of the child's, which is why it was taken
        // back; and it did not link the child's VMA to what it took.
        let neighbours = below
            .filter(|(original, _)| self.rule().follows_neighbours() && self.vma(*original).own == Some(parents))
            .and_then(|(_, copy)| self.vma(copy).own);
        if let Some(shared) = neighbours {
            for anon_vma in self.vma(parent).chain.clone() {
                self.link(child, anon_vma);
            }
            if !self.vma(child).chain.contains(&shared) {
                self.link(child, shared);
            }
            self.own(child, shared);
            return;
        }
        self.clone_chain(child, parent, Purpose::Fork);
        if self.vma(child).own.is_none() {
            let new = self.anon_vmas.new_child(parents);
            self.link(child, new);
            self.own(child, new);
        }
    }
}
