//! What places and lengths mean in the present.

use foldspace::addr::USER_END;
use foldspace::{PageRange, VirtAddr};

use super::World;
use crate::model::{PAGE, Page};
use crate::ops::{Len, Pick, Place};

/// Where tables of the four levels, and the user half, begin and end: the page from which distances count.
const EDGES: [u64; 9] = [
    0x1_0000,
    0x20_0000,
    0x4000_0000,
    0x80_0000_0000,
    0x80_4000_0000,
    0x4000_0000_0000,
    0x7f80_0000_0000,
    0x7fff_ffe0_0000,
    USER_END.0,
];

impl World {
    pub(super) fn area(&self, space: usize, pick: Pick) -> Option<(Page, Page)> {
        let areas = &self.model.spaces[space].areas;
        let number = pick as usize % areas.len().max(1);
        areas.iter().nth(number).map(|(start, area)| (*start, area.end))
    }

    /// The page that a place means now.
    pub fn page(&self, space: usize, place: Place) -> Page {
        let (base, near): (Page, i64) = match place {
            Place::Edge(edge, near) => (EDGES[edge as usize % EDGES.len()] / PAGE, near.into()),
            Place::Area(area, at, near) => {
                let (start, end) = self.area(space, area).unwrap_or((0x20_0000 / PAGE, 0x30_0000 / PAGE));
                (start + (((end - start) * u64::from(at)) >> 16), near.into())
            }
            Place::AreaEnd(area, near) => (self.area(space, area).map_or(EDGES[3] / PAGE, |(_, end)| end), near.into()),
            Place::Touched(page, near) => {
                let number = page as usize % self.touched.len().max(1);
                (self.touched.iter().nth(number).copied().unwrap_or(EDGES[2] / PAGE), near.into())
            }
            Place::Heap(near) => (self.model.spaces[space].layout.start_brk.get() / PAGE, near.into()),
        };
        base.saturating_add_signed(near)
    }

    /// A range, cut off at the end of the user half; `None` beyond.
    pub(super) fn range(&self, space: usize, place: Place, len: Len) -> Option<PageRange> {
        let start = self.page(space, place);
        let end = (start + pages(len)).min(USER_END.get() / PAGE);
        PageRange::new(VirtAddr(start * PAGE), VirtAddr(end * PAGE))
    }
}

pub(super) fn pages(len: Len) -> u64 {
    match len {
        Len::Pages(pages) => pages.into(),
        Len::Tables(tables, near) => (u64::from(tables) * 512).saturating_add_signed(near.into()),
        Len::Huge(gib) => u64::from(gib) << 18,
    }
}
