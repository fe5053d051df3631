//! From a page to its mappings.

use std::collections::BTreeMap;

use crate::operation::Process;
use crate::page::PageId;
use crate::world::World;

/// A place where a page is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Mapping {
    /// By whom.
    pub process: Process,
    /// Where: a page number.
    pub page: u64,
}

/// What a look-up through the anon_vma came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// Places that had to be looked at: VMAs linked to the page's anon_vma that hold its offset.
    pub candidates: Vec<Mapping>,
    /// Those of them where the page is.
    pub found: Vec<Mapping>,
}

impl World {
    /// Every page, by who maps it, found by walking all address spaces.
    pub fn walk(&self) -> BTreeMap<PageId, Vec<Mapping>> {
        let mut all: BTreeMap<PageId, Vec<Mapping>> = BTreeMap::new();
        for (&process, space) in &self.spaces {
            for (&page, &id) in &space.pages {
                all.entry(id).or_default().push(Mapping { process, page });
            }
        }
        all
    }

    /// The mappings of a page as Linux finds them (`rmap_walk_anon`).
    ///
    /// # Panics
    /// If there is no such page.
    pub fn look_up(&self, page: PageId) -> Lookup {
        let about = &self.pages[page.0];
        // A rule that loses count of who uses an anon_vma may have freed it: Linux would read freed memory now.
        let linked = self.anon_vmas.contains(about.anon_vma).then(|| &self.anon_vmas.get(about.anon_vma).linked);
        let candidates: Vec<Mapping> = linked
            .into_iter()
            .flatten()
            .filter_map(|vma| {
                let vma = self.vma(*vma);
                Some(Mapping { process: vma.process, page: vma.page_of(about.offset)? })
            })
            .collect();
        let found = candidates.iter().copied().filter(|place| self.page_at(place.process, place.page) == Some(page));
        Lookup { found: found.collect(), candidates }
    }

    /// Up to `count` pages, spread over all. O(pages).
    pub fn some_pages(&self, count: usize) -> Vec<PageId> {
        let step = self.pages.len().div_ceil(count.max(1)).max(1);
        self.pages.iter().step_by(step).map(|(id, _)| PageId(id)).collect()
    }

    /// The page that a process has of its own at a place.
    pub fn page_at(&self, process: Process, page: u64) -> Option<PageId> {
        self.spaces.get(&process)?.pages.get(&page).copied()
    }
}
