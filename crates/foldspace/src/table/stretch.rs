//! Reading what the tables under a range show, without locks and without changing anything. What has no table is passed over at the
//! highest level that says so.

use core::convert::Infallible;

use arrayvec::ArrayVec;

use super::{Entry, Root};
use crate::addr::{Index, Level, PAGE_SIZE, PageRange, VirtAddr};
use crate::frame::Frame;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The tables that lead to a place, the root first.
pub(crate) type Path = ArrayVec<Frame, 4>;

/// What a part of a range shows.
pub(crate) enum Stretch<'m> {
    /// Nothing: there is no table.
    Hole,
    /// The same reference page all along, linked above the last level.
    Reference(Frame),
    /// What the entries of a last-level table say, one a page.
    Pages(Pages<'m>),
}

/// Entries of a last-level table.
pub(crate) struct Pages<'m> {
    /// The tables on the path, the last-level table last.
    pub(crate) path: Path,
    /// Index of the first of `entries` in its table.
    first: usize,
    entries: &'m [AtomicU64],
}

impl Pages<'_> {
    /// Index and entry of each page, in order, also where nothing is present.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, Entry)> + '_ {
        self.entries.iter().enumerate().map(|(at, slot)| {
            // Acquire: what it refers to may be looked at.
            (Index::truncate((self.first + at) as u64), Entry::from_bits(slot.load(Ordering::Acquire)))
        })
    }
}

impl<'m> Root<'m> {
    /// Calls `visit` for what each part of `range` shows, upwards. The caller is pinned.
    pub(crate) fn for_each_stretch(&self, range: PageRange, mut visit: impl FnMut(PageRange, Stretch<'m>)) {
        let walked = self.try_for_each_stretch(range, |part, stretch| {
            visit(part, stretch);
            Ok::<(), Infallible>(())
        });
        match walked {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// [`Root::for_each_stretch`] until `visit` fails.
    pub(crate) fn try_for_each_stretch<E>(
        &self,
        range: PageRange,
        mut visit: impl FnMut(PageRange, Stretch<'m>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = Some(range);
        while let Some(range) = rest {
            let (end, stretch) = self.stretch(range);
            rest = PageRange::new(end, range.end());
            if let Some(part) = PageRange::new(range.start(), end) {
                visit(part, stretch)?;
            }
        }
        Ok(())
    }

    /// What `range` shows from its start on, and up to where. The caller is pinned.
    pub(crate) fn stretch(&self, range: PageRange) -> (VirtAddr, Stretch<'m>) {
        let addr = range.start();
        let mut path = Path::new();
        let (mut table, mut level) = (self.frame, Level::L4);
        loop {
            path.push(table);
            let entry = self.load(table, addr.index(level));
            // One table at a time, or what one entry spans.
            let span = level.entry_span().max(Level::L1.table_span());
            let end = (addr.get() | (span - 1)).saturating_add(1).min(range.end().get());
            match level.below() {
                None => {
                    let first = addr.index(level).get();
                    let count = ((end - addr.get()) / PAGE_SIZE) as usize;
                    let entries = &self.memory.entries(table)[first..first + count];
                    return (VirtAddr(end), Stretch::Pages(Pages { path, first, entries }));
                }
                Some(_) if !entry.is_present() => return (VirtAddr(end), Stretch::Hole),
                Some(below) if entry.is_reference() => {
                    return (VirtAddr(end), Stretch::Reference(self.reference_page(entry, below)));
                }
                Some(below) => {
                    table = entry.frame();
                    level = below;
                }
            }
        }
    }

    /// The page that all entries of a reference table of `level` lead to.
    fn reference_page(&self, link: Entry, level: Level) -> Frame {
        let (mut frame, mut level) = (link.frame(), Some(level));
        while let Some(at) = level {
            frame = self.load(frame, VirtAddr(0).index(at)).frame();
            level = at.below();
        }
        frame
    }
}
