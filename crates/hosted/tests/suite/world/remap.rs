//! mremap, on both sides.

use foldspace::VirtAddr;
use foldspace::addr::USER_END;
use foldspace::space::{Destination, Leave, RemapRequest};

use super::World;
use super::places::pages;
use crate::model::{PAGE, Page};
use crate::ops::{Destined, Len, Pick, Place};

/// Bytes that a table of the third level spans, in pages: alignments agree for all that move whole.
const GIB: Page = 1 << 18;

impl World {
    pub(super) fn remap(&mut self, space: Pick, at: Place, len: Len, new_len: Len, to: Destined, leave: Leave) {
        let space = self.space(space);
        let start = self.page(space, at);
        let there = |place| VirtAddr(self.page(space, place) * PAGE);
        let to = match to {
            Destined::InPlace => Destination::InPlace,
            Destined::Anywhere => Destination::Anywhere,
            Destined::Hint(place) => Destination::Hint(there(place)),
            Destined::Fixed(place) => Destination::Fixed(there(place)),
        };
        let (mut len, mut new_len) = (pages(len), pages(new_len));
        if let Some((_, area)) = self.model.spaces[space].area(start) {
            // Mostly what there is, so that something moves.
            len = if len % 5 == 0 { 0 } else { len.min(area.end - start) };
        }
        if leave == Leave::Area || new_len % 3 == 0 {
            new_len = len.max(1);
        }
        self.do_remap(space, start, len, new_len, to, leave);
    }

    /// Moves what an area has from a page on by whole GiB or 2 MiB, so that tables move as they are.
    pub(super) fn move_aligned(&mut self, space: Pick, area: Pick, skip: u8, by: i8) {
        let space = self.space(space);
        let Some((start, end)) = self.area(space, area) else { return };
        let from = start + u64::from(skip) % (end - start);
        let span = if skip % 2 == 0 { GIB } else { 512 };
        let to = from.saturating_add_signed(i64::from(by) * span as i64 * (1 + (end - from).div_ceil(span)) as i64);
        let (len, to) = (end - from, Destination::Fixed(VirtAddr(to * PAGE)));
        self.do_remap(space, from, len, len, to, Leave::Hole);
    }

    fn do_remap(&mut self, space: usize, start: Page, len: u64, new_len: u64, to: Destination, leave: Leave) {
        if start >= USER_END.get() / PAGE {
            return;
        }
        let request =
            RemapRequest { start: VirtAddr(start * PAGE), len: len * PAGE, new_len: new_len * PAGE, to, leave };
        let mut after = self.model.spaces[space].clone();
        let expected = after.remap(start, len, new_len, to, leave).map(|page| VirtAddr(page * PAGE));
        let several =
            len == new_len && self.model.spaces[space].area(start).is_some_and(|(_, area)| area.end < start + len);
        let real = self.attempt(|world| match world.spaces[space].remap(request) {
            Err(foldspace::Error::OutOfMemory) if several => super::Attempt::NoMemoryAfterPart,
            Err(foldspace::Error::OutOfMemory) => super::Attempt::NoMemory,
            outcome => super::Attempt::Over(outcome),
        });
        assert_eq!(real, expected, "{request:x?}");
        self.model.spaces[space] = after;
    }
}
